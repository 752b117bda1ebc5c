//! The same root gives the same fingerprint, whatever its numbers, addresses and paths.

use crate::failure::FailureType;

/// Characters of the line that count.
const MAX_CHARS: usize = 160;

/// The fingerprint of a root.
pub(super) fn fingerprint(failure_type: FailureType, rule: &str, line: &str) -> String {
    format!("{failure_type}:{rule}:{}", normalise(line))
}

/// The line with every word that holds a digit or is a path replaced, so that only its wording is left.
fn normalise(line: &str) -> String {
    let body = super::prefix::strip(line.as_bytes()).body;
    let body = String::from_utf8_lossy(body);
    let mut text = String::new();
    for word in body.split_whitespace() {
        let varies = word.contains(|c: char| c.is_ascii_digit()) || word.contains('/');
        let word = if varies { "#" } else { word };
        if varies && text.ends_with('#') {
            continue;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(word);
        if text.len() >= MAX_CHARS {
            break;
        }
    }
    text.chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_addresses_and_paths_do_not_count() {
        let same = [
            "[rank3]: CUDA out of memory. Tried to allocate 1.50 GiB at 0x7f00aa in /tmp/run-8/x.py",
            "[rank0]: CUDA out of memory. Tried to allocate 22.00 GiB at 0x1f in /data/run-9/y.py",
        ];
        let [a, b] = same.map(|line| fingerprint(FailureType::OomGpu, "cuda-oom", line));
        assert_eq!(a, b);
        assert!(a.starts_with("OOM_GPU:cuda-oom:CUDA out of memory."), "{a}");
        let other = fingerprint(FailureType::OomGpu, "cuda-oom", "CUDA out of patience");
        assert_ne!(a, other);
    }
}
