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
            .ok()?
            .validate(site)
            .ok()
            .filter(|spec| *spec == wanted)
    };
    let mut body = serde_json::to_value(draft).ok()?;
    for path in leaves(&body) {
        let mut without = body.clone();
        remove(&mut without, &path);
        if same(&without).is_some() {
            body = without;
        }
    }
    prune(&mut body);
    Some(body)
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

/// Takes out nulls and objects that are empty without them.
fn prune(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(prune);
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
    let mut text = String::new();
    write_yaml(&mut text, &body(draft, site)?, 0);
    Some(text.trim_end().to_owned())
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
            out.push_str(&format!(" {value}\n"));
        }
    };
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| entry(format!("{indent}{key}:"), value))
        }
        Value::Array(items) => items.iter().for_each(|value| entry(format!("{indent}-"), value)),
        scalar => out.push_str(&format!("{scalar}\n")),
    }
}

/// The command that creates it. `signs_in` is a server that asks who calls: then the token comes from the environment.
pub fn curl(draft: &JobDraft, site: &Site, origin: Option<&str>, signs_in: bool) -> Option<String> {
    Some(command(&json(draft, site)?, origin, signs_in))
}

/// The command that posts a body.
pub fn command(body: &str, origin: Option<&str>, signs_in: bool) -> String {
    let origin = origin.unwrap_or("http://127.0.0.1:3000");
    let token = if signs_in { " \\\n  -H \"Authorization: Bearer $HOLDFAST_TOKEN\"" } else { "" };
    format!(
        "curl -sS -X POST {origin}{}{token} \\\n  -H 'Content-Type: application/json' \\\n  --data-raw {}",
        paths::API_JOBS,
        shell_words::quote(body)
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
            let words = shell_words::split(&command.replace("\\\n", " ")).unwrap();
            assert_eq!(words[4], "http://127.0.0.1:3000/api/v1/jobs");
            let sent: JobDraft = serde_json::from_str(words.last().unwrap()).unwrap();
            assert_eq!(sent.validate(&site).unwrap(), wanted);
        }
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
