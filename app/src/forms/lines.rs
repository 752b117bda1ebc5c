//! Commands and environments as text that gives back the very same values.
//!
//! A variable is a line `NAME=value`. A value that begins with `"` is a JSON string, so that line breaks, tabs and the
//! like have a form that a text field keeps: browsers send a line break of the text as CR LF. Every value that needs it
//! is written so. A command is one line of a shell, where an argument that cannot be typed as it is stands in `$'…'`.

use std::{borrow::Cow, collections::BTreeMap};

/// A variable as a line.
fn line(name: &str, value: &str) -> String {
    let plain = !value.starts_with('"') && value.trim() == value && !value.chars().any(char::is_control);
    if plain { format!("{name}={value}") } else { format!("{name}={}", serde_json::Value::from(value)) }
}

/// An environment as text, a line for each variable.
pub fn write_env(env: &BTreeMap<String, String>) -> String {
    env.iter().map(|(name, value)| line(name, value)).collect::<Vec<_>>().join("\n")
}

/// The environment that a text holds, and a sentence for each line that holds no variable.
pub fn read_env(text: &str) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut env, mut wrong) = (BTreeMap::new(), Vec::new());
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let number = at + 1;
        let Some((name, value)) = line.split_once('=') else {
            let shown: String = line.chars().take(40).collect();
            wrong.push(format!("Line {number} is no variable: `{shown}`. Use NAME=value, one a line."));
            continue;
        };
        let name = name.trim();
        let Some(value) = read_value(value) else {
            wrong.push(format!(
                "Line {number}: the value of {name} begins with a quote, but is no whole quoted text. End it with \" and \
                 write \\\" for a quote, \\\\ for a backslash and \\n for a line break inside."
            ));
            continue;
        };
        if env.insert(name.to_owned(), value).is_some() {
            wrong.push(format!("Line {number} sets {name} a second time. Keep one of them."));
        }
    }
    (env, wrong)
}

fn read_value(text: &str) -> Option<String> {
    if text.starts_with('"') { serde_json::from_str(text).ok() } else { Some(text.to_owned()) }
}

/// A command as one line of a shell.
pub fn write_command(command: &[String]) -> String {
    command.iter().map(|argument| quoted(argument)).collect::<Vec<_>>().join(" ")
}

/// An argument as a shell reads it: in `$'…'` where it holds what one line cannot.
fn quoted(argument: &str) -> Cow<'_, str> {
    if !argument.chars().any(char::is_control) {
        return shell_words::quote(argument);
    }
    let mut text = String::from("$'");
    for c in argument.chars() {
        match c {
            '\'' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            c if c.is_control() => text.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text.push('\'');
    Cow::Owned(text)
}

/// The program and arguments of a line; none where a quote is left open or an escape in `$'…'` is not known.
pub fn read_command(line: &str) -> Option<Vec<String>> {
    let mut plain = String::new();
    let mut rest = line;
    while let Some((before, after)) = split_at_escape(rest) {
        let (argument, after) = read_escaped(after)?;
        plain.push_str(before);
        // In single quotes everything stands for itself, line breaks too.
        plain.push_str(&format!("'{}'", argument.replace('\'', r"'\''")));
        rest = after;
    }
    plain.push_str(rest);
    shell_words::split(&plain).ok()
}

/// The text before the first `$'` outside quotes, and what follows it.
fn split_at_escape(text: &str) -> Option<(&str, &str)> {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (None, '$') if text[at + 1..].starts_with('\'') => return Some((&text[..at], &text[at + 2..])),
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

/// What stands in `$'…'`, from after its opening to its end, and what follows.
fn read_escaped(text: &str) -> Option<(String, &str)> {
    let mut argument = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return Some((argument, &text[at + 1..])),
            '\\' => argument.push(match chars.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                c @ ('\'' | '\\' | '"') => c,
                'u' => {
                    let digits: String = (0..4).map_while(|_| chars.next()).map(|(_, c)| c).collect();
                    char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
                }
                _ => return None,
            }),
            c => argument.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn plain_values_stay_plain_and_others_are_quoted() {
        let values = env(&[
            ("A", "1"),
            ("B", "x=y z"),
            ("C", "C:\\new \"x\""),
            ("D", "\"quoted\""),
            ("E", "two\nlines"),
            ("F", " padded "),
            ("G", ""),
        ]);
        let text = write_env(&values);
        assert_eq!(
            text.lines().collect::<Vec<_>>(),
            [
                "A=1",
                "B=x=y z",
                "C=C:\\new \"x\"",
                r#"D="\"quoted\"""#,
                r#"E="two\nlines""#,
                "F=\" padded \"",
                "G="
            ]
        );
        assert_eq!(read_env(&text), (values, vec![]));
    }

    #[test]
    fn a_line_that_holds_no_variable_is_told_with_its_number() {
        let (read, wrong) = read_env("A=1\nFOO\n\nB=\"open\nC=\"a\" b\nA=2");
        assert_eq!(read, env(&[("A", "2")]));
        let begins: Vec<_> = wrong.iter().map(|why| why.chars().take(6).collect::<String>()).collect();
        assert_eq!(begins, ["Line 2", "Line 4", "Line 5", "Line 6"]);
    }

    #[test]
    fn a_command_reads_as_a_shell_reads_it() {
        for (line, want) in [
            ("sh -c 'echo \"a b\"' ''", Some(vec!["sh", "-c", "echo \"a b\"", ""])),
            (r"python3 -c $'import x\nprint(\'a\')'", Some(vec!["python3", "-c", "import x\nprint('a')"])),
            (r#"echo "$'x'" '$' \$'y'"#, Some(vec!["echo", "$'x'", "$", "$y"])),
            (r"a$'\t'b", Some(vec!["a\tb"])),
            ("python3 'train.py", None),
            (r"echo $'open", None),
            (r"echo $'\q'", None),
        ] {
            let want = want.map(|words| words.into_iter().map(str::to_owned).collect());
            assert_eq!(read_command(line), want, "{line}");
        }
    }

    proptest! {
        /// Browsers send each line break of a text as CR LF.
        #[test]
        fn any_environment_survives_the_text(
            values in prop::collection::btree_map("[A-Za-z_][A-Za-z0-9_]{0,8}", value(), 0..6),
        ) {
            let sent = write_env(&values).replace('\n', "\r\n");
            prop_assert_eq!(read_env(&sent), (values, vec![]));
        }

        #[test]
        fn any_command_survives_one_line(command in prop::collection::vec(value(), 0..6)) {
            let line = write_command(&command);
            prop_assert!(!line.contains(['\n', '\r']), "{}", line);
            prop_assert_eq!(read_command(&line), Some(command));
        }
    }

    /// Any value that a program can be given, often made of what quoting has to mind.
    fn value() -> impl Strategy<Value = String> {
        let odd = prop::sample::select(vec![
            "\"", "'", "\\", "\n", "\r", "\t", "$", "=", " ", "#", "n", "\u{7f}", "\u{85}", "\u{2028}", "é",
        ]);
        prop_oneof!["[^\u{0}]{0,12}", prop::collection::vec(odd, 0..8).prop_map(|parts| parts.concat()),]
    }
}
