//! What trainers print when they read or write a checkpoint.

use std::sync::LazyLock;

use regex::bytes::{Captures, Regex};

use super::Progress;
use crate::{failure::Phase, progress::as_step};

/// A way to say it; `loaded` or saved. Groups: `path`, `step`.
struct Saying {
    loaded: bool,
    pattern: &'static str,
}

/// From Megatron-LM, Lightning, Transformers, DeepSpeed and hand-written loops.
const SAYINGS: [Saying; 6] = [
    Saying {
        loaded: false,
        pattern: r"(?i)saved checkpoint (?:at|from) (?:iteration|step) +(?P<step>\d+)(?:.*? to:? +(?P<path>\S+))?",
    },
    Saying {
        loaded: true,
        pattern: r"(?i)loaded checkpoint from (?P<path>\S+).*? (?:iteration|step) +(?P<step>\d+)",
    },
    Saying {
        loaded: true,
        pattern: r"(?i)(?:loaded|resumed|restored)(?: all| model)?(?: states?| weights| training)? from (?:the )?checkpoint(?: at)?:? +(?P<path>\S+)",
    },
    Saying { loaded: true, pattern: r"Continuing training from global step (?P<step>\d+)" },
    Saying {
        loaded: false,
        pattern: r"(?i)saved (?:the )?(?:model |training )?checkpoint (?:to|at|in|as):? +(?P<path>\S+)",
    },
    Saying { loaded: false, pattern: r"Model weights saved in (?P<path>\S*checkpoint-\d+\S*)" },
];

const BEGINNINGS: [(Phase, &str); 2] = [
    (Phase::Saving, r"(?i)\b(?:saving|writing) (?:the |model |training )*checkpoint (?:to|at)\b"),
    (Phase::Loading, r"(?i)\bloading (?:the |model |training )*checkpoint (?:from|at)\b"),
];

struct Patterns {
    sayings: Vec<(bool, Regex)>,
    beginnings: Vec<(Phase, Regex)>,
    step_of_path: Option<Regex>,
}

// The tests read each kind, so none is left out for a pattern that does not compile.
static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| Patterns {
    sayings: SAYINGS
        .iter()
        .filter_map(|saying| Regex::new(saying.pattern).ok().map(|pattern| (saying.loaded, pattern)))
        .collect(),
    beginnings: BEGINNINGS
        .iter()
        .filter_map(|(phase, pattern)| Regex::new(pattern).ok().map(|pattern| (*phase, pattern)))
        .collect(),
    step_of_path: Regex::new(r"(?:step|checkpoint|iter|ckpt)[-_=]?(\d+)").ok(),
});

/// Reads a line that speaks of a checkpoint.
pub(super) fn read(line: &[u8]) -> Option<Progress> {
    let patterns = &*PATTERNS;
    for (loaded, pattern) in &patterns.sayings {
        if let Some(found) = pattern.captures(line) {
            let path = path(&found);
            let step = number(found.name("step").map(|step| step.as_bytes()))
                .or_else(|| number(last_number(patterns.step_of_path.as_ref()?, path.as_ref()?)));
            return Some(Progress::Checkpoint { loaded: *loaded, step, path });
        }
    }
    let begun = patterns.beginnings.iter().find(|(_, pattern)| pattern.is_match(line));
    begun.map(|(phase, _)| Progress::Phase(*phase))
}

fn path(found: &Captures<'_>) -> Option<String> {
    let path = String::from_utf8_lossy(found.name("path")?.as_bytes());
    Some(path.trim_matches(|c: char| "'\"`,;:.()".contains(c) && c != '.').trim_end_matches('.').to_owned())
}

/// The step at the end of a path counts: `run-step10/step-40.pt` is of step 40.
fn last_number<'a>(step_of_path: &Regex, path: &'a str) -> Option<&'a [u8]> {
    step_of_path
        .captures_iter(path.as_bytes())
        .last()
        .and_then(|found| found.get(1))
        .map(|group| group.as_bytes())
}

fn number(digits: Option<&[u8]>) -> Option<u64> {
    as_step(std::str::from_utf8(digits?).ok()?.parse().ok()?)
}
