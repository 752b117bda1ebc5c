//! What the time of clusters went to.

use engine::{record::Ledger, time::Time};
use http::StatusCode;
use serde_json::json;
use server::{
    clock::{Clock, SystemClock},
    store::{commit, leader, steps, usage},
};

use crate::support::{Server, Setup};

/// A job that has held something is written as its driver does.
async fn uses(server: &Server, job: &str, ledger: Ledger) {
    let now = SystemClock.now();
    let mut tx = server.store.write().await.unwrap();
    let epoch = leader::take(&mut tx, "test", now, now.plus_seconds(60), true).await.unwrap().unwrap();
    let id = engine::ids::JobId::new(job).unwrap();
    let stored = server::store::jobs::chain(&mut tx, &id).await.unwrap().unwrap();
    let mut head = steps::Head::of(&stored.chain, now);
    head.summary.ledger = ledger;
    let kept = steps::Kept { chain: &stored.chain, head: &head, records: &[], now };
    steps::write(&mut tx, epoch, stored.generation, kept).await.unwrap();
    for used in usage::changed(&mut tx, (Time(0), ""), 10).await.unwrap() {
        usage::keep(&mut tx, &used).await.unwrap();
    }
    commit(tx).await.unwrap();
}

#[tokio::test]
async fn what_clusters_held_is_told_with_what_was_kept_of_it() {
    let server = Server::with(Setup { local: true, ..Setup::default() }).await;
    let none = server.get("/api/v1/usage").await.json();
    assert_eq!(
        (&none["days"], &none["items"], &none["total"]["ettr"]),
        (&json!(7), &json!([]), &json!(null))
    );
    assert!(server.get("/nodes").await.text.contains("Nothing was held in this time"));

    let job = server.job(r#"{"name":"demo","command":["true"]}"#).await;
    uses(&server, &job, Ledger { kept: 90.0, stalled: 10.0, queued_seconds: 3.0, ..Ledger::default() }).await;
    let usage = server.get("/api/v1/usage?days=1").await.json();
    let local = &usage["items"][0];
    assert_eq!(
        (&local["cluster"], &local["jobs"], &local["accelerators"]),
        (&json!("local"), &json!(1), &json!(false))
    );
    assert_eq!((&local["ledger"]["ettr"], &local["ledger"]["queued_seconds"]), (&json!(0.9), &json!(3.0)));
    assert_eq!(usage["total"], local["ledger"]);
    let page = server.get("/nodes?days=30").await.text;
    for part in ["ETTR 90.0 %", "Where the slot time went", "href=\"/nodes?days=1#time\"", "1 job"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[tokio::test]
async fn only_days_that_are_kept_can_be_asked_for() {
    let server = Server::with(Setup::default()).await;
    for days in ["0", "8", "-1", "4294967296", "week"] {
        let refused = server.get(&format!("/api/v1/usage?days={days}")).await;
        assert!(
            matches!(refused.status, StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST),
            "{}",
            refused.text
        );
        assert!(refused.text.contains("days"), "{}", refused.text);
        assert_eq!(server.get(&format!("/nodes?days={days}")).await.status, StatusCode::OK);
    }
}
