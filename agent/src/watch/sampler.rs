//! Takes the samples, and makes reports of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use engine::{
    sync::{RankStack, ReportBody, StillRank, watch_limits as limits},
    time::Time,
};

use crate::{
    clock,
    tree::{self, Identity, Stat},
    watch::{
        News, Target,
        directory::Contents,
        family, frames, kernel,
        lookers::{Directory, Lookers, Wanted},
        stacks::{Missing, Reading},
        tracker::{Growth, Sample, Tracker},
    },
};

/// Longest time that a sample waits for stacks and the directory; half of the interval where that is shorter.
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Bytes of stacks of one process, at least; where a replica has few processes each gets more.
const LEAST_STACK_BYTES: usize = 32 * 1024;

/// One process that is watched.
struct Watched {
    pid: i32,
    /// Which process that number was at the first sample.
    identity: Option<Identity>,
    tracker: Tracker,
}

/// The thread's own.
pub(super) struct Sampler {
    target: Target,
    news: Arc<News>,
    processes: BTreeMap<u32, Watched>,
    lookers: Lookers,
    growth: Growth,
    contents: Option<Contents>,
}

impl Sampler {
    /// Before the first sample.
    pub(super) fn new(mut target: Target, news: Arc<News>) -> Self {
        let watch = target.watch;
        let watched = |pid| Watched { pid, identity: None, tracker: Tracker::new(watch) };
        let processes = target.processes.iter().map(|process| (process.rank, watched(process.pid))).collect();
        let lookers = Lookers::new(target.checkpoints.take());
        Self { target, news, processes, lookers, growth: Growth::default(), contents: None }
    }

    /// Samples until nobody wants to know any more.
    pub(super) fn run(mut self, ended: &mpsc::Receiver<u32>) {
        let interval = self.interval();
        let mut next =
            self.target.started_at + Duration::from_secs(self.target.watch.start_after_seconds.into());
        loop {
            match ended.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(rank) => self.end(rank),
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    self.sample();
                    // What was missed is not made up for.
                    next = (next + interval).max(Instant::now());
                }
            }
        }
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(self.target.watch.interval_seconds.max(1).into())
    }

    fn end(&mut self, rank: u32) {
        if self.processes.remove(&rank).is_some_and(|process| process.tracker.is_told()) {
            self.news.tell(vec![ReportBody::Moved { ranks: vec![rank] }]);
        }
    }

    fn sample(&mut self) {
        let at = clock::now();
        let all = match tree::all_processes() {
            Ok(all) => all,
            Err(why) => {
                tracing::warn!("/proc cannot be read, so no process is watched: {why}");
                return;
            }
        };
        let mut families = BTreeMap::new();
        for (rank, process) in &mut self.processes {
            let members = family(process.pid, &all);
            // One that has ended is taken away by who waits for it.
            let Some((own, _)) = members.first() else { continue };
            if process.identity.get_or_insert(*own) == own {
                families.insert(*rank, members);
            }
        }
        let full = |rank: &u32| self.processes.get(rank).is_some_and(|process| process.tracker.may_show(at));
        let wanted = families.iter().map(|(rank, family)| Wanted {
            rank: *rank,
            family: family.clone(),
            full: full(rank),
        });
        let limit = LOOK_LIMIT.min(self.interval() / 2);
        let (readings, directory) = self.lookers.look(wanted.collect(), limit);
        self.see_directory(directory, at);
        let reports = self.take(at, &all, &families, readings);
        self.news.tell(reports);
    }

    fn see_directory(&mut self, directory: Directory, at: Time) {
        self.growth.unknown = match directory {
            Directory::Walked(Ok(contents)) => {
                // The first walk has nothing to be compared with.
                if self.contents.is_some_and(|before| contents.grew_since(&before)) {
                    self.growth.times += 1;
                    self.growth.at = Some(at);
                }
                self.contents = Some(contents);
                self.growth.detail = contents.words();
                None
            }
            Directory::Walked(Err(why)) => Some(format!("the checkpoint directory cannot be read: {why}")),
            Directory::Silent(since) => {
                Some(format!("the checkpoint directory has not answered for {} s", since.as_secs()))
            }
            Directory::None => Some("no checkpoint directory is known".to_owned()),
        };
    }

    /// Compares the new sample of each process with those before.
    fn take(
        &mut self,
        at: Time,
        all: &BTreeMap<i32, Stat>,
        families: &BTreeMap<u32, Vec<(Identity, u32)>>,
        mut readings: BTreeMap<u32, Reading>,
    ) -> Vec<ReportBody> {
        let mut activities = (self.target.activities)();
        let (mut moved, mut still, mut full) = (Vec::new(), Vec::new(), Vec::new());
        let mut is_news = false;
        for (rank, family) in families {
            let Some(process) = self.processes.get_mut(rank) else { continue };
            let Some(reading) = readings.remove(rank) else { continue };
            let sample = Sample {
                at,
                activity: activities.remove(rank).unwrap_or_default(),
                growth: self.growth.clone(),
                stacks: reading.stacks,
                used: Some(kernel::used(all, family.iter().map(|(identity, _)| identity))),
                state: kernel::state(reading.pid),
            };
            let outcome = process.tracker.take(&sample);
            if outcome.moved {
                moved.push(*rank);
            }
            if outcome.is_full {
                full.push((*rank, sample));
            }
            is_news |= outcome.is_news;
            still.extend(outcome.still.map(|still| StillRank { rank: *rank, ..still }));
        }
        let mut reports = Vec::new();
        if !moved.is_empty() {
            reports.push(ReportBody::Moved { ranks: moved });
        }
        if is_news {
            still.truncate(limits::RANKS);
            reports.push(ReportBody::Still { ranks: still });
        }
        reports.extend(stack_reports(full));
        reports
    }
}

/// The stacks of these processes, in as few reports as they fit into.
fn stack_reports(full: Vec<(u32, Sample)>) -> Vec<ReportBody> {
    let share = limits::STACKS_BYTES / full.len().max(1);
    let budget = share.max(LEAST_STACK_BYTES);
    let mut reports: Vec<Vec<RankStack>> = Vec::new();
    let mut bytes = 0;
    for (rank, sample) in full {
        let stack = rank_stack(rank, sample, budget);
        let size = frames::size(&stack);
        match reports.last_mut() {
            Some(last) if bytes + size <= limits::STACKS_BYTES && last.len() < limits::RANKS => {
                bytes += size;
                last.push(stack);
            }
            _ => {
                bytes = size;
                reports.push(vec![stack]);
            }
        }
    }
    reports.into_iter().map(|stacks| ReportBody::Stacks { stacks }).collect()
}

fn rank_stack(rank: u32, sample: Sample, bytes: usize) -> RankStack {
    let (threads, missing) = match sample.stacks {
        Ok(stacks) => (stacks.threads, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let (threads, omitted_threads) = frames::shown(&threads, bytes);
    RankStack {
        rank,
        at: sample.at,
        threads,
        omitted_threads,
        missing: missing.map(|why: Missing| why.words()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{
        activity::Activity,
        frames::{Frame, Hash, Thread, key},
        stacks::Stacks,
    };

    fn sample(threads: u64, depth: usize) -> Sample {
        let name = "function".repeat(10);
        let frames = vec![Frame::new(&name, "a/long/path/of/a/module.py", Some(7)); depth];
        let stacks = Stacks {
            key: key(&frames),
            hash: Hash::of(&frames),
            settled: true,
            threads: (0..threads).map(|id| Thread { id, name: None, frames: frames.clone() }).collect(),
        };
        let (activity, growth) = (Activity::default(), Growth::default());
        Sample { at: Time(1), activity, growth, stacks: Ok(stacks), used: None, state: None }
    }

    #[test]
    fn stacks_of_many_processes_go_into_bounded_reports() {
        let full = (0..40)
            .map(|rank| (rank, sample(300, 300)))
            .chain([(40, Sample { stacks: Err(Missing::NotPython), ..sample(0, 0) })]);
        let reports = stack_reports(full.collect());
        let mut ranks = Vec::new();
        for report in &reports {
            let ReportBody::Stacks { stacks } = report else { panic!("{report:?}") };
            assert!(stacks.iter().map(frames::size).sum::<usize>() <= limits::STACKS_BYTES);
            assert!(stacks.iter().all(|s| s.threads.len() <= limits::THREADS));
            ranks.extend(stacks.iter().map(|stack| (stack.rank, stack.missing.clone())));
        }
        assert_eq!(ranks.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), (0..41).collect::<Vec<_>>());
        assert_eq!(ranks[40].1.as_deref(), Some("not Python"));
        assert_eq!(stack_reports(Vec::new()), []);
    }
}
