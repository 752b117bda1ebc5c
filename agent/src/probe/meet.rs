//! How the processes of a probe find each other: all connect to the first one and say where they listen; it tells everybody. The same
//! connections carry what was found, one line of JSON each way.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{Finding, Heard, Probe, Report, Verdict};

/// Bytes of a line: the addresses of 4,096 processes, or the measurements of one.
const LINE_BYTES: u64 = 1 << 20;
/// How long a process that has connected may take to say who it is.
const HELLO: Duration = Duration::from_secs(2);
/// How often a process that nobody listens to yet tries again.
const AGAIN: Duration = Duration::from_millis(50);
/// Characters of a node's name that are taken.
const NAME_CHARS: usize = 253;

/// Who speaks, and where it listens for the others.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    rank: u32,
    world: u32,
    port: u16,
    node: String,
}

/// What the first process tells all.
#[derive(Debug, Serialize, Deserialize)]
struct Table {
    /// By rank; none of those that never came.
    addresses: BTreeMap<u32, SocketAddr>,
    missing: Vec<u32>,
}

/// The connection to the first process, or those of the first to all others.
pub(super) enum Control {
    First(BTreeMap<u32, TcpStream>),
    Other(TcpStream),
}

/// A process that has met the others.
pub(super) struct Joined {
    /// Others connect here.
    pub listener: TcpListener,
    /// Where each process listens, by rank.
    pub addresses: BTreeMap<u32, SocketAddr>,
    /// Processes that did not come in time.
    pub missing: Vec<u32>,
    /// Names of nodes, by rank; only the first process has them.
    pub nodes: BTreeMap<u32, String>,
    pub control: Control,
}

fn failed(text: String) -> Finding {
    Finding { test: "rendezvous".to_owned(), text }
}

impl Joined {
    /// Meets the others.
    pub(super) fn join(probe: &Probe<'_>) -> Result<Self, Finding> {
        let cannot = |what: &str| {
            let what = what.to_owned();
            move |why: io::Error| failed(format!("{what}: {why}"))
        };
        // On all addresses: which one the others reach is theirs to know.
        let listener = TcpListener::bind(("0.0.0.0", 0)).map_err(cannot("cannot listen for the others"))?;
        let port = listener.local_addr().map_err(cannot("cannot listen for the others"))?.port();
        if probe.args.rank == 0 {
            Self::receive(probe, listener, port)
        } else {
            Self::call(probe, listener, port)
        }
    }

    /// The first process: hears all the others.
    fn receive(probe: &Probe<'_>, listener: TcpListener, port: u16) -> Result<Self, Finding> {
        let args = probe.args;
        let meeting = TcpListener::bind(("0.0.0.0", args.port))
            .map_err(|why| failed(format!("cannot listen on port {}: {why}", args.port)))?;
        meeting.set_nonblocking(true).map_err(|why| failed(format!("cannot wait for the others: {why}")))?;
        let until = Instant::now() + probe.patience();
        let (mut peers, mut addresses) = (BTreeMap::new(), BTreeMap::new());
        let mut nodes = BTreeMap::from([(0, probe.node.clone())]);
        while peers.len() + 1 < args.world as usize && Instant::now() < until {
            let Ok((mut stream, from)) = meeting.accept() else {
                std::thread::park_timeout(AGAIN);
                continue;
            };
            let hello: Option<Hello> = wait_with(&stream, HELLO).and_then(|()| read(&mut stream)).ok();
            // Whoever says something else is none of ours.
            if let Some(hello) = hello
                && hello.world == args.world
                && (1..args.world).contains(&hello.rank)
            {
                addresses.insert(hello.rank, SocketAddr::new(from.ip(), hello.port));
                nodes.insert(hello.rank, hello.node.chars().take(NAME_CHARS).collect());
                peers.insert(hello.rank, stream);
            }
        }
        let missing: Vec<_> = (1..args.world).filter(|rank| !peers.contains_key(rank)).collect();
        // The others know the first by the address that they have met it at.
        let own = SocketAddr::new(IpAddr::from([0, 0, 0, 0]), port);
        addresses.insert(0, own);
        let table = Table { addresses, missing };
        for stream in peers.values_mut() {
            // One that is gone by now is noticed when it is asked for what it found.
            let _ = write(stream, &table);
        }
        let Table { addresses, missing } = table;
        Ok(Self { listener, addresses, missing, nodes, control: Control::First(peers) })
    }

    /// Another process: says who it is.
    fn call(probe: &Probe<'_>, listener: TcpListener, port: u16) -> Result<Self, Finding> {
        let args = probe.args;
        let until = Instant::now() + probe.patience();
        let mut stream = loop {
            match connect(&args.address, args.port) {
                Ok(stream) => break stream,
                Err(why) if Instant::now() >= until => {
                    return Err(failed(format!(
                        "the first process cannot be reached at {}:{} since {} s: {why}",
                        args.address,
                        args.port,
                        probe.patience().as_secs()
                    )));
                }
                Err(_) => std::thread::park_timeout(AGAIN),
            }
        };
        let hello = Hello { rank: args.rank, world: args.world, port, node: probe.node.clone() };
        // It answers when all have come or the time for that is over.
        let told = write(&mut stream, &hello)
            .and_then(|()| wait_with(&stream, probe.patience() + HELLO))
            .and_then(|()| read::<Table>(&mut stream));
        let mut table = told.map_err(|why| failed(format!("the first process did not answer: {why}")))?;
        let first = stream.peer_addr().map_err(|why| failed(format!("the first process is gone: {why}")))?;
        if let Some(address) = table.addresses.get_mut(&0) {
            address.set_ip(first.ip());
        }
        let Table { addresses, missing } = table;
        Ok(Self { listener, addresses, missing, nodes: BTreeMap::new(), control: Control::Other(stream) })
    }

    pub(super) fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }
}

/// Hears what each of the others found, for so long; gives the connections that answered.
pub(super) fn collect(
    peers: BTreeMap<u32, TcpStream>,
    nodes: &BTreeMap<u32, String>,
    patience: Duration,
    heard: &mut Vec<Heard>,
) -> Vec<TcpStream> {
    let until = Instant::now() + patience;
    let mut answered = Vec::new();
    for (rank, mut stream) in peers {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(100));
        let report = wait_with(&stream, left).and_then(|()| read::<Report>(&mut stream));
        let node = nodes.get(&rank).cloned().unwrap_or_else(|| format!("rank {rank}"));
        let report = report.unwrap_or_else(|why| {
            let mut report = Report::default();
            report.find(
                "answer",
                format!("it came, and was not heard again within {} s: {why}", patience.as_secs()),
            );
            report
        });
        heard.push(Heard { rank, node, report });
        answered.push(stream);
    }
    answered
}

/// Tells all what came out.
pub(super) fn tell(peers: Vec<TcpStream>, verdict: &Verdict) {
    for mut stream in peers {
        // One that is gone was told of already.
        let _ = write(&mut stream, verdict);
    }
}

/// Says what was found here, and hears what came out.
pub(super) fn ask(stream: &mut TcpStream, report: &Report, patience: Duration) -> Result<Verdict, Finding> {
    write(stream, report)
        .and_then(|()| wait_with(stream, patience * 2))
        .and_then(|()| read(stream))
        .map_err(|why| failed(format!("the first process did not say what came out: {why}")))
}

/// Connects within [`HELLO`] to whichever address of a host answers.
fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, HELLO) {
            Ok(stream) => return Ok(stream),
            Err(why) => last = why,
        }
    }
    Err(last)
}

pub(super) fn wait_with(stream: &TcpStream, limit: Duration) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))
}

fn read<T: DeserializeOwned>(stream: &mut TcpStream) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES)).read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection ended"));
    }
    Ok(serde_json::from_str(&line)?)
}

fn write(stream: &mut TcpStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line)
}
