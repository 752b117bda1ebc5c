//! Keys of repeated requests.

use engine::time::Time;
use server::store::{
    Store, commit,
    idempotency::{self, Claim, KeptAnswer, RequestKey},
};

use crate::databases::on_each_database;

fn key(name: &str) -> RequestKey {
    RequestKey { caller: "ann".into(), route: "/api/v1/jobs".into(), key: name.into() }
}

async fn claim(store: &Store, name: &str, server: &str) -> Claim {
    let mut tx = store.write().await.unwrap();
    let claim =
        idempotency::claim(&mut tx, &key(name), "hash", server, Time(100), Time(0), Time(0)).await.unwrap();
    commit(tx).await.unwrap();
    claim
}

async fn begin_anew(store: &Store, server: Option<&str>) {
    let mut tx = store.write().await.unwrap();
    idempotency::release_unanswered(&mut tx, server).await.unwrap();
    commit(tx).await.unwrap();
}

#[tokio::test]
async fn what_a_server_was_working_on_is_free_once_it_begins_anew() {
    on_each_database(async |store| {
        assert_eq!(claim(&store, "one", "a").await, Claim::Mine);
        assert_eq!(claim(&store, "two", "b").await, Claim::Mine);
        assert_eq!(claim(&store, "done", "a").await, Claim::Mine);
        let answer = KeptAnswer {
            status: 201,
            content_type: "text/plain".into(),
            location: None,
            body: "made".into(),
        };
        let mut tx = store.write().await.unwrap();
        idempotency::keep_answer(&mut tx, &key("done"), &answer).await.unwrap();
        commit(tx).await.unwrap();

        begin_anew(&store, Some("a")).await;
        assert_eq!(claim(&store, "one", "b").await, Claim::Mine, "nobody works on it");
        assert_eq!(claim(&store, "two", "a").await, Claim::Busy, "the other server works on it");
        assert_eq!(claim(&store, "done", "a").await, Claim::Answered(answer), "an answer stays");

        begin_anew(&store, None).await;
        assert_eq!(claim(&store, "two", "a").await, Claim::Mine, "no other server is there");
    })
    .await;
}
