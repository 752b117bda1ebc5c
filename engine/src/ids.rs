//! Names and ids that are checked where they enter, so that a bad one never travels.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A DNS label: 1–63 characters of `a-z 0-9 -`, no dash at an end (RFC 1123).
pub fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Why a text is no id of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {kind}: use 1 to 63 of a-z, 0-9 and -, with no dash at an end")]
pub struct InvalidId {
    kind: &'static str,
    text: String,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the text: an id is a DNS label.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                if is_dns_label(&text) { Ok(Self(text)) } else { Err(InvalidId { kind: $kind, text: text.chars().take(80).collect() }) }
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

id!(
    /// One job. The server makes it: 12 random characters of `a-z 0-9`, beginning with `j`.
    JobId, "job id");
id!(
    /// One attempt of a job, and the name of its object on the cluster: at most 47 characters.
    TaskId, "task id");
id!(
    /// One incident: `<task id>-i<number in the attempt>`.
    IncidentId, "incident id");
id!(
    /// A replica of an attempt: `master-0`, `worker-3`, `head-0`.
    ReplicaName, "replica name");

/// A machine, as the cluster calls it: 1–253 characters of `a-z A-Z 0-9 . _ -`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

impl NodeName {
    /// Checks the text.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
        let text = text.into();
        let fits = (1..=253).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if fits {
            Ok(Self(text))
        } else {
            Err(InvalidId { kind: "node name", text: text.chars().take(80).collect() })
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for NodeName {
    type Error = InvalidId;
    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::new(text)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

impl TaskId {
    /// The id of attempt `number` (from 1) of a job: the job's name as a DNS label, then the job's own
    /// id, then the number. It is the same whenever it is asked for, so a create that is repeated after a crash
    /// meets its own first try. At most 47 characters, the limit of names that operators extend for pods; a letter
    /// comes first, since they name Services by it (RFC 1035).
    pub fn of_attempt(job_name: &str, job: &JobId, number: u32) -> Self {
        let tail = format!("{job}-{number}");
        let room = 47usize.saturating_sub(tail.len() + 1);
        let mut slug = String::new();
        for c in job_name.chars() {
            let c = c.to_ascii_lowercase();
            if c.is_ascii_lowercase() || c.is_ascii_digit() {
                if slug.is_empty() && c.is_ascii_digit() {
                    slug.push_str("t-");
                }
                slug.push(c);
            } else if !slug.is_empty() && !slug.ends_with('-') {
                slug.push('-');
            }
            if slug.len() >= room {
                break;
            }
        }
        let slug = slug.trim_end_matches('-');
        Self(if slug.is_empty() { tail } else { format!("{slug}-{tail}") })
    }
}

impl TaskId {
    /// The job of this attempt; none where the id was not made by [`TaskId::of_attempt`].
    pub fn job_id(&self) -> Option<JobId> {
        let (rest, number) = self.0.rsplit_once('-')?;
        number.parse::<u32>().ok()?;
        JobId::new(rest.rsplit('-').next()?).ok()
    }

    /// The attempt's number, from 1; none where the id was not made by [`TaskId::of_attempt`].
    pub fn number(&self) -> Option<u32> {
        self.0.rsplit('-').next()?.parse().ok()
    }
}

impl IncidentId {
    /// The id of incident `number` (from 1) of an attempt.
    pub fn of_attempt(task: &TaskId, number: u32) -> Self {
        Self(format!("{task}-i{number}"))
    }

    /// The incident's number in its attempt, from 1; none where it was not made by [`IncidentId::of_attempt`].
    pub fn number(&self) -> Option<u32> {
        self.0.rsplit_once("-i")?.1.parse().ok()
    }
}

impl ReplicaName {
    /// The name of replica `index` (from 0) of a job: the first is the master (of a RayJob the head).
    pub fn of_index(kind: crate::job::JobKind, index: u32) -> Self {
        use crate::job::JobKind::{PyTorchJob, RayJob};
        Self(match (kind, index) {
            (PyTorchJob, 0) => "master-0".to_owned(),
            (RayJob, 0) => "head-0".to_owned(),
            (_, index) => format!("worker-{}", index - 1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobKind;

    fn job() -> JobId {
        JobId::new("jabcdefghij2").unwrap()
    }

    #[test]
    fn a_task_id_is_a_dns_label_of_at_most_47_characters() {
        for (name, number, want) in [
            ("demo", 1, "demo-jabcdefghij2-1"),
            ("Pretrain 7B / run", 12, "pretrain-7b-run-jabcdefghij2-12"),
            ("日本", 3, "jabcdefghij2-3"),
            ("--", 3, "jabcdefghij2-3"),
            ("7B run", 1, "t-7b-run-jabcdefghij2-1"),
            (
                "a-very-long-name-that-goes-on-and-on-and-on-and-on",
                1,
                "a-very-long-name-that-goes-on-an-jabcdefghij2-1",
            ),
        ] {
            let id = TaskId::of_attempt(name, &job(), number);
            assert_eq!(id.as_str(), want);
            assert!(id.as_str().len() <= 47 && is_dns_label(id.as_str()), "{id}");
            assert!(id.as_str().starts_with(|c: char| c.is_ascii_lowercase()), "{id}");
            assert_eq!((id.job_id(), id.number()), (Some(job()), Some(number)));
            assert_eq!(IncidentId::of_attempt(&id, 12).number(), Some(12));
        }
    }

    #[test]
    fn replicas_are_named_as_the_operators_name_them() {
        let names: Vec<_> =
            (0..3).map(|i| ReplicaName::of_index(JobKind::PyTorchJob, i).to_string()).collect();
        assert_eq!(names, ["master-0", "worker-0", "worker-1"]);
        assert_eq!(ReplicaName::of_index(JobKind::RayJob, 0).as_str(), "head-0");
    }

    #[test]
    fn a_bad_id_is_refused_where_it_enters() {
        for bad in ["", "-a", "a-", "A", "a/b", "../x", &"a".repeat(64)] {
            assert!(JobId::new(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<TaskId>("\"<b>\"").is_err());
        assert!(NodeName::new("node 1").is_err());
    }
}
