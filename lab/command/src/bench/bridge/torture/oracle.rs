//! The oracle: what became of each job, from the pushes, the runs, the effects, the dead letters and
//! the disturbances alone. Pure.
//!
//! A run is *explained* if the run before it failed as it should, or if a disturbance could have kept
//! the server from learning of the run before. An extra run that is not explained is a fault of the
//! bridge. No disturbance explains an effect that is missing, or that happened twice, but that of a job whose
//! letter is [explained](super::deaths).

use std::collections::{HashMap, HashSet};

use super::deaths::{Deaths, Explained};
use super::jobs::{Jobs, Kind, Side, Trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Failed,
}

/// A run, in the record of its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) job: u64,
    pub(super) consumer: usize,
    pub(super) begun_us: u64,
    /// None: its consumer was killed.
    pub(super) end: Option<(u64, End)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Kill,
    /// The consumer was killed by a poisonous job.
    Poison,
    Stop,
    /// A connection to this server was cut.
    Cut(Side),
    /// The machine did not run the consumer, or the server did not answer.
    Stall,
    Restart,
    Step,
    /// A master was killed or stopped, and its replica took over.
    Failover,
    /// A replica took over because the machine was too busy for its master.
    OwnFailover,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Victim {
    Consumer(usize),
    Side(Side),
    /// A producer, or a connection that was not used for jobs yet. It concerns no run.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disturbance {
    pub(super) cause: Cause,
    pub(super) victim: Victim,
    pub(super) from_us: u64,
    pub(super) to_us: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Letter {
    /// None: the payload is not that of a job.
    pub(super) job: Option<u64>,
    pub(super) error: String,
    /// When it was written. None on a server whose clock steps.
    pub(super) at_us: Option<u64>,
}

/// Chance explains so many letters of a torture: about one in 10 minutes is expected.
const EXPLAINED_MAX: usize = 5;

/// What an outcome takes until the server has executed it, and what a connection takes to be there
/// again after a disturbance.
pub(super) const SLACK_US: u64 = 2_000_000;
/// The reason of a dead letter whose job killed its consumer.
pub(super) const DIED: &str = "its consumer died each time";

pub(super) struct Evidence {
    pub(super) jobs: Jobs,
    pub(super) runs: Vec<Run>,
    pub(super) letters: Vec<Letter>,
    /// What jobs have left on each server, and how often.
    pub(super) effects: Vec<(Side, Trace, HashMap<u64, u64>)>,
    pub(super) disturbances: Vec<Disturbance>,
}

/// A job that has left something more or less often than it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongEffect {
    pub(super) job: u64,
    pub(super) trace: Trace,
    pub(super) found: u64,
    pub(super) expected: u64,
}

#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) lost: Vec<u64>,
    /// Letters of jobs that are not poisonous, and that no deaths explain.
    pub(super) innocent: Vec<Letter>,
    /// Those that deaths explain, by the documented rule. A few are no fault.
    pub(super) explained: Vec<Explained>,
    /// Poisonous jobs without a letter that says so.
    pub(super) unburied: Vec<u64>,
    /// Two consecutive runs of a job, of which the second one is not explained.
    pub(super) unexplained: Vec<(Run, Run)>,
    /// Jobs whose effect or result is missing, exists twice, or is on the wrong server.
    pub(super) effects: Vec<WrongEffect>,
    /// Runs of jobs that were never pushed.
    pub(super) unknown: usize,
    /// Runs beyond the first of each job, without those after a planned failure and of poisonous jobs.
    pub(super) extra: u64,
}

impl Verdict {
    pub(super) fn is_good(&self) -> bool {
        self.lost.is_empty()
            && self.innocent.is_empty()
            && self.explained.len() <= EXPLAINED_MAX
            && self.unburied.is_empty()
            && self.unexplained.is_empty()
            && self.effects.is_empty()
            && self.unknown == 0
    }
}

impl Evidence {
    pub(super) fn judge(&self) -> Verdict {
        let mut verdict = Verdict::default();
        let mut runs = HashMap::<u64, Vec<Run>>::new();
        for run in &self.runs {
            runs.entry(run.job).or_default().push(*run);
        }
        runs.values_mut().for_each(|of_job| of_job.sort_by_key(|run| run.begun_us));
        let deaths = Deaths::of(&self.disturbances);
        let mut letters = HashMap::<u64, &Letter>::new();
        let mut explained = HashSet::new();
        for letter in &self.letters {
            let job = letter.job.filter(|&job| job < self.jobs.count);
            if let Some(job) = job.filter(|&job| self.jobs.kind(job) == Kind::Poison) {
                letters.insert(job, letter);
                continue;
            }
            let of_job = job.and_then(|job| runs.get(&job)).map_or(&[][..], Vec::as_slice);
            match job.and_then(|_| deaths.explain(letter, of_job, &self.runs)) {
                // A second letter of a job is a fault.
                Some(found) if explained.insert(found.job) => verdict.explained.push(found),
                _ => verdict.innocent.push(letter.clone()),
            }
        }
        let innocent = verdict.innocent.iter().filter_map(|letter| letter.job);
        let buried: HashSet<u64> = innocent.chain(explained.iter().copied()).collect();
        for job in 0..self.jobs.count {
            let of_job = runs.remove(&job).unwrap_or_default();
            let is_done = of_job.iter().any(|run| matches!(run.end, Some((_, End::Done))));
            if self.jobs.kind(job) == Kind::Poison {
                if letters.get(&job).is_none_or(|letter| !letter.error.contains(DIED)) {
                    verdict.unburied.push(job);
                }
            } else {
                if !is_done && !buried.contains(&job) {
                    verdict.lost.push(job);
                }
                self.judge_runs(&of_job, &mut verdict);
            }
        }
        self.judge_effects(&explained, &mut verdict);
        verdict.unknown = runs.values().map(Vec::len).sum();
        verdict
    }

    /// A job that is lost has no effect, and is one fault. One whose letter is `explained` must have none.
    fn judge_effects(&self, explained: &HashSet<u64>, verdict: &mut Verdict) {
        let without_effect: HashSet<u64> = verdict.lost.iter().copied().collect();
        for (side, trace, counted) in &self.effects {
            let (trace, mut counted) = (*trace, counted.clone());
            for job in Jobs::of(*side, self.jobs.count) {
                let found = counted.remove(&job).unwrap_or(0);
                let expected =
                    if explained.contains(&job) { 0 } else { self.jobs.traces(job, trace) };
                let is_lost = found == 0 && without_effect.contains(&job);
                if found != expected && !is_lost {
                    verdict.effects.push(WrongEffect { job, trace, found, expected });
                }
            }
            // Jobs of the other server, and jobs that do not exist.
            let others = counted.into_iter();
            verdict.effects.extend(others.map(|(job, found)| WrongEffect {
                job,
                trace,
                found,
                expected: 0,
            }));
        }
    }

    fn judge_runs(&self, runs: &[Run], verdict: &mut Verdict) {
        for pair in runs.windows(2) {
            let (before, next) = (pair[0], pair[1]);
            if matches!(before.end, Some((_, End::Failed))) {
                continue;
            }
            verdict.extra += 1;
            if !self.disturbances.iter().any(|of| of.explains(before, next)) {
                verdict.unexplained.push((before, next));
            }
        }
    }
}

impl Disturbance {
    /// Whether it could have kept the server from learning of a run, or from telling the next runner.
    fn explains(&self, before: Run, next: Run) -> bool {
        let to_us = self.to_us + SLACK_US;
        // The server had not executed the outcome when the disturbance began.
        let known_us = before.end.map_or(next.begun_us, |(at_us, _)| at_us + SLACK_US);
        let meets_before = self.from_us <= known_us.min(next.begun_us) && to_us >= before.begun_us;
        // The next runner had the job and was out of touch while it was taken from it.
        let meets_next =
            self.from_us <= next.begun_us && to_us >= before.begun_us.max(next.begun_us);
        match self.victim {
            Victim::Other => false,
            Victim::Side(side) => side == Jobs::side(before.job) && meets_before,
            Victim::Consumer(of) => {
                let is_away = matches!(self.cause, Cause::Stop | Cause::Stall);
                (of == before.consumer && meets_before)
                    || (is_away && of == next.consumer && meets_next)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::jobs::SIDES;
    use super::*;

    const SECOND: u64 = 1_000_000;
    const JOBS: Jobs = Jobs { count: 1_000 };

    fn run(job: u64, consumer: usize, begun_s: u64, end: Option<End>) -> Run {
        let begun_us = begun_s * SECOND;
        Run { job, consumer, begun_us, end: end.map(|end| (begun_us + 10, end)) }
    }

    /// All jobs, run once, well.
    fn good() -> Evidence {
        let runs = (0..JOBS.count).map(|job| run(job, 0, 1, Some(End::Done))).collect();
        let (letters, disturbances) = (Vec::new(), Vec::new());
        Evidence { jobs: JOBS, runs, letters, effects: effects(JOBS), disturbances }
    }

    /// The effects of all jobs, as they should be.
    fn effects(jobs: Jobs) -> Vec<(Side, Trace, HashMap<u64, u64>)> {
        let of = |side, trace| {
            let has_left = |job: &u64| jobs.traces(*job, trace) > 0;
            let left = Jobs::of(side, jobs.count).filter(has_left);
            (side, trace, left.map(|job| (job, 1)).collect())
        };
        let all = [Trace::First, Trace::Second, Trace::Result];
        all.iter().flat_map(|&trace| SIDES.map(|side| of(side, trace))).collect()
    }

    fn disturbed(cause: Cause, victim: Victim, from_s: u64, to_s: u64) -> Disturbance {
        Disturbance { cause, victim, from_us: from_s * SECOND, to_us: to_s * SECOND }
    }

    #[test]
    fn jobs_that_ran_once_are_good() {
        assert!(good().judge().is_good());
    }

    #[test]
    fn a_job_without_an_effect_is_lost_also_if_it_began() {
        let mut evidence = good();
        evidence.runs[3].end = None;
        evidence.runs[4].end = Some((SECOND, End::Failed));
        evidence.runs.remove(9);
        assert_eq!(evidence.judge().lost, [3, 4, 9]);
    }

    #[test]
    fn an_effect_that_is_missing_doubled_or_elsewhere_is_a_fault_that_no_disturbance_explains() {
        let mut evidence = good();
        // Job 6 has none, and job 3 is the other server's.
        evidence.effects[0].2.remove(&2);
        evidence.effects[0].2.extend([(4, 2), (6, 1), (3, 1)]);
        // The second change of a script, and a result.
        evidence.effects[2].2.remove(&16);
        evidence.effects[4].2.insert(18, 2);
        evidence.disturbances.push(disturbed(Cause::Kill, Victim::Consumer(0), 0, 9));
        let wrong = |job, trace, found, expected| WrongEffect { job, trace, found, expected };
        let expected = [
            wrong(2, Trace::First, 0, 1),
            wrong(4, Trace::First, 2, 1),
            wrong(6, Trace::First, 1, 0),
            wrong(3, Trace::First, 1, 0),
            wrong(16, Trace::Second, 0, 1),
            wrong(18, Trace::Result, 2, 1),
        ];
        assert_eq!(evidence.judge().effects, expected);
        assert!(!evidence.judge().is_good());
    }

    #[test]
    fn a_second_run_without_a_second_effect_is_good() {
        let mut evidence = good();
        evidence.runs.push(run(2, 1, 20, Some(End::Done)));
        evidence.disturbances.push(disturbed(Cause::Kill, Victim::Consumer(0), 2, 2));
        assert!(evidence.judge().is_good());
    }

    #[test]
    fn a_letter_is_innocent_unless_its_job_is_poisonous() {
        let letter =
            |job| Letter { job, error: format!("{DIED}; the last error: none"), at_us: None };
        let mut evidence = good();
        evidence.letters = vec![letter(Some(7)), letter(None), letter(Some(1_000))];
        assert_eq!(evidence.judge().innocent.len(), 3);
        assert!(!evidence.judge().is_good());
    }

    #[test]
    fn the_effect_of_a_job_whose_letter_is_explained_is_missing_and_one_that_exists_is_wrong() {
        // Job 2 leaves an effect. Each of its runs met a kill of its consumer, alone.
        let mut evidence = good();
        evidence.runs.retain(|run| run.job != 2);
        evidence.effects[0].2.remove(&2);
        for nth in 1..=7 {
            evidence.runs.push(run(2, 0, 20 * nth, None));
            let at = 20 * nth + 1;
            evidence.disturbances.push(disturbed(Cause::Kill, Victim::Consumer(0), at, at));
        }
        let letter = Letter { job: Some(2), error: DIED.to_owned(), at_us: None };
        assert_eq!(evidence.judge().lost, [2], "without a letter");
        evidence.letters.push(letter.clone());
        let verdict = evidence.judge();
        assert!(verdict.is_good() && verdict.innocent.is_empty(), "{verdict:?}");
        let [explained] = &verdict.explained[..] else { panic!("{verdict:?}") };
        let explained_of =
            |count| Verdict { explained: vec![explained.clone(); count], ..Verdict::default() };
        assert!(
            explained_of(EXPLAINED_MAX).is_good() && !explained_of(EXPLAINED_MAX + 1).is_good()
        );
        assert_eq!((explained.job, explained.runs.len()), (2, 7));
        let mut twice = evidence;
        twice.letters.push(letter);
        assert_eq!(twice.judge().innocent.len(), 1);
        twice.letters.truncate(1);
        twice.effects[0].2.insert(2, 1);
        let wrong = WrongEffect { job: 2, trace: Trace::First, found: 1, expected: 0 };
        assert_eq!(twice.judge().effects, [wrong]);
        // Without one of the kills it is a fault, and so is its effect.
        twice.effects[0].2.remove(&2);
        twice.disturbances.remove(6);
        let verdict = twice.judge();
        assert!(verdict.explained.is_empty() && verdict.innocent.len() == 1);
        assert_eq!(verdict.effects.len(), 1);
    }

    #[test]
    fn a_poisonous_job_is_dead_for_its_reason() {
        let jobs = Jobs { count: 20_000 };
        let poison: Vec<u64> =
            (0..jobs.count).filter(|&job| jobs.kind(job) == Kind::Poison).collect();
        let is_poison = |job| jobs.kind(job) == Kind::Poison;
        let end = |job| (!is_poison(job)).then_some(End::Done);
        let runs = (0..jobs.count).map(|job| run(job, 0, 1, end(job))).collect();
        let letter = |&job| Letter { job: Some(job), error: DIED.to_owned(), at_us: None };
        let letters: Vec<Letter> = poison.iter().map(letter).collect();
        let disturbances = Vec::new();
        let mut evidence = Evidence { jobs, runs, letters, effects: effects(jobs), disturbances };
        assert!(evidence.judge().is_good());
        evidence.letters[0].error = "no reason".to_owned();
        evidence.letters.truncate(1);
        assert_eq!(evidence.judge().unburied, poison);
    }

    #[test]
    fn a_second_run_needs_a_disturbance_of_the_first_ones_consumer_or_server() {
        use Victim::{Consumer, Side as Of};
        // Job 2 is on the plain server; consumer 1 ran it after consumer 0.
        let unexplained = |disturbance: Disturbance| {
            let mut evidence = good();
            evidence.runs.push(run(2, 1, 20, Some(End::Done)));
            evidence.disturbances.push(disturbance);
            let verdict = evidence.judge();
            assert_eq!(verdict.extra, 1);
            verdict.unexplained.len()
        };
        for good in [
            disturbed(Cause::Kill, Consumer(0), 2, 2),
            disturbed(Cause::Stop, Consumer(0), 0, 15),
            disturbed(Cause::Stop, Consumer(1), 0, 19),
            disturbed(Cause::Restart, Of(Side::Plain), 1, 5),
        ] {
            assert_eq!(unexplained(good), 0, "{good:?}");
        }
        for bad in [
            // Of another consumer, long after the outcome, before the run, of the other server.
            disturbed(Cause::Kill, Consumer(1), 2, 2),
            disturbed(Cause::Kill, Consumer(0), 6, 6),
            disturbed(Cause::Kill, Consumer(0), 21, 21),
            disturbed(Cause::Stop, Consumer(1), 0, 12),
            disturbed(Cause::Failover, Of(Side::Cluster), 1, 5),
        ] {
            assert_eq!(unexplained(bad), 1, "{bad:?}");
        }
    }

    #[test]
    fn a_cut_explains_runs_of_its_own_consumer_only() {
        let [first, second] = [0, 1].map(Victim::Consumer);
        for (victim, side, job, count) in [
            (first, Side::Plain, 2, 0),
            (first, Side::Cluster, 3, 0),
            (second, Side::Plain, 2, 1),
            (second, Side::Cluster, 3, 1),
            (Victim::Other, Side::Cluster, 3, 1),
        ] {
            let mut evidence = good();
            evidence.runs.push(run(job, 1, 20, Some(End::Done)));
            evidence.disturbances.push(disturbed(Cause::Cut(side), victim, 2, 2));
            let unexplained = evidence.judge().unexplained.len();
            assert_eq!(unexplained, count, "{victim:?}, {side:?}, job {job}");
        }
    }

    #[test]
    fn a_run_that_never_ended_is_explained_only_by_what_ended_it() {
        let mut evidence = good();
        evidence.runs[2].end = None;
        evidence.runs.push(run(2, 1, 20, Some(End::Done)));
        assert_eq!(evidence.judge().unexplained.len(), 1);
        evidence.disturbances.push(disturbed(Cause::Kill, Victim::Consumer(0), 9, 9));
        assert!(evidence.judge().is_good());
    }

    #[test]
    fn a_planned_failure_explains_the_next_run() {
        let mut evidence = good();
        evidence.runs[20].end = Some((SECOND, End::Failed));
        evidence.runs.push(run(20, 1, 3, Some(End::Done)));
        let verdict = evidence.judge();
        assert!(verdict.is_good() && verdict.extra == 0);
    }
}
