//! `holdfast classify`: what a log shows, and what the built-in policy would do first.

use std::io::{BufRead, Read, Write};

use engine::{
    classify::classify_log,
    failure::{Confidence, Exit, FailureType, Phase, Signal, Verdict},
    job::BUILT_IN_POLICIES,
    policy::{Diagnosis, Policy, Question, Standing},
    record::{Action, Used},
};
use serde::{Deserialize, Serialize};

use crate::config::Classify;

/// Longest line of `--jsonl`, bytes; a log inside it is shorter.
const LINE_BYTES: u64 = 256 * 1024 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClassifyError {
    /// The log could not be read.
    #[error("could not read {what}")]
    Read {
        /// The file, or standard input.
        what: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The answer could not be written.
    #[error("could not write the answer")]
    Write(#[source] std::io::Error),
    /// A line of `--jsonl` is no sample.
    #[error("line {line} is no object {{id, log, exit_code?, signal?}}")]
    Sample {
        /// Its number, from 1.
        line: u64,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A line of `--jsonl` is too long.
    #[error("line {line} is longer than {LINE_BYTES} bytes")]
    TooLong {
        /// Its number, from 1.
        line: u64,
    },
    /// The built-in policy is not there.
    #[error("the built-in policy {0} is missing")]
    Policy(&'static str),
}

/// One line of `--jsonl`.
#[derive(Debug, Deserialize)]
struct Sample {
    id: serde_json::Value,
    log: String,
    #[serde(default)]
    exit_code: Option<i64>,
    #[serde(default)]
    signal: Option<SignalField>,
}

/// A signal by its name or its number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SignalField {
    Number(i64),
    Name(String),
}

impl Sample {
    fn exit(&self) -> Option<Exit> {
        let signal = match &self.signal {
            Some(SignalField::Number(number)) => Signal::parse(&number.to_string()),
            Some(SignalField::Name(name)) => Signal::parse(name),
            None => None,
        };
        signal.map(Exit::Signal).or_else(|| self.exit_code.map(Exit::from_code))
    }
}

/// One answer.
#[derive(Debug, Serialize)]
struct Answer {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<serde_json::Value>,
    /// Null where the log shows no failure.
    failure_type: Option<FailureType>,
    confidence: Option<Confidence>,
    /// What decided: a signature, an exit code or `no-evidence`.
    rule: Option<String>,
    fault: Option<String>,
    evidence: Vec<Line>,
    hint: Option<String>,
    /// What the built-in policy would do first.
    action: Option<Action>,
    /// The rule of the policy.
    policy_rule: Option<String>,
}

/// A line of evidence.
#[derive(Debug, Serialize)]
struct Line {
    line_number: u64,
    line: String,
    signature: String,
    role: engine::failure::Role,
}

/// Runs it.
///
/// # Errors
/// A log that cannot be read, or a line that is no sample; what came before it is answered.
pub fn run(args: &Classify, input: impl BufRead, mut output: impl Write) -> Result<(), ClassifyError> {
    if args.jsonl {
        return answer_lines(input, output);
    }
    let log = read_log(args, input)?;
    let answer = answer(None, &log, args.exit_code.map(Exit::from_code))?;
    if args.json {
        write_json(&answer, &mut output)
    } else {
        write_text(&answer, &mut output).map_err(ClassifyError::Write)
    }
}

fn read_log(args: &Classify, mut input: impl BufRead) -> Result<Vec<u8>, ClassifyError> {
    let mut log = Vec::new();
    let (what, read) = match &args.file {
        Some(path) => (path.display().to_string(), std::fs::read(path).map(|bytes| log = bytes)),
        None => ("standard input".to_owned(), input.read_to_end(&mut log).map(|_| ())),
    };
    read.map_err(|source| ClassifyError::Read { what, source })?;
    Ok(log)
}

fn answer_lines(mut input: impl BufRead, mut output: impl Write) -> Result<(), ClassifyError> {
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let read = input.by_ref().take(LINE_BYTES).read_until(b'\n', &mut text);
        let read =
            read.map_err(|source| ClassifyError::Read { what: "standard input".to_owned(), source })?;
        if read == 0 {
            break;
        }
        if read as u64 == LINE_BYTES && text.last() != Some(&b'\n') {
            return Err(ClassifyError::TooLong { line });
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        let sample: Sample =
            serde_json::from_slice(&text).map_err(|source| ClassifyError::Sample { line, source })?;
        let exit = sample.exit();
        write_json(&answer(Some(sample.id), sample.log.as_bytes(), exit)?, &mut output)?;
    }
    output.flush().map_err(ClassifyError::Write)
}

fn answer(id: Option<serde_json::Value>, log: &[u8], exit: Option<Exit>) -> Result<Answer, ClassifyError> {
    let Some(verdict) = classify_log(log, exit) else {
        return Ok(Answer {
            id,
            failure_type: None,
            confidence: None,
            rule: None,
            fault: None,
            evidence: Vec::new(),
            hint: None,
            action: None,
            policy_rule: None,
        });
    };
    let (action, policy_rule) = first_action(&verdict)?;
    Ok(Answer {
        id,
        failure_type: Some(verdict.failure_type),
        confidence: Some(verdict.confidence),
        rule: Some(verdict.rule),
        fault: Some(verdict.fault),
        evidence: verdict
            .evidence
            .into_iter()
            .map(|found| Line {
                line_number: found.line_number,
                line: found.line,
                signature: found.signature,
                role: found.role,
            })
            .collect(),
        hint: verdict.hint,
        action: Some(action),
        policy_rule: Some(policy_rule),
    })
}

/// What `By exit code and error message` does about the first failure of a job whose budgets are untouched.
fn first_action(verdict: &Verdict) -> Result<(Action, String), ClassifyError> {
    const NAME: &str = BUILT_IN_POLICIES[0];
    let policy = Policy::built_in(NAME).ok_or(ClassifyError::Policy(NAME))?;
    let untouched = |allowed| Used { used: 0, allowed };
    let need = policy.needs(&Question {
        verdict,
        phase: Phase::Training,
        step: None,
        repeat: false,
        replica_gone: None,
        standing: Standing {
            auto_failover: true,
            task_restarts: untouched(2),
            in_place_restarts: untouched(3),
            hang_restarts: Some(untouched(1)),
        },
        diagnosis: Diagnosis::NotAsked,
    });
    Ok((need.action, need.rule))
}

fn write_json(answer: &Answer, output: &mut impl Write) -> Result<(), ClassifyError> {
    serde_json::to_writer(&mut *output, answer).map_err(|why| ClassifyError::Write(why.into()))?;
    writeln!(output).map_err(ClassifyError::Write)
}

fn write_text(answer: &Answer, output: &mut impl Write) -> std::io::Result<()> {
    let Some(failure_type) = answer.failure_type else {
        return writeln!(output, "No failure: the log shows none.");
    };
    writeln!(
        output,
        "{failure_type} ({}): {}",
        failure_type.plain(),
        answer.fault.as_deref().unwrap_or_default()
    )?;
    writeln!(
        output,
        "confidence {}, by {}",
        word(&answer.confidence),
        answer.rule.as_deref().unwrap_or_default()
    )?;
    for line in &answer.evidence {
        writeln!(
            output,
            "  {:>8}  {}  [{}, {}]",
            line.line_number,
            line.line,
            line.signature,
            word(&line.role)
        )?;
    }
    if let Some(hint) = &answer.hint {
        writeln!(output, "Hint: {hint}")?;
    }
    writeln!(
        output,
        "First action: {} (rule {})",
        word(&answer.action),
        answer.policy_rule.as_deref().unwrap_or_default()
    )?;
    writeln!(output, "Derived from logs and messages; not a confirmed root cause.")
}

/// A value as its word of the API.
fn word<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(args: &Classify, input: &str) -> Result<String, ClassifyError> {
        let mut output = Vec::new();
        run(args, input.as_bytes(), &mut output)?;
        Ok(String::from_utf8(output).unwrap())
    }

    fn args() -> Classify {
        Classify { json: false, jsonl: false, exit_code: None, file: None }
    }

    #[test]
    fn each_line_gets_its_answer_in_order() {
        let input = concat!(
            r#"{"id":"a","log":"epoch 1 loss 0.5\nepoch 2 loss 0.4\n","exit_code":0}"#,
            "\n\n",
            r#"{"id":7,"log":"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n","exit_code":1}"#,
            "\n",
            r#"{"id":"c","log":"","signal":"SIGKILL"}"#,
            "\n"
        );
        let output = classify(&Classify { jsonl: true, ..args() }, input).unwrap();
        let answers: Vec<serde_json::Value> =
            output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(answers.len(), 3);
        assert_eq!((&answers[0]["id"], answers[0]["failure_type"].is_null()), (&"a".into(), true));
        assert_eq!(answers[1]["id"], 7);
        assert_eq!(
            (&answers[1]["failure_type"], &answers[1]["action"]),
            (&"OOM_GPU".into(), &"fail_fast".into())
        );
        assert_eq!(answers[1]["evidence"][0]["line_number"], 1);
        assert!(answers[2]["failure_type"].is_string());
    }

    #[test]
    fn one_log_is_answered_in_words_or_as_json() {
        let log = "RuntimeError: CUDA error: an illegal memory access was encountered\n";
        let text = classify(&Classify { exit_code: Some(1), ..args() }, log).unwrap();
        assert!(text.contains("not a confirmed root cause"), "{text}");
        let json = classify(&Classify { exit_code: Some(1), json: true, ..args() }, log).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert!(answer.get("id").is_none() && answer["failure_type"].is_string());
    }

    #[test]
    fn a_line_that_is_no_sample_is_named() {
        let error =
            classify(&Classify { jsonl: true, ..args() }, "{\"id\":1,\"log\":\"\"}\nnonsense\n").unwrap_err();
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}
