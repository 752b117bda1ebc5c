use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;

/// What a program does with a request.
#[derive(Clone, Copy)]
enum Does {
    /// Answers with this status line, content type and body.
    Says(&'static str, &'static str, &'static str),
    /// Sends a body without an end.
    Endless,
    /// Says that 10 MB come, and sends them.
    Big,
    /// Says nothing and keeps the connection.
    Hangs,
    /// Closes the connection at once.
    Breaks,
    /// Sends one byte after the other.
    Drips,
}

use Does::Says;

const JSON: &str = "application/json";
const NOTED: Does = Says("200 OK", JSON, "{}");

/// A program that takes note like this, and then answers each question like this, the last for ever. Counts what it was sent.
async fn program(note: Does, answers: &'static [Does]) -> (u16, tokio::sync::watch::Receiver<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sent, is_sent) = tokio::sync::watch::channel(Vec::new());
    tokio::spawn(async move {
        let mut asked = 0;
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let request = request(&mut stream).await;
            let does = if request.starts_with("POST /v1/preempt/notify") {
                note
            } else {
                asked += 1;
                answers[(asked - 1).min(answers.len() - 1)]
            };
            sent.send_modify(|all: &mut Vec<String>| all.push(request));
            tokio::spawn(answer(stream, does));
        }
    });
    (port, is_sent)
}

/// A whole request: head, and a body as long as it says.
async fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if count == 0 {
                return text;
            }
            continue;
        };
        let length = head.to_ascii_lowercase().lines().find_map(|line| {
            line.strip_prefix("content-length: ").map(|length| length.parse::<usize>().unwrap())
        });
        if count == 0 || body.len() >= length.unwrap_or(0) {
            return text;
        }
    }
}

async fn answer(mut stream: TcpStream, does: Does) {
    let head =
        |rest: &str| format!("HTTP/1.1 200 OK\r\nContent-Type: {JSON}\r\nConnection: close\r\n{rest}\r\n");
    match does {
        Says(status, kind, body) => {
            let length = body.len();
            let kind = if kind.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
            let more = if status.starts_with('3') { "Location: http://127.0.0.1:1/\r\n" } else { "" };
            let text = format!(
                "HTTP/1.1 {status}\r\n{kind}{more}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(text.as_bytes()).await;
        }
        Does::Endless | Does::Big => {
            let rest = if matches!(does, Does::Big) { "Content-Length: 10485760\r\n" } else { "" };
            let _ = stream.write_all(head(rest).as_bytes()).await;
            for _ in 0..10 << 10 {
                if stream.write_all(&[b' '; 1024]).await.is_err() {
                    return;
                }
            }
            std::future::pending::<()>().await;
        }
        Does::Hangs => std::future::pending().await,
        Does::Breaks => {}
        Does::Drips => {
            let _ = stream.write_all(head("").as_bytes()).await;
            while stream.write_all(b" ").await.is_ok() {
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn word() -> Word {
    Word { reason: ExitReason::Stopped, deadline_seconds: 7, job_id: Some("j".to_owned()), task_id: None }
}

async fn ask(port: u16, seconds: f64) -> Answer {
    tell(port, &word(), Instant::now() + Duration::from_secs_f64(seconds), || {}).await
}

#[tokio::test]
async fn a_program_that_saves_is_waited_for_and_what_it_says_is_kept() {
    const SAVED: &str = r#"{"status":"saved","step":140,"path":"/ckpt/140","message":null,"more":1}"#;
    let (port, sent) = program(
        NOTED,
        &[
            Says("200 OK", JSON, r#"{"status":"idle"}"#),
            Says("200 OK", "Application/JSON; charset=utf-8", r#"{"status":"saving","step":null}"#),
            Does::Breaks,
            Says("200 OK", JSON, SAVED),
        ],
    )
    .await;
    let answer = ask(port, 20.0).await;
    assert_eq!(
        answer,
        Answer {
            outcome: SaveOutcome::Saved,
            step: Some(140),
            path: Some("/ckpt/140".to_owned()),
            message: None
        }
    );
    let sent = sent.borrow();
    let (_, body) = sent[0].split_once("\r\n\r\n").unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let want =
        serde_json::json!({"reason": "stopped", "deadline_seconds": 7, "job_id": "j", "task_id": null});
    assert_eq!(body, want);
    assert_eq!(sent.len(), 5, "told once, asked until it has saved");
}

#[tokio::test]
async fn whatever_is_none_of_the_contract_is_called_what_it_was() {
    use SaveOutcome::{Failed, NoAnswer, TimedOut, WrongAnswer};
    let cases: [(&str, Does, &[Does], SaveOutcome, &str); 20] = [
        (
            "it fails",
            NOTED,
            &[Says("200 OK", JSON, r#"{"status":"failed","message":"disk full"}"#)],
            Failed,
            "disk full",
        ),
        ("too slow", NOTED, &[Says("200 OK", JSON, r#"{"status":"saving"}"#)], TimedOut, "still saving"),
        (
            "slow, with words",
            NOTED,
            &[Says("200 OK", JSON, r#"{"status":"saving","message":"2 of 3"}"#)],
            TimedOut,
            "2 of 3",
        ),
        ("never begins", NOTED, &[Says("200 OK", JSON, r#"{"status":"idle"}"#)], TimedOut, "did not begin"),
        (
            "goes silent",
            NOTED,
            &[Says("200 OK", JSON, r#"{"status":"saving"}"#), Does::Hangs],
            TimedOut,
            "still saving",
        ),
        (
            "no such path",
            Says("404 Not Found", "text/plain", "?"),
            &[NOTED],
            WrongAnswer,
            "notify answers 404",
        ),
        ("an error", Says("500 Oops", "text/plain", "?"), &[NOTED], WrongAnswer, "notify answers 500"),
        ("a redirect", Says("302 Found", "", ""), &[NOTED], WrongAnswer, "redirect"),
        ("takes no note", Does::Hangs, &[NOTED], NoAnswer, "notify was not answered within 1 s"),
        ("breaks off", Does::Breaks, &[NOTED], NoAnswer, "notify was not answered"),
        (
            "a redirect later",
            NOTED,
            &[Says("307 Temporary", "", "")],
            WrongAnswer,
            "status answers with a redirect",
        ),
        ("an error later", NOTED, &[Says("500 Oops", JSON, "{}")], WrongAnswer, "status answers 500"),
        ("text", NOTED, &[Says("200 OK", "text/html", "<p>saved")], WrongAnswer, "`text/html`"),
        ("no type", NOTED, &[Says("200 OK", "", r#"{"status":"saved"}"#)], WrongAnswer, "no content type"),
        ("no JSON", NOTED, &[Says("200 OK", JSON, "saved")], WrongAnswer, "is not {\"status\""),
        (
            "another word",
            NOTED,
            &[Says("200 OK", JSON, r#"{"status":"done"}"#)],
            WrongAnswer,
            "unknown variant",
        ),
        (
            "a step that is none",
            NOTED,
            &[Says("200 OK", JSON, r#"{"status":"saved","step":-1}"#)],
            WrongAnswer,
            "is not {\"status\"",
        ),
        ("without an end", NOTED, &[Does::Endless], WrongAnswer, "more than 65536 bytes"),
        ("10 MB", NOTED, &[Does::Big], WrongAnswer, "more than 65536 bytes"),
        ("a byte at a time", NOTED, &[Does::Drips], NoAnswer, "status was not answered within 1 s"),
    ];
    for (case, note, answers, outcome, words) in cases {
        let (port, _sent) = program(note, answers).await;
        let begin = Instant::now();
        let answer = ask(port, 0.6).await;
        let message = answer.message.unwrap_or_default();
        assert_eq!(answer.outcome, outcome, "{case}: {message}");
        assert!(message.contains(words), "{case}: {message}");
        assert!(begin.elapsed() < Duration::from_secs(5), "{case}: {:?}", begin.elapsed());
    }
}

#[tokio::test]
async fn a_closed_port_is_told_apart_and_one_that_is_about_to_listen_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let answer = ask(port, 0.3).await;
    assert_eq!(answer, Answer::of(SaveOutcome::NoAnswer, format!("nobody listens on port {port}")));
    let late = tokio::spawn(async move { ask(port, 20.0).await });
    sleep(Duration::from_millis(300)).await;
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let request = request(&mut stream).await;
        let is_note = request.starts_with("POST");
        answer_once(stream, is_note).await;
        if !is_note {
            break;
        }
    }
    assert_eq!(late.await.unwrap().outcome, SaveOutcome::Saved);
}

async fn answer_once(stream: TcpStream, is_note: bool) {
    answer(stream, if is_note { NOTED } else { Says("200 OK", JSON, r#"{"status":"saved"}"#) }).await;
}

#[test]
fn what_a_program_says_is_bounded() {
    let long = "x".repeat(50_000);
    let status = Status { status: StatusWord::Failed, step: Some(3), path: None, message: Some(long) };
    let answer = status.end().unwrap();
    assert_eq!((answer.message.unwrap().len(), answer.step), (TEXT_CHARS, None));
}
