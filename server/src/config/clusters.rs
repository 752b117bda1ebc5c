//! The clusters of a server: one that flags describe, or several by name in the file that `--config` names.
//!
//! ```toml
//! [[cluster]]
//! name = "gpu-a"
//! kind = "kubernetes"
//! kubeconfig = "/etc/holdfast/gpu-a"
//! agent-image = "registry.example/holdfast-agent:0.1.0"
//! ```

use std::{collections::BTreeSet, ops::RangeInclusive, path::PathBuf};

use clap::{ArgMatches, Args, parser::ValueSource};
use engine::ids::is_dns_label;
use serde::{Deserialize, de::DeserializeOwned};
use toml::{Table, Value};

use super::{ClusterChoice, Serve, absolute, agent_server_url, namespace};
use crate::clusters::kubernetes::{ACCELERATOR, AgentSource, CLUSTER_OF_FLAGS, NODE_LOST_SECONDS};

/// The key of the tables, and of the flag for the kind of the one cluster that flags describe.
pub(super) const KEY: &str = "cluster";
/// The kind of this machine, and how the cluster of flags is called where it is that.
const LOCAL: &str = "local";
/// The kind of the others.
const KUBERNETES: &str = "kubernetes";
/// Each is watched by some tasks and connections of its own.
const MOST_CLUSTERS: usize = 32;
/// Nodes of a local cluster where nothing is said.
const LOCAL_NODES: u32 = 4;
/// Slots of each where nothing is said.
const LOCAL_SLOTS: u32 = 2;
/// What either may be.
const LOCAL_SIZES: RangeInclusive<i64> = 1..=64;
/// The namespace of jobs where nothing is said.
const NAMESPACE: &str = "default";
/// How long a node may be out of reach at most, seconds.
const NODE_LOST: RangeInclusive<i64> = 0..=3600;

/// Flags that describe one cluster, with the key that says the same in a table.
const FLAGS: [(&str, &str); 13] = [
    ("cluster", "kind"),
    ("local-nodes", "nodes"),
    ("local-slots", "slots"),
    ("kubeconfig", "kubeconfig"),
    ("kube-context", "context"),
    ("kube-namespace", "namespaces"),
    ("agent-image", "agent-image"),
    ("agent-in-image", "agent-in-image"),
    ("agent-server-url", "agent-server-url"),
    ("agent-ca-file", "agent-ca-file"),
    ("kube-accelerator", "accelerator"),
    ("kube-node-lost-seconds", "node-lost-seconds"),
    ("kube-allow-host-paths", "allow-host-paths"),
];

/// A cluster that jobs can run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// What jobs call it.
    pub name: String,
    /// What it is.
    pub kind: ClusterKindConfig,
}

/// What a cluster is, with the settings of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterKindConfig {
    /// Processes of this machine.
    Local(LocalConfig),
    /// A Kubernetes cluster.
    Kubernetes(KubernetesConfig),
}

/// Settings of the cluster of this machine: flags, and keys of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LocalConfig {
    /// Nodes of the local cluster
    #[arg(id = "local_nodes", long = "local-nodes", env = "HOLDFAST_LOCAL_NODES", value_name = "N", default_value_t = LOCAL_NODES, value_parser = clap::value_parser!(u32).range(LOCAL_SIZES))]
    pub nodes: u32,
    /// Slots of each local node; a replica takes as many as it has accelerators, at least one
    #[arg(id = "local_slots", long = "local-slots", env = "HOLDFAST_LOCAL_SLOTS", value_name = "N", default_value_t = LOCAL_SLOTS, value_parser = clap::value_parser!(u32).range(LOCAL_SIZES))]
    pub slots: u32,
}

impl Default for LocalConfig {
    fn default() -> Self {
        Self { nodes: LOCAL_NODES, slots: LOCAL_SLOTS }
    }
}

impl LocalConfig {
    /// The same rules as the flags have.
    fn checked(self) -> Result<Self, String> {
        within("nodes", self.nodes, &LOCAL_SIZES)?;
        within("slots", self.slots, &LOCAL_SIZES)?;
        Ok(self)
    }
}

/// Settings of a Kubernetes cluster, as they were given: flags, and keys of a table.
#[derive(Clone, Debug, PartialEq, Eq, Args, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct KubernetesConfig {
    /// File that says where the Kubernetes cluster is [default: as kubectl finds it, or from within a pod]
    #[arg(long, env = "HOLDFAST_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig [default: its current one]
    #[arg(id = "kube_context", long = "kube-context", env = "HOLDFAST_KUBE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// Namespaces that jobs may use, with commas between; the first is for jobs that name none
    #[arg(id = "kube_namespace", long = "kube-namespace", env = "HOLDFAST_KUBE_NAMESPACE", value_name = "NAMES", default_value = NAMESPACE, value_delimiter = ',', value_parser = namespace)]
    pub namespaces: Vec<String>,
    /// Image whose entrypoint is holdfast-agent; an init container copies it into each pod
    #[arg(long, env = "HOLDFAST_AGENT_IMAGE", value_name = "IMAGE", conflicts_with = "agent_in_image")]
    pub agent_image: Option<String>,
    /// Where holdfast-agent is in every job's own image, where no init container is to bring it
    #[arg(long, env = "HOLDFAST_AGENT_IN_IMAGE", value_name = "PATH", value_parser = absolute)]
    pub agent_in_image: Option<String>,
    /// Where pods reach this server: http://HOST:PORT or https://HOST [default: the public URL]
    #[arg(long, env = "HOLDFAST_AGENT_SERVER_URL", value_name = "URL", value_parser = agent_server_url)]
    pub agent_server_url: Option<String>,
    /// File with the certificate authorities (PEM) that vouch for an https server URL, for the agents [default: those of a job's image]
    #[arg(long, env = "HOLDFAST_AGENT_CA_FILE", value_name = "FILE")]
    pub agent_ca_file: Option<PathBuf>,
    /// Resource that counts accelerators, where a job names none
    #[arg(id = "kube_accelerator", long = "kube-accelerator", env = "HOLDFAST_KUBE_ACCELERATOR", value_name = "NAME", default_value = ACCELERATOR)]
    pub accelerator: String,
    /// Seconds that a node may be out of reach before its pods are given up
    #[arg(id = "kube_node_lost_seconds", long = "kube-node-lost-seconds", env = "HOLDFAST_KUBE_NODE_LOST_SECONDS", value_name = "N", default_value_t = NODE_LOST_SECONDS, value_parser = clap::value_parser!(u32).range(NODE_LOST))]
    pub node_lost_seconds: u32,
    /// Let jobs mount directories of the nodes, which gives whoever may create a job the rights of root on them
    #[arg(id = "kube_allow_host_paths", long = "kube-allow-host-paths", env = "HOLDFAST_KUBE_ALLOW_HOST_PATHS", value_name = "true|false", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub allow_host_paths: bool,
}

impl Serve {
    /// Its clusters; the first is for jobs that name none.
    pub fn clusters(&self) -> Vec<ClusterConfig> {
        if self.clusters.is_empty() { vec![self.cluster_of_flags()] } else { self.clusters.clone() }
    }

    fn cluster_of_flags(&self) -> ClusterConfig {
        match self.cluster {
            ClusterChoice::Local => {
                ClusterConfig { name: LOCAL.to_owned(), kind: ClusterKindConfig::Local(self.local) }
            }
            ClusterChoice::Kubernetes => ClusterConfig {
                name: CLUSTER_OF_FLAGS.to_owned(),
                kind: ClusterKindConfig::Kubernetes(self.kubernetes.clone()),
            },
        }
    }
}

/// Why flags cannot stand beside `[[cluster]]` tables: one of them says something about a cluster.
pub(super) fn beside_flags(given: &ArgMatches) -> Result<(), String> {
    let is_given = |flag: &str| {
        let id = flag.replace('-', "_");
        matches!(given.value_source(&id), Some(source) if source != ValueSource::DefaultValue)
    };
    match FLAGS.into_iter().find(|(flag, _)| is_given(flag)) {
        None => Ok(()),
        Some((flag, key)) => Err(format!(
            "it has [[cluster]] tables, and --{flag} describes one cluster: leave out the flag (its variable, its line in the file) and set `{key}` in a table"
        )),
    }
}

/// Reads the `[[cluster]]` tables; none where the value is not a list of tables.
pub(super) fn read(value: &Value) -> Option<Result<Vec<ClusterConfig>, String>> {
    match value {
        Value::Array(tables) => Some(read_tables(tables)),
        Value::Table(_) => Some(Err("write [[cluster]], with two brackets, before each cluster".to_owned())),
        _ => None,
    }
}

fn read_tables(tables: &[Value]) -> Result<Vec<ClusterConfig>, String> {
    if tables.len() > MOST_CLUSTERS {
        return Err(format!("it has {} clusters; at most {MOST_CLUSTERS} are allowed", tables.len()));
    }
    let mut clusters = Vec::new();
    for (at, table) in tables.iter().enumerate() {
        let table = table.as_table().ok_or("`cluster` is a list: write [[cluster]] before each cluster")?;
        let shown = match table.get("name").and_then(Value::as_str) {
            Some(name) => format!("cluster {name}"),
            None => format!("[[cluster]] number {}", at + 1),
        };
        clusters.push(read_table(table).map_err(|why| format!("{shown}: {why}"))?);
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = clusters.iter().find(|cluster| !names.insert(cluster.name.as_str())) {
        return Err(format!("two clusters are called {}: give each a name of its own", twice.name));
    }
    let is_local = |cluster: &&ClusterConfig| matches!(cluster.kind, ClusterKindConfig::Local(_));
    let local: Vec<_> = clusters.iter().filter(is_local).map(|cluster| cluster.name.as_str()).collect();
    if let [one, another, ..] = local.as_slice() {
        return Err(format!("{one} and {another} are both this machine: keep one cluster of kind local"));
    }
    Ok(clusters)
}

fn read_table(table: &Table) -> Result<ClusterConfig, String> {
    let mut rest = Table::new();
    for (key, value) in table {
        let name = key.replace('_', "-");
        if rest.insert(name.clone(), value.clone()).is_some() {
            return Err(format!("`{name}` is set twice"));
        }
    }
    let name: String = take(&mut rest, "name", "the name that jobs use")?;
    if !is_dns_label(&name) {
        return Err("a name is 1 to 63 of a-z, 0-9 and -, with no dash at an end".to_owned());
    }
    let kind: String = take(&mut rest, "kind", "local or kubernetes")?;
    let kind = match kind.as_str() {
        LOCAL => ClusterKindConfig::Local(settings::<LocalConfig>(rest)?.checked()?),
        KUBERNETES => ClusterKindConfig::Kubernetes(settings::<KubernetesConfig>(rest)?.checked()?),
        other => return Err(format!("`kind` is {other}; use local or kubernetes")),
    };
    Ok(ClusterConfig { name, kind })
}

/// Takes a text that every table has.
fn take(table: &mut Table, key: &str, what: &str) -> Result<String, String> {
    match table.remove(key) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!("`{key}` is a {}; use a text: {what}", other.type_str())),
        None => Err(format!("`{key}` is missing: {what}")),
    }
}

/// The settings of a kind; the error names the key and those there are.
fn settings<T: DeserializeOwned>(table: Table) -> Result<T, String> {
    let known: Vec<String> = table.keys().cloned().collect();
    Value::Table(table).try_into().map_err(|error: toml::de::Error| {
        let words = error.message();
        // Its words do not say where a value of a wrong type stands.
        let named = known.iter().any(|key| words.contains(&format!("`{key}`")));
        if named { words.to_owned() } else { error.to_string().trim().replace('\n', " ") }
    })
}

fn within(key: &str, value: u32, range: &RangeInclusive<i64>) -> Result<(), String> {
    if range.contains(&i64::from(value)) {
        return Ok(());
    }
    Err(format!("`{key}` is {value}; use {} to {}", range.start(), range.end()))
}

impl Default for KubernetesConfig {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            namespaces: vec![NAMESPACE.to_owned()],
            agent_image: None,
            agent_in_image: None,
            agent_server_url: None,
            agent_ca_file: None,
            accelerator: ACCELERATOR.to_owned(),
            node_lost_seconds: NODE_LOST_SECONDS,
            allow_host_paths: false,
        }
    }
}

impl KubernetesConfig {
    /// How the agent gets into pods; required before anything can run.
    pub fn agent(&self) -> Option<AgentSource> {
        let image = self.agent_image.clone().map(AgentSource::Image);
        image.or_else(|| self.agent_in_image.clone().map(AgentSource::InImage))
    }

    /// The same rules as the flags have.
    fn checked(mut self) -> Result<Self, String> {
        let at = |key: &'static str| move |why: String| format!("`{key}`: {why}");
        if self.namespaces.is_empty() {
            return Err("`namespaces` is empty: name those that jobs may use".to_owned());
        }
        for name in &self.namespaces {
            namespace(name).map_err(at("namespaces"))?;
        }
        if self.agent_image.is_some() && self.agent_in_image.is_some() {
            return Err("`agent-image` cannot be used with `agent-in-image`: keep one".to_owned());
        }
        if self.agent().is_none() {
            return Err(super::NO_AGENT.to_owned());
        }
        self.agent_in_image.as_deref().map(absolute).transpose().map_err(at("agent-in-image"))?;
        let server_url = self.agent_server_url.as_deref().map(agent_server_url).transpose();
        self.agent_server_url = server_url.map_err(at("agent-server-url"))?;
        within("node-lost-seconds", self.node_lost_seconds, &NODE_LOST)?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clusters(text: &str) -> Result<Vec<ClusterConfig>, String> {
        let table: Table = toml::from_str(text).unwrap();
        read(&table[KEY]).unwrap()
    }

    #[test]
    fn every_flag_of_a_cluster_is_a_key_of_its_table() {
        let keys: BTreeSet<_> = FLAGS.map(|(_, key)| key).into();
        assert_eq!(keys.len(), FLAGS.len());
        let kubernetes = r#"[[cluster]]
            name = "gpu-a"
            kind = "kubernetes"
            kubeconfig = "/etc/holdfast/gpu-a"
            context = "admin"
            namespaces = ["train", "eval"]
            agent-image = "registry.example/agent:1"
            agent_server_url = "https://Holdfast.example.org/"
            agent-ca-file = "/etc/ca.crt"
            accelerator = "amd.com/gpu"
            node-lost-seconds = 30
            allow-host-paths = true
            [[cluster]]
            name = "here"
            kind = "local"
            nodes = 2
            slots = 8"#;
        let want = ClusterKindConfig::Kubernetes(KubernetesConfig {
            kubeconfig: Some("/etc/holdfast/gpu-a".into()),
            context: Some("admin".to_owned()),
            namespaces: vec!["train".to_owned(), "eval".to_owned()],
            agent_image: Some("registry.example/agent:1".to_owned()),
            agent_in_image: None,
            agent_server_url: Some("https://holdfast.example.org".to_owned()),
            agent_ca_file: Some("/etc/ca.crt".into()),
            accelerator: "amd.com/gpu".to_owned(),
            node_lost_seconds: 30,
            allow_host_paths: true,
        });
        let read = clusters(kubernetes).unwrap();
        assert_eq!(read[0], ClusterConfig { name: "gpu-a".to_owned(), kind: want });
        assert_eq!(
            read[1],
            ClusterConfig {
                name: "here".to_owned(),
                kind: ClusterKindConfig::Local(LocalConfig { nodes: 2, slots: 8 })
            }
        );
    }

    #[test]
    fn what_the_chart_writes_are_keys_of_a_table() {
        let helpers = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/holdfast/templates/_helpers.tpl");
        let text = std::fs::read_to_string(helpers).unwrap();
        let written: Vec<_> =
            text.split("set $table \"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(written.len() > 6, "{written:?}");
        for key in written {
            assert!(FLAGS.iter().any(|(_, known)| *known == key), "{key}");
        }
    }

    #[test]
    fn what_a_table_leaves_out_is_as_with_flags() {
        let text = "[[cluster]]\nname = \"a\"\nkind = \"kubernetes\"\nagent-in-image = \"/agent\"\n\
                    [[cluster]]\nname = \"b\"\nkind = \"local\"";
        let read = clusters(text).unwrap();
        let ClusterKindConfig::Kubernetes(kubernetes) = &read[0].kind else { panic!("{read:?}") };
        assert_eq!(kubernetes.namespaces, ["default"]);
        assert_eq!(kubernetes.accelerator, ACCELERATOR);
        assert_eq!(kubernetes.agent(), Some(AgentSource::InImage("/agent".to_owned())));
        assert_eq!(read[1].kind, ClusterKindConfig::Local(LocalConfig { nodes: 4, slots: 2 }));
    }

    #[test]
    fn a_bad_table_is_named_with_what_is_allowed() {
        let kubernetes = |more: &str| {
            let agent = if more.contains("agent-i") { "" } else { "agent-image = \"i\"\n" };
            format!("[[cluster]]\nname = \"a\"\nkind = \"kubernetes\"\n{agent}{more}")
        };
        let local = |name: &str| format!("[[cluster]]\nname = \"{name}\"\nkind = \"local\"\n");
        for (text, want) in [
            ("[cluster]\nname = \"a\"".to_owned(), "write [[cluster]]"),
            ("cluster = [1]".to_owned(), "write [[cluster]]"),
            ("[[cluster]]\nkind = \"local\"".to_owned(), "[[cluster]] number 1: `name` is missing"),
            ("[[cluster]]\nname = \"a\"".to_owned(), "cluster a: `kind` is missing: local or kubernetes"),
            ("[[cluster]]\nname = 7\nkind = \"local\"".to_owned(), "`name` is a integer"),
            ("[[cluster]]\nname = \"a\"\nkind = \"mars\"".to_owned(), "use local or kubernetes"),
            (local("GPU"), "cluster GPU: a name is 1 to 63 of a-z"),
            (local("a b"), "a name is"),
            (local(""), "a name is"),
            (local("a") + &local("b"), "a and b are both this machine"),
            (local("a") + &kubernetes(""), "two clusters are called a"),
            (local("a") + "slots = 0", "cluster a: `slots` is 0; use 1 to 64"),
            (local("a") + "nodes = -1", "nodes"),
            (local("a") + "kubeconfig = \"x\"", "unknown field `kubeconfig`, expected `nodes` or `slots`"),
            (kubernetes("node = 1"), "unknown field `node`"),
            (kubernetes("context = 1"), "context"),
            (kubernetes("namespaces = \"train\""), "namespaces"),
            (kubernetes("namespaces = []"), "`namespaces` is empty"),
            (kubernetes("namespaces = [\"Train\"]"), "`namespaces`: use 1 to 63"),
            (kubernetes("agent-image = \"i\"\nagent-in-image = \"/a\""), "keep one"),
            (kubernetes("agent-in-image = \"a\""), "absolute"),
            (kubernetes("agent-server-url = \"h:1\""), "`agent-server-url`: use http"),
            (kubernetes("node-lost-seconds = 9999"), "use 0 to 3600"),
            (kubernetes("allow-host-paths = 1\nallow_host_paths = true"), "set twice"),
            ("[[cluster]]\nname = \"a\"\nkind = \"kubernetes\"".to_owned(), "pods need the agent"),
            ((0..33).map(|n| format!("[[cluster]]\nname = \"a{n}\"\n")).collect(), "at most 32"),
        ] {
            let why = clusters(&text).unwrap_err();
            assert!(why.contains(want), "{text}: {why}");
        }
    }
}
