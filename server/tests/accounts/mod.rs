//! Accounts that are taken back: what goes with them and what stays.

use engine::time::Time;
use server::store::{
    Store,
    accounts::{self, AccountError},
    commit,
};

use crate::databases::on_each_database;

/// Two accounts, each with a session and two tokens for the same thing.
async fn two(store: &Store) {
    let mut tx = store.write().await.unwrap();
    for name in ["ann", "bob"] {
        accounts::add(&mut tx, name, "hash", Time(1)).await.unwrap();
        accounts::add_session(&mut tx, &format!("{name}-session"), name, Time(1), Time(100)).await.unwrap();
        for (hash, token) in [("one", "ci"), ("two", "ci"), ("three", "laptop")] {
            accounts::add_token(&mut tx, &format!("{name}-{hash}"), name, token, Time(1)).await.unwrap();
        }
    }
    commit(tx).await.unwrap();
}

/// Which of an account's password, session and tokens are good.
async fn good(store: &Store, name: &str) -> Vec<String> {
    let mut conn = store.read().await.unwrap();
    let mut good = Vec::new();
    good.extend(accounts::password_hash(&mut conn, name).await.unwrap());
    let session = accounts::session_account(&mut conn, &format!("{name}-session"), Time(2)).await.unwrap();
    good.extend(session.map(|_| "session".to_owned()));
    for token in ["one", "two", "three"] {
        let known = accounts::token_account(&mut conn, &format!("{name}-{token}")).await.unwrap();
        good.extend(known.map(|_| token.to_owned()));
    }
    good
}

const ALL: [&str; 5] = ["hash", "session", "one", "two", "three"];

#[tokio::test]
async fn an_account_goes_with_its_sessions_and_tokens_and_may_be_made_again() {
    on_each_database(async |store| {
        two(&store).await;
        let mut tx = store.write().await.unwrap();
        accounts::remove(&mut tx, "ann").await.unwrap();
        let again = accounts::remove(&mut tx, "ann").await;
        assert!(matches!(again, Err(AccountError::Missing { name }) if name == "ann"));
        commit(tx).await.unwrap();
        assert_eq!(good(&store, "ann").await, [""; 0]);
        assert_eq!(good(&store, "bob").await, ALL);
        let mut tx = store.write().await.unwrap();
        accounts::add(&mut tx, "ann", "other", Time(3)).await.unwrap();
        commit(tx).await.unwrap();
        assert_eq!(good(&store, "ann").await, ["other"], "nothing of the one before");
    })
    .await;
}

#[tokio::test]
async fn accounts_are_listed_by_name_with_their_tokens() {
    on_each_database(async |store| {
        two(&store).await;
        let mut tx = store.write().await.unwrap();
        accounts::add(&mut tx, "abe", "hash", Time(7)).await.unwrap();
        commit(tx).await.unwrap();
        let found = accounts::list(&mut store.read().await.unwrap()).await.unwrap();
        let found: Vec<_> =
            found.iter().map(|one| (one.name.as_str(), one.created_at, one.tokens.join(","))).collect();
        let tokens = || "ci,ci,laptop".to_owned();
        assert_eq!(
            found,
            [("abe", Time(7), String::new()), ("ann", Time(1), tokens()), ("bob", Time(1), tokens())]
        );
    })
    .await;
}

#[tokio::test]
async fn a_new_password_ends_sessions_and_no_tokens() {
    on_each_database(async |store| {
        two(&store).await;
        let mut tx = store.write().await.unwrap();
        accounts::set_password(&mut tx, "ann", "other").await.unwrap();
        let nobody = accounts::set_password(&mut tx, "Ann", "other").await;
        assert!(matches!(nobody, Err(AccountError::Missing { .. })), "names are not alike");
        commit(tx).await.unwrap();
        assert_eq!(good(&store, "ann").await, ["other", "one", "two", "three"]);
        assert_eq!(good(&store, "bob").await, ALL);
    })
    .await;
}

#[tokio::test]
async fn a_token_is_revoked_by_its_name_and_an_unknown_one_is_told_from_those_there_are() {
    on_each_database(async |store| {
        two(&store).await;
        let mut tx = store.write().await.unwrap();
        let unknown = accounts::revoke_tokens(&mut tx, "ann", "lap").await.unwrap_err();
        assert_eq!(unknown.to_string(), "account ann has no token named lap; it has: ci, laptop");
        assert_eq!(accounts::revoke_tokens(&mut tx, "ann", "ci").await.unwrap(), 2);
        assert_eq!(accounts::revoke_tokens(&mut tx, "ann", "laptop").await.unwrap(), 1);
        let none = accounts::revoke_tokens(&mut tx, "ann", "ci").await.unwrap_err();
        assert_eq!(none.to_string(), "account ann has no token named ci; it has none");
        let nobody = accounts::revoke_tokens(&mut tx, "eve", "ci").await;
        assert!(matches!(nobody, Err(AccountError::Missing { .. })));
        commit(tx).await.unwrap();
        assert_eq!(good(&store, "ann").await, ["hash", "session"]);
        assert_eq!(good(&store, "bob").await, ALL);
    })
    .await;
}
