//! The tasks of each case.

use std::time::Duration;

use super::{AWAKE, COLD, IDLE};
use crate::bench::timers::Draw;

const SEED: u64 = 0x5eed;
const TASKS: usize = 200;
const PERIODS_S: (f64, f64) = (0.020, 1.0);
/// The part of a period by which a task may be late.
const SLACK_PART: u32 = 4;

/// A task of the plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    /// From the start to the first run.
    pub(super) phase: Duration,
    pub(super) period: Duration,
}

impl Planned {
    pub(super) fn slack(&self) -> Duration {
        slack(self.period)
    }
}

/// How late a task of this period may be.
pub(super) fn slack(period: Duration) -> Duration {
    period / SLACK_PART
}

/// How much data a run of the case `cold` sums, in bytes: the number in the name of the variant.
pub(super) fn data_of(variant: &str) -> Option<usize> {
    let kib = variant.split(' ').nth(1)?;
    kib.parse::<usize>().ok().map(|kib| kib << 10)
}

pub(super) fn about(case: &str) -> &'static str {
    match case {
        AWAKE => "a task of 10 ms, beside an item that computes on one CPU",
        COLD => "200 tasks of 20 ms to 1 s, each sums data of its own",
        "audio" => "tasks of 10 ms, 40 ms, and eight of 250 ms to 1 s",
        IDLE => "200 queues, nothing armed",
        _ => "200 tasks of 20 ms to 1 s, slack a quarter of the period, 20 us of work",
    }
}

/// The same tasks in every run.
pub(super) fn of(case: &str) -> Vec<Planned> {
    let mut draw = Draw(SEED);
    let mut fraction = || draw.below(1 << 20) as f64 / f64::from(1 << 20);
    let (least, most) = PERIODS_S;
    let periods: Vec<f64> = match case {
        "audio" => [0.010, 0.040]
            .into_iter()
            .chain((0..8).map(|_| 0.25 * 4_f64.powf(fraction())))
            .collect(),
        AWAKE => vec![0.010],
        IDLE => Vec::new(),
        _ => (0..TASKS).map(|_| least * (most / least).powf(fraction())).collect(),
    };
    let planned = |period: f64| Planned {
        phase: Duration::from_secs_f64(period * fraction()),
        period: Duration::from_secs_f64(period),
    };
    periods.into_iter().map(planned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_periods_are_those_of_the_case() {
        let periodic = of("periodic");
        assert_eq!(periodic.len(), 200);
        let ms = Duration::from_millis;
        assert!(periodic.iter().all(|task| (ms(20)..=ms(1_000)).contains(&task.period)));
        assert!(periodic.iter().all(|task| task.phase <= task.period));
        let short = periodic.iter().filter(|task| task.period < ms(142)).count();
        assert!((80..120).contains(&short), "log-uniform: half are below the geometric mean");
        let audio = of("audio");
        assert_eq!((audio[0].period, audio[1].period, audio.len()), (ms(10), ms(40), 10));
        assert!(of(IDLE).is_empty());
        assert_eq!((of(AWAKE)[0].period, of(AWAKE).len(), of(COLD).len()), (ms(10), 1, 200));
        assert_eq!((data_of("efficient 32 KiB"), data_of("efficient")), (Some(32 << 10), None));
    }
}
