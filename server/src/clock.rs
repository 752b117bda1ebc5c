//! The only place that reads the time and draws random numbers, so that everything else can be replayed.

use engine::{
    ids::{InvalidId, JobId},
    time::Time,
};
use futures::future::BoxFuture;

const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// Where the time comes from.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Time;

    /// Waits until a time has come; at once where it is past. Clocks of tests that do not run by themselves replace it.
    fn sleep_until(&self, at: Time) -> BoxFuture<'static, ()> {
        let micros = at.micros().saturating_sub(self.now().micros());
        let wait = std::time::Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        Box::pin(tokio::time::sleep(wait))
    }
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        #[expect(clippy::disallowed_methods, reason = "the one place where the time is read")]
        let now = chrono::Utc::now();
        now.into()
    }
}

/// Why there is no random id.
#[derive(Debug, thiserror::Error)]
pub enum RandomError {
    /// The operating system gives no random numbers.
    #[error("the operating system gives no random numbers")]
    Source(#[source] getrandom::Error),
    /// What was drawn is no id.
    #[error("a drawn id is not valid")]
    Id(#[source] InvalidId),
}

/// Between half of a pause and the whole: so those that wait for the same thing do not come back at the same moment.
pub fn spread(pause: std::time::Duration) -> std::time::Duration {
    let mut byte = [0];
    // A machine without randomness waits longest.
    let share = getrandom::fill(&mut byte).map_or(1.0, |()| f64::from(byte[0]) / f64::from(u8::MAX));
    pause.mul_f64((1.0 + share) / 2.0)
}

/// A new job id: `j` and 11 random characters of `a-z 0-9`, about 57 bits.
///
/// # Errors
/// The operating system gives no random numbers.
pub fn new_job_id() -> Result<JobId, RandomError> {
    JobId::new(format!("j{}", random_text(11)?)).map_err(RandomError::Id)
}

/// The job id that belongs to a mark: the same one gives the same id, about 57 bits of it.
///
/// # Errors
/// None in practice; an id is checked wherever one is made.
pub fn job_id_of(mark: &[u8; 32]) -> Result<JobId, RandomError> {
    let text: String = mark[..11].iter().map(|byte| char::from(ALPHABET[usize::from(byte % 36)])).collect();
    JobId::new(format!("j{text}")).map_err(RandomError::Id)
}

/// A new id that is not shown to people: 16 random characters of `a-z 0-9`, about 82 bits.
///
/// # Errors
/// The operating system gives no random numbers.
pub fn new_id() -> Result<String, RandomError> {
    random_text(16)
}

/// A new secret.
///
/// # Errors
/// The operating system gives no random numbers.
pub fn new_secret() -> Result<[u8; 32], RandomError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(RandomError::Source)?;
    Ok(bytes)
}

fn random_text(chars: usize) -> Result<String, RandomError> {
    let mut text = String::with_capacity(chars);
    let mut bytes = [0; 32];
    while text.len() < chars {
        getrandom::fill(&mut bytes).map_err(RandomError::Source)?;
        // 252 is the largest multiple of 36 in a byte: beyond it the first letters would come more often.
        let fair = bytes.iter().filter(|byte| **byte < 252);
        text.extend(fair.map(|byte| char::from(ALPHABET[usize::from(byte % 36)])).take(chars - text.len()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_have_twelve_characters_no_dash_and_differ() {
        let (one, other) = (new_job_id().unwrap(), new_job_id().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.as_str().len(), 12);
        assert!(one.as_str().starts_with('j') && !one.as_str().contains('-'), "{one}");
    }

    #[test]
    fn pauses_are_spread_and_never_longer() {
        let pause = std::time::Duration::from_secs(8);
        let spread: std::collections::BTreeSet<_> = (0..100).map(|_| spread(pause)).collect();
        assert!(
            spread.len() > 10 && spread.iter().all(|one| (pause / 2..=pause).contains(one)),
            "{spread:?}"
        );
    }

    #[test]
    fn secrets_differ() {
        assert_ne!(new_secret().unwrap(), new_secret().unwrap());
    }
}
