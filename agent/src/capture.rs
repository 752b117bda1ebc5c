//! Reads the output of a launch: repeats it, keeps it, scans it.
//!
//! One thread reads the pipes of all local processes, so lines have one order and one numbering. It never waits for the
//! agent: what it finds goes into [`Findings`], which is bounded by what it keeps. A program is therefore held up by
//! nothing but the disk and the scanner.

use std::{
    io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write},
    ops::Range,
    os::fd::AsFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use engine::ids::ReplicaName;
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::sync::{Notify, oneshot};

use crate::{
    clock,
    findings::Findings,
    lines::Lines,
    log::{self, Log, Place, Stream},
    pass::Pass,
    scan::Scanner,
};

/// Bytes read at once, and the size asked for the pipes.
const CHUNK_BYTES: usize = 256 * 1024;
/// Read of a process that has ended at most this much: what its pipes can hold. A child of it may still print.
const SETTLE_BYTES: usize = 1 << 20;
/// Under load, output gathers this long before it is read, so that a program which prints line by line costs
/// few system calls. With pipes of 256 KiB it is never held up by it.
const GATHER: Duration = Duration::from_millis(2);
/// Pause where the kernel cannot say what is there to be read.
const WAIT_RETRY: Duration = Duration::from_millis(20);
/// A round that read less than this was woken too early.
const SMALL_ROUND: usize = CHUNK_BYTES / 4;

/// The reading end of one stream.
pub struct Source {
    rank: u32,
    stream: Stream,
    pipe: PipeReader,
}

impl Source {
    /// Of the process of this rank.
    ///
    /// # Errors
    /// Where the pipe cannot be read without waiting.
    pub fn new(rank: u32, stream: Stream, pipe: PipeReader) -> io::Result<Self> {
        set_nonblocking(&pipe)?;
        // A bigger pipe is a help, not a need; the system may have too few pages left for this user.
        let _ = fcntl(&pipe, FcntlArg::F_SETPIPE_SZ(CHUNK_BYTES as i32));
        Ok(Self { rank, stream, pipe })
    }
}

/// The output of one launch, being read.
pub struct Capture {
    orders: mpsc::Sender<Order>,
    wake: PipeWriter,
    shared: Arc<Shared>,
}

struct Shared {
    findings: Mutex<Findings>,
    urgent: Notify,
}

impl Shared {
    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Order {
    /// Read these too.
    Read { sources: Vec<Source> },
    /// This process has ended: read what is left and say so.
    Settle { rank: u32, done: oneshot::Sender<()> },
    /// Nothing is left that could print: read what is left, write, end.
    Finish { done: oneshot::Sender<()> },
}

/// Where the output goes.
pub struct Target {
    /// Names the replica in evidence.
    pub replica: ReplicaName,
    /// Its ranks.
    pub ranks: Range<u32>,
    /// The log.
    pub place: Place,
    /// Repeat it.
    pub pass_through: bool,
}

impl Capture {
    /// Starts the thread; nothing is read yet.
    ///
    /// # Errors
    /// Where pipes or threads cannot be had.
    pub fn start(target: Target) -> io::Result<Self> {
        let (woken, wake) = io::pipe()?;
        set_nonblocking(&woken)?;
        let shared = Arc::new(Shared { findings: Mutex::default(), urgent: Notify::new() });
        let (orders, taken) = mpsc::channel();
        let pass = if target.pass_through { Some(Pass::start()?) } else { None };
        let reader = Reader {
            replica: target.replica,
            ranks: target.ranks,
            channels: Vec::new(),
            log: Log::new(target.place),
            pass,
            shared: Arc::clone(&shared),
            orders: taken,
            woken,
            chunk: vec![0; CHUNK_BYTES],
        };
        thread::Builder::new().name("capture".to_owned()).spawn(move || reader.run())?;
        Ok(Self { orders, wake, shared })
    }

    /// Reads these from now on.
    pub fn read(&self, sources: Vec<Source>) {
        self.order(Order::Read { sources });
    }

    /// What was found.
    pub fn findings(&self) -> MutexGuard<'_, Findings> {
        self.shared.findings()
    }

    /// Waits until something was found that is worth a report at once.
    pub async fn urgent(&self) {
        self.shared.urgent.notified().await;
    }

    /// Waits, not longer than `limit`, until all that a process printed before it ended is in the findings.
    pub async fn settle(&self, rank: u32, limit: Duration) {
        let (done, is_done) = oneshot::channel();
        self.order(Order::Settle { rank, done });
        if tokio::time::timeout(limit, is_done).await.is_err() {
            tracing::warn!("the output of rank {rank} could not be read to its end within {limit:?}");
        }
    }

    /// Waits, not longer than `limit`, until everything is read and written.
    pub async fn finish(&self, limit: Duration) {
        let (done, is_done) = oneshot::channel();
        self.order(Order::Finish { done });
        if tokio::time::timeout(limit, is_done).await.is_err() {
            tracing::warn!("the output of the launch could not be written within {limit:?}");
        }
    }

    fn order(&self, order: Order) {
        // Both fail only where the thread is gone; then the answer's channel is closed and nobody waits.
        let _ = self.orders.send(order);
        let _ = (&self.wake).write(&[0]);
    }
}

fn set_nonblocking(pipe: &PipeReader) -> io::Result<()> {
    fcntl(pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

/// One stream and what is read of it.
struct Channel {
    source: Source,
    lines: Lines,
    scanner: Scanner,
    open: bool,
}

/// What a read gave.
enum Got {
    Bytes(usize),
    NothingNow,
    End,
}

impl Channel {
    fn new(source: Source, replica: &ReplicaName, ranks: &Range<u32>) -> Self {
        let scanner = Scanner::new(replica.clone(), source.rank, ranks.clone());
        Self { source, lines: Lines::default(), scanner, open: true }
    }

    fn read(&mut self, chunk: &mut [u8]) -> Got {
        if !self.open {
            return Got::End;
        }
        loop {
            match self.source.pipe.read(chunk) {
                Ok(0) => break,
                Ok(count) => return Got::Bytes(count),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Got::NothingNow,
                Err(_) => break,
            }
        }
        self.open = false;
        Got::End
    }
}

/// The thread.
struct Reader {
    replica: ReplicaName,
    ranks: Range<u32>,
    channels: Vec<Channel>,
    log: Log,
    pass: Option<Pass>,
    shared: Arc<Shared>,
    orders: mpsc::Receiver<Order>,
    woken: PipeReader,
    chunk: Vec<u8>,
}

/// What happens to the lines of a stream.
enum Step {
    Bytes(usize),
    Tick,
    Flush,
}

impl Reader {
    fn run(mut self) {
        let mut busy_since = Instant::now();
        loop {
            if self.wait().is_err() {
                // No memory for the moment. To end here would end the program: it would print into closed pipes.
                thread::sleep(WAIT_RETRY);
            }
            let woken_at = Instant::now();
            let read = self.round();
            self.log.flush();
            self.tell_loss();
            match self.obey() {
                Next::GoOn if read > 0 && read < SMALL_ROUND && woken_at - busy_since < GATHER => {
                    thread::sleep(GATHER);
                }
                Next::GoOn => {}
                Next::End => return,
            }
            busy_since = Instant::now();
        }
    }

    /// Waits for output, an order, or a state of a progress bar that is due.
    fn wait(&self) -> nix::Result<()> {
        let due = self.channels.iter().filter_map(|c| c.lines.due()).min();
        let timeout = due.map_or(PollTimeout::NONE, |at| {
            let millis = at.saturating_duration_since(Instant::now()).as_millis() + 1;
            PollTimeout::try_from(millis.min(60_000) as i32).unwrap_or(PollTimeout::ZERO)
        });
        let mut fds = vec![PollFd::new(self.woken.as_fd(), PollFlags::POLLIN)];
        let open = self.channels.iter().filter(|c| c.open);
        fds.extend(open.map(|c| PollFd::new(c.source.pipe.as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR | nix::Error::EAGAIN) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// One read of each stream, so that a flood on one does not starve the others.
    fn round(&mut self) -> usize {
        let mut total = 0;
        for index in 0..self.channels.len() {
            total += self.read_once(index).unwrap_or(0);
            if self.channels[index].lines.due().is_some_and(|due| due <= Instant::now()) {
                self.step(index, Step::Tick);
            }
        }
        total
    }

    /// Reads one stream once; none if there was nothing to read.
    fn read_once(&mut self, index: usize) -> Option<usize> {
        let channel = &mut self.channels[index];
        let was_open = channel.open;
        match channel.read(&mut self.chunk) {
            Got::Bytes(count) => {
                self.step(index, Step::Bytes(count));
                Some(count)
            }
            Got::NothingNow => None,
            Got::End => {
                if was_open {
                    self.step(index, Step::Flush);
                }
                None
            }
        }
    }

    fn step(&mut self, index: usize, step: Step) {
        let Self { channels, log, pass, shared, chunk, .. } = self;
        let Channel { source, lines, scanner, .. } = &mut channels[index];
        let (now, at) = (Instant::now(), clock::now());
        if let (Step::Bytes(count), Some(pass)) = (&step, pass) {
            pass.chunk(source.stream, &chunk[..*count]);
        }
        let head = log::head(at, source.rank, source.stream);
        let mut findings = shared.findings();
        let mut urgent = false;
        let mut emit = |line: crate::lines::Line<'_>| {
            let number = log.keep(head.as_bytes(), line);
            urgent |= scanner.line(line.text, number, at, &mut findings);
        };
        match step {
            Step::Bytes(count) => lines.push(&chunk[..count], now, &mut emit),
            Step::Tick => lines.tick(now, &mut emit),
            Step::Flush => lines.flush(now, &mut emit),
        }
        drop(findings);
        if urgent {
            shared.urgent.notify_one();
        }
    }

    fn tell_loss(&mut self) {
        if let Some(text) = self.log.take_loss() {
            self.shared.findings().loss(text);
            self.shared.urgent.notify_one();
        }
    }

    fn obey(&mut self) -> Next {
        let mut bytes = [0; 64];
        let _ = self.woken.read(&mut bytes); // each byte stands for an order; those are in the channel
        loop {
            match self.orders.try_recv() {
                Ok(Order::Read { sources }) => {
                    let channels =
                        sources.into_iter().map(|source| Channel::new(source, &self.replica, &self.ranks));
                    self.channels.extend(channels);
                }
                Ok(Order::Settle { rank, done }) => {
                    self.settle(|channel| channel.source.rank == rank);
                    let _ = done.send(());
                }
                Ok(Order::Finish { done }) => {
                    self.settle(|_| true);
                    if let Some(pass) = self.pass.take() {
                        pass.finish();
                    }
                    let _ = done.send(());
                    return Next::End;
                }
                Err(mpsc::TryRecvError::Empty) => return Next::GoOn,
                Err(mpsc::TryRecvError::Disconnected) => return Next::End,
            }
        }
    }

    /// Reads what is left of some streams.
    fn settle(&mut self, wanted: impl Fn(&Channel) -> bool) {
        for index in 0..self.channels.len() {
            if !wanted(&self.channels[index]) {
                continue;
            }
            let mut left = SETTLE_BYTES;
            while let Some(count) = self.read_once(index).filter(|_| left > 0) {
                left = left.saturating_sub(count);
            }
            self.step(index, Step::Flush);
        }
        self.log.flush();
        self.tell_loss();
    }
}

enum Next {
    GoOn,
    End,
}
