//! Who gets in, and what foreign pages cannot do.

use axum::body::Body;
use futures::FutureExt;
use http::{StatusCode, header};
use server::{config::PublicUrl, store};

use crate::support::{Answer, Server, Setup, json, request};

fn public() -> PublicUrl {
    PublicUrl {
        origin: "https://holdfast.example.org".into(),
        authority: "holdfast.example.org".into(),
        secure: true,
    }
}

async fn sign_in(server: &Server, name: &str, password: &str) -> Answer {
    let body = format!("name={name}&password={}&next=%2Fnodes", password.replace(' ', "+"));
    let sent = request("POST", "/login").header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    server.send(sent.body(Body::from(body)).unwrap()).await
}

#[tokio::test]
async fn without_an_account_a_loopback_server_is_in_single_user_mode_and_says_so() {
    let server = Server::new().await;
    let version = server.get("/api/v1/version").await.json();
    assert_eq!((&version["single_user"], &version["api"]), (&true.into(), &1.into()));
    server.account("ada").await;
    let answer = server.get("/api/v1/version").await;
    insta::assert_snapshot!(answer.problem());
    assert_eq!(answer.header("www-authenticate"), "Bearer");
}

#[tokio::test]
async fn beyond_loopback_everybody_signs_in() {
    let server = Server::with(Setup { open: true, ..Setup::default() }).await;
    assert_eq!(server.get("/api/v1/jobs").await.status, StatusCode::UNAUTHORIZED);
    let page = server.get("/jobs?state=failed").await;
    assert_eq!(
        (page.status, page.header("location")),
        (StatusCode::SEE_OTHER, "/login?next=%2Fjobs%3Fstate%3Dfailed")
    );
    assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_token_opens_the_api_and_a_wrong_one_does_not() {
    let server = Server::new().await;
    let with = async |value: &str| {
        let sent = request("GET", "/api/v1/version").header(header::AUTHORIZATION, value);
        server.send(sent.body(Body::empty()).unwrap()).await.status
    };
    assert_eq!(with("Bearer nonsense").await, StatusCode::UNAUTHORIZED, "even in single-user mode");
    let token = server.account("ada").await;
    assert_eq!(with(&format!("Bearer {token}")).await, StatusCode::OK);
    for wrong in [format!("Bearer {token}0"), format!("Basic {token}"), "Bearer ".to_owned()] {
        assert_eq!(with(&wrong).await, StatusCode::UNAUTHORIZED, "{wrong}");
    }
}

#[tokio::test]
async fn a_session_begins_with_a_password_and_ends_with_signing_out() {
    let server = Server::new().await;
    server.account("ada").await;
    let answer = sign_in(&server, "ada", "correct horse").await;
    assert_eq!((answer.status, answer.header("location")), (StatusCode::SEE_OTHER, "/nodes"));
    let set = answer.header("set-cookie").to_owned();
    for part in ["holdfast=", "HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=604800"] {
        assert!(set.contains(part), "{set}");
    }
    let cookie = set.split(';').next().unwrap().to_owned();
    let with = async |method: &str, path: &str| {
        let sent = request(method, path).header(header::COOKIE, &cookie);
        server.send(sent.body(Body::empty()).unwrap()).await
    };
    assert_eq!(with("GET", "/api/v1/version").await.json()["single_user"], false);
    let second = sign_in(&server, "ada", "correct horse").await;
    assert_ne!(second.header("set-cookie"), set, "each session has an id of its own");
    let out = with("POST", "/logout").await;
    assert!(out.header("set-cookie").contains("Max-Age=0"), "{}", out.header("set-cookie"));
    assert_eq!(with("GET", "/api/v1/version").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn over_https_the_cookie_is_bound_to_the_host() {
    let server = Server::with(Setup { open: true, public_url: Some(public()), ..Setup::default() }).await;
    server.account("ada").await;
    let set = sign_in(&server, "ada", "correct horse").await.header("set-cookie").to_owned();
    assert!(set.starts_with("__Host-holdfast=") && set.ends_with("; Secure"), "{set}");
}

#[tokio::test]
async fn a_wrong_name_and_a_wrong_password_look_the_same_and_do_not_go_on_for_ever() {
    let server = Server::new().await;
    server.account("ada").await;
    let seen = async |name: &str, password: &str| {
        let answer = sign_in(&server, name, password).await;
        (answer.status, answer.header("location").to_owned(), answer.header("set-cookie").to_owned())
    };
    let wrong = seen("ada", "wrong horse").await;
    assert_eq!(wrong.1, "/login?failed&next=%2Fnodes");
    assert_eq!(seen("bob", "correct horse").await, wrong);
    for _ in 0..9 {
        assert_eq!(seen("ada", "wrong horse").await, wrong);
    }
    let answer = sign_in(&server, "ada", "correct horse").await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.header("set-cookie"), "");
}

#[tokio::test]
async fn only_wrong_passwords_count_as_failed_attempts() {
    let server = Server::new().await;
    server.account("ada").await;
    let status = async || sign_in(&server, "ada", "correct horse").await.status;
    assert_eq!(status().await, StatusCode::SEE_OTHER);
    let alter = async |sql: &'static str| {
        let mut tx = server.store.write().await.unwrap();
        sqlx::query(sql).execute(&mut *tx).await.unwrap();
        store::commit(tx).await.unwrap();
    };
    alter("ALTER TABLE account RENAME TO away").await;
    for _ in 0..12 {
        assert_eq!(status().await, StatusCode::INTERNAL_SERVER_ERROR, "the database fails");
    }
    alter("ALTER TABLE away RENAME TO account").await;
    for _ in 0..12 {
        let left = sign_in(&server, "ada", "correct horse").now_or_never();
        assert!(left.is_none(), "nobody waits for its end");
    }
    for _ in 0..9 {
        assert_ne!(sign_in(&server, "ada", "wrong horse").await.status, StatusCode::TOO_MANY_REQUESTS);
    }
    let answer = sign_in(&server, "ada", "correct horse").await;
    assert!(!answer.header("set-cookie").is_empty(), "{} {}", answer.status, answer.text);
}

#[tokio::test]
async fn guesses_made_side_by_side_do_not_slip_past_the_limit() {
    let server = Server::new().await;
    server.account("ada").await;
    let guesses = (0..30).map(|_| sign_in(&server, "ada", "wrong horse"));
    let answers = futures::future::join_all(guesses).await;
    let refused = answers.iter().filter(|answer| answer.status == StatusCode::TOO_MANY_REQUESTS).count();
    assert_eq!(refused, 20, "ten were checked");
}

#[tokio::test]
async fn a_foreign_page_can_change_nothing() {
    let server = Server::new().await;
    let body = r#"{"name":"a","command":["true"]}"#;
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
        ("origin", "http://localhost:8000"),
        ("origin", "null"),
    ] {
        for path in ["/api/v1/jobs", "/sfn/list_jobs", "/jobs/jabcdefghij2/stop", "/login", "/theme"] {
            let mut sent = json("POST", path, body);
            sent.headers_mut().insert(name, value.parse().unwrap());
            let answer = server.send(sent).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} {name}: {value}");
        }
    }
    let mut own = json("POST", "/api/v1/jobs", body);
    own.headers_mut().insert("origin", "http://localhost:3000".parse().unwrap());
    assert_eq!(server.send(own).await.status, StatusCode::CREATED);
    assert_eq!(server.get("/api/v1/jobs").await.json()["total"], 1);
}

#[tokio::test]
async fn a_name_that_was_pointed_here_is_refused() {
    let server = Server::new().await;
    let mut sent = request("GET", "/api/v1/jobs").body(Body::empty()).unwrap();
    sent.headers_mut().insert(header::HOST, "evil.example:3000".parse().unwrap());
    insta::assert_snapshot!(server.send(sent).await.problem());
}

#[tokio::test]
async fn every_answer_tells_browsers_what_it_may_do() {
    let server = Server::new().await;
    for path in ["/api/v1/version", "/jobs", "/nothing", "/healthz"] {
        let answer = server.get(path).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "same-origin", "{path}");
        assert!(answer.header("content-security-policy").contains("frame-ancestors 'none'"), "{path}");
    }
    let page = server.get("/jobs").await;
    let policy = page.header("content-security-policy");
    let nonce = policy.split("'nonce-").nth(1).and_then(|rest| rest.split('\'').next()).unwrap();
    assert!(page.text.contains(&format!("nonce=\"{nonce}\"")), "the scripts of the page carry the nonce");
    assert!(!policy.contains("script-src 'unsafe-inline'"));
}

#[tokio::test]
async fn beyond_loopback_the_numbers_are_for_those_who_are_signed_in() {
    let numbers = async |server: &Server, token: Option<&str>| {
        let mut sent = request("GET", "/metrics");
        if let Some(token) = token {
            sent = sent.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        server.send(sent.body(Body::empty()).unwrap()).await.status
    };
    // A server of a test has no numbers: not found says that they would have been given.
    let open = Server::with(Setup { open: true, ..Setup::default() }).await;
    let token = open.account("ada").await;
    assert_eq!(numbers(&open, None).await, StatusCode::UNAUTHORIZED);
    assert_eq!(numbers(&open, Some(&token)).await, StatusCode::NOT_FOUND);
    let proxied = Server::with(Setup { public_url: Some(public()), ..Setup::default() }).await;
    proxied.account("ada").await;
    assert_eq!(numbers(&proxied, None).await, StatusCode::UNAUTHORIZED, "a proxy brings everybody here");
    let opened = Server::with(Setup { open: true, metrics_open: true, ..Setup::default() }).await;
    for server in [&opened, &Server::new().await] {
        assert_eq!(numbers(server, None).await, StatusCode::NOT_FOUND);
    }
}
