//! Threads that look at what may not answer.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::{
    tree::Identity,
    watch::{
        directory::{self, Contents},
        stacks::{Missing, Reader, Reading},
    },
};

/// What a looker saw.
enum Answer {
    Stacks { rank: u32, ask: u64, reading: Reading },
    Directory(io::Result<Contents>),
}

/// One look at the processes of a rank.
struct Ask {
    number: u64,
    family: Vec<(Identity, u32)>,
    full: bool,
}

/// What to look at for one sample.
pub struct Wanted {
    /// The rank.
    pub rank: u32,
    /// Its processes with their numbers of threads, its own first.
    pub family: Vec<(Identity, u32)>,
    /// With all that is to be shown.
    pub full: bool,
}

/// All lookers of a launch. A thread whose work ends after them ends then.
pub struct Lookers {
    asked: u64,
    ranks: BTreeMap<u32, Looker>,
    directory: Option<mpsc::SyncSender<()>>,
    /// The directory was asked for and has not answered.
    directory_since: Option<Instant>,
    answers: mpsc::Receiver<Answer>,
    answer: mpsc::Sender<Answer>,
}

struct Looker {
    asks: mpsc::SyncSender<Ask>,
    is_out: bool,
}

/// What is known of the directory.
pub enum Directory {
    /// None was named.
    None,
    /// It was walked.
    Walked(io::Result<Contents>),
    /// It has not answered for so long.
    Silent(Duration),
}

impl Lookers {
    /// Lookers at a directory, where there is one, and at stacks as they are wanted.
    pub fn new(checkpoints: Option<PathBuf>) -> Self {
        let (answer, answers) = mpsc::channel();
        let directory = checkpoints.and_then(|dir| {
            let (asks, asked) = mpsc::sync_channel(1);
            let answer = answer.clone();
            let look = move || {
                for () in asked {
                    if answer.send(Answer::Directory(directory::walk(&dir))).is_err() {
                        return;
                    }
                }
            };
            thread::Builder::new().name("watch-directory".to_owned()).spawn(look).ok().map(|_| asks)
        });
        Self { asked: 0, ranks: BTreeMap::new(), directory, directory_since: None, answers, answer }
    }

    /// Looks at all at once, not longer than `limit`.
    pub fn look(&mut self, wanted: Vec<Wanted>, limit: Duration) -> (BTreeMap<u32, Reading>, Directory) {
        let end = Instant::now() + limit;
        let mut readings = BTreeMap::new();
        let mut walked = None;
        // What came after the limit of the sample before frees who sent it.
        while let Ok(answer) = self.answers.try_recv() {
            walked = self.take(answer, &mut readings).or(walked);
        }
        self.asked += 1;
        let mut open = 0;
        for Wanted { rank, family, full } in wanted {
            let pid = family.first().map_or(0, |(identity, _)| identity.pid);
            let missing = |why| Reading { pid, stacks: Err(why) };
            match self.ask(rank, Ask { number: self.asked, family, full }) {
                Ok(()) => {
                    open += 1;
                    readings.insert(rank, missing(Missing::TimedOut));
                }
                Err(why) => {
                    readings.insert(rank, missing(why));
                }
            }
        }
        self.ask_directory();
        while open > 0 || self.directory_since.is_some() {
            let left = end.saturating_duration_since(Instant::now());
            let Ok(answer) = self.answers.recv_timeout(left) else { break };
            open -= u32::from(matches!(&answer, Answer::Stacks { ask, .. } if *ask == self.asked));
            walked = self.take(answer, &mut readings).or(walked);
        }
        let directory = match (walked, self.directory_since) {
            (Some(contents), _) => Directory::Walked(contents),
            (None, Some(since)) => Directory::Silent(since.elapsed()),
            (None, None) => Directory::None,
        };
        (readings, directory)
    }

    /// Takes an answer; the directory's is given back. Stacks that were asked for by an earlier sample say how it was then.
    fn take(
        &mut self,
        answer: Answer,
        readings: &mut BTreeMap<u32, Reading>,
    ) -> Option<io::Result<Contents>> {
        match answer {
            Answer::Stacks { rank, ask, reading } => {
                if let Some(looker) = self.ranks.get_mut(&rank) {
                    looker.is_out = false;
                }
                if ask == self.asked {
                    readings.insert(rank, reading);
                }
                None
            }
            Answer::Directory(contents) => {
                self.directory_since = None;
                Some(contents)
            }
        }
    }

    fn ask(&mut self, rank: u32, ask: Ask) -> Result<(), Missing> {
        if !self.ranks.contains_key(&rank) {
            let looker =
                self.start(rank).map_err(|why| Missing::Other(format!("no thread to read it: {why}")))?;
            self.ranks.insert(rank, looker);
        }
        let looker = self.ranks.get_mut(&rank).filter(|looker| !looker.is_out).ok_or(Missing::TimedOut)?;
        looker.asks.try_send(ask).map_err(|_| Missing::TimedOut)?;
        looker.is_out = true;
        Ok(())
    }

    fn start(&self, rank: u32) -> io::Result<Looker> {
        let (asks, asked) = mpsc::sync_channel::<Ask>(1);
        let answer = self.answer.clone();
        let look = move || {
            let mut reader = Reader::default();
            for Ask { number, family, full } in asked {
                let reading = reader.read(&family, full);
                if answer.send(Answer::Stacks { rank, ask: number, reading }).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name(format!("watch-{rank}")).spawn(look)?;
        Ok(Looker { asks, is_out: false })
    }

    fn ask_directory(&mut self) {
        if let Some(asks) = &self.directory
            && self.directory_since.is_none()
            && asks.try_send(()).is_ok()
        {
            self.directory_since = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_looked_at_and_none_is_waited_for_longer_than_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let mut lookers = Lookers::new(Some(dir.path().to_owned()));
        let all = crate::tree::all_processes().unwrap();
        let family = crate::watch::family(std::process::id() as i32, &all);
        let wanted = |rank| Wanted { rank, family: family[..1].to_vec(), full: false };
        let (readings, directory) = lookers.look(vec![wanted(3), wanted(5)], Duration::from_secs(20));
        assert_eq!(readings.keys().copied().collect::<Vec<_>>(), [3, 5]);
        assert!(readings.values().all(|reading| reading.stacks == Err(Missing::NotPython)), "{readings:?}");
        assert!(matches!(directory, Directory::Walked(Ok(_))));
        let (readings, directory) = Lookers::new(None).look(Vec::new(), Duration::from_secs(20));
        assert!(readings.is_empty() && matches!(directory, Directory::None));
    }

    #[test]
    fn one_that_does_not_answer_is_not_asked_again_until_it_has() {
        let mut lookers = Lookers::new(None);
        let (asks, asked) = mpsc::sync_channel(1);
        lookers.ranks.insert(0, Looker { asks, is_out: false });
        let (walks, walked) = mpsc::sync_channel(1);
        lookers.directory = Some(walks);
        let family = vec![(Identity { pid: 7, started: 1 }, 1)];
        let wanted = || vec![Wanted { rank: 0, family: family.clone(), full: false }];
        for _ in 0..3 {
            let (readings, directory) = lookers.look(wanted(), Duration::from_millis(5));
            assert_eq!(readings[&0], Reading { pid: 7, stacks: Err(Missing::TimedOut) });
            assert!(matches!(directory, Directory::Silent(_)));
        }
        assert_eq!((asked.try_iter().count(), walked.try_iter().count()), (1, 1));
        // The late answers free the lookers; what they say of the stacks is not taken for new.
        let late = Reading { pid: 7, stacks: Err(Missing::NotPython) };
        lookers.answer.send(Answer::Stacks { rank: 0, ask: 1, reading: late }).unwrap();
        lookers.answer.send(Answer::Directory(Ok(Contents::default()))).unwrap();
        let (readings, directory) = lookers.look(wanted(), Duration::from_millis(5));
        assert_eq!(readings[&0].stacks, Err(Missing::TimedOut));
        assert!(matches!(directory, Directory::Walked(Ok(_))));
        assert_eq!((asked.try_iter().count(), walked.try_iter().count()), (1, 1));
    }
}
