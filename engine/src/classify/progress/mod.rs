//! What a line tells of the progress: steps and loss, checkpoints, phases.
//!
//! Holdfast's own protocol is exact. The formats of usual trainers are read with care: a step is a whole
//! number right behind a word that means step, and what might be something else (`eval_steps: 500`, `Step
//! 1: install`) is not taken.

mod checkpoint;
mod protocol;
mod values;

use std::sync::LazyLock;

use memchr::memmem::Finder;

use self::values::{Bar, bar, loss, samples, step};
use super::{prefix, texts::Texts};
use crate::failure::Phase;

/// What a line tells of the progress.
#[derive(Clone, Debug, PartialEq)]
pub enum Progress {
    /// A step was made.
    Step {
        /// Which.
        step: u64,
        /// Steps the program means to make.
        total: Option<u64>,
        /// Loss; none where it was not printed or is no number.
        loss: Option<f64>,
        /// Samples seen.
        samples: Option<u64>,
    },
    /// A checkpoint was read or written.
    Checkpoint {
        /// Read (true) or written (false).
        loaded: bool,
        /// Its step.
        step: Option<u64>,
        /// Its path.
        path: Option<String>,
    },
    /// The program entered a phase.
    Phase(Phase),
}

/// Words that stand before something to be read, with what that is.
const WORDS: [(&str, Word); 10] = [
    ("holdfast ", Word::Protocol),
    ("heckpoint", Word::Checkpoint),
    ("Continuing training from global step", Word::Checkpoint),
    ("step", Word::Step),
    ("Step", Word::Step),
    ("iter", Word::Step),
    ("Iter", Word::Step),
    ("loss", Word::Loss),
    ("Loss", Word::Loss),
    ("samples", Word::Samples),
];

#[derive(Clone, Copy)]
enum Word {
    Protocol,
    Checkpoint,
    Step,
    Loss,
    Samples,
}

static FINDER: LazyLock<Option<Texts>> = LazyLock::new(|| Texts::new(&WORDS.map(|(word, _)| word)).ok());

static LOSS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"loss"));

/// Reads the progress of one stream. It remembers the progress bar, since losses are often printed apart
/// from it.
#[derive(Debug, Default)]
pub(super) struct ProgressReader {
    bar: Option<Bar>,
}

/// What was read of a line so far.
#[derive(Default)]
struct Found {
    step: Option<values::Step>,
    loss: Option<Option<f64>>,
    samples: Option<u64>,
}

impl ProgressReader {
    /// Reads a line without colours.
    pub(super) fn read(&mut self, line: &[u8]) -> Option<Progress> {
        if let Some(bar) = bar(line) {
            return self.bar_step(bar, line);
        }
        let finder = FINDER.as_ref()?;
        let (mut found, mut at) = (Found::default(), 0);
        while let Some(hit) = finder.find(line, at) {
            at = hit.end();
            let (before, after) = (&line[..hit.start()], &line[hit.end()..]);
            match WORDS[hit.pattern()].1 {
                Word::Protocol => {
                    if let Some(text) = prefix::strip(line).body.strip_prefix(b"holdfast ") {
                        return protocol::read(text);
                    }
                }
                Word::Checkpoint => {
                    if let Some(progress) = checkpoint::read(line) {
                        return Some(progress);
                    }
                }
                Word::Step if found.step.is_none() => found.step = step(before, after),
                Word::Loss if found.loss.is_none() => found.loss = loss(before, after),
                Word::Samples if found.samples.is_none() => found.samples = samples(before, after),
                Word::Step | Word::Loss | Word::Samples => {}
            }
            if let Found { step: Some(_), loss: Some(_), samples: Some(_) } = found {
                break;
            }
        }
        self.step(found)
    }

    fn step(&self, found: Found) -> Option<Progress> {
        let Found { step, loss, samples } = found;
        let (step, total) = match (step, self.bar) {
            (Some(step), _) if step.sure || loss.is_some() => (step.step, step.total),
            (None, Some(bar)) if loss.is_some() => (bar.step, bar.total),
            _ => return None,
        };
        Some(Progress::Step { step, total, loss: loss.flatten(), samples })
    }

    fn bar_step(&mut self, bar: Bar, line: &[u8]) -> Option<Progress> {
        // Evaluation draws shorter bars without a name while training's own waits.
        if self.bar.is_some_and(|known| !known.is_full() && bar.length < known.length) {
            return None;
        }
        self.bar = Some(bar);
        let shown = &line[bar.end..];
        let loss = LOSS.find(shown).and_then(|at| loss(&shown[..at], &shown[at + 4..])).flatten();
        Some(Progress::Step { step: bar.step, total: bar.total, loss, samples: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Progress> {
        ProgressReader::default().read(line.as_bytes())
    }

    fn made(step: u64, total: Option<u64>, loss: Option<f64>, samples: Option<u64>) -> Option<Progress> {
        Some(Progress::Step { step, total, loss, samples })
    }

    fn checkpoint(loaded: bool, step: Option<u64>, path: &str) -> Option<Progress> {
        Some(Progress::Checkpoint { loaded, step, path: Some(path.to_owned()) })
    }

    #[test]
    fn the_protocol_is_exact() {
        for (line, want) in [
            ("holdfast step=120 loss=0.71 samples=3840", made(120, None, Some(0.71), Some(3840))),
            ("holdfast step=120 total=200", made(120, Some(200), None, None)),
            ("[rank0]: holdfast step=7 loss=nan", made(7, None, None, None)),
            ("holdfast step=-1 loss=1", None),
            ("holdfast step=9223372036854775807 loss=1", None),
            ("holdfast step=1000000000001", None),
            ("holdfast step=7 total=9223372036854775807 loss=1e308", made(7, None, None, None)),
            ("holdfast step=7 loss=-inf", made(7, None, None, None)),
            ("holdfast checkpoint step=1000000000000000000 path=/ck saved", None),
            ("holdfast step=1.5", None),
            (
                "holdfast checkpoint step=120 path=/ck/step 120 loaded",
                checkpoint(true, Some(120), "/ck/step 120"),
            ),
            (
                "holdfast checkpoint step=120 path=/ck/120.pt saved",
                checkpoint(false, Some(120), "/ck/120.pt"),
            ),
            ("holdfast checkpoint step=120 path=/ck/120.pt lost", None),
            ("holdfast phase=evaluation", Some(Progress::Phase(Phase::Evaluation))),
            ("holdfast phase=party", None),
            ("say holdfast phase=loading", None),
        ] {
            assert_eq!(read(line), want, "{line}");
        }
    }

    #[test]
    fn usual_trainers_are_understood() {
        for (line, want) in [
            ("step 120 loss 0.71", made(120, None, Some(0.71), None)),
            ("Epoch 3 | step 40 | loss=2.5e-1", made(40, None, Some(0.25), None)),
            (
                " iteration      100/    5000 | consumed samples:        51200 | lm loss: 6.100000E+00 | loss scale: 4096.0 |",
                made(100, Some(5000), Some(6.1), Some(51200)),
            ),
            ("[Rank 0] step=10, skipped=0, lr=[0.001], mom=[(0.9, 0.999)]", made(10, None, None, None)),
            ("steps: 2 loss: 12.8004 iter time (s): 145.2", made(2, None, Some(12.8004), None)),
            ("INFO:tensorflow:loss = 1.25, step = 701, precision = 0.67", made(701, None, Some(1.25), None)),
            ("{\"global_step\": 12, \"train_loss\": 0.5}", made(12, None, Some(0.5), None)),
            ("Epoch [2/20], Step [100/600], Loss: 0.5", made(100, Some(600), Some(0.5), None)),
            (
                "  6%|▌         | 12/200 [00:10<02:40,  1.17it/s, loss=0.7]",
                made(12, Some(200), Some(0.7), None),
            ),
            (
                "Epoch 1:  40%|████      | 120/300 [00:10<00:20, v_num=0, loss=0.5]",
                made(420, None, Some(0.5), None),
            ),
            ("step: 1990  loss: 1e308", made(1990, None, None, None)),
            ("step: 1990  loss:  nan  memory: 68.57GiB(86.69%)", made(1990, None, None, None)),
        ] {
            assert_eq!(read(line), want, "{line}");
        }
    }

    #[test]
    fn what_only_looks_like_a_step_is_none() {
        for line in [
            "eval_steps: 500",
            "max_steps=5000, save_steps=100, loss_scale=0",
            "Step 1: install the packages",
            "warmup steps: 100",
            "elapsed time per iteration (ms): 25593.4",
            "number of skipped iterations:   0 | number of nan iterations:   0 |",
            "global_step/sec: 1.63",
            "step: 3.5",
            "step: -5 loss: 0.1",
            "step: 9223372036854775807 loss: 0.1",
            "step=1000000000000000000000 loss=0.1",
            " 50%|█████     | 1000000000000000000/2000000000000000000 [00:01<00:01,  2.10it/s]",
            "load global_step120/mp_rank_00.pt",
            "Loading checkpoint shards:  42%|████      | 3/7 [00:01<00:02,  2.10it/s]",
            "Evaluating:  42%|████      | 3/7 [00:01<00:02,  2.10it/s]",
            "Map (num_proc=14):  70%|███████   | 652383/930514 [6:39:53<4:31:33, 17.07 examples/s]",
            "eval_loss: 0.3 after the epoch",
            "train_samples = 1000",
            "the step that failed",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn a_loss_without_a_step_belongs_to_the_progress_bar() {
        let mut reader = ProgressReader::default();
        let loss = b"{'loss': 0.7, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': 0.1}";
        assert_eq!(reader.read(loss), None);
        assert_eq!(
            reader.read("  5%|▌ | 10/200 [0:01<0:19, 10it/s]".as_bytes()),
            made(10, Some(200), None, None)
        );
        assert_eq!(
            reader.read("  5%|▌ | 1/20 [0:01<0:19, 10it/s]".as_bytes()),
            None,
            "a shorter bar is evaluation"
        );
        assert_eq!(reader.read(loss), made(10, Some(200), Some(0.7), None));
    }

    #[test]
    fn checkpoints_of_usual_trainers_are_understood() {
        for (line, want) in [
            (
                "  successfully saved checkpoint from iteration     100 to /ckpt/run [ t 1/1, p 1/1 ]",
                checkpoint(false, Some(100), "/ckpt/run"),
            ),
            (
                "  successfully loaded checkpoint from /ckpt/run [ t 1/1, p 1/1 ] at iteration 100",
                checkpoint(true, Some(100), "/ckpt/run"),
            ),
            ("Saved checkpoint to /out/step-40.pt.", checkpoint(false, Some(40), "/out/step-40.pt")),
            (
                "Restored all states from the checkpoint at /out/epoch=1-step=40.ckpt",
                checkpoint(true, Some(40), "/out/epoch=1-step=40.ckpt"),
            ),
            (
                "Resumed from checkpoint: /out/checkpoint-500",
                checkpoint(true, Some(500), "/out/checkpoint-500"),
            ),
            (
                "Model weights saved in /out/checkpoint-500/model.safetensors",
                checkpoint(false, Some(500), "/out/checkpoint-500/model.safetensors"),
            ),
            (
                "  Continuing training from global step 500",
                Some(Progress::Checkpoint { loaded: true, step: Some(500), path: None }),
            ),
            ("Saving model checkpoint to /out/checkpoint-500", Some(Progress::Phase(Phase::Saving))),
            ("Resuming from checkpoint: False", None),
            ("no checkpoint was loaded", None),
        ] {
            assert_eq!(read(line), want, "{line}");
        }
    }
}
