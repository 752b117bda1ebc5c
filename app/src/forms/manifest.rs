//! A job as others can create it again: the body of `POST /api/v1/jobs` with the values that differ from the defaults, as
//! JSON, as YAML and as a command for a shell.

use engine::job::{JobDraft, Site};
use serde_json::Value;

use crate::paths;

/// The body without what says nothing, and without what it would be anyway. None for a draft that is refused.
pub fn body(draft: &JobDraft, site: &Site) -> Option<Value> {
    let wanted = draft.validate(site).ok()?;
    let same = |body: &Value| {
        serde_json::from_value::<JobDraft>(body.clone())
            .is_ok_and(|draft| draft.validate(site).is_ok_and(|spec| spec == wanted))
    };
    let mut body = serde_json::to_value(draft).ok()?;
    for path in candidates(&body) {
        let mut without = body.clone();
        remove(&mut without, &path);
        if same(&without) {
            body = without;
        }
    }
    prune(&mut body);
    Some(body)
}

/// Values that may be what they would be anyway. No environment variable and no label is, and a job may have hundreds.
fn candidates(body: &Value) -> impl Iterator<Item = Vec<String>> + use<> {
    let is_entry = |path: &[String]| match path {
        [field, _, ..] if field == "env" => true,
        [field, _, _, ..] => field == "kubernetes",
        _ => false,
    };
    leaves(body).into_iter().filter(move |path| !is_entry(path))
}

/// The keys that lead to each value that is no object.
fn leaves(value: &Value) -> Vec<Vec<String>> {
    let Value::Object(fields) = value else { return vec![Vec::new()] };
    fields
        .iter()
        .flat_map(|(key, value)| {
            leaves(value).into_iter().map(move |rest| std::iter::once(key.clone()).chain(rest).collect())
        })
        .collect()
}

fn remove(value: &mut Value, path: &[String]) {
    let (Value::Object(fields), Some((key, rest))) = (value, path.split_first()) else { return };
    match fields.get_mut(key) {
        Some(inner) if !rest.is_empty() => remove(inner, rest),
        _ => {
            fields.remove(key);
        }
    }
}

/// Takes out nulls and objects that are empty without them. A pasted object stays as it is.
fn prune(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.iter_mut().filter(|(key, _)| *key != "manifest").for_each(|(_, value)| prune(value));
        fields
            .retain(|_, value| !value.is_null() && value.as_object().is_none_or(|object| !object.is_empty()));
    }
}

/// The body as indented JSON.
pub fn json(draft: &JobDraft, site: &Site) -> Option<String> {
    serde_json::to_string_pretty(&body(draft, site)?).ok()
}

/// The body as YAML.
pub fn yaml(draft: &JobDraft, site: &Site) -> Option<String> {
    Some(write(&body(draft, site)?).trim_end().to_owned())
}

/// A value as YAML, each line with its end.
pub fn write(value: &Value) -> String {
    let mut text = String::new();
    write_yaml(&mut text, value, 0);
    text
}

/// Block style for what holds something, JSON for the rest: every JSON value is YAML too. Texts are always quoted, so none
/// is taken for a number or a switch.
fn write_yaml(out: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    let is_block = |value: &Value| match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    let mut entry = |lead: String, value: &Value| {
        out.push_str(&lead);
        if is_block(value) {
            out.push('\n');
            write_yaml(out, value, depth + 1);
        } else {
            out.push_str(&format!(" {}\n", yaml_scalar(value)));
        }
    };
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| entry(format!("{indent}{}:", yaml_key(key)), value))
        }
        Value::Array(items) => items.iter().for_each(|value| entry(format!("{indent}-"), value)),
        scalar => out.push_str(&format!("{}\n", yaml_scalar(scalar))),
    }
}

/// A value that needs no lines of its own, as JSON. What JSON leaves as it is and older YAML does not print is escaped.
fn yaml_scalar(value: &Value) -> String {
    let is_printed = |c: char| {
        !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
    };
    let text = value.to_string();
    if text.chars().all(is_printed) {
        return text;
    }
    text.chars()
        .map(|c| if is_printed(c) { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) })
        .collect()
}

/// A key, quoted where it could be taken for something else, as YAML 1.1 does with `NO` and `y`.
fn yaml_key(key: &str) -> String {
    const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let is_name = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_name && !WORDS.iter().any(|word| key.eq_ignore_ascii_case(word)) {
        key.to_owned()
    } else {
        yaml_scalar(&Value::from(key))
    }
}

/// The command that creates it. `signs_in` is a server that asks who calls: then the token comes from the environment.
pub fn curl(draft: &JobDraft, site: &Site, origin: Option<&str>, signs_in: bool) -> Option<String> {
    Some(command(&json(draft, site)?, origin, signs_in))
}

/// The command that posts a body, which stands in a here-document: an argument may be no longer than 128 KiB on Linux, a body may.
pub fn command(body: &str, origin: Option<&str>, signs_in: bool) -> String {
    let origin = origin.unwrap_or("http://127.0.0.1:3000");
    let token = if signs_in { " \\\n  -H \"Authorization: Bearer $HOLDFAST_TOKEN\"" } else { "" };
    let mut end = "JOB".to_owned();
    while body.lines().any(|line| line == end) {
        end.push('_');
    }
    format!(
        "curl -sS -X POST {origin}{}{token} \\\n  -H 'Content-Type: application/json' \\\n  --data-binary @- <<'{end}'\n{body}\n{end}",
        paths::API_JOBS,
    )
}

#[cfg(test)]
mod tests {
    use engine::time::Time;

    use super::*;
    use crate::forms::{
        new_job::check,
        typed::{Typed, name},
    };

    fn draft(changes: &[(&str, &str)]) -> JobDraft {
        let mut typed = Typed::demo(&Site::default(), Time(0));
        for (field, text) in changes {
            typed.set(field, *text);
        }
        check(&typed, &Site::default()).unwrap()
    }

    #[test]
    fn only_what_differs_from_the_defaults_is_written() {
        assert_eq!(
            yaml(&draft(&[]), &Site::default()).unwrap(),
            r#"accelerators_per_replica: 1
checkpoint_dir: "checkpoints/demo-0"
command:
  - "python3"
  - "examples/train.py"
  - "--steps"
  - "200"
env:
  FAIL_AT: "40"
fault_tolerance:
  auto_failover: true
  max_task_restarts: 2
  policy:
    enabled: true
name: "demo"
replicas: 2"#
        );
    }

    #[test]
    fn every_view_creates_the_same_job() {
        let site = Site::default();
        for changes in [
            &[][..],
            &[
                (name::NAME, "it's"),
                (name::ENV, "A=\"two\\nlines\"\nB=$HOME `id`"),
                (name::COMMAND, "sh -c 'echo \"$A\"'"),
            ],
            &[(name::HANG, "on"), (name::WINDOW, "20m"), (name::IN_PLACE, "0"), (name::TASK_RESTARTS, "0")],
        ] {
            let draft = draft(changes);
            let wanted = draft.validate(&site).unwrap();
            let body: JobDraft = serde_json::from_str(&json(&draft, &site).unwrap()).unwrap();
            assert_eq!(body.validate(&site).unwrap(), wanted);
            let command = curl(&draft, &site, Some("http://127.0.0.1:3000"), false).unwrap();
            let (head, document) = command.split_once("<<'JOB'\n").unwrap();
            let words = shell_words::split(&head.replace("\\\n", " ")).unwrap();
            assert_eq!(words[4], "http://127.0.0.1:3000/api/v1/jobs");
            let sent: JobDraft = serde_json::from_str(document.strip_suffix("\nJOB").unwrap()).unwrap();
            assert_eq!(sent.validate(&site).unwrap(), wanted);
        }
    }

    #[test]
    fn the_end_of_a_body_is_no_line_of_it() {
        let command = command("JOB\n JOB_\nJOB_", None, false);
        assert!(command.ends_with("<<'JOB__'\nJOB\n JOB_\nJOB_\nJOB__"), "{command}");
    }

    #[test]
    fn environment_variables_are_not_asked_whether_they_are_defaults() {
        let lines: Vec<_> = (0..200).map(|i| format!("V{i}=")).collect();
        let draft = draft(&[(name::ENV, &lines.join("\n"))]);
        let whole = serde_json::to_value(&draft).unwrap();
        assert!(candidates(&whole).all(|path| path[0] != "env"));
        assert!(candidates(&whole).any(|path| path == ["fault_tolerance", "auto_failover"]));
        assert_eq!(body(&draft, &Site::default()).unwrap()["env"].as_object().unwrap().len(), 200);
    }

    #[test]
    fn keys_that_yaml_would_take_for_a_switch_are_quoted() {
        let keys = [
            "NO", "Y", "n", "on", "OFF", "Null", "TRUE", "NODE", "_", "Y2", "FAIL_AT", "1", "1e3", "a.b",
            "~", "",
        ];
        let want = [
            r#""NO""#,
            r#""Y""#,
            r#""n""#,
            r#""on""#,
            r#""OFF""#,
            r#""Null""#,
            r#""TRUE""#,
            "NODE",
            "_",
            "Y2",
            "FAIL_AT",
            r#""1""#,
            r#""1e3""#,
            r#""a.b""#,
            r#""~""#,
            r#""""#,
        ];
        assert_eq!(keys.map(yaml_key), want);
        let text = yaml(&draft(&[(name::ENV, "NO=1\nNODE=2")]), &Site::default()).unwrap();
        assert!(text.contains("env:\n  \"NO\": \"1\"\n  NODE: \"2\"\n"), "{text}");
    }

    #[test]
    fn a_server_with_accounts_is_shown_a_token() {
        let command = |signs_in| curl(&draft(&[]), &Site::default(), None, signs_in).unwrap();
        assert!(command(true).contains("Bearer $HOLDFAST_TOKEN") && !command(false).contains("Bearer"));
    }

    #[test]
    fn a_draft_that_is_refused_has_no_view() {
        assert_eq!(json(&JobDraft::default(), &Site::default()), None);
    }
}
