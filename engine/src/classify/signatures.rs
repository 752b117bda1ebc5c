//! Signatures: what a line that speaks of a failure looks like. They are data, `engine/signatures.json`.
//!
//! The order in the file is the order of precedence within one line: the first signature that matches it
//! counts.

use std::{collections::HashMap, sync::LazyLock};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use regex::bytes::Regex;
use serde::Deserialize;

use super::texts::{BUCKETS, MAX_TEXTS, Texts};
use crate::failure::{FailureType, Role};

const BUILTIN: &str = include_str!("../../signatures.json");

/// Stems in a group.
const GROUP: usize = MAX_TEXTS / BUCKETS;

/// One way in which a line speaks of a failure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Signature {
    /// Its id; stable, stored with every incident.
    pub id: String,
    /// The type it stands for; `UNKNOWN` where the line shows a failure but not which.
    #[serde(rename = "type")]
    pub failure_type: FailureType,
    /// What the line says about the failure.
    pub role: Role,
    /// The pattern is tried only on a line that holds one of these texts, which makes scanning fast.
    pub needs: Vec<String>,
    /// A regular expression over bytes. With `^` it stands for the beginning of the line without rank and
    /// time.
    #[serde(deserialize_with = "regex_from_text")]
    pattern: Regex,
    /// The fault in a few words; `{1}` stands for the first group of the pattern.
    pub fault: String,
    /// A line that matches.
    pub example: String,
    /// Where the wording comes from.
    pub source: String,
    /// What to look at or to change.
    pub hint: Option<String>,
    /// It proves its type, so that it also counts where a [`symptom`](Self::symptom) was printed before it.
    #[serde(default)]
    pub decisive: bool,
    /// It may itself follow from something that is not said on the line: a later decisive line wins over
    /// it.
    #[serde(default)]
    pub symptom: bool,
    /// The network link is down.
    #[serde(default)]
    pub link_down: bool,
    /// The node is not to blame, though the type is one of those that blame nodes.
    #[serde(default)]
    pub spares_node: bool,
}

fn regex_from_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Regex, D::Error> {
    let text = String::deserialize(deserializer)?;
    // Logs are bytes: classes are ASCII and the tables of Unicode are left out.
    regex::bytes::RegexBuilder::new(&text)
        .unicode(false)
        .size_limit(1 << 20)
        .build()
        .map_err(serde::de::Error::custom)
}

impl Signature {
    /// The fault as this line tells it.
    pub fn fault_of(&self, line: &str) -> String {
        if !self.fault.contains("{1}") {
            return self.fault.clone();
        }
        let body = super::prefix::strip(line.as_bytes()).body;
        let haystack = if self.is_anchored() { body } else { line.as_bytes() };
        let group = self.pattern.captures(haystack).and_then(|found| found.get(1));
        let text = group.map(|group| String::from_utf8_lossy(group.as_bytes())).unwrap_or_default();
        self.fault.replace("{1}", text.trim())
    }

    fn is_anchored(&self) -> bool {
        self.pattern.as_str().starts_with('^')
    }
}

/// Why a file of signatures is refused.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// It is no such file, or a pattern does not compile.
    #[error("the signatures cannot be read: {0}; see engine/signatures.json for the form")]
    Parse(#[from] serde_json::Error),
    /// A signature would never be tried.
    #[error("signature `{0}` has no text in `needs`: name one that every matching line holds")]
    NoNeeds(String),
    /// Two signatures have one id.
    #[error("signature `{0}` is there twice: give each its own id")]
    Twice(String),
    /// The search would fall back to a slow one.
    #[error("the stems are not at most {BUCKETS} groups of {GROUP}, as the vector search takes them")]
    Stems,
    /// The texts are too many.
    #[error("stems and needs cannot be compiled: {0}")]
    Build(#[from] aho_corasick::BuildError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    /// A line that holds none of these is not looked at further. Few enough for the vector instructions
    /// that search for all of them at once; the needs of the signatures are too many for that. Stems of one
    /// group are looked for together: the more their first four bytes are alike, place by place, the fewer
    /// lines are looked at in vain.
    stems: Vec<Vec<String>>,
    signatures: Vec<Signature>,
}

/// A compiled set of signatures.
#[derive(Debug, Default)]
pub struct Signatures {
    version: u32,
    signatures: Vec<Signature>,
    by_id: HashMap<String, usize>,
    matcher: Option<Matcher>,
}

/// Finds the signatures whose patterns are worth trying.
#[derive(Debug)]
struct Matcher {
    /// Says fast whether a line holds a stem.
    stems: Texts,
    /// Says which needed texts a line holds.
    needs: AhoCorasick,
    /// For each of those the signatures that need it.
    needed_by: Vec<Vec<usize>>,
}

impl Signatures {
    /// The set that Holdfast comes with.
    pub fn builtin() -> &'static Self {
        // The tests prove that the embedded file parses, so the default is never used.
        static SIGNATURES: LazyLock<Signatures> =
            LazyLock::new(|| Signatures::parse(BUILTIN).unwrap_or_default());
        &SIGNATURES
    }

    /// Reads and compiles a file of signatures.
    pub fn parse(json: &str) -> Result<Self, SignatureError> {
        let File { version, stems, signatures } = serde_json::from_str(json)?;
        if stems.len() > BUCKETS || stems.iter().any(|group| group.len() != GROUP) {
            return Err(SignatureError::Stems);
        }
        let mut by_id = HashMap::new();
        for (index, signature) in signatures.iter().enumerate() {
            if signature.needs.iter().all(String::is_empty) {
                return Err(SignatureError::NoNeeds(signature.id.clone()));
            }
            if by_id.insert(signature.id.clone(), index).is_some() {
                return Err(SignatureError::Twice(signature.id.clone()));
            }
        }
        let matcher = Some(Matcher::new(&stems, &signatures)?);
        Ok(Self { version, signatures, by_id, matcher })
    }

    /// The version of the data.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// All signatures in their order of precedence.
    pub fn all(&self) -> &[Signature] {
        &self.signatures
    }

    /// The signature with this id.
    pub fn get(&self, id: &str) -> Option<&Signature> {
        self.by_id.get(id).and_then(|index| self.signatures.get(*index))
    }

    /// Whether a line is worth a look: it holds a stem.
    pub(super) fn may_match(&self, line: &[u8]) -> bool {
        self.matcher.as_ref().is_some_and(|matcher| matcher.stems.are_in(line))
    }

    /// The first signature that matches, and where in `line`. `body` is the end of `line` without rank and
    /// time.
    pub(super) fn find(&self, line: &[u8], body: &[u8]) -> Option<(&Signature, usize)> {
        let matcher = self.matcher.as_ref()?;
        let mut candidates: Vec<usize> = matcher
            .needs
            .find_overlapping_iter(line)
            .flat_map(|found| matcher.needed_by[found.pattern()].iter().copied())
            .collect();
        candidates.sort_unstable();
        candidates.dedup();
        candidates.into_iter().find_map(|index| {
            let signature = &self.signatures[index];
            let (haystack, offset) =
                if signature.is_anchored() { (body, line.len() - body.len()) } else { (line, 0) };
            signature.pattern.find(haystack).map(|found| (signature, offset + found.start()))
        })
    }
}

impl Matcher {
    fn new(stems: &[Vec<String>], signatures: &[Signature]) -> Result<Self, aho_corasick::BuildError> {
        let mut texts: Vec<&str> = Vec::new();
        let mut needed_by: Vec<Vec<usize>> = Vec::new();
        for (index, signature) in signatures.iter().enumerate() {
            for need in signature.needs.iter().filter(|need| !need.is_empty()) {
                match texts.iter().position(|text| text == need) {
                    Some(known) => needed_by[known].push(index),
                    None => {
                        texts.push(need);
                        needed_by.push(vec![index]);
                    }
                }
            }
        }
        let by_bucket: Vec<&String> =
            (0..GROUP).flat_map(|place| stems.iter().map(move |group| &group[place])).collect();
        let needs = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::DFA))
            .build(texts)?;
        Ok(Self { stems: Texts::new(&by_bucket)?, needs, needed_by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::{Line, LineScanner, classify_log};

    #[test]
    fn the_builtin_file_is_read() {
        let signatures = Signatures::parse(BUILTIN).unwrap();
        assert!(signatures.version() >= 1);
        assert_eq!(Signatures::builtin().all().len(), signatures.all().len());
        for failure_type in FailureType::ALL {
            assert!(signatures.all().iter().any(|s| s.failure_type == failure_type), "{failure_type}");
        }
    }

    /// Signatures that a log matches, in order.
    fn matches(log: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut keep =
            |line: Line<'_>| found.extend(line.matched.map(|matched| matched.signature.id.clone()));
        let mut scanner = LineScanner::new();
        scanner.feed(log.as_bytes(), &mut keep);
        scanner.flush(&mut keep);
        found
    }

    #[test]
    fn every_example_is_found_by_its_own_signature() {
        let strays: Vec<_> = Signatures::builtin()
            .all()
            .iter()
            .filter(|signature| matches(&signature.example) != [signature.id.clone()])
            .map(|signature| (&signature.id, matches(&signature.example)))
            .collect();
        assert!(strays.is_empty(), "{strays:#?}");
    }

    #[test]
    fn every_example_alone_gives_its_type() {
        for signature in Signatures::builtin().all() {
            let verdict = classify_log(signature.example.as_bytes(), None);
            if signature.role == Role::Advice {
                assert_eq!(verdict, None, "{}", signature.id);
                continue;
            }
            let verdict = verdict.expect(&signature.id);
            assert_eq!(verdict.failure_type, signature.failure_type, "{}", signature.id);
            assert_eq!(verdict.rule, signature.id);
            assert!(!verdict.fault.trim().is_empty() && !verdict.fault.contains('{'), "{}", verdict.fault);
        }
    }

    #[test]
    fn a_bad_file_is_refused_with_the_reason() {
        let one = |needs: &str, pattern: &str| {
            format!(
                r#"{{"version":1,"stems":[["x","xx","xxx","xxxx"]],"signatures":[{{"id":"a","type":"APP_ERROR","role":"root","needs":{needs},
                "pattern":"{pattern}","fault":"f","example":"e","source":"s","hint":null}}]}}"#
            )
        };
        assert!(Signatures::parse(&one(r#"["x"]"#, "x")).is_ok());
        for (json, reason) in [
            (one("[]", "x"), "`a` has no text in `needs`"),
            (one(r#"["x"]"#, "("), "unclosed group"),
            ("{}".to_owned(), "version"),
        ] {
            let error = Signatures::parse(&json).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
