//! The secrets of agents.
//!
//! A replica's token is an HMAC of its names under the instance's secret, so none is stored, none can be guessed from another,
//! and an attempt that is created again after a crash gets the same ones.

use engine::{
    ids::{ReplicaName, TaskId},
    job::JobSpec,
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::BTreeMap;

/// Makes and checks the tokens of agents.
#[derive(Clone)]
pub struct Tokens {
    key: Hmac<Sha256>,
}

impl Tokens {
    /// From the instance's secret, which should have 32 random bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        // A key shorter than SHA-256's block is padded with zeros (RFC 2104 §2).
        let mut block = [0; 64];
        block[..32].copy_from_slice(secret);
        Self { key: Hmac::new(&block.into()) }
    }

    /// The token of a replica, 64 hexadecimal digits.
    pub fn of(&self, task: &TaskId, replica: &ReplicaName) -> String {
        self.mac(task, replica).finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The tokens of all replicas of an attempt that have an agent.
    pub fn of_attempt(&self, task: &TaskId, spec: &JobSpec) -> BTreeMap<ReplicaName, String> {
        (0..spec.starting_replicas())
            .map(|index| {
                let replica = ReplicaName::of_index(spec.kind, index);
                let token = self.of(task, &replica);
                (replica, token)
            })
            .collect()
    }

    /// The installation's mark on what it makes elsewhere, 16 hexadecimal digits: the same on all its servers, and no secret.
    pub fn instance(&self) -> String {
        let mut mac = self.key.clone();
        mac.update(b"instance");
        mac.finalize().into_bytes().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether `token` is this replica's; takes the same time whatever it is.
    pub fn is_valid(&self, task: &TaskId, replica: &ReplicaName, token: &str) -> bool {
        let mut bytes = [0u8; 32];
        let well_formed = token.len() == 64
            && bytes.iter_mut().zip(token.as_bytes().chunks(2)).all(|(byte, digits)| {
                std::str::from_utf8(digits)
                    .ok()
                    .and_then(|digits| u8::from_str_radix(digits, 16).ok())
                    .map(|value| *byte = value)
                    .is_some()
            });
        self.mac(task, replica).verify_slice(&bytes).is_ok() && well_formed
    }

    fn mac(&self, task: &TaskId, replica: &ReplicaName) -> Hmac<Sha256> {
        let mut mac = self.key.clone();
        // Ids hold no `/`, so no two pairs give the same text.
        mac.update(format!("agent/{task}/{replica}").as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_fits_one_replica_of_one_attempt_of_one_instance() {
        let tokens = Tokens::new(&[7; 32]);
        let id = |text: &str| (TaskId::new(text).unwrap(), ReplicaName::new("master-0").unwrap());
        let (task, replica) = id("a-1");
        let token = tokens.of(&task, &replica);
        assert!(tokens.is_valid(&task, &replica, &token));
        assert!(!tokens.is_valid(&id("a-2").0, &replica, &token));
        assert!(!tokens.is_valid(&task, &ReplicaName::new("worker-0").unwrap(), &token));
        assert!(!Tokens::new(&[8; 32]).is_valid(&task, &replica, &token));
        for forged in ["", "00", &token[1..], &"é".repeat(32), &format!("{token}00")] {
            assert!(!tokens.is_valid(&task, &replica, forged), "{forged}");
        }
    }
}
