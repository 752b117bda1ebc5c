//! The id of the request that is being answered, by which a client's failure is found in the log.

use crate::clock;

tokio::task_local! {
    static REQUEST_ID: String;
}

/// The id of the request that is being answered; outside of one a new id, so that a failure can always be found.
pub fn current() -> String {
    REQUEST_ID.try_with(String::clone).unwrap_or_else(|_| new())
}

/// A new id. A machine without randomness still answers.
pub fn new() -> String {
    clock::new_id().unwrap_or_else(|_| "none".to_owned())
}

/// Answers a request under its id.
pub async fn within<T>(id: String, answer: impl Future<Output = T>) -> T {
    REQUEST_ID.scope(id, answer).await
}
