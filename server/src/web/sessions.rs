//! Who asks: the session cookie of a browser, the token of a program, or whoever it is in single-user mode.
//!
//! A cookie or token is 32 random bytes; the store has their hash only. Roles and other ways to sign in will add to
//! [`Access::caller`] and to the service's `may`; nothing else decides who somebody is.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use app::console::Caller;
use axum::{
    extract::{ConnectInfo, FromRequestParts, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use axum_extra::extract::cookie::CookieJar;
use engine::time::Time;
use http::{HeaderMap, StatusCode, header, request::Parts};
use tokio::sync::Semaphore;

use super::{limits, problem::Problem};
use crate::{
    clock::Clock,
    request_id,
    secrets::{self, SecretError},
    store::{self, Store, StoreError, accounts},
};

/// Knows callers and lets them in.
pub struct Access {
    store: Store,
    clock: Arc<dyn Clock>,
    /// Only this machine reaches the server, so that single-user mode is possible.
    alone: bool,
    /// Browsers reach it by https.
    secure: bool,
    /// Once true it stays true: accounts are not removed while the server runs.
    has_account: AtomicBool,
    failures: Mutex<HashMap<(IpAddr, String), Failures>>,
    checks: Arc<Semaphore>,
    /// Checked where there is no such account, so that the time does not tell.
    nobody: String,
}

#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    since: Time,
}

/// Why somebody was not let in.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    /// One text for both, so that nobody learns which names exist.
    #[error("The user name or the password is wrong.")]
    Wrong,
    /// Too many failures.
    #[error("Too many failed attempts. Try again in {minutes} minutes.")]
    TooMany {
        /// Until they are forgotten.
        minutes: u64,
    },
    /// The database failed.
    #[error(transparent)]
    Database(#[from] StoreError),
    /// A hash, or random bytes.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The check was cut off by the end of the server.
    #[error("the server is stopping")]
    Stopping,
}

impl Access {
    /// Access by the accounts of a database.
    ///
    /// # Errors
    /// The machine has no random bytes.
    pub fn new(store: Store, clock: Arc<dyn Clock>, alone: bool, secure: bool) -> Result<Self, SignInError> {
        Ok(Self {
            store,
            clock,
            alone,
            secure,
            has_account: AtomicBool::new(false),
            failures: Mutex::default(),
            checks: Arc::new(Semaphore::new(limits::PASSWORD_CHECKS)),
            nobody: secrets::hash_password(&secrets::new_secret()?)?,
        })
    }

    /// Whether whoever reaches this server may do everything: only its own machine does, and there is no account.
    ///
    /// # Errors
    /// The database failed.
    pub async fn single_user(&self) -> Result<bool, StoreError> {
        Ok(self.alone && !self.has_account().await?)
    }

    /// Whether anybody can sign in.
    ///
    /// # Errors
    /// The database failed.
    pub async fn has_account(&self) -> Result<bool, StoreError> {
        if self.has_account.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let any = accounts::any(&mut *self.store.read().await?).await?;
        self.has_account.store(any, Ordering::Relaxed);
        Ok(any)
    }

    /// Who sent these headers; none is somebody who has to sign in.
    ///
    /// # Errors
    /// The database failed.
    pub async fn caller(&self, headers: &HeaderMap) -> Result<Option<Caller>, StoreError> {
        let name = if let Some(token) = headers.get(header::AUTHORIZATION) {
            // A token that is wrong is refused even in single-user mode: the program means to be somebody.
            let Some(token) = token.to_str().ok().and_then(|value| value.strip_prefix("Bearer ")) else {
                return Ok(None);
            };
            let hash = secrets::fingerprint(token.trim().as_bytes());
            accounts::token_account(&mut *self.store.read().await?, &hash).await?
        } else if self.single_user().await? {
            return Ok(Some(Caller { name: "local".to_owned(), single_user: true }));
        } else {
            match self.cookie(headers) {
                Some(id) => {
                    let hash = secrets::fingerprint(id.as_bytes());
                    accounts::session_account(&mut *self.store.read().await?, &hash, self.clock.now()).await?
                }
                None => None,
            }
        };
        Ok(name.map(|name| Caller { name, single_user: false }))
    }

    /// Checks a password and begins a session; answers its `Set-Cookie`.
    ///
    /// # Errors
    /// [`SignInError::Wrong`] and [`SignInError::TooMany`] are the caller's, all others the server's.
    pub async fn sign_in(&self, name: &str, password: String, from: IpAddr) -> Result<String, SignInError> {
        let now = self.clock.now();
        let key = (from, name.chars().take(64).collect::<String>());
        let mut one = self.begin_try(key, now)?;
        let known = accounts::password_hash(&mut *self.store.read().await?, name).await?;
        let exists = known.is_some();
        let stored = known.unwrap_or_else(|| self.nobody.clone());
        let place = Arc::clone(&self.checks).acquire_owned().await.map_err(|_| SignInError::Stopping)?;
        // A check goes on when nobody waits for it any more, and keeps its place until it ends.
        let check = move || {
            let _place = place;
            secrets::verify_password(&password, &stored)
        };
        let right = tokio::task::spawn_blocking(check).await.map_err(|_| SignInError::Stopping)??;
        if !(right && exists) {
            one.is_wrong = true;
            return Err(SignInError::Wrong);
        }
        self.lock_failures().remove(&one.key);
        // Always a new id: one that was planted before signing in is worth nothing.
        let id = secrets::new_secret()?;
        let ends = now.plus_seconds(limits::SESSION_SECONDS);
        let hash = secrets::fingerprint(id.as_bytes());
        let mut tx = self.store.write().await?;
        accounts::add_session(&mut tx, &hash, name, now, ends).await?;
        store::commit(tx).await?;
        Ok(self.set_cookie(&id, limits::SESSION_SECONDS))
    }

    /// Ends the session of these headers; answers the `Set-Cookie` that removes it from the browser.
    ///
    /// # Errors
    /// The database failed.
    pub async fn sign_out(&self, headers: &HeaderMap) -> Result<String, StoreError> {
        if let Some(id) = self.cookie(headers) {
            let hash = secrets::fingerprint(id.as_bytes());
            let mut tx = self.store.write().await?;
            accounts::end_session(&mut tx, &hash).await?;
            store::commit(tx).await?;
        }
        Ok(self.set_cookie("", 0))
    }

    /// With `__Host-` a browser takes the cookie from this very host only, over https and for all paths.
    fn cookie_name(&self) -> &'static str {
        if self.secure { "__Host-holdfast" } else { "holdfast" }
    }

    fn cookie(&self, headers: &HeaderMap) -> Option<String> {
        CookieJar::from_headers(headers).get(self.cookie_name()).map(|cookie| cookie.value().to_owned())
    }

    fn set_cookie(&self, value: &str, seconds: u64) -> String {
        let name = self.cookie_name();
        let secure = if self.secure { "; Secure" } else { "" };
        format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
    }

    fn lock_failures(&self) -> std::sync::MutexGuard<'_, HashMap<(IpAddr, String), Failures>> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a try before it is known how it ends, so that guesses made side by side do not slip past the limit.
    fn begin_try(&self, key: (IpAddr, String), now: Time) -> Result<Try<'_>, SignInError> {
        let mut failures = self.lock_failures();
        failures.retain(|_, past| now.seconds_since(past.since) < limits::SIGN_IN_WINDOW_SECONDS as f64);
        if failures.len() >= limits::SIGN_IN_REMEMBERED && !failures.contains_key(&key) {
            // Somebody tries many names. The oldest goes, so that nobody can wipe out a count that stands against him now.
            let oldest = failures.iter().min_by_key(|(_, past)| past.since).map(|(key, _)| key.clone());
            oldest.map(|key| failures.remove(&key));
        }
        let past = failures.entry(key.clone()).or_insert(Failures { count: 0, since: now });
        if past.count >= limits::SIGN_IN_FAILURES {
            let left = past.since.plus_seconds(limits::SIGN_IN_WINDOW_SECONDS).seconds_since(now);
            return Err(SignInError::TooMany { minutes: (left / 60.0).ceil() as u64 });
        }
        past.count += 1;
        let since = past.since;
        Ok(Try { access: self, key, since, is_wrong: false })
    }
}

/// A try that is counted. Unless the password turns out to be wrong it is taken back, also where nobody waits for its end any more:
/// a database that fails locks nobody out.
struct Try<'a> {
    access: &'a Access,
    key: (IpAddr, String),
    /// Which count holds it; a later one has nothing to do with it.
    since: Time,
    is_wrong: bool,
}

impl Drop for Try<'_> {
    fn drop(&mut self) {
        if self.is_wrong {
            return;
        }
        let mut failures = self.access.lock_failures();
        if let Some(past) = failures.get_mut(&self.key).filter(|past| past.since == self.since) {
            past.count = past.count.saturating_sub(1);
            if past.count == 0 {
                failures.remove(&self.key);
            }
        }
    }
}

/// Who asks, put beside each request by [`identify`].
#[derive(Clone, Debug)]
pub struct Who(pub Option<Caller>);

/// Finds out who asks, once for each request.
pub async fn identify(State(access): State<Arc<Access>>, mut request: Request, next: Next) -> Response {
    match access.caller(request.headers()).await {
        Ok(caller) => {
            request.extensions_mut().insert(Who(caller));
            next.run(request).await
        }
        Err(error) => Problem::from(error).into_response(),
    }
}

/// The caller of a handler that needs one.
#[derive(Debug)]
pub struct Asks(pub Caller);

impl<S: Send + Sync> FromRequestParts<S> for Asks {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.extensions.get::<Who>() {
            Some(Who(Some(caller))) => Ok(Self(caller.clone())),
            _ => Err(Problem::sign_in()),
        }
    }
}

/// Where a request came from; of one without a connection (a test) this machine.
pub fn address(parts: &Parts) -> IpAddr {
    parts
        .extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map_or(IpAddr::from([127, 0, 0, 1]), |ConnectInfo(address)| address.ip())
}

/// Logs a failure at this border and hides its words; one of the database becomes a [`Problem`] by itself.
pub fn failed(error: &dyn std::error::Error) -> Problem {
    let id = request_id::current();
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    tracing::error!(request_id = id, %error, cause, "a request failed ({id}): {error}");
    Problem::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        "The server failed",
        "Try again; if it stays, give the request id to the operator.",
    )
}
