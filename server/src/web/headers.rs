//! Headers that tell browsers what a page of this server may do.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderName, HeaderValue, header};

/// Sent with every answer that does not say otherwise.
const ALWAYS: [(HeaderName, &str); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
];
/// Sent where browsers trust the server's address. Elsewhere they ignore it, and every page has an error on its console.
const TRUSTED: (HeaderName, &str) = (HeaderName::from_static("cross-origin-opener-policy"), "same-origin");

/// Adds them. `trusted`: people come by https, or from this machine.
pub async fn add(State(trusted): State<bool>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in ALWAYS.into_iter().chain(trusted.then_some(TRUSTED)) {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// What a page may load: this server's own files, the scripts of this very answer, WebAssembly. Styles may stand on elements,
/// since charts and progress bars are drawn with them.
pub fn page_policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; \
         img-src 'self' data:; font-src 'self'; connect-src 'self'; manifest-src 'self'; \
         base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
}
