//! Pods as a kubelet would run them: the command of the template, with its environment, as a process of this machine.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use serde_json::Value;

/// The pods that run; they end with the test.
#[derive(Clone)]
pub struct Pods {
    dir: PathBuf,
    running: Arc<Mutex<HashMap<String, Child>>>,
}

impl Pods {
    pub fn new(dir: PathBuf) -> Self {
        fs::create_dir_all(&dir).unwrap();
        Self { dir, running: Arc::default() }
    }

    /// Starts the program's container.
    pub fn start(&self, pod: &Value, token: &str) {
        let name = pod["metadata"]["name"].as_str().unwrap();
        let dir = self.dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("token"), token).unwrap();
        let container = &pod["spec"]["containers"][0];
        let mut env = BTreeMap::new();
        for variable in container["env"].as_array().unwrap() {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("status.podIP") => "127.0.0.1".to_owned(),
                Some("spec.nodeName") => pod["spec"]["nodeName"].as_str().unwrap().to_owned(),
                Some(path) => {
                    let label = path.trim_start_matches("metadata.labels['").trim_end_matches("']");
                    pod["metadata"]["labels"][label].as_str().unwrap().to_owned()
                }
                None => expand(variable["value"].as_str().unwrap(), &env),
            };
            env.insert(variable["name"].as_str().unwrap().to_owned(), value);
        }
        // What is mounted in a pod is in a folder here.
        for (variable, path) in [("TOKEN_FILE", "token"), ("STATE_DIR", "state"), ("LOG_DIR", "logs")] {
            env.insert(format!("HOLDFAST_AGENT_{variable}"), dir.join(path).to_str().unwrap().to_owned());
        }
        let words: Vec<_> = container["command"]
            .as_array()
            .unwrap()
            .iter()
            .map(|word| expand(word.as_str().unwrap(), &env))
            .collect();
        let log = fs::File::create(dir.join("agent.log")).unwrap();
        let child = Command::new(&words[0])
            .args(&words[1..])
            .envs(&env)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.running.lock().unwrap().insert(name.to_owned(), child);
    }

    /// Ends a pod and all its processes: the agent takes them along.
    pub fn end(&self, name: &str) {
        if let Some(mut child) = self.running.lock().unwrap().remove(name) {
            terminate(&child);
            let _ = child.wait();
        }
    }

    /// What the agents of all pods said.
    pub fn said(&self) -> String {
        let pods = fs::read_dir(&self.dir).unwrap().flatten();
        pods.map(|pod| fs::read_to_string(pod.path().join("agent.log")).unwrap_or_default()).collect()
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        if Arc::strong_count(&self.running) > 1 {
            return;
        }
        for (_, mut child) in self.running.lock().unwrap().drain() {
            terminate(&child);
            let _ = child.wait();
        }
    }
}

fn terminate(child: &Child) {
    let pid = nix::unistd::Pid::from_raw(child.id() as i32);
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
}

/// What the kubelet makes of a text: `$(NAME)` is that variable, `$$` is one `$`.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut made = text.replace("$$", "\0");
    for (name, value) in env {
        made = made.replace(&format!("$({name})"), value);
    }
    made.replace('\0', "$")
}
