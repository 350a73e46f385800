//! Dead letters of innocent jobs that are no fault: each run of the job met the death of its consumer, which
//! the torture made or planted, and the last ones were alone, as the bridge promises. Pure.
//!
//! Two letters that the bridge permits remain faults here, as no record tells them from others: of a job
//! whose run is noted as done, and whose consumer died before the outcome had arrived; and of a job whose
//! consumer died after the record of a begin, before the run was noted.

use super::oracle::{Cause, DIED, Disturbance, End, Letter, Run, SLACK_US, Victim};

/// The attempts of a job, by default.
const ATTEMPTS: usize = 5;
/// Deaths alone in a row before a burial: the last attempt and two more.
const LONELY: usize = 3;

/// A letter that is no fault, with the runs of its job, and what ended each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Explained {
    pub(super) job: u64,
    /// None: a planned failure.
    pub(super) runs: Vec<(Run, Option<Disturbance>)>,
}

/// The deaths of consumers, by time. All are recorded: a torture fails at another.
pub(super) struct Deaths(Vec<Disturbance>);

impl Deaths {
    pub(super) fn of(disturbances: &[Disturbance]) -> Deaths {
        let is_death = |of: &&Disturbance| matches!(of.cause, Cause::Kill | Cause::Poison);
        let mut deaths: Vec<Disturbance> = disturbances.iter().filter(is_death).copied().collect();
        deaths.sort_by_key(|of| of.to_us);
        Deaths(deaths)
    }

    /// The death of the process that has begun a run: the next process starts after it.
    fn of_process(&self, run: Run) -> Option<Disturbance> {
        let is_its = |of: &&Disturbance| {
            of.victim == Victim::Consumer(run.consumer) && of.to_us >= run.begun_us
        };
        self.0.iter().find(is_its).copied()
    }

    /// The runs of a job, by time, if they explain its letter. `all` are those of all jobs.
    pub(super) fn explain(&self, letter: &Letter, runs: &[Run], all: &[Run]) -> Option<Explained> {
        let job = letter.job.filter(|_| letter.error.contains(DIED))?;
        let first_alone = runs.len().checked_sub(LONELY)?;
        if runs.len() < ATTEMPTS + LONELY - 1 {
            return None;
        }
        let mut ends = Vec::new();
        let letter_us = letter.at_us.map_or(u64::MAX, |at_us| at_us + SLACK_US);
        for (nth, &run) in runs.iter().enumerate() {
            let next_us = runs.get(nth + 1).map_or(letter_us, |next| next.begun_us);
            let must_be_alone = nth >= first_alone;
            let death = match run.end {
                Some((_, End::Done)) => return None,
                Some((_, End::Failed)) if must_be_alone => return None,
                Some((_, End::Failed)) => None,
                None => {
                    let death = self.of_process(run).filter(|of| of.from_us <= next_us)?;
                    if must_be_alone && self.has_company(run, death, all) {
                        return None;
                    }
                    Some(death)
                }
            };
            ends.push((run, death));
        }
        Some(Explained { job, runs: ends })
    }

    /// Whether another job ran in the process at a time of this run.
    fn has_company(&self, run: Run, death: Disturbance, all: &[Run]) -> bool {
        let is_beside = |other: &&Run| {
            other.consumer == run.consumer
                && (other.job, other.begun_us) != (run.job, run.begun_us)
                && other.begun_us <= death.to_us
                && other.end.is_none_or(|(at_us, _)| at_us > run.begun_us)
        };
        all.iter().filter(is_beside).any(|other| self.of_process(*other) == Some(death))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    /// On the plain side, as all even ones.
    const JOB: u64 = 10;

    fn run(job: u64, consumer: usize, begun_s: u64, end: Option<(u64, End)>) -> Run {
        let end = end.map(|(at_s, end)| (at_s * SECOND, end));
        Run { job, consumer, begun_us: begun_s * SECOND, end }
    }

    fn death(cause: Cause, consumer: usize, from_s: u64, to_s: u64) -> Disturbance {
        let victim = Victim::Consumer(consumer);
        Disturbance { cause, victim, from_us: from_s * SECOND, to_us: to_s * SECOND }
    }

    /// A history: the runs of the job, those of others, the disturbances, the letter.
    #[derive(Clone)]
    struct History {
        runs: Vec<Run>,
        others: Vec<Run>,
        disturbances: Vec<Disturbance>,
        letter: Letter,
    }

    impl History {
        /// A run of consumer 0 or 1 every 20 s, which each kill meets two seconds later.
        fn of_kills(count: u64) -> History {
            let begun = |nth| (nth as usize % 2, 20 * nth);
            let runs = (0..count).map(begun).map(|(of, at)| run(JOB, of, at, None)).collect();
            let kills = (0..count).map(begun);
            let kills = kills.map(|(of, at)| death(Cause::Kill, of, at + 2, at + 2)).collect();
            let error = format!("{DIED}; the last error: none");
            let letter = Letter { job: Some(JOB), error, at_us: None };
            History { runs, others: Vec::new(), disturbances: kills, letter }
        }

        fn explained(&self) -> Option<Explained> {
            let all: Vec<Run> = self.runs.iter().chain(&self.others).copied().collect();
            Deaths::of(&self.disturbances).explain(&self.letter, &self.runs, &all)
        }

        /// The same with changes.
        fn but(&self, change: impl FnOnce(&mut History)) -> bool {
            let mut changed = self.clone();
            change(&mut changed);
            changed.explained().is_some()
        }
    }

    #[test]
    fn seven_runs_that_each_met_a_kill_explain_a_letter_with_the_kills() {
        let history = History::of_kills(7);
        let explained = history.explained().unwrap();
        assert_eq!((explained.job, explained.runs.len()), (JOB, 7));
        for ((run, death), kill) in explained.runs.into_iter().zip(&history.disturbances) {
            assert_eq!((death, run.end), (Some(*kill), None));
        }
        assert!(History::of_kills(6).explained().is_none(), "two alone are no proof");
    }

    #[test]
    fn a_run_without_the_death_of_its_own_process_explains_no_letter() {
        let history = History::of_kills(7);
        for nth in 0..7 {
            assert!(!history.but(|of| _ = of.disturbances.remove(nth)), "{nth}: no death");
            let of_other = Victim::Consumer(3);
            assert!(!history.but(|of| of.disturbances[nth].victim = of_other), "{nth}");
            let ended = Some((20 * nth as u64 * SECOND + 1, End::Done));
            assert!(!history.but(|of| of.runs[nth].end = ended), "{nth}: it ended well");
        }
        assert!(!history.but(|of| of.disturbances[3].cause = Cause::Stop));
        assert!(!history.but(|of| of.letter.error = "no reason".to_owned()));
    }

    #[test]
    fn planned_failures_before_the_last_attempts_are_attempts() {
        let history = History::of_kills(7);
        let failed = |nth: u64| Some((20 * nth * SECOND + 1, End::Failed));
        let fail = |of: &mut History, count: u64| {
            (0..count).for_each(|nth| of.runs[nth as usize].end = failed(nth));
        };
        assert!(history.but(|of| fail(of, 4)));
        assert!(!history.but(|of| fail(of, 5)), "the last attempt has failed itself");
    }

    #[test]
    fn the_last_three_runs_were_alone_or_the_letter_is_a_fault() {
        let history = History::of_kills(7);
        for (nth, is_explained) in [(3, true), (4, false), (5, false), (6, false)] {
            let (of, at) = (nth as usize % 2, 20 * nth);
            for (begun, end) in [(at, None), (at + 1, None), (at, Some((at + 1, End::Done)))] {
                let other = run(JOB + 2, of, begun, end);
                let beside = history.but(|of| of.others.push(other));
                assert_eq!(beside, is_explained, "{nth}: {other:?}");
            }
        }
        // It ended before, ran in another consumer, or in the next process.
        for other in [
            run(JOB + 2, 0, 79, Some((80, End::Done))),
            run(JOB + 2, 2, 81, None),
            run(JOB + 2, 0, 83, Some((84, End::Done))),
        ] {
            assert!(history.but(|of| of.others.push(other)), "{other:?}");
        }
    }

    #[test]
    fn a_poisonous_job_may_not_end_a_run_alone() {
        let history = History::of_kills(7);
        let died = history.but(|of| {
            of.disturbances[6] = death(Cause::Poison, 0, 121, 123);
            of.others.push(run(JOB + 2, 0, 122, None));
        });
        assert!(!died);
    }

    #[test]
    fn a_consumer_that_was_stopped_first_and_killed_later_has_died() {
        let history = History::of_kills(7);
        assert!(history.but(|of| of.disturbances[2] = death(Cause::Kill, 0, 41, 70)));
        // It lived when the next run began.
        assert!(!history.but(|of| of.disturbances[2] = death(Cause::Kill, 0, 62, 70)));
        // Or when the letter was written.
        let last_died_at = |from_s| {
            history.but(|of| {
                of.letter.at_us = Some(130 * SECOND);
                of.disturbances[6] = death(Cause::Kill, 0, from_s, 140);
            })
        };
        assert_eq!([131, 133].map(last_died_at), [true, false]);
    }
}
