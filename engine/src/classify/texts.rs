//! Finds a few texts in a line, with vector instructions where the processor has them.

use aho_corasick::{AhoCorasick, Input, MatchKind, packed};

/// Texts that the vector search takes at a time.
pub(super) const MAX_TEXTS: usize = 64;
/// The vector search puts texts into this many buckets, a text into that of its place modulo their number, and looks closer
/// where the bytes of a line might be those of any mix of the texts in one bucket.
pub(super) const BUCKETS: usize = 16;

/// A search for any of a few texts.
///
/// `AhoCorasick` uses the same vector search, but as a helper of its automaton: on lines, which are short, the way there
/// costs more than the search.
#[derive(Debug)]
pub(super) struct Texts {
    vector: Option<packed::Searcher>,
    automaton: AhoCorasick,
}

impl Texts {
    /// A search for these; where two begin at one place the earlier of them is found.
    pub(super) fn new<T: AsRef<[u8]>>(texts: &[T]) -> Result<Self, aho_corasick::BuildError> {
        let kind = packed::MatchKind::LeftmostFirst;
        Ok(Self {
            vector: packed::Config::new().match_kind(kind).builder().extend(texts).build(),
            automaton: AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(texts)?,
        })
    }

    /// The first text in `line` from `at` on: which, where it begins and where it ends.
    pub(super) fn find(&self, line: &[u8], at: usize) -> Option<aho_corasick::Match> {
        match &self.vector {
            Some(vector) => vector.find_in(line, (at..line.len()).into()),
            None => self.automaton.find(Input::new(line).range(at..)),
        }
    }

    /// Whether any of them is in `line`.
    pub(super) fn are_in(&self, line: &[u8]) -> bool {
        self.find(line, 0).is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_searches_find_the_same(line in "[a-d ]{0,80}", at in 0usize..80) {
            let texts = Texts::new(&["abca", "bcad", "dd a", "abcd"]).unwrap();
            let plain = Texts { vector: None, automaton: texts.automaton.clone() };
            let at = at.min(line.len());
            prop_assert_eq!(texts.find(line.as_bytes(), at), plain.find(line.as_bytes(), at));
        }
    }
}
