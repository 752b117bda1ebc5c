//! Ports for the rendezvous, and the address this replica has.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as SocketName, UnixListener},
    },
};

use engine::sync::PortOffer;
use tokio::net::TcpSocket;

/// Ports that are tried before the agent says that there is none.
const TRIES: u64 = 64;
/// Lowest port that is offered: below are services.
const LOWEST: u16 = 10_000;
/// Where the kernel's own choice begins unless it is configured otherwise.
const USUAL_EPHEMERAL: u16 = 32_768;

/// A free port, held until the launch it was offered for starts.
#[derive(Debug)]
pub struct HeldPort {
    launch: u32,
    port: u16,
    /// Bound, so that nobody else is given it; released just before the program wants it. It does not listen: an early
    /// peer is refused and tries again, instead of talking to nobody.
    _held: TcpSocket,
    claim: Claim,
}

/// Keeps a port from the other agents of this machine (of this network namespace), also while nobody is bound to it: between its
/// release and the program's own bind another agent, looking for a port of its own, would find it free.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "its name is taken as long as it is open")] UnixListener);

impl Claim {
    /// None where another agent has the port. The name is in the kernel only, so that it is gone with whoever took it.
    pub fn take(port: u16) -> Option<Self> {
        let name = SocketName::from_abstract_name(format!("holdfast-rendezvous-{port}")).ok()?;
        UnixListener::bind_addr(&name).ok().map(Self)
    }
}

impl HeldPort {
    /// Takes a port for a launch. It is below the kernel's range for outgoing connections, so that none of those
    /// can take it between the release and the program's own bind.
    ///
    /// # Errors
    /// Where no port is free.
    pub fn take(launch: u32) -> io::Result<Self> {
        let below = ephemeral_start().max(LOWEST + 1);
        let seed = RandomState::new();
        for attempt in 0..TRIES {
            let port = LOWEST + (seed.hash_one(attempt) % u64::from(below - LOWEST)) as u16;
            if let Ok(held) = Self::of(launch, port) {
                return Ok(held);
            }
        }
        Self::of(launch, 0)
    }

    /// `port` 0: one of the kernel's choice.
    fn of(launch: u32, port: u16) -> io::Result<Self> {
        let held = bind(port)?;
        let port = held.local_addr()?.port();
        let claim = Claim::take(port).ok_or(io::ErrorKind::AddrInUse)?;
        Ok(Self { launch, port, _held: held, claim })
    }

    /// Leaves the port to the program. Other agents keep off it as long as the claim lives.
    pub fn release(self) -> Claim {
        self.claim
    }

    /// What the server is told.
    pub fn offer(&self) -> PortOffer {
        PortOffer { launch: self.launch, port: self.port }
    }
}

fn bind(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
    Ok(socket)
}

fn ephemeral_start() -> u16 {
    fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(USUAL_EPHEMERAL)
}

/// The address this machine has towards the server; nothing is sent to find out.
pub fn address_towards(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let target = if authority.ends_with(']') || !authority.contains(':') {
        format!("{authority}:80")
    } else {
        authority.to_owned()
    };
    let any = if authority.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip().to_string())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_held_port_is_free_once_it_is_released() {
        let held = HeldPort::take(4).unwrap();
        let offer = held.offer();
        assert_eq!(offer.launch, 4);
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, offer.port)).is_err());
        let claim = held.release();
        TcpListener::bind((Ipv4Addr::LOCALHOST, offer.port)).unwrap();
        assert!(HeldPort::of(5, offer.port).is_err(), "other agents leave it to the program");
        drop(claim);
        assert_eq!(HeldPort::of(5, offer.port).unwrap().offer().port, offer.port);
    }

    #[test]
    fn the_address_is_the_one_the_server_sees() {
        assert_eq!(address_towards("http://127.0.0.1:3000").as_deref(), Some("127.0.0.1"));
        assert_eq!(address_towards("http://127.0.0.1/x").as_deref(), Some("127.0.0.1"));
        assert_eq!(address_towards("nonsense"), None);
    }
}
