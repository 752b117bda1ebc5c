//! Transfers between the processes of a probe: every two of them, then all in a ring. What is sent follows from who sends it and where it
//! stands, so the receiver knows every byte.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    Kind, Measured, Probe, Report,
    local::mix,
    meet::{Joined, wait_with},
    say,
};

/// Others that one process exchanges data with at most; with so many every node has met enough to be compared.
const PARTNERS: u32 = 31;
/// Words that the ring reduces: 4 MiB.
const RING_WORDS: usize = 1 << 19;
/// Bytes sent at a time.
const BLOCK: usize = 1 << 18;
/// How long a connection may take, and say whose it is.
const CONNECT: Duration = Duration::from_secs(5);
/// Connections that may wait to be asked for.
const WAITING: usize = 256;
/// Which connection is the ring's; the others are numbered by their round.
const RING: u32 = u32::MAX;
/// What a receiver says when it is ready.
const READY: [u8; 1] = [1];
/// Pause of a slow sender, for tests.
const SLOW: Duration = Duration::from_millis(50);

/// Connections that others have opened, by who and what for.
#[derive(Default)]
struct Arrived {
    streams: Mutex<HashMap<(u32, u32), TcpStream>>,
    news: Condvar,
}

impl Arrived {
    fn put(&self, key: (u32, u32), stream: TcpStream) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.len() < WAITING {
            streams.insert(key, stream);
        }
        self.news.notify_all();
    }

    fn take(&self, key: (u32, u32), patience: Duration) -> io::Result<TcpStream> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut streams, _) = self
            .news
            .wait_timeout_while(streams, patience, |streams| !streams.contains_key(&key))
            .unwrap_or_else(PoisonError::into_inner);
        streams.remove(&key).ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "it did not connect"))
    }
}

impl Probe<'_> {
    /// Exchanges data with the others, and reduces with all.
    pub(super) fn exchange(&self, joined: &Joined, report: &mut Report) {
        let Ok(listener) = joined.listener.try_clone() else {
            return report.find("transfer", "cannot listen for the others".to_owned());
        };
        let arrived: &'static Arrived = Box::leak(Box::default());
        std::thread::spawn(move || receive(&listener, arrived));
        let (rank, world) = (self.args.rank, self.args.world);
        for round in 0..rounds(world) {
            let Some(peer) = peer(rank, world, round) else { continue };
            let Some(&address) = joined.addresses.get(&peer) else { continue };
            match self.pair(arrived, peer, address, round) {
                Ok(speed) => {
                    say(&format!("received {:.1} MB/s from rank {peer}", speed));
                    report.measured.push(Measured { from: peer, to: rank, megabytes_per_second: speed });
                }
                Err(why) => report.find("transfer", format!("with rank {peer}: {why}")),
            }
        }
        if report.findings.iter().any(|one| one.test == "transfer") {
            // The ring would only wait for the same.
            return;
        }
        let next = (rank + 1) % world;
        let ring = match joined.addresses.get(&next) {
            Some(&address) => self.ring(arrived, address),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "the next process has no address")),
        };
        match ring {
            Ok(speed) => report.reduced = Some(speed),
            Err(why) => report.find("all-reduce", why.to_string()),
        }
    }

    /// How long one transfer may take: the slowest link worth having, and time for the other one's transfers before.
    fn transfer_limit(&self) -> Duration {
        self.patience() / 2
    }

    /// Sends to a peer and receives from it; the lower rank connects and sends first. Gives what was received, MB/s.
    fn pair(&self, arrived: &Arrived, peer: u32, address: SocketAddr, round: u32) -> io::Result<f64> {
        let rank = self.args.rank;
        let mut stream = if rank < peer {
            open(address, rank, round)?
        } else {
            arrived.take((peer, round), self.transfer_limit())?
        };
        wait_with(&stream, self.transfer_limit())?;
        stream.set_nodelay(true)?;
        if rank < peer {
            self.send(&mut stream, peer)?;
            self.take(&mut stream, peer)
        } else {
            let speed = self.take(&mut stream, peer)?;
            self.send(&mut stream, peer)?;
            Ok(speed)
        }
    }

    /// Sends once the other one is ready to receive, so that nothing waits in between and looks fast. Each block is the same but for its
    /// number, as making them takes longer than sending them.
    fn send(&self, stream: &mut TcpStream, to: u32) -> io::Result<()> {
        let mut block = vec![0; BLOCK];
        fill(&mut block, self.args.rank, to);
        if self.has(Kind::Corrupt) {
            block[BLOCK / 2] ^= 1;
        }
        let mut ready = READY;
        stream.read_exact(&mut ready)?;
        for number in 0..self.blocks() {
            block[..8].copy_from_slice(&number.to_le_bytes());
            if self.has(Kind::Slow) {
                std::thread::park_timeout(SLOW);
            }
            stream.write_all(&block)?;
        }
        stream.flush()
    }

    /// Receives, and gives the speed of the fastest block: a link that is slow is so for each, a busy machine holds up some of them.
    fn take(&self, stream: &mut TcpStream, from: u32) -> io::Result<f64> {
        let (mut block, mut wanted) = (vec![0; BLOCK], vec![0; BLOCK]);
        fill(&mut wanted, from, self.args.rank);
        stream.write_all(&READY)?;
        let mut fastest = Duration::MAX;
        for number in 0..self.blocks() {
            wanted[..8].copy_from_slice(&number.to_le_bytes());
            let begin = Instant::now();
            stream.read_exact(&mut block)?;
            fastest = fastest.min(begin.elapsed());
            if block != wanted {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "what arrived is not what was sent"));
            }
        }
        Ok(speed(BLOCK as u64, fastest))
    }

    /// Blocks of one transfer.
    fn blocks(&self) -> u64 {
        (self.args.transfer_mib << 20) / BLOCK as u64
    }

    /// Adds up a vector over all processes: each passes parts on to the next, first to add, then to spread the sums.
    fn ring(&self, arrived: &Arrived, next: SocketAddr) -> io::Result<f64> {
        let (rank, world) = (self.args.rank as usize, self.args.world as usize);
        let mut to = open(next, self.args.rank, RING)?;
        let before = ((rank + world - 1) % world) as u32;
        let mut from = arrived.take((before, RING), self.transfer_limit())?;
        for stream in [&to, &from] {
            wait_with(stream, self.transfer_limit())?;
            stream.set_nodelay(true)?;
        }
        let mut words: Vec<u64> = (0..RING_WORDS).map(|place| word(rank, place)).collect();
        let bounds = |part: usize| (part * RING_WORDS / world)..((part + 1) * RING_WORDS / world);
        let (begin, mut bytes) = (Instant::now(), 0);
        for step in 0..2 * (world - 1) {
            let adds = step < world - 1;
            let out =
                if adds { (rank + world - step) % world } else { spread(rank, world, step + 1 - world) };
            let into = (out + world - 1) % world;
            let sent: Vec<u8> = words[bounds(out)].iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut taken = vec![0; bounds(into).len() * 8];
            bytes += (sent.len() + taken.len()) as u64;
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| to.write_all(&sent));
                from.read_exact(&mut taken)?;
                sending.join().unwrap_or_else(|_| Err(io::Error::other("sending broke off")))
            })?;
            for (word, bytes) in words[bounds(into)].iter_mut().zip(taken.chunks_exact(8)) {
                let mut eight = [0; 8];
                eight.copy_from_slice(bytes);
                let other = u64::from_le_bytes(eight);
                *word = if adds { word.wrapping_add(other) } else { other };
            }
        }
        let took = begin.elapsed();
        let sum = |place| (0..world).fold(0_u64, |sum, rank| sum.wrapping_add(word(rank, place)));
        let wrong = words.iter().enumerate().filter(|(place, word)| **word != sum(*place)).count();
        if wrong > 0 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{wrong} of {RING_WORDS} sums are wrong"),
            ));
        }
        Ok(speed(bytes / 2, took))
    }
}

/// The part that a process passes on in a step of the second half: first the one that it has the whole sum of.
fn spread(rank: usize, world: usize, step: usize) -> usize {
    (rank + 1 + world - step) % world
}

fn word(rank: usize, place: usize) -> u64 {
    mix(((rank as u64) << 32) ^ place as u64)
}

/// Bytes that follow from who sends them, to whom, and where they stand.
fn fill(block: &mut [u8], from: u32, to: u32) {
    let seed = mix((u64::from(from) << 32) ^ u64::from(to));
    for (place, bytes) in block.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&seed.wrapping_mul(2 * place as u64 + 1).to_le_bytes());
    }
}

/// MB/s; what takes no time at all counts as a microsecond.
fn speed(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64().max(1e-6)
}

/// Rounds in which every two meet once, or as many as are enough.
fn rounds(world: u32) -> u32 {
    let even = world + world % 2;
    (even - 1).min(PARTNERS)
}

/// Whom a process meets in a round: one stays in its place and the others go round, as in a tournament. None: it rests.
fn peer(rank: u32, world: u32, round: u32) -> Option<u32> {
    let even = world + world % 2;
    let turning = even - 1;
    let met = if rank == turning {
        // Twice whom it meets is the round, all modulo an odd number.
        let half = turning.div_ceil(2);
        (round * half) % turning
    } else {
        let other = (round + turning - rank % turning) % turning;
        if other == rank { turning } else { other }
    };
    (met < world && met != rank).then_some(met)
}

/// Takes connections of the others until the process ends.
fn receive(listener: &TcpListener, arrived: &Arrived) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        let mut header = [0; 8];
        if wait_with(&stream, CONNECT).and_then(|()| stream.read_exact(&mut header)).is_ok() {
            let [a, b, c, d, e, f, g, h] = header;
            arrived.put((u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])), stream);
        }
    }
}

fn open(address: SocketAddr, own: u32, what_for: u32) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&address, CONNECT)?;
    stream.write_all(&own.to_le_bytes())?;
    stream.write_all(&what_for.to_le_bytes())?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_two_meet_exactly_once() {
        for world in 2..=32 {
            let mut met = BTreeSet::new();
            for round in 0..rounds(world) {
                for rank in 0..world {
                    let Some(other) = peer(rank, world, round) else { continue };
                    assert_eq!(peer(other, world, round), Some(rank), "{world} {round}");
                    if rank < other {
                        assert!(met.insert((rank, other)), "{rank} and {other} of {world} meet twice");
                    }
                }
            }
            assert_eq!(met.len() as u32, world * (world - 1) / 2, "{world}");
        }
        assert_eq!(rounds(4_096), PARTNERS);
    }

    #[test]
    fn each_part_of_the_ring_passes_every_process() {
        for world in 2..=9 {
            for rank in 0..world {
                // What is passed on in a step of the second half is whole: its own part first, then what came.
                for step in 1..world - 1 {
                    let before = spread((rank + world - 1) % world, world, step - 1);
                    assert_eq!(spread(rank, world, step), before);
                }
            }
        }
    }

    #[test]
    fn blocks_differ_by_sender_and_receiver() {
        let block = |from, to| {
            let mut block = vec![0; 64];
            fill(&mut block, from, to);
            block
        };
        let all: BTreeSet<_> = [(0, 1), (1, 0), (0, 2)].map(|(a, b)| block(a, b)).into();
        assert_eq!(all.len(), 3);
    }
}
