//! Reads the output of a launch: repeats it, keeps it, scans it.
//!
//! One thread reads the pipes of all local processes, so lines have one order and one numbering. It never waits for the
//! agent: what it finds goes into [`Findings`], which is bounded by what it keeps. A program is therefore held up by
//! nothing but the disk and the scanner.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write},
    ops::Range,
    os::fd::AsFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
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
    pass::{Pass, Repeat},
    scan::Scanner,
    watch::{Activity, CollectiveReader},
};

/// Bytes read at once, and the size asked for the pipes.
const CHUNK_BYTES: usize = 256 * 1024;
/// Read at most this much of a process that has ended: more than its pipes can hold. A child of it may still print.
const SETTLE_BYTES: usize = 1 << 20;
/// Under load, output gathers this long before it is read, so that a program which prints line by line costs
/// few system calls. With pipes of 256 KiB it is never held up by it.
const GATHER: Duration = Duration::from_millis(2);
/// Pause where the kernel cannot say what is there to be read.
const WAIT_RETRY: Duration = Duration::from_millis(20);
/// A round that read less than this was woken too early.
const SMALL_ROUND: usize = CHUNK_BYTES / 4;

/// The reading ends of one process.
pub struct Source {
    rank: u32,
    out: PipeReader,
    err: PipeReader,
}

impl Source {
    /// Of the process of this rank.
    ///
    /// # Errors
    /// Where a pipe cannot be read without waiting.
    pub fn new(rank: u32, out: PipeReader, err: PipeReader) -> io::Result<Self> {
        for pipe in [&out, &err] {
            set_nonblocking(pipe)?;
            // A bigger pipe is a help, not a need; the system may have too few pages left for this user.
            let _ = fcntl(pipe, FcntlArg::F_SETPIPE_SZ(CHUNK_BYTES as i32));
        }
        Ok(Self { rank, out, err })
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
    /// The processes were told to end, so a line without an end may be cut off in the middle.
    stopping: AtomicBool,
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
    /// Where it is repeated.
    pub repeat: Repeat,
}

impl Capture {
    /// Starts the thread; nothing is read yet.
    ///
    /// # Errors
    /// Where pipes or threads cannot be had.
    pub fn start(target: Target) -> io::Result<Self> {
        let (woken, wake) = io::pipe()?;
        set_nonblocking(&woken)?;
        let shared = Arc::new(Shared {
            findings: Mutex::default(),
            urgent: Notify::new(),
            stopping: AtomicBool::new(false),
        });
        let (orders, taken) = mpsc::channel();
        let pass = Pass::start(target.place.launch, target.repeat)?;
        let log = Log::new(target.place);
        let reader = Reader {
            processes: Vec::new(),
            sink: Sink { log, pass, shared: Arc::clone(&shared), collectives: CollectiveReader::default() },
            replica: target.replica,
            ranks: target.ranks,
            orders: taken,
            woken,
        };
        thread::Builder::new().name("capture".to_owned()).spawn(move || reader.run())?;
        Ok(Self { orders, wake, shared })
    }

    /// Reads these from now on.
    pub fn read(&self, sources: Vec<Source>) {
        self.order(Order::Read { sources });
    }

    /// The processes are about to be told to end. From now on a last line without an end is kept but not read as evidence:
    /// half of `RuntimeError: Connection closed by peer` reads like a cause, and the whole of it like a consequence.
    pub fn stopping(&self) {
        self.shared.stopping.store(true, Ordering::Release);
    }

    /// What was found.
    pub fn findings(&self) -> MutexGuard<'_, Findings> {
        self.shared.findings()
    }

    /// What asks for all that the processes have shown of their work, as long as the launch is there and after it.
    pub fn activities(&self) -> impl Fn() -> BTreeMap<u32, Activity> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.findings().activities()
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
    stream: Stream,
    pipe: PipeReader,
    lines: Lines,
    scanner: Scanner,
    open: bool,
    /// Holds what a full pipe holds, so one read takes all there is.
    chunk: Vec<u8>,
}

/// The streams of one process.
struct Channels {
    rank: u32,
    out: Channel,
    err: Channel,
}

/// What a read gave; the bytes are in the chunk.
#[derive(Clone, Copy)]
enum Got {
    Bytes(usize),
    NothingNow,
    End,
}

impl Got {
    fn count(self) -> usize {
        if let Self::Bytes(count) = self { count } else { 0 }
    }
}

impl Channel {
    fn new(stream: Stream, pipe: PipeReader, scanner: Scanner) -> Self {
        Self { stream, pipe, lines: Lines::default(), scanner, open: true, chunk: vec![0; CHUNK_BYTES] }
    }

    fn read(&mut self) -> Got {
        if !self.open {
            return Got::NothingNow;
        }
        loop {
            match self.pipe.read(&mut self.chunk) {
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

    fn is_due(&self) -> bool {
        self.lines.due().is_some_and(|due| due <= Instant::now())
    }
}

impl Channels {
    fn new(source: Source, replica: &ReplicaName, ranks: &Range<u32>) -> Self {
        let Source { rank, out, err } = source;
        let scanner = || Scanner::new(replica.clone(), rank, ranks.clone());
        let out = Channel::new(Stream::Out, out, scanner());
        Self { rank, out, err: Channel::new(Stream::Err, err, scanner()) }
    }

    fn both(&self) -> [&Channel; 2] {
        [&self.out, &self.err]
    }
}

/// The thread.
struct Reader {
    processes: Vec<Channels>,
    sink: Sink,
    replica: ReplicaName,
    ranks: Range<u32>,
    orders: mpsc::Receiver<Order>,
    woken: PipeReader,
}

/// Where all output goes.
struct Sink {
    log: Log,
    pass: Option<Pass>,
    shared: Arc<Shared>,
    collectives: CollectiveReader,
}

/// What happens to the lines of a stream.
enum Step {
    Bytes(usize),
    Tick,
    Flush,
}

impl Sink {
    /// Takes what a process printed, read by one round.
    fn take(&mut self, process: &mut Channels, out: Got, err: Got) {
        for (channel, got) in [(&mut process.out, out), (&mut process.err, err)] {
            match got {
                Got::Bytes(count) => self.step(process.rank, channel, Step::Bytes(count)),
                Got::End => self.step(process.rank, channel, Step::Flush),
                Got::NothingNow if channel.is_due() => self.step(process.rank, channel, Step::Tick),
                Got::NothingNow => {}
            }
        }
    }

    fn step(&mut self, rank: u32, channel: &mut Channel, step: Step) {
        let Channel { stream, lines, scanner, chunk, .. } = channel;
        let (now, at) = (Instant::now(), clock::now());
        let head = log::head(at, rank, *stream);
        let mut findings = self.shared.findings();
        if matches!(step, Step::Bytes(_)) {
            findings.output(rank, at);
        }
        let mut urgent = false;
        let cut_off = matches!(step, Step::Flush) && self.shared.stopping.load(Ordering::Acquire);
        let mut emit = |line: crate::lines::Line<'_>| {
            let number = self.log.keep(head.as_bytes(), line);
            if let Some(pass) = &mut self.pass {
                pass.line(rank, line);
            }
            if cut_off {
                return;
            }
            // Watchdogs print errors.
            if *stream == Stream::Err
                && let Some(said) = self.collectives.read(line.text)
            {
                findings.collective(rank, said, at);
            }
            urgent |= scanner.line(line.text, number, at, &mut findings);
        };
        match step {
            Step::Bytes(count) => lines.push(&chunk[..count], now, &mut emit),
            Step::Tick => lines.tick(now, &mut emit),
            Step::Flush => lines.flush(now, &mut emit),
        }
        drop(findings);
        if urgent {
            self.shared.urgent.notify_one();
        }
    }

    /// Writes what is buffered, and tells what could not be written.
    fn flush(&mut self) {
        self.log.flush();
        if let Some(pass) = &mut self.pass {
            pass.flush();
        }
        if let Some(text) = self.log.take_loss() {
            self.shared.findings().loss(text);
            self.shared.urgent.notify_one();
        }
    }
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
            let read = self.round(|_| true);
            self.sink.flush();
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
        let channels = || self.processes.iter().flat_map(Channels::both);
        let due = channels().filter_map(|c| c.lines.due()).min();
        let timeout = due.map_or(PollTimeout::NONE, |at| {
            let millis = at.saturating_duration_since(Instant::now()).as_millis() + 1;
            PollTimeout::try_from(millis.min(60_000) as i32).unwrap_or(PollTimeout::ZERO)
        });
        let mut fds = vec![PollFd::new(self.woken.as_fd(), PollFlags::POLLIN)];
        let open = channels().filter(|c| c.open);
        fds.extend(open.map(|c| PollFd::new(c.pipe.as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR | nix::Error::EAGAIN) => Ok(()),
            Err(why) => Err(why),
        }
    }

    /// One read of each stream, so that a flood on one does not starve the others; says how much was read.
    ///
    /// Of a process, errors are *read* before the rest and *taken* after it. A step that was printed before an error is
    /// then never taken for one that followed, however late this thread is; training that seems to have survived its
    /// own death would drop the evidence.
    fn round(&mut self, wanted: impl Fn(&Channels) -> bool) -> usize {
        let mut total = 0;
        for process in self.processes.iter_mut().filter(|process| wanted(process)) {
            let err = process.err.read();
            let out = process.out.read();
            self.sink.take(process, out, err);
            total += out.count() + err.count();
        }
        total
    }

    fn obey(&mut self) -> Next {
        let mut bytes = [0; 64];
        let _ = self.woken.read(&mut bytes); // each byte stands for an order; those are in the channel
        loop {
            match self.orders.try_recv() {
                Ok(Order::Read { sources }) => {
                    let processes = sources.into_iter().map(|s| Channels::new(s, &self.replica, &self.ranks));
                    self.processes.extend(processes);
                }
                Ok(Order::Settle { rank, done }) => {
                    self.settle(|process| process.rank == rank);
                    let _ = done.send(());
                }
                Ok(Order::Finish { done }) => {
                    self.settle(|_| true);
                    if let Some(pass) = self.sink.pass.take() {
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

    /// Reads what is left of some processes.
    fn settle(&mut self, wanted: impl Fn(&Channels) -> bool) {
        let mut left = SETTLE_BYTES * self.processes.len();
        loop {
            let read = self.round(&wanted);
            left = left.saturating_sub(read);
            if read == 0 || left == 0 {
                break;
            }
        }
        for process in self.processes.iter_mut().filter(|process| wanted(process)) {
            self.sink.step(process.rank, &mut process.out, Step::Flush);
            self.sink.step(process.rank, &mut process.err, Step::Flush);
        }
        self.sink.flush();
    }
}

enum Next {
    GoOn,
    End,
}
