//! The processor and the memory of one node, with results that are known beforehand.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use super::{Kind, Probe, Report, say};

/// Steps of one piece of work: some milliseconds.
const STEPS: u32 = 1 << 20;
/// What one piece of whole numbers comes to; the test below computes it in another way.
const WHOLE: u64 = 0xc583_47f5_ecdc_d5f1;
/// Threads of the processor's test at most: beyond, a machine is shared.
const THREADS: usize = 256;
/// Pieces that a thread does at least, however slow it is.
const PIECES: u32 = 2;

impl Probe<'_> {
    /// Every processor does the same work until the time is over; each result must be the same.
    pub(super) fn test_processor(&self, report: &mut Report) {
        let until = Instant::now() + Duration::from_secs_f64(self.args.processor_seconds);
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        let (whole, real) = (whole(), real());
        let done: Vec<_> = thread::scope(|scope| {
            let work = || {
                let (mut pieces, mut wrong) = (0_u32, 0_u32);
                while pieces < PIECES || Instant::now() < until {
                    pieces += 1;
                    wrong += u32::from(self::whole() != whole || self::real() != real);
                }
                (pieces, wrong)
            };
            let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            all.into_iter().map(|one| one.join().unwrap_or((0, 1))).collect()
        });
        let pieces: u32 = done.iter().map(|(pieces, _)| pieces).sum();
        let mut wrong: u32 = done.iter().map(|(_, wrong)| wrong).sum();
        // The first results are what the others are compared with, so they are held against what is known.
        wrong += u32::from(whole != WHOLE);
        wrong += u32::from(self.has(Kind::Cpu));
        if wrong > 0 {
            report.find("processor", format!("{wrong} of {pieces} computations came to a wrong result"));
        } else {
            say(&format!("processor: {pieces} computations on {threads} processors, all right"));
        }
    }

    /// Writes patterns into memory and reads them back, as they are and inverted.
    pub(super) fn test_memory(&self, report: &mut Report) {
        let words = (self.args.memory_mib.min(free_mib() / 4).max(1) << 20) / 8;
        let mut memory = vec![0_u64; words as usize];
        let mut wrong = 0_u64;
        for invert in [0, u64::MAX] {
            for (place, word) in memory.iter_mut().enumerate() {
                *word = pattern(place as u64) ^ invert;
            }
            if self.has(Kind::Memory)
                && let Some(word) = memory.last_mut()
            {
                *word ^= 1 << 17;
            }
            // The compiler may not conclude what it wrote.
            let memory = std::hint::black_box(&memory);
            let differ = |(place, word): &(usize, &u64)| **word != pattern(*place as u64) ^ invert;
            wrong += memory.iter().enumerate().filter(differ).count() as u64;
        }
        if wrong > 0 {
            report.find("memory", format!("{wrong} of {words} words did not keep what was written"));
        } else {
            say(&format!("memory: {} MiB written and read twice, all right", (words * 8) >> 20));
        }
    }
}

fn pattern(place: u64) -> u64 {
    mix(place.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Mixes all bits of a word: multiplications, shifts and exclusive ors.
pub(super) fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn whole() -> u64 {
    let mut state = 1_u64;
    for step in 0..STEPS {
        state = mix(state.wrapping_add(u64::from(std::hint::black_box(step))));
    }
    state
}

/// Sums that are exact in binary, so that every machine comes to the same bits.
fn real() -> u64 {
    let mut sum = 0.0_f64;
    let mut scale = 1.0_f64;
    for step in 0..STEPS {
        sum = f64::from(std::hint::black_box(step) & 0xff).mul_add(scale, sum);
        scale = if step & 7 == 7 { 1.0 } else { scale * 0.5 };
    }
    sum.to_bits()
}

/// Memory that could be had without pushing others out, MiB: of the machine, and of the container where that has a limit. Where neither is
/// told, enough for the smallest test.
fn free_mib() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_kib(&text));
    let container = LIMITS.iter().find_map(|[limit, usage]| left(&text_of(limit)?, &text_of(usage)?));
    machine.unwrap_or(4 << 10).min(container.unwrap_or(u64::MAX) >> 10) >> 10
}

/// Where the kernel tells a container its limit of memory and what it uses of that, bytes: of cgroups version 2, then 1.
const LIMITS: [[&str; 2]; 2] = [
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"],
    ["/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"],
];

fn text_of(file: &str) -> Option<String> {
    fs::read_to_string(file).ok()
}

fn available_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What is left of a limit; none where there is no limit, which is told as `max`.
fn left(limit: &str, usage: &str) -> Option<u64> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    Some(number(limit)?.saturating_sub(number(usage)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_result_is_the_right_one() {
        // In wide numbers, so that nothing of the other way is repeated.
        let wide = |a: u64, b: u64| (u128::from(a) * u128::from(b)) as u64;
        let state = (0..STEPS).fold(1_u64, |state, step| {
            let word = (u128::from(state) + u128::from(step)) as u64;
            let word = wide(word ^ (word >> 30), 0xbf58_476d_1ce4_e5b9);
            let word = wide(word ^ (word >> 27), 0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        });
        assert_eq!(format!("{state:#x}"), format!("{WHOLE:#x}"));
        assert_eq!(whole(), WHOLE);
    }

    #[test]
    fn memory_is_what_the_machine_has_and_what_is_left_of_the_containers_limit() {
        assert_eq!(available_kib("MemTotal: 9 kB\nMemAvailable:   2048 kB\n"), Some(2048));
        assert_eq!(available_kib("MemTotal: 9 kB"), None);
        assert_eq!(left("134217728\n", "4194304\n"), Some(130_023_424));
        assert_eq!(left("100\n", "200\n"), Some(0));
        assert_eq!(left("max\n", "4194304\n"), None);
    }

    #[test]
    fn sums_are_exact() {
        // Eight steps: n/1 + (n+1)/2 + … + (n+7)/128, in units of 1/128.
        let eighths = (0..STEPS as u64).map(|step| (step & 0xff) << (7 - (step & 7))).sum::<u64>();
        assert_eq!(f64::from_bits(real()), eighths as f64 / 128.0);
    }
}
