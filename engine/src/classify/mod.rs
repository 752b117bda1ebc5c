//! From what a replica printed and how its processes ended to a verdict.

/// Characters of a line that are kept as evidence.
pub const MAX_LINE_CHARS: usize = 400;
/// Lines of evidence in a verdict.
pub const MAX_EVIDENCE: usize = 32;
