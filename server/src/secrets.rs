//! Secrets of people and programs, of which only hashes are kept, and what is kept from others on this machine.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use argon2::{
    Argon2,
    password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash},
};
use sha2::{Digest, Sha256};

use crate::clock::{self, RandomError};

/// Shortest password, in characters; longest, in bytes (argon2 would take more, a form should not).
pub const PASSWORD_CHARS: usize = 8;
/// Longest password in bytes.
pub const PASSWORD_BYTES: usize = 1024;

/// Why a secret could not be made or checked.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// There are no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The hash could not be computed or read.
    #[error("password hash: {0}")]
    Hash(String),
    /// The password is not acceptable.
    #[error("a password has at least {PASSWORD_CHARS} characters and at most {PASSWORD_BYTES} bytes")]
    Password,
}

/// 32 random bytes as 64 hex digits: the value of a cookie or a token.
///
/// # Errors
/// The operating system gives no random numbers.
pub fn new_secret() -> Result<String, SecretError> {
    Ok(hex(&clock::new_secret()?))
}

/// What is kept of a random secret. A plain hash is enough for 256 random bits; passwords take [`hash_password`].
pub fn fingerprint(secret: &[u8]) -> String {
    hex(&Sha256::digest(secret))
}

/// Hashes a password with argon2id and a new salt; takes tens of milliseconds and 19 MiB.
///
/// # Errors
/// A password that is too short or too long.
pub fn hash_password(password: &str) -> Result<String, SecretError> {
    if password.chars().count() < PASSWORD_CHARS || password.len() > PASSWORD_BYTES {
        return Err(SecretError::Password);
    }
    let hash = Argon2::default().hash_password(password.as_bytes());
    Ok(hash.map_err(|why| SecretError::Hash(why.to_string()))?.to_string())
}

/// Whether the password is the one that was hashed.
///
/// # Errors
/// The stored hash cannot be read.
pub fn verify_password(password: &str, stored: &str) -> Result<bool, SecretError> {
    let stored = PasswordHash::new(stored).map_err(|why| SecretError::Hash(why.to_string()))?;
    Ok(password.len() <= PASSWORD_BYTES
        && Argon2::default().verify_password(password.as_bytes(), &stored).is_ok())
}

/// Takes from others what they may do with a file or directory. One of another owner, or in a file system without modes, cannot be
/// changed; that is told and keeps nothing from working.
pub(crate) fn keep_from_others(path: &Path) {
    let Ok(found) = fs::metadata(path) else { return };
    let mode = found.permissions().mode();
    if mode & 0o077 != 0
        && let Err(error) = fs::set_permissions(path, Permissions::from_mode(mode & 0o700))
    {
        tracing::warn!("other users of this machine may read {}: {error}", path.display());
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_recognised_and_another_is_not() {
        let stored = hash_password("correct horse").unwrap();
        assert!(stored.starts_with("$argon2id$"));
        assert!(verify_password("correct horse", &stored).unwrap());
        assert!(!verify_password("correct horsf", &stored).unwrap());
        assert_ne!(stored, hash_password("correct horse").unwrap(), "each has its own salt");
        assert!(matches!(hash_password("short"), Err(SecretError::Password)));
    }

    #[test]
    fn a_random_secret_is_kept_as_its_sha_256() {
        assert_eq!(fingerprint(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
