//! Classification of whole logs: own samples of many wordings, and the lines that the failure catalogue shows.

use std::{fs, path::PathBuf};

use engine::{
    classify::classify_log,
    failure::{Exit, FailureType, Signal},
};
use serde::Deserialize;

/// One labelled log of `wordings.jsonl`, in the form that the report reads too.
#[derive(Deserialize)]
struct Sample {
    id: String,
    label: String,
    log: String,
    exit_code: Option<i64>,
    signal: Option<String>,
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn classified(log: &str, exit: Option<Exit>) -> &'static str {
    classify_log(log.as_bytes(), exit).map_or("NONE", |verdict| verdict.failure_type.as_str())
}

#[test]
fn known_wordings_get_their_type() {
    let misses: Vec<String> = include_str!("wordings.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Sample>(line).unwrap())
        .filter_map(|Sample { id, label, log, exit_code, signal }| {
            let signal = signal.as_deref().and_then(Signal::parse).map(Exit::Signal);
            let got = classified(&log, signal.or(exit_code.map(Exit::from_code)));
            (got != label).then(|| format!("{id}: {got}"))
        })
        .collect();
    assert!(misses.is_empty(), "{misses:#?}");
}

#[test]
fn the_catalogue_shows_lines_that_get_the_type_of_their_page() {
    for failure_type in FailureType::ALL {
        let page = format!("docs/failures/{}.md", failure_type.as_str().to_lowercase().replace('_', "-"));
        let text = fs::read_to_string(repository().join(&page)).expect(&page);
        assert!(text.starts_with(&format!("# {failure_type}: {}", failure_type.plain())), "{page}");
        let block = text.split("```\n").nth(1).expect("a block of typical lines");
        let (tracebacks, lines): (Vec<_>, Vec<_>) =
            block.split("\n\n").partition(|part| part.starts_with("Traceback"));
        let logs = tracebacks.into_iter().chain(lines.into_iter().flat_map(str::lines));
        for log in logs {
            assert_eq!(classified(log, None), failure_type.as_str(), "{page}: {log}");
        }
    }
}

#[test]
fn a_log_of_any_bytes_is_taken() {
    let mut seed = 7u64;
    let mut log = Vec::new();
    for _ in 0..200_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        log.push((seed >> 56) as u8);
    }
    assert_eq!(classify_log(&log, Some(Exit::Code(0))), None);
    assert_eq!(classify_log(&log, Some(Exit::Code(1))).unwrap().failure_type, FailureType::Unknown);
}
