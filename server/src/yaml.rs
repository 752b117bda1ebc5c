//! Pasted YAML, read as Kubernetes reads it: bounded, one document, nothing guessed.
//!
//! JSON is YAML too. Octal numbers (`defaultMode: 0644`) and switches (`yes`, `on`) are those of YAML 1.1, as `kubectl` has them, so that
//! an object means here what it means there.

use engine::{job::limits, words};
use serde_json::Value;
use serde_saphyr::{
    Error, Options,
    options::{AliasLimits, DuplicateKeyPolicy, NonFiniteFloatPolicy},
};

/// Parts of an object, those that aliases repeat not counted; each is a few bytes at least.
const NODES: usize = 50_000;
/// Parts that aliases repeat, all together.
const REPEATED: usize = 50_000;
/// Anchors, and uses of them.
const ALIASES: usize = 1_000;
/// Documents that are looked at to say how many there are.
const DOCUMENTS: usize = 100;
/// Characters of the reader's own words that are shown.
const WORDS: usize = 300;

/// Reads one object.
///
/// # Errors
/// What is wrong with the text and where, a sentence without its subject.
pub fn read(text: &str) -> Result<Value, String> {
    let most = words::grouped(limits::MANIFEST_BYTES as u64);
    if text.len() > limits::MANIFEST_BYTES {
        return Err(format!("has {} bytes; at most {most} are read", words::grouped(text.len() as u64)));
    }
    // What is JSON is read without YAML's guesses; what only looks like it is YAML.
    if text.trim_start().starts_with('{')
        && let Ok(object) = serde_json::from_str(text)
    {
        return Ok(object);
    }
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| refusal(&error))?;
    let mut objects = documents.into_iter().filter(|document| !document.is_null());
    match (objects.next(), objects.count()) {
        (None, _) => Err("is empty; paste a PyTorchJob or a RayJob as YAML or JSON".to_owned()),
        (Some(object), 0) => Ok(object),
        (Some(_), more) => Err(format!("holds {} documents; paste the one that is to be run", more + 1)),
    }
}

fn options() -> Options {
    let mut alias_limits = AliasLimits::default();
    alias_limits.max_total_replayed_events = REPEATED;
    alias_limits.max_replay_stack_depth = limits::MANIFEST_DEPTH;
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 4 * NODES,
            max_nodes: NODES,
            max_depth: limits::MANIFEST_DEPTH,
            max_anchors: ALIASES,
            max_aliases: ALIASES,
            max_merge_keys: ALIASES,
            max_documents: DOCUMENTS,
            max_total_scalar_bytes: 4 * limits::MANIFEST_BYTES,
        },
        alias_limits: alias_limits,
        duplicate_keys: DuplicateKeyPolicy::Error,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// The reader's words without its own advice, and the place.
fn refusal(error: &Error) -> String {
    let text = error.to_string();
    let told = text.split(" at line ").next().unwrap_or(&text);
    let told = if told.starts_with("budget breached") || told.starts_with("alias replay") {
        "it comes to more than is read: too many parts, too deep, or aliases that repeat too much"
    } else {
        told.split(", set DuplicateKeyPolicy").next().unwrap_or(told)
    };
    let told: String = told.chars().take(WORDS).collect();
    match error.location() {
        Some(place) => {
            format!("cannot be read as YAML: line {}, column {}: {told}", place.line(), place.column())
        }
        None => format!("cannot be read as YAML: {told}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_those_of_kubectl() {
        for (text, want) in [
            ("a: 0644", json!({ "a": 420 })),
            ("a: 0o644", json!({ "a": 420 })),
            ("a: -07", json!({ "a": -7 })),
            ("a: on\nb: yes", json!({ "a": true, "b": true })),
            ("a: ~\nb:", json!({ "a": null, "b": null })),
            ("a: '1'\nb: \"on\"\nc: 1.10", json!({ "a": "1", "b": "on", "c": 1.1 })),
            ("a: 2026-11-29\nb: 1:30\nc: ${X}", json!({ "a": "2026-11-29", "b": "1:30", "c": "${X}" })),
            ("1: x", json!({ "1": "x" })),
            ("a: |\n  two\n  lines\nb: >-\n  x\n  y", json!({ "a": "two\nlines\n", "b": "x y" })),
            (
                "a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2",
                json!({ "a": { "b": 1 }, "c": { "b": 1 }, "d": { "b": 1, "e": 2 } }),
            ),
            ("a: !tag x", json!({ "a": "x" })),
            ("{\"a\": [1, null, 9007199254740993]}", json!({ "a": [1, null, 9_007_199_254_740_993_u64] })),
            ("{a: 1}", json!({ "a": 1 })),
        ] {
            assert_eq!(read(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn one_document_is_read_and_empty_ones_count_for_nothing() {
        for text in
            ["a: 1", "---\na: 1\n", "# said\n---\na: 1\n---\n", "\u{feff}a: 1\n...\n", "%YAML 1.1\n---\na: 1"]
        {
            assert_eq!(read(text), Ok(json!({ "a": 1 })), "{text:?}");
        }
        assert_eq!(
            read("a: 1\n---\nb: 2\n---\nc: 3"),
            Err("holds 3 documents; paste the one that is to be run".to_owned())
        );
        for text in ["", " \n", "---\n", "# only\n"] {
            assert_eq!(
                read(text),
                Err("is empty; paste a PyTorchJob or a RayJob as YAML or JSON".to_owned()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn what_cannot_be_read_says_where() {
        for (text, want) in [
            ("a: 1\na: 2", "line 2, column 1: duplicate mapping key: a"),
            ("a: [1", "line 1, column 4: unclosed bracket '['"),
            ("a: .inf", "line 1, column 4: non-finite float `.inf` rejected by the configured policy"),
            ("a: b: c", "line 1, column 5: mapping values are not allowed in this context"),
            ("a: *x", "line 1, column 4: alias references unknown anchor"),
            ("a: 'x", "line 1, column 4: unclosed quote"),
            ("? [a]\n: 1", "line 1, column 3: expected string scalar"),
            (
                "a:\n  - b\n c: 1",
                "line 3, column 2: while parsing a block mapping, did not find expected key",
            ),
        ] {
            assert_eq!(read(text), Err(format!("cannot be read as YAML: {want}")), "{text:?}");
        }
    }

    #[test]
    fn what_would_grow_beyond_all_bounds_is_refused_at_once() {
        let too_much =
            "it comes to more than is read: too many parts, too deep, or aliases that repeat too much";
        let nine = |name: char| vec![format!("*{name}"); 9].join(",");
        let bomb: String =
            ('a'..'j').zip('b'..='j').map(|(from, to)| format!("{to}: &{to} [{}]\n", nine(from))).collect();
        let bomb = format!("a: &a [x,x,x,x,x,x,x,x,x]\n{bomb}");
        for text in [
            bomb,
            format!("{}1{}", "[".repeat(100), "]".repeat(100)),
            "- ".repeat(1_000),
            "a: [".to_owned() + &"1,".repeat(60_000) + "1]",
            (0..2_000).map(|at| format!("k{at}: &a{at} x\n")).collect(),
            format!("a: &a {}\nb: [{}]", "x".repeat(200_000), vec!["*a"; 900].join(",")),
        ] {
            let told = read(&text).unwrap_err();
            assert!(told.ends_with(too_much), "{told}");
        }
        let large = format!("a: {}", "x".repeat(256 * 1024));
        assert_eq!(read(&large), Err("has 262,147 bytes; at most 262,144 are read".to_owned()));
    }
}
