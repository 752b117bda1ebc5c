//! The lines that programs print for Holdfast: `holdfast step=120 loss=0.71 samples=3840`.

use serde::Deserialize;
use serde::de::{IntoDeserializer, value::Error};

use super::Progress;
use crate::{
    failure::Phase,
    progress::{as_loss, as_step},
};

/// Reads what stands behind `holdfast `.
pub(super) fn read(text: &[u8]) -> Option<Progress> {
    let text = std::str::from_utf8(text).ok()?.trim();
    if let Some(phase) = text.strip_prefix("phase=") {
        let phase = Phase::deserialize(IntoDeserializer::<Error>::into_deserializer(phase)).ok()?;
        return Some(Progress::Phase(phase));
    }
    if let Some(checkpoint) = text.strip_prefix("checkpoint ") {
        return read_checkpoint(checkpoint);
    }
    let mut values = Values::default();
    for token in text.split_whitespace() {
        values.take(token)?;
    }
    let Values { step, total, loss, samples } = values;
    Some(Progress::Step { step: step?, total, loss, samples })
}

#[derive(Default)]
struct Values {
    step: Option<u64>,
    total: Option<u64>,
    loss: Option<f64>,
    samples: Option<u64>,
}

impl Values {
    /// None where a value is no number of its kind. Other keys are let through, for later versions.
    fn take(&mut self, token: &str) -> Option<()> {
        let Some((key, value)) = token.split_once('=') else { return Some(()) };
        match key {
            "step" => self.step = Some(as_step(value.parse().ok()?)?),
            "total" => self.total = as_step(value.parse().ok()?),
            "samples" => self.samples = Some(value.parse().ok()?),
            "loss" => self.loss = as_loss(value.parse().ok()?),
            _ => {}
        }
        Some(())
    }
}

/// `step=120 path=… loaded|saved`; the path may hold blanks.
fn read_checkpoint(text: &str) -> Option<Progress> {
    let (text, loaded) = match text.rsplit_once(' ')? {
        (text, "loaded") => (text, true),
        (text, "saved") => (text, false),
        _ => return None,
    };
    let (keys, path) = match text.split_once("path=") {
        Some((keys, path)) => (keys, Some(path.trim().to_owned())),
        None => (text, None),
    };
    let step = match keys.split_whitespace().find_map(|token| token.strip_prefix("step=")) {
        Some(step) => Some(as_step(step.parse().ok()?)?),
        None => None,
    };
    Some(Progress::Checkpoint { loaded, step, path })
}
