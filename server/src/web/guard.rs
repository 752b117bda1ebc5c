//! Refuses what a browser sends on behalf of a foreign page, before anything else looks at it.
//!
//! Two gates. [`CsrfLayer`] refuses requests that change something and come from another origin; programs send neither
//! `Origin` nor `Sec-Fetch-Site` and pass. The `Host` rule closes DNS rebinding, by which a foreign page makes itself
//! the *same* origin: a server on loopback answers only to loopback names and its configured public address. It matters most in
//! single-user mode, where no cookie stands between such a page and the jobs. Beyond loopback without a public address
//! the names are not known; there everybody signs in, and the session cookie is bound to the host it was given to.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::{StatusCode, header};
use tower_http::csrf::{CsrfLayer, ProtectionError, ResponseForProtectionError};

use super::problem::Problem;
use crate::config::PublicUrl;

/// Which `Host` a request may name.
#[derive(Clone, Debug)]
pub struct HostRule {
    any: bool,
    loopback: bool,
    public: Option<Arc<str>>,
}

impl HostRule {
    /// The rule for a server bound to loopback or not, with or without a public address.
    pub fn new(loopback: bool, public: Option<&PublicUrl>) -> Self {
        let public = public.map(|url| url.authority.as_str().into());
        Self { any: !loopback && public.is_none(), loopback, public }
    }

    /// Whether any name will do for this path: agents carry a secret of their own and probes learn nothing. Beyond loopback numbers are
    /// fetched by address, and ask for a token unless they were opened on purpose.
    fn is_free(&self, path: &str) -> bool {
        path.starts_with("/agent/")
            || matches!(path, "/healthz" | "/readyz")
            || (path == "/metrics" && !self.loopback)
    }

    /// Whether a request for `host` (with or without a port) is meant for this server.
    pub fn allows(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        self.any || self.public.as_deref() == Some(host.as_str()) || is_loopback(&host)
    }
}

/// Any port will do: a tunnel changes it.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The gate for `Host`.
pub async fn check_host(State(rule): State<HostRule>, request: Request, next: Next) -> Response {
    if rule.is_free(request.uri().path()) {
        return next.run(request).await;
    }
    let named = request
        .uri()
        .authority()
        .map(|authority| authority.as_str())
        .or_else(|| request.headers().get(header::HOST).and_then(|value| value.to_str().ok()));
    if named.is_some_and(|host| rule.allows(host)) {
        return next.run(request).await;
    }
    Problem::new(
        StatusCode::MISDIRECTED_REQUEST,
        "wrong-host",
        "Not a name of this server",
        "This server answers to localhost and to its --public-url. Set that to the address your browser shows.",
    )
    .into_response()
}

/// The gate for requests that change something.
///
/// # Errors
/// A public address that is no origin; the configuration refuses those earlier.
pub fn csrf(
    public: Option<&PublicUrl>,
) -> Result<
    CsrfLayer<impl ResponseForProtectionError<axum::body::Body> + Send + Sync + use<>>,
    tower_http::csrf::ConfigError,
> {
    let mut layer = CsrfLayer::new();
    if let Some(url) = public {
        layer = layer.add_trusted_origin(&url.origin)?;
    }
    Ok(layer.with_rejection_response(|_: ProtectionError| {
        Problem::new(
            StatusCode::FORBIDDEN,
            "foreign-origin",
            "Sent by another site",
            "The browser says that this request comes from another site, so nothing was done.",
        )
        .into_response()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_server_answers_to_its_own_names_only() {
        let public = PublicUrl {
            origin: "https://holdfast.example.org".into(),
            authority: "holdfast.example.org".into(),
            secure: true,
        };
        let (local, both, open) =
            (HostRule::new(true, None), HostRule::new(true, Some(&public)), HostRule::new(false, None));
        for (host, want) in [
            ("localhost:3000", [true, true, true]),
            ("LOCALHOST", [true, true, true]),
            ("127.0.0.1:3000", [true, true, true]),
            ("127.8.9.1", [true, true, true]),
            ("[::1]:3000", [true, true, true]),
            ("holdfast.example.org", [false, true, true]),
            ("evil.example:3000", [false, false, true]),
            ("localhost.evil.example", [false, false, true]),
            ("127.0.0.1.evil.example", [false, false, true]),
            ("", [false, false, true]),
        ] {
            assert_eq!([local.allows(host), both.allows(host), open.allows(host)], want, "{host}");
        }
        let proxied = HostRule::new(false, Some(&public));
        assert!(!proxied.allows("10.88.1.7:3000"));
        for (path, want) in [
            ("/agent/v1/sync", [true, true]),
            ("/readyz", [true, true]),
            ("/metrics", [false, true]),
            ("/metrics/x", [false, false]),
            ("/jobs", [false, false]),
        ] {
            assert_eq!([local.is_free(path), proxied.is_free(path)], want, "{path}");
        }
    }
}
