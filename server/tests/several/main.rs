//! Several servers on one Postgres: real processes before an API server that a test plays, with real agents as its pods.

#[cfg(test)]
mod address;
#[cfg(test)]
mod api_server;
#[cfg(test)]
#[path = "../databases/mod.rs"]
#[expect(dead_code, reason = "other tests have it do more")]
mod databases;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod takeover;
