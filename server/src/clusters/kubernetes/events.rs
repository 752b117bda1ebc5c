//! Events about an attempt's object, so that `kubectl describe` tells what was decided about it.
//!
//! They are of `events.k8s.io/v1` and made once, each under a name that follows from what it says: the API server itself tells that
//! one is there already, whoever told it before. An aggregating recorder would count and patch them, which needs more rights.

use engine::{
    ids::TaskId,
    job::JobKind,
    record::{EventReason, EventRecord},
    time::Time,
};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1::Event},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::core::ObjectMeta;

use super::{names, seen::JobSeen};
use crate::clusters::Note;

/// Who reports, in kubectl's column "From".
const REPORTER: &str = "holdfast";
/// Bytes of a text; the API server takes 1,024.
const NOTE_BYTES: usize = 1_000;
/// How names of what nobody should read end.
const CONFIDENTIAL: [&str; 10] = [
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "private_key",
    "authorization",
];
/// How secrets begin that are told by themselves: of Hugging Face, OpenAI and those like it, AWS, GitHub, GitLab, Google, NVIDIA, Slack, and JWTs.
const SECRETS: [&str; 17] = [
    "hf_",
    "sk-",
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "AIza",
    "nvapi-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "eyJ",
];
/// Characters of a secret after its beginning, and how many of them without a break look drawn by lot.
const SECRET_CHARS: usize = 16;
const DRAWN_CHARS: usize = 8;
const HIDDEN: &str = "***";

/// The object of an attempt, as events name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub namespace: String,
    /// Where it is known: without it, an event is found by the object's name only.
    pub uid: Option<String>,
}

impl From<&JobSeen> for Place {
    fn from(job: &JobSeen) -> Self {
        Self { namespace: job.namespace.clone(), uid: Some(job.uid.clone()) }
    }
}

/// An event of an entry of the history.
pub(super) fn of(note: &Note, place: &Place, instance: &str) -> Event {
    let EventRecord { at, reason, by, text, .. } = &note.event;
    let by_a_person = !matches!(by.as_str(), "holdfast" | "cluster");
    let text = if by_a_person { format!("{by}: {text}") } else { text.clone() };
    let (word, grave) = reason.map_or(("Noted", false), said);
    let name = names::event_of(&note.task_id, note.place);
    event(name, &note.task_id, note.kind, place, instance, (word, grave, &text), *at)
}

/// The event of an object's removal, which nobody else explains.
pub(super) fn of_removal(
    task: &TaskId,
    kind: JobKind,
    force: bool,
    place: &Place,
    instance: &str,
    now: Time,
) -> Event {
    let text = if force {
        "The attempt is over and its pods do not end: Holdfast removes it with its pods at once."
    } else {
        "The attempt is over: Holdfast removes it with its pods. Its output is kept, and its story is on the job's page."
    };
    event(names::removal_of(task, force), task, kind, place, instance, ("Removed", force, text), now)
}

fn event(
    name: String,
    task: &TaskId,
    kind: JobKind,
    place: &Place,
    instance: &str,
    (word, grave, text): (&str, bool, &str),
    at: Time,
) -> Event {
    let resource = names::resource(kind);
    let marks = [(names::INSTANCE, instance), (names::TASK, task.as_str())];
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(place.namespace.clone()),
            labels: Some(marks.map(|(name, value)| (name.to_owned(), value.to_owned())).into()),
            ..ObjectMeta::default()
        },
        action: Some(word.to_owned()),
        reason: Some(word.to_owned()),
        type_: Some(if grave { "Warning" } else { "Normal" }.to_owned()),
        note: Some(clean(text)),
        // A time outside the range of theirs cannot be said; there is none.
        event_time: Some(MicroTime(Timestamp::from_microsecond(at.micros()).unwrap_or_default())),
        reporting_controller: Some(REPORTER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        regarding: Some(ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            name: Some(task.to_string()),
            namespace: Some(place.namespace.clone()),
            uid: place.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Event::default()
    }
}

/// An event's reason, and whether it is a warning: something failed, or ends otherwise than was asked for.
fn said(reason: EventReason) -> (&'static str, bool) {
    match reason {
        EventReason::AttemptSubmitted => ("AttemptSubmitted", false),
        EventReason::AttemptRefused => ("AttemptRefused", true),
        EventReason::AttemptSucceeded => ("AttemptSucceeded", false),
        EventReason::Incident => ("Incident", true),
        EventReason::RestartInPlace => ("RestartInPlace", false),
        EventReason::Resubmit => ("Resubmit", false),
        EventReason::FailFast => ("FailFast", true),
        EventReason::BudgetUsed => ("BudgetUsed", true),
        EventReason::AutoFailoverOff => ("AutoFailoverOff", true),
        EventReason::Preempted => ("Preempted", true),
        EventReason::Killed => ("Killed", true),
        EventReason::StartedFresh => ("StartedFresh", false),
        EventReason::Resumed => ("Resumed", false),
        EventReason::NotResumed => ("NotResumed", true),
        EventReason::StopRequested => ("StopRequested", false),
        EventReason::DeleteRequested => ("DeleteRequested", false),
    }
}

/// A text as an event takes it: one line, of a size, and without what looks confidential. Lines of a program's output are in it, and
/// more people may read events than its log.
fn clean(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut cleaned = hide(&line);
    if cleaned.len() > NOTE_BYTES {
        let end = (0..=NOTE_BYTES - '…'.len_utf8()).rev().find(|end| cleaned.is_char_boundary(*end));
        cleaned.truncate(end.unwrap_or(0));
        cleaned.push('…');
    }
    cleaned
}

/// The text without the values of confidential names (`TOKEN=…`, `password: …`, `--token …`), without the passwords of addresses, what a
/// bearer shows, and what is known for a secret by its beginning.
fn hide(line: &str) -> String {
    let mut words = Vec::new();
    // Why the next word may be a value, or a sign.
    let (mut next, mut signs_next) = (After::Nothing, false);
    for word in line.split(' ') {
        let (after, is_sign) = (std::mem::take(&mut next), std::mem::take(&mut signs_next));
        let mut signs = word.match_indices(['=', ':']).map(|(at, _)| at);
        let sign = signs.find(|at| is_confidential(&word[..*at]));
        let is_value = match after {
            After::Nothing => false,
            After::Sign => true,
            After::Argument => !is_argument(word),
            After::Bearer => sign.is_none(),
        };
        words.push(match sign {
            _ if is_value && word.is_empty() => {
                next = after;
                String::new()
            }
            _ if is_value && is_lead(plain(word)) || is_sign && matches!(word, "=" | ":") => {
                next = After::Sign;
                word.to_owned()
            }
            // A number is a count, as of the tokens of a batch.
            _ if is_value && !is_number(word) => HIDDEN.to_owned(),
            Some(at) if at + 1 == word.len() || shows_bearer(&word[at + 1..]) => {
                next = After::Sign;
                word.to_owned()
            }
            Some(at) if !is_number(&word[at + 1..]) => format!("{}{HIDDEN}", open(&word[..=at])),
            _ => {
                signs_next = is_confidential(word);
                if is_argument(word) && is_confidential(plain(word)) {
                    next = After::Argument;
                } else if shows_bearer(word) {
                    next = After::Bearer;
                }
                open(word)
            }
        });
    }
    words.join(" ")
}

/// What stood before a word that may be a value for it.
#[derive(Clone, Copy, Default)]
enum After {
    #[default]
    Nothing,
    /// `password:`, after which anything is one.
    Sign,
    /// `--password`, after which another argument is none.
    Argument,
    /// `Bearer`, after which `token:` is none.
    Bearer,
}

/// A word that is no value itself, without what is confidential in it.
fn open(word: &str) -> String {
    without_secrets(&without_password(word))
}

/// Whether the word before what a bearer shows ends here: `Bearer`, or what ends so after a sign.
fn shows_bearer(word: &str) -> bool {
    let last = word.rsplit(|c: char| !c.is_ascii_alphanumeric()).next();
    last.is_some_and(|last| last.eq_ignore_ascii_case("bearer"))
}

/// Without what stands around a word in a list, a call, a quotation.
fn plain(word: &str) -> &str {
    word.trim_matches(['"', '\'', '`', ',', '(', ')', '[', ']'])
}

fn is_argument(word: &str) -> bool {
    plain(word).starts_with('-')
}

/// The word without secrets that are known by their beginning.
fn without_secrets(word: &str) -> String {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let (mut kept, mut left) = (String::new(), word);
    while let Some(start) = left.find(is_inner) {
        let (before, from) = left.split_at(start);
        let (run, after) = from.split_at(from.find(|c| !is_inner(c)).unwrap_or(from.len()));
        kept.push_str(before);
        kept.push_str(if is_secret(run) { HIDDEN } else { run });
        left = after;
    }
    kept.push_str(left);
    kept
}

/// Names of functions and files begin like secrets too (`hf_hub_download`); they are words, in small letters.
fn is_secret(run: &str) -> bool {
    let is_drawn = |part: &str| {
        part.len() >= DRAWN_CHARS && part.contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase())
    };
    let rest = SECRETS.iter().find_map(|start| run.strip_prefix(start));
    rest.is_some_and(|rest| rest.len() >= SECRET_CHARS && rest.split(['_', '-', '.']).any(is_drawn))
}

fn is_confidential(name: &str) -> bool {
    let name = name.trim_end_matches(['"', '\'']).to_lowercase();
    CONFIDENTIAL.iter().any(|confidential| name.ends_with(confidential))
}

/// It stands before a value and is none.
fn is_lead(word: &str) -> bool {
    ["=", ":", "bearer", "basic"].iter().any(|lead| word.eq_ignore_ascii_case(lead))
}

fn is_number(text: &str) -> bool {
    let text = text.trim_end_matches([',', ';', '.', ')']);
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit() || c == '.')
}

/// `scheme://user:password@host` without its password.
fn without_password(word: &str) -> String {
    let hidden = || {
        let (scheme, rest) = word.split_once("://")?;
        let (account, host) = rest.split_once('@')?;
        let (user, _) = account.split_once(':')?;
        Some(format!("{scheme}://{user}:{HIDDEN}@{host}"))
    };
    hidden().unwrap_or_else(|| word.to_owned())
}

#[cfg(test)]
#[path = "tests/events.rs"]
mod tests;
