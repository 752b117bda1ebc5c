//! Ports for the rendezvous, and the address this replica has.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
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
            if let Ok(held) = bind(port) {
                return Ok(Self { launch, port, _held: held });
            }
        }
        let held = bind(0)?;
        Ok(Self { launch, port: held.local_addr()?.port(), _held: held })
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
        drop(held);
        TcpListener::bind((Ipv4Addr::LOCALHOST, offer.port)).unwrap();
    }

    #[test]
    fn the_address_is_the_one_the_server_sees() {
        assert_eq!(address_towards("http://127.0.0.1:3000").as_deref(), Some("127.0.0.1"));
        assert_eq!(address_towards("http://127.0.0.1/x").as_deref(), Some("127.0.0.1"));
        assert_eq!(address_towards("nonsense"), None);
    }
}
