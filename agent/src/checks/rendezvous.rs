//! Whether the ranks can meet: the name resolves and the host behind it answers.
//!
//! While replicas check, the agent of the first one holds the rendezvous port without listening there, so that no rank talks to
//! somebody who is not the program. A host that refuses the connection has answered; silence has not.

use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs},
    thread,
    time::{Duration, Instant},
};

use super::Found;

/// How long one try to connect may take.
const TRY: Duration = Duration::from_secs(5);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Tries until `limit` is nearly over; a name that was only just made known takes a moment.
pub fn rendezvous(address: Option<&str>, limit: Duration) -> Found {
    let Some(address) = address else { return Found::skipped("the program is told no rendezvous") };
    let end = Instant::now() + limit.mul_f64(0.8);
    loop {
        let why = match attempt(address, end) {
            Ok(found) => return found,
            Err(why) => why,
        };
        if Instant::now() + PAUSE >= end {
            return why;
        }
        thread::sleep(PAUSE);
    }
}

fn attempt(address: &str, end: Instant) -> Result<Found, Found> {
    let shown = address;
    let unresolved = |why: &str| {
        Found::failed(
            format!("the rendezvous {shown} has no address: {why}"),
            "Look at the name service of this node and at the Service of the job.",
        )
    };
    let all = address.to_socket_addrs().map_err(|why| unresolved(&why.to_string()))?;
    let first: SocketAddr =
        all.into_iter().next().ok_or_else(|| unresolved("the name is known to nobody"))?;
    let began = Instant::now();
    let time = end.saturating_duration_since(began).clamp(Duration::from_millis(50), TRY);
    let answer = TcpStream::connect_timeout(&first, time);
    let took = began.elapsed().as_secs_f64();
    match answer {
        Ok(_) => Ok(Found::passed(format!("{shown} answers ({first})")).measured("answer_seconds", took)),
        Err(why) if why.kind() == io::ErrorKind::ConnectionRefused => {
            let text = format!("the host of {shown} answers ({first}); the port waits for the program");
            Ok(Found::passed(text).measured("answer_seconds", took))
        }
        Err(why) => Err(Found::failed(
            format!("the first replica at {shown} ({first}) does not answer: {why}"),
            "Look at the network between this node and the first replica's: routes, firewalls, network policies.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use engine::checks::CheckOutcome::{Failed, Passed, Skipped};

    use super::*;

    #[test]
    fn a_host_that_answers_is_enough() {
        let limit = Duration::from_millis(500);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let held = listener.local_addr().unwrap().to_string();
        assert_eq!(rendezvous(Some(&held), limit).outcome, Passed);
        drop(listener);
        let refused = rendezvous(Some(&held), limit);
        assert_eq!(refused.outcome, Passed, "{refused:?}");
        assert_eq!(rendezvous(None, limit).outcome, Skipped);
    }

    #[test]
    fn a_name_that_nobody_knows_fails_within_the_limit() {
        let began = Instant::now();
        let found = rendezvous(Some("no-such-host.invalid:29500"), Duration::from_secs(1));
        assert_eq!(found.outcome, Failed);
        assert!(found.text.contains("has no address"), "{found:?}");
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}
