//! Limits of the HTTP side. Each is documented in the API description where a caller can meet it.

use std::time::Duration;

/// Longest body of a request, bytes. A job's command and environment may take 512 KiB.
pub const BODY_BYTES: usize = 1024 * 1024;
/// Longest a request may take until its answer begins; live streams begin at once.
pub const REQUEST_TIME: Duration = Duration::from_secs(30);
/// Requests worked on at the same time, streams and agents not counted. Beyond it the answer is 503 at once.
pub const CONCURRENT_REQUESTS: usize = 512;
/// Live streams open at the same time. A browser tab holds one.
pub const STREAMS: usize = 1000;
/// Silence on a live stream after which a comment is sent, so that proxies keep it open.
pub const STREAM_KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Longest life of a live stream; clients come back with `Last-Event-ID`, and a session that ended is noticed.
pub const STREAM_LIFE: Duration = Duration::from_secs(3600);
/// Entries read from the store at once for a live stream.
pub const STREAM_BATCH: u32 = 500;
/// How long the answer to an `Idempotency-Key` is kept, seconds.
pub const IDEMPOTENCY_SECONDS: i64 = 24 * 3600;
/// An `Idempotency-Key` without an answer for so long, seconds, belongs to a server that died; above [`REQUEST_TIME`].
pub const IDEMPOTENCY_ABANDONED_SECONDS: i64 = 60;
/// Longest `Idempotency-Key`, bytes.
pub const IDEMPOTENCY_KEY_BYTES: usize = 255;
/// How long a session lasts, seconds.
pub const SESSION_SECONDS: u64 = 7 * 24 * 3600;
/// Failed sign-ins of one address for one account within [`SIGN_IN_WINDOW_SECONDS`].
pub const SIGN_IN_FAILURES: u32 = 10;
/// Seconds until failed sign-ins are forgotten.
pub const SIGN_IN_WINDOW_SECONDS: u64 = 900;
/// Pairs of address and account whose failures are remembered.
pub const SIGN_IN_REMEMBERED: usize = 10_000;
/// Passwords checked at the same time; each takes 19 MiB and tens of milliseconds.
pub const PASSWORD_CHECKS: usize = 2;
/// Longest search text, characters.
pub const QUERY_CHARS: usize = 200;
/// Longest page of a list.
pub const PAGE_ITEMS: u32 = 200;
/// Most lines of a log in one answer.
pub const LOG_LINES: u32 = 5000;
/// Pieces of whole logs read from disk at the same time. A download holds a place only while it reads, so one that stands still
/// keeps nobody waiting.
pub const LOG_READS: usize = 8;
