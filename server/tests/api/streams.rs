//! Live streams. A server that is told to stop ends them once all that is stored has been sent, so each can be read whole.

use axum::body::Body;
use http::StatusCode;

use crate::support::{Server, request};

/// Ids and kinds of the events of a stream that begins after `last`.
async fn events(server: &Server, path: &str, last: Option<&str>) -> Vec<(String, String)> {
    server.stop.cancel();
    let mut sent = request("GET", path);
    if let Some(last) = last {
        sent = sent.header("last-event-id", last);
    }
    let answer = server.send(sent.body(Body::empty()).unwrap()).await;
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, "text/event-stream"));
    let field = |event: &str, name: &str| {
        event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
    };
    let events = answer.text.split("\n\n").filter(|event| event.contains("data:"));
    events.map(|event| (field(event, "id: "), field(event, "event: "))).collect()
}

#[tokio::test]
async fn a_stream_resumes_after_the_last_event_that_was_seen() {
    let server = Server::new().await;
    let id = server.job(r#"{"name":"a","command":["true"]}"#).await;
    let path = format!("/api/v1/jobs/{id}/stream");
    let whole = events(&server, &path, Some("0.0")).await;
    assert!(whole.len() > 2, "{whole:?}");
    assert_eq!(whole[0], ("1.0".to_owned(), "job".to_owned()));
    assert!(whole.iter().any(|(_, kind)| kind == "attempt"));
    let (cut, rest) = (whole[1].0.as_str(), &whole[2..]);
    assert_eq!(events(&server, &path, Some(cut)).await, rest);
    assert_eq!(events(&server, &format!("{path}?last_event_id={cut}"), None).await, rest);
    let newest = &whole[whole.len() - 1].0;
    assert!(events(&server, &path, Some(newest)).await.is_empty());
}

#[tokio::test]
async fn a_new_stream_begins_with_the_present_state() {
    let server = Server::new().await;
    let id = server.job(r#"{"name":"a","command":["true"]}"#).await;
    let path = format!("/api/v1/jobs/{id}/stream");
    for last in [None, Some("nonsense")] {
        let begun = events(&server, &path, last).await;
        assert_eq!(begun.len(), 1);
        assert_eq!(begun[0].1, "job");
        assert!(events(&server, &path, Some(&begun[0].0)).await.is_empty());
    }
}

#[tokio::test]
async fn the_stream_of_all_jobs_tells_of_each_that_changed() {
    let server = Server::new().await;
    for name in ["a", "b"] {
        server.job(&format!(r#"{{"name":"{name}","command":["true"]}}"#)).await;
    }
    assert!(events(&server, "/api/v1/stream", None).await.len() <= 2);
    let all = events(&server, "/api/v1/stream", Some("1")).await;
    assert_eq!(all.iter().map(|(_, kind)| kind.as_str()).collect::<Vec<_>>(), ["job", "job"]);
}
