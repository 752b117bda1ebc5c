//! What a report about standstills may hold.

use std::{collections::BTreeSet, ops::Range};

use engine::{
    ids::ReplicaName,
    sync::{RankStack, StackKey, StillRank, WitnessSays, watch_limits as limits},
};

use super::{super::SyncError, refuse};

/// Every rank is of this replica, and is named once.
pub(super) fn check_ranks(
    n: u64,
    named: impl Iterator<Item = u32>,
    replica: &ReplicaName,
    ranks: &Range<u32>,
) -> Result<(), SyncError> {
    let mut seen = BTreeSet::new();
    for rank in named {
        if !ranks.contains(&rank) {
            return Err(refuse(format!("report {n}: rank {rank} is not one of replica {replica}")));
        }
        if !seen.insert(rank) {
            return Err(refuse(format!("report {n}: rank {rank} is named twice")));
        }
    }
    Ok(())
}

fn check_words(n: u64, what: &str, words: &str) -> Result<(), SyncError> {
    if words.len() > limits::WORDS_BYTES {
        return Err(refuse(format!("report {n}: {what} has more than {} bytes", limits::WORDS_BYTES)));
    }
    Ok(())
}

fn check_key(n: u64, key: &StackKey) -> Result<(), SyncError> {
    if key.hash.len() > limits::HASH_BYTES || key.top.len() > limits::KEY_FRAMES {
        return Err(refuse(format!(
            "report {n}: the key of a stack has more than {} bytes of hash or {} frames",
            limits::HASH_BYTES,
            limits::KEY_FRAMES
        )));
    }
    if key.top.iter().any(|frame| frame.len() > limits::FRAME_BYTES) {
        return Err(refuse(format!("report {n}: a frame has more than {} bytes", limits::FRAME_BYTES)));
    }
    Ok(())
}

pub(super) fn check_still(n: u64, still: &StillRank) -> Result<(), SyncError> {
    if still.until < still.since {
        return Err(refuse(format!("report {n}: rank {} stands still until before it began to", still.rank)));
    }
    if still.witnesses.len() > limits::WITNESSES {
        return Err(refuse(format!(
            "report {n}: more than {} witnesses of rank {}",
            limits::WITNESSES,
            still.rank
        )));
    }
    let mut kinds = BTreeSet::new();
    for witness in &still.witnesses {
        if !kinds.insert(witness.kind) {
            return Err(refuse(format!("report {n}: two witnesses of one kind of rank {}", still.rank)));
        }
        check_words(n, "a detail", &witness.detail)?;
        if let WitnessSays::Unknown(reason) = &witness.says {
            check_words(n, "a reason", reason)?;
        }
    }
    if let Some(key) = &still.stack {
        check_key(n, key)?;
    }
    if let Some(channel) = still.state.as_ref().and_then(|state| state.waits_in.as_ref()) {
        check_words(n, "a wait channel", channel)?;
    }
    if let Some(name) = still.collective.as_ref().and_then(|collective| collective.name.as_ref()) {
        check_words(n, "a collective's name", name)?;
    }
    Ok(())
}

pub(super) fn check_stacks(n: u64, stacks: &[RankStack]) -> Result<(), SyncError> {
    let mut bytes = 0;
    for stack in stacks {
        if stack.threads.len() > limits::THREADS {
            return Err(refuse(format!(
                "report {n}: more than {} threads of rank {}",
                limits::THREADS,
                stack.rank
            )));
        }
        if let Some(reason) = &stack.missing {
            check_words(n, "a reason", reason)?;
        }
        for thread in &stack.threads {
            if thread.frames.len() > limits::FRAMES {
                return Err(refuse(format!("report {n}: more than {} frames of a thread", limits::FRAMES)));
            }
            for text in thread.name.iter().chain(&thread.frames) {
                if text.len() > limits::FRAME_BYTES {
                    return Err(refuse(format!(
                        "report {n}: a frame or a thread's name has more than {} bytes",
                        limits::FRAME_BYTES
                    )));
                }
                bytes += text.len();
            }
        }
    }
    if bytes > limits::STACKS_BYTES {
        return Err(refuse(format!("report {n}: {bytes} bytes of stacks; at most {}", limits::STACKS_BYTES)));
    }
    Ok(())
}
