//! What a server asked the API server for, counted by the API server itself: `end2end/cluster` has it write down what service accounts ask.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
};

use serde_json::Value;

/// The requests of one namespace's server.
pub struct Audit {
    user: String,
}

/// How many requests of each kind there were: `list pods`, `get pods/log`, `get /version`.
pub type Counts = BTreeMap<String, u64>;

impl Audit {
    /// Of the server whose rights are in a namespace.
    pub fn of(namespace: &str) -> Self {
        Self { user: format!("system:serviceaccount:{namespace}:holdfast") }
    }

    /// From here on.
    pub fn mark(&self) -> u64 {
        file().metadata().unwrap().len()
    }

    /// What was asked since a mark.
    pub fn since(&self, mark: u64) -> Counts {
        let mut file = file();
        file.seek(SeekFrom::Start(mark)).unwrap();
        let mut counts = Counts::new();
        for line in BufReader::new(file).lines() {
            // The last one may be being written.
            let Ok(event) = serde_json::from_str::<Value>(&line.unwrap()) else { continue };
            if event["user"]["username"] == self.user.as_str() && is_first(&event) {
                *counts.entry(what(&event)).or_default() += 1;
            }
        }
        counts
    }
}

fn file() -> File {
    File::open(super::cluster().join("log/audit.log")).unwrap()
}

fn what(event: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (verb, object) = (text(&event["verb"]), &event["objectRef"]);
    match (text(&object["resource"]), text(&object["subresource"])) {
        (resource, _) if resource.is_empty() => format!("{verb} {}", text(&event["requestURI"])),
        (resource, part) if part.is_empty() => format!("{verb} {resource}"),
        (resource, part) => format!("{verb} {resource}/{part}"),
    }
}

/// What lasts is written down as it begins and again as it ends.
fn is_first(event: &Value) -> bool {
    let lasts = event["verb"] == "watch" || event["objectRef"]["subresource"] == "log";
    event["stage"] == if lasts { "ResponseStarted" } else { "ResponseComplete" }
}

/// The sum of those that are not output of containers, and of those that are.
pub fn sums(counts: &Counts) -> (u64, u64) {
    let logs = counts.get("get pods/log").copied().unwrap_or_default();
    (counts.values().sum::<u64>() - logs, logs)
}
