//! How often a job should save (R36), from what was measured of it: how often it fails, and what a save takes.
//!
//! Too seldom loses steps, too often loses time to saving. The best interval between is Daly's second-order estimate (J. T. Daly, "A higher
//! order estimate of the optimum checkpoint interval for restart dumps", 2006), which begins with Young's `sqrt(2 · save · time between
//! failures)`.

use serde::{Deserialize, Serialize};

use crate::{time::Time, words};

/// Failures that must have been seen: one says nothing of how often.
pub const FAILURES: u32 = 2;
/// Saves whose time must be known; their median counts.
pub const SAVES: usize = 3;
/// A save that takes less than this, seconds, cannot be told from the ups and downs of steps.
pub const SHORTEST_SAVE: f64 = 0.05;

/// A printed step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which launch of the job, however they are numbered.
    pub launch: u32,
    /// The step.
    pub step: u64,
    /// When it was printed.
    pub at: Time,
}

/// What was measured of a job.
#[derive(Clone, Copy, Debug)]
pub struct Measured<'a> {
    /// Time in which steps were made, seconds.
    pub running_seconds: f64,
    /// Failures in it.
    pub failures: u32,
    /// Steps in order of time; not all need be there.
    pub steps: &'a [Step],
    /// When checkpoints were saved, in order of time.
    pub saves: &'a [Time],
}

/// How often to save, with what that rests on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CheckpointAdvice {
    /// Time in which steps were made, seconds.
    pub running_seconds: f64,
    /// Failures in it.
    pub failures: u32,
    /// Time between failures, seconds; none while too few were seen.
    pub between_failures_seconds: Option<f64>,
    /// What a save takes beyond the steps, seconds: the median; none while too few could be told.
    pub save_seconds: Option<f64>,
    /// Saves that could be told.
    pub saves_measured: u32,
    /// Time between saves as it is, seconds: the median.
    pub interval_seconds: Option<f64>,
    /// Time between saves that loses least, seconds; none while too little is known.
    pub advised_seconds: Option<f64>,
    /// What to do, or why there is no advice: a sentence.
    pub text: String,
}

/// How often the job should save.
pub fn advise(measured: &Measured<'_>) -> CheckpointAdvice {
    let Measured { running_seconds, failures, steps, saves } = *measured;
    let between =
        (failures >= FAILURES && running_seconds > 0.0).then(|| running_seconds / f64::from(failures));
    let costs = save_costs(steps, saves);
    let save = (costs.len() >= SAVES).then(|| median(&costs)).flatten();
    let gaps: Vec<f64> = saves.windows(2).map(|pair| pair[1].seconds_since(pair[0])).collect();
    let interval = median(&gaps);
    let advised = match (save, between) {
        (Some(save), Some(between)) if save >= SHORTEST_SAVE => Some(daly(save, between)),
        _ => None,
    };
    let text = match (between, save, advised) {
        (None, _, _) if failures == 0 => {
            "No failure was seen, so it is not known how often it fails.".to_owned()
        }
        (None, _, _) => format!("{} seen: not known how often it fails.", words::count(failures, "failure")),
        (_, None, _) if saves.is_empty() => "No checkpoint was seen to be saved.".to_owned(),
        (_, None, _) => {
            format!("What a save takes could be told of {} of them, and {SAVES} are needed.", costs.len())
        }
        (_, Some(_), None) => {
            format!("A save takes less than {SHORTEST_SAVE} s, so saving more often costs next to nothing.")
        }
        (Some(_), Some(_), Some(advised)) => sentence(advised, interval),
    };
    CheckpointAdvice {
        running_seconds,
        failures,
        between_failures_seconds: between,
        save_seconds: save,
        saves_measured: u32::try_from(costs.len()).unwrap_or(u32::MAX),
        interval_seconds: interval,
        advised_seconds: advised,
        text,
    }
}

fn sentence(advised: f64, interval: Option<f64>) -> String {
    let advice = format!("Saving every {} loses least", words::duration(advised.max(1.0)));
    match interval {
        Some(now) if now > advised * 1.5 => {
            format!("{advice}; it saves every {}: save more often.", words::duration(now))
        }
        Some(now) if now < advised / 1.5 => {
            format!("{advice}; it saves every {}: save less often.", words::duration(now))
        }
        Some(now) => format!("{advice}; it saves every {}, which is near enough.", words::duration(now)),
        None => format!("{advice}."),
    }
}

/// Daly's estimate; where a save takes as long as twice the time between failures, that time itself.
fn daly(save: f64, between: f64) -> f64 {
    if save >= 2.0 * between {
        return between;
    }
    let ratio = save / (2.0 * between);
    (2.0 * save * between).sqrt() * (1.0 + ratio.sqrt() / 3.0 + ratio / 9.0) - save
}

/// What each save took beyond the steps beside it: the time between the steps around it, less what such steps usually take.
fn save_costs(steps: &[Step], saves: &[Time]) -> Vec<f64> {
    let pairs: Vec<_> = steps
        .windows(2)
        .filter(|pair| {
            pair[0].launch == pair[1].launch && pair[0].step < pair[1].step && pair[0].at <= pair[1].at
        })
        .map(|pair| {
            let within = saves.iter().filter(|save| pair[0].at <= **save && **save < pair[1].at).count();
            (pair[1].at.seconds_since(pair[0].at), (pair[1].step - pair[0].step) as f64, within)
        })
        .collect();
    let paces: Vec<f64> = pairs
        .iter()
        .filter(|(_, _, within)| *within == 0)
        .map(|(seconds, steps, _)| seconds / steps)
        .collect();
    let Some(pace) = median(&paces) else { return Vec::new() };
    pairs
        .iter()
        .filter(|(_, _, within)| *within > 0)
        .map(|(seconds, steps, within)| ((seconds - pace * steps) / *within as f64).max(0.0))
        .collect()
}

fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time((seconds * 1e6) as i64)
    }

    /// A step a second; after every tenth a save that takes `save` seconds.
    fn run(steps: u64, save: f64) -> (Vec<Step>, Vec<Time>) {
        let (mut now, mut printed, mut saves) = (0.0, Vec::new(), Vec::new());
        for step in 1..=steps {
            now += 1.0;
            printed.push(Step { launch: 0, step, at: at(now) });
            if step % 10 == 0 {
                now += save;
                saves.push(at(now));
            }
        }
        (printed, saves)
    }

    fn of(failures: u32, running_seconds: f64, steps: &[Step], saves: &[Time]) -> CheckpointAdvice {
        advise(&Measured { running_seconds, failures, steps, saves })
    }

    #[test]
    fn the_interval_follows_from_failures_and_the_time_of_a_save() {
        let (steps, saves) = run(100, 2.0);
        let advice = of(4, 4.0 * 3_600.0, &steps, &saves);
        assert_eq!((advice.between_failures_seconds, advice.save_seconds), (Some(3_600.0), Some(2.0)));
        // Young: sqrt(2 * 2 * 3600) = 120.
        let advised = advice.advised_seconds.unwrap();
        assert!((advised - 118.7).abs() < 1.0, "{advised}");
        assert_eq!(advice.interval_seconds, Some(12.0));
        assert_eq!(advice.text, "Saving every 1 min loses least; it saves every 12 s: save less often.");
    }

    #[test]
    fn where_too_little_is_known_there_is_no_advice_and_the_reason() {
        let (steps, saves) = run(100, 2.0);
        for (failures, saves, text) in [
            (0, &saves[..], "No failure was seen, so it is not known how often it fails."),
            (1, &saves[..], "1 failure seen: not known how often it fails."),
            (2, &saves[..0], "No checkpoint was seen to be saved."),
            (2, &saves[..2], "What a save takes could be told of 2 of them, and 3 are needed."),
        ] {
            let advice = of(failures, 7_200.0, &steps, saves);
            assert_eq!((advice.advised_seconds, advice.text.as_str()), (None, text));
        }
        let (steps, saves) = run(100, 0.0);
        let advice = of(2, 7_200.0, &steps, &saves);
        assert_eq!(advice.advised_seconds, None);
        assert!(advice.text.starts_with("A save takes less than 0.05 s"), "{}", advice.text);
    }

    #[test]
    fn steps_that_are_missing_and_restarts_between_do_not_count_as_saves() {
        let (steps, saves) = run(100, 2.0);
        let some: Vec<_> = steps.iter().copied().filter(|step| step.step % 4 == 1).collect();
        let save = of(2, 7_200.0, &some, &saves).save_seconds.unwrap();
        assert!((save - 2.0).abs() < 0.01, "{save}");
        let mut later = steps.clone();
        later.extend(steps.iter().map(|step| Step { launch: 1, at: step.at.plus_seconds(900), ..*step }));
        let save = of(2, 7_200.0, &later, &saves).save_seconds.unwrap();
        assert!((save - 2.0).abs() < 0.01, "{save}");
    }

    #[test]
    fn a_job_that_fails_faster_than_it_saves_gets_no_longer_interval_than_that() {
        assert_eq!(daly(100.0, 50.0), 50.0);
        assert!(daly(1.0, 1e6) > 1_000.0);
    }
}
