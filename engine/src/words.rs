//! Numbers and lists in sentences, one way each.

/// A number with commas between thousands: `41,200`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 node`, `2 nodes`, `2 processes`.
pub fn count(number: u32, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", grouped(number.into()))
}

/// `a`, `a and b`, `a, b and c`, `a, b, c and 5 more`.
pub fn list(items: &[&str]) -> String {
    match items {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] if items.len() <= 4 => format!("{} and {last}", first.join(", ")),
        many => format!("{} and {} more", many[..3].join(", "), many.len() - 3),
    }
}

/// A command as the line of a POSIX shell that starts it and nothing else: every word quoted.
pub fn shell_line<S: AsRef<str>>(command: &[S]) -> String {
    let quoted: Vec<_> =
        command.iter().map(|word| format!("'{}'", word.as_ref().replace('\'', r"'\''"))).collect();
    quoted.join(" ")
}

/// A duration in its two largest units: `45 s`, `3 min`, `2 h 5 min`, `3 d 4 h`.
pub fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    if minutes == 0 {
        format!("{seconds} s")
    } else if hours == 0 {
        format!("{minutes} min")
    } else if days == 0 {
        format!("{hours} h {} min", minutes % 60)
    } else {
        format!("{days} d {} h", hours % 24)
    }
}

/// What is left of a time that is counted down: `at most 9 min left`; never less than there is.
pub fn time_left(seconds: f64) -> String {
    let seconds = seconds.max(0.0).ceil();
    let whole = if seconds > 60.0 { (seconds / 60.0).ceil() * 60.0 } else { seconds };
    format!("at most {} left", duration(whole))
}

/// The first character of a text that cannot be seen, so that two texts would look the same or one like another: controls, marks
/// that turn the direction of writing, and all that Unicode calls default ignorable. Joiners and variation selectors shape the
/// letter or sign before them in Persian, Indic scripts and emoji; there, and only after such a sign, they are seen.
pub fn unseen(text: &str) -> Option<char> {
    let mut before = None;
    text.chars().find(|&c| {
        let shapes = matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
            && before.is_some_and(|before: char| !before.is_ascii() && !is_unseen(before));
        // An emoji may carry a selector and then a joiner: both belong to the sign before them.
        if !shapes {
            before = Some(c);
        }
        !shapes && is_unseen(c)
    })
}

fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_shell_keeps_every_word() {
        for (command, want) in [
            (vec!["python3", "train.py"], "'python3' 'train.py'"),
            (vec!["sh", "-c", "echo $HOME; exit"], "'sh' '-c' 'echo $HOME; exit'"),
            (vec!["it's", ""], r"'it'\''s' ''"),
        ] {
            assert_eq!(shell_line(&command), want);
        }
    }

    #[test]
    fn what_cannot_be_seen_is_found() {
        for text in [
            "demo 7",
            "Ärger-2",
            "训练 基线",
            "обучение",
            "a\u{301}",
            "100 % ✓",
            "🚀",
            "می\u{200c}خواهم",
            "क्\u{200d}ष",
            "👩\u{200d}🔬",
            "❤\u{fe0f}\u{200d}🔥",
        ] {
            assert_eq!(unseen(text), None, "{text}");
        }
        for unwanted in [
            '\0',
            '\n',
            '\u{7f}',
            '\u{85}',
            '\u{200b}',
            '\u{200d}',
            '\u{202a}',
            '\u{202e}',
            '\u{2066}',
            '\u{2069}',
            '\u{2028}',
            '\u{feff}',
            '\u{ad}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{e0041}',
        ] {
            assert_eq!(unseen(&format!("a{unwanted}b")), Some(unwanted), "U+{:04X}", u32::from(unwanted));
        }
    }

    #[test]
    fn numbers_and_lists_read_well() {
        let numbers: Vec<_> = [0, 999, 1_200, 90_000, 1_234_567].into_iter().map(grouped).collect();
        assert_eq!(numbers, ["0", "999", "1,200", "90,000", "1,234,567"]);
        let counts = [count(1, "node"), count(2, "node"), count(8, "process")];
        assert_eq!(counts, ["1 node", "2 nodes", "8 processes"]);
        assert_eq!(list(&["a"]), "a");
        assert_eq!(list(&["a", "b", "c", "d"]), "a, b, c and d");
        assert_eq!(list(&["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
        let spans: Vec<_> = [0.4, 59.9, 180.0, 7500.0, 273_600.0].into_iter().map(duration).collect();
        assert_eq!(spans, ["0 s", "59 s", "3 min", "2 h 5 min", "3 d 4 h"]);
    }
}
