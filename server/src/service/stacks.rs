//! The stacks that are kept with a hang.

use std::fmt::Write as _;

use app::{console::Caller, error::AppError};
use engine::{
    hang::{OddRank, RankGroup},
    ids::{IncidentId, ReplicaName},
    sync::RankStack,
    time::Time,
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Service, Wish, failed, may};
use crate::store::stacks;

/// The stacks of a launch that hung.
#[derive(Debug, Serialize, ToSchema)]
pub struct IncidentStacks {
    /// The incident.
    pub id: IncidentId,
    /// Its sentence.
    pub fault: String,
    /// Since when nothing moved; null where the incident is no hang that Holdfast found.
    pub since: Option<Time>,
    /// Where the ranks are.
    pub groups: Vec<RankGroup>,
    /// The rank for which the others wait.
    pub odd: Option<OddRank>,
    /// The processes, by rank; at most 128.
    pub processes: Vec<ProcessStack>,
    /// The first rank of the next part, to be asked for as `from`; null in the last.
    pub next: Option<u32>,
}

/// The stacks of one process.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProcessStack {
    /// Its replica.
    pub replica: ReplicaName,
    /// Its threads.
    #[serde(flatten)]
    pub stack: RankStack,
}

impl Service {
    /// The stacks that were kept of the launch that an incident ended, from this rank on.
    ///
    /// # Errors
    /// There is no such incident, or the caller may not see it.
    pub async fn incident_stacks(
        &self,
        caller: &Caller,
        id: &IncidentId,
        from: u32,
    ) -> Result<IncidentStacks, AppError> {
        may(caller, Wish::See)?;
        let mut conn = self.store.snapshot().await.map_err(failed)?;
        let (job, attempt, incident) = stacks::incident(&mut conn, id)
            .await
            .map_err(failed)?
            .ok_or_else(|| AppError::NotFound { what: "incident".to_owned(), id: id.to_string() })?;
        let mut kept = match &incident.hang {
            Some(_) => {
                stacks::of_launch(&mut conn, &job, (attempt, incident.launch), from).await.map_err(failed)?
            }
            None => Vec::new(),
        };
        let more = kept.split_off(kept.len().min(stacks::LIMIT as usize));
        let (since, groups, odd) = match incident.hang {
            Some(hang) => (Some(hang.since), hang.groups, hang.odd),
            None => (None, Vec::new(), None),
        };
        Ok(IncidentStacks {
            id: incident.id,
            fault: incident.fault,
            since,
            groups,
            odd,
            processes: kept.into_iter().map(|(replica, stack)| ProcessStack { replica, stack }).collect(),
            next: more.first().map(|(_, stack)| stack.rank),
        })
    }
}

impl IncidentStacks {
    /// The same to read: as a file that goes into a bug report.
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}: {}", self.id, line(&self.fault));
        if let Some(since) = self.since {
            let _ = writeln!(out, "nothing moved since {}", since.to_datetime().to_rfc3339());
        }
        for group in &self.groups {
            let ranks: Vec<String> = group.ranks.iter().take(32).map(u32::to_string).collect();
            let more = if group.count as usize > ranks.len() { ", …" } else { "" };
            let odd = if group.odd { "  <- the others wait for it" } else { "" };
            let _ =
                writeln!(out, "{} in {}: {}{more}{odd}", group.count, line(&group.place), ranks.join(", "));
        }
        if self.processes.is_empty() {
            let _ = writeln!(out, "\nno stacks are kept of this launch");
        }
        for process in &self.processes {
            let stack = &process.stack;
            let _ = writeln!(
                out,
                "\nrank {} ({}), read at {}",
                stack.rank,
                process.replica,
                stack.at.to_datetime().to_rfc3339()
            );
            if let Some(reason) = &stack.missing {
                let _ = writeln!(out, "  no stack: {}", line(reason));
            }
            for thread in &stack.threads {
                let name = thread.name.as_deref().map(|name| format!(" {}", line(name))).unwrap_or_default();
                let _ = writeln!(out, "  thread {}{name}", thread.id);
                for frame in &thread.frames {
                    let _ = writeln!(out, "    {}", line(frame));
                }
                if thread.omitted_frames > 0 {
                    let _ = writeln!(out, "    … {} outer frames left out", thread.omitted_frames);
                }
            }
            if stack.omitted_threads > 0 {
                let _ = writeln!(out, "  … {} threads left out", stack.omitted_threads);
            }
        }
        if let Some(next) = self.next {
            let _ = writeln!(out, "\nmore with ?format=text&from={next}");
        }
        out
    }
}

/// A program's own words in one line: it could otherwise write lines that look like ours, or steer a terminal.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use engine::sync::{StackKey, ThreadStack};

    use super::*;

    #[test]
    fn a_file_of_stacks_reads_well_and_keeps_a_programs_words_in_their_line() {
        let task: engine::ids::TaskId = "demo-jabcdefghij2-1".parse().unwrap();
        let thread = ThreadStack {
            id: 7,
            name: Some("MainThread".to_owned()),
            frames: vec!["read_batch (train.py:12)".to_owned(), "main\n  thread 8 (\u{1b}[31m)".to_owned()],
            omitted_frames: 2,
        };
        let stack = |rank, threads, missing: Option<&str>| ProcessStack {
            replica: "worker-0".parse().unwrap(),
            stack: RankStack {
                rank,
                at: Time(0),
                threads,
                omitted_threads: 0,
                missing: missing.map(str::to_owned),
            },
        };
        let group = RankGroup {
            ranks: vec![1],
            count: 1,
            nodes: Vec::new(),
            place: "read_batch".to_owned(),
            stack: Some(StackKey { hash: "a".to_owned(), top: Vec::new() }),
            odd: true,
        };
        let stacks = IncidentStacks {
            id: IncidentId::of_attempt(&task, 1),
            fault: "no progress for 10 min".to_owned(),
            since: Some(Time(0)),
            groups: vec![group],
            odd: None,
            processes: vec![stack(1, vec![thread], None), stack(2, vec![], Some("not Python"))],
            next: Some(3),
        };
        assert_eq!(
            stacks.text(),
            "demo-jabcdefghij2-1-i1: no progress for 10 min\n\
             nothing moved since 1970-01-01T00:00:00+00:00\n\
             1 in read_batch: 1  <- the others wait for it\n\
             \n\
             rank 1 (worker-0), read at 1970-01-01T00:00:00+00:00\n\
             \x20 thread 7 MainThread\n\
             \x20   read_batch (train.py:12)\n\
             \x20   main\u{fffd}  thread 8 (\u{fffd}[31m)\n\
             \x20   … 2 outer frames left out\n\
             \n\
             rank 2 (worker-0), read at 1970-01-01T00:00:00+00:00\n\
             \x20 no stack: not Python\n\
             \n\
             more with ?format=text&from=3\n"
        );
    }
}
