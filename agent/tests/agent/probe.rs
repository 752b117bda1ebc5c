//! The test of Bisect Diagnose as real processes on this machine.

use std::{
    net::{TcpListener, TcpStream},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// Runs a probe of so many processes, on nodes `n0` and up, and gives what each said.
fn probe(world: usize, more: &[&str]) -> Vec<Output> {
    let port = free_port();
    let all: Vec<_> = (0..world).map(|rank| start(rank, world, port, more)).collect();
    all.into_iter().map(|one| one.wait_with_output().unwrap()).collect()
}

fn start(rank: usize, world: usize, port: u16, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_holdfast-agent"))
        .args(["probe", "--processor-seconds", "0.1", "--memory-mib", "4", "--transfer-mib", "2"])
        .args(more)
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", world.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .env("HOLDFAST_NODE", format!("n{rank}"))
        .env_remove("HOLDFAST_PROBE_EXPECT")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn healthy_nodes_pass_and_all_say_the_same() {
    for world in [1, 2, 5] {
        let outputs = probe(world, &[]);
        for output in &outputs {
            let said = said(output);
            assert_eq!(output.status.code(), Some(0), "{said}");
            let last = said.lines().last().unwrap();
            assert!(last.starts_with("probe: PASS"), "{said}");
            assert_eq!(last.contains("slowest transfer") && last.contains("all-reduce"), world > 1, "{said}");
        }
    }
}

#[test]
fn a_fault_of_one_node_is_named_by_every_process() {
    for (kind, told) in [
        ("cpu@n1", "probe: FAIL processor on n1: 1 of "),
        ("memory@n1", "probe: FAIL memory on n1: "),
        ("corrupt@n1", "with rank 1: what arrived is not what was sent"),
        ("slow@n1", "probe: FAIL transfer from n1 to "),
    ] {
        for output in probe(4, &["--inject", kind, "--limit-seconds", "60"]) {
            let said = said(&output);
            assert_eq!(output.status.code(), Some(1), "{kind}: {said}");
            assert!(said.contains(told), "{kind}: {said}");
        }
    }
}

#[test]
fn a_node_that_never_answers_is_a_finding_within_the_limit() {
    for (kind, told) in [
        ("silent@n2", "probe: FAIL rendezvous on rank 2: nothing was heard of it"),
        ("hang@n2", "probe: FAIL answer on n2: it came, and was not heard again"),
    ] {
        let begin = Instant::now();
        let outputs = probe(3, &["--inject", kind, "--limit-seconds", "14"]);
        assert!(begin.elapsed() < Duration::from_secs(40), "{kind}");
        let codes: Vec<_> = outputs.iter().map(|output| output.status.code()).collect();
        assert_eq!(
            codes,
            [Some(1), Some(1), Some(124)],
            "{kind}: {:?}",
            outputs.iter().map(said).collect::<Vec<_>>()
        );
        for output in &outputs[..2] {
            assert!(said(output).contains(told), "{kind}: {}", said(output));
        }
    }
}

#[test]
fn the_first_process_being_away_is_told_by_the_others() {
    let output = start(1, 2, free_port(), &["--limit-seconds", "11"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("the first process cannot be reached at 127.0.0.1:"), "{}", said(&output));
}

#[test]
fn strangers_and_wrong_numbers_change_nothing() {
    let port = free_port();
    let first = start(0, 2, port, &["--limit-seconds", "60"]);
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut stranger = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(why) => assert!(Instant::now() < deadline, "{why}"),
        }
    };
    std::io::Write::write_all(&mut stranger, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let second = start(1, 2, port, &["--limit-seconds", "60"]);
    for one in [first, second] {
        let output = one.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    }
    let wrong = start(2, 2, port, &[]).wait_with_output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
