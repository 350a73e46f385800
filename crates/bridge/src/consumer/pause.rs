//! A consumer that cannot run jobs now, for a reason that is not theirs: it fetches none, hands back
//! what it holds, and tries a single job from time to time.
//!
//! | gate | when | the consumer |
//! |---|---|---|
//! | OPEN | no job has met the reason, or one has started since | fetches as many as it has room for |
//! | CLOSED | for a delay after a job has met it | fetches none, and hands back those that have not begun |
//! | TRIAL | after the delay | fetches a single job, the trial, although others run |
//! | CLOSED | while a trial is out: until it has started, or is decided | fetches none |

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::shared::{Shared, lock};
use crate::job::Ticket;
use crate::report::Reporter;
use crate::scripts::ms;

/// The delay after a first failure, which doubles.
const DELAY_FIRST: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(2);
/// A run of this length has started: it does something, whatever it says at its end.
pub(crate) const STARTED_AFTER: Duration = DELAY_MAX;
/// A reason that returns within this time after its end is neither reported again, nor begins with
/// the shortest delay.
const SAME_WITHIN: Duration = Duration::from_secs(10);

/// How many jobs may be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Trial,
    /// Until a time, if it is known.
    Closed(Option<Instant>),
}

/// Marks the only job that begins while the gate is not open.
pub(crate) struct Trial(Arc<Shared>);

impl Trial {
    /// Makes a job the trial. None if another one is out, or none is due.
    pub(super) fn take(shared: &Arc<Shared>, ticket: &Arc<Ticket>) -> Option<Trial> {
        shared.pause.take_trial(ticket).then(|| Trial(shared.clone()))
    }

    /// The job can run: others are fetched.
    pub(crate) fn has_started(&self) {
        self.0.pause.end(&self.0.reporter);
        self.0.wake_readers();
    }
}

impl fmt::Debug for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trial")
    }
}

/// Whether jobs can run.
#[derive(Default)]
pub(crate) struct Pause {
    /// The gate is not open. Workers read it without the lock.
    is_on: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    reason: String,
    /// When a single job may be tried.
    until: Option<Instant>,
    /// The last trial. It is out until it is decided.
    trial: Option<Arc<Ticket>>,
    ended: Option<Instant>,
    failures: u32,
    is_reported: bool,
}

impl State {
    fn is_out(&self) -> bool {
        self.trial.as_ref().is_some_and(|trial| !trial.is_settled())
    }
}

impl Pause {
    /// Whether the gate is not open.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    pub(crate) fn gate(&self) -> Gate {
        if !self.is_on() {
            return Gate::Open;
        }
        let state = lock(&self.state);
        match state.until {
            Some(until) if Instant::now() < until => Gate::Closed(Some(until)),
            _ if state.is_out() => Gate::Closed(None),
            _ => Gate::Trial,
        }
    }

    fn take_trial(&self, ticket: &Arc<Ticket>) -> bool {
        let is_due = self.gate() == Gate::Trial;
        let mut state = lock(&self.state);
        let is_taken = is_due && !state.is_out();
        if is_taken {
            state.trial = Some(ticket.clone());
        }
        is_taken
    }

    /// Ends the pause if the trial has run for [`STARTED_AFTER`]: a handler in Rust or C does not say
    /// when it has started.
    pub(crate) fn look(&self, reporter: &Reporter) {
        let is_long = |run_ms: u64| run_ms >= ms(STARTED_AFTER);
        let runs = |trial: &Arc<Ticket>| trial.running_ms().is_some_and(is_long);
        if self.is_on() && lock(&self.state).trial.as_ref().is_some_and(runs) {
            self.end(reporter);
        }
    }

    /// A job has met a reason. Reports it, unless it is the one that has been reported.
    pub(crate) fn begin(&self, reason: &str, reporter: &Reporter) {
        self.begin_at(Instant::now(), reason, reporter);
    }

    fn begin_at(&self, now: Instant, reason: &str, reporter: &Reporter) {
        let mut state = lock(&self.state);
        let was_on = self.is_on.swap(true, Ordering::Relaxed);
        if was_on && state.reason == reason && state.until.is_some_and(|until| now < until) {
            // Jobs that have begun before meet it too.
            return;
        }
        let is_recent = state.ended.is_some_and(|ended| now < ended + SAME_WITHIN);
        let is_same = state.reason == reason && (was_on || is_recent);
        state.failures = if is_same { state.failures.saturating_add(1) } else { 0 };
        let delay = DELAY_FIRST.saturating_mul(2_u32.saturating_pow(state.failures));
        state.until = Some(now + delay.min(DELAY_MAX));
        if !is_same {
            reason.clone_into(&mut state.reason);
            state.is_reported = true;
        }
        drop(state);
        if !is_same {
            reporter.say(&format!(
                "{reason}; no job is fetched until one can run, and none has lost an attempt"
            ));
        }
    }

    /// The trial has started.
    pub(crate) fn end(&self, reporter: &Reporter) {
        let mut state = lock(&self.state);
        if !self.is_on.swap(false, Ordering::Relaxed) {
            return;
        }
        state.ended = Some(Instant::now());
        let is_reported = std::mem::take(&mut state.is_reported);
        drop(state);
        if is_reported {
            reporter.say("jobs can run again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn one_trial_is_out_until_it_is_decided_or_runs_for_long() {
        let reporter = Reporter::new(|_| {});
        let pause = Pause::default();
        let [first, second] = [Ticket::new(), Ticket::new()];
        assert!(!pause.take_trial(&first), "the gate is open");
        pause.begin("no program", &reporter);
        assert!(matches!(pause.gate(), Gate::Closed(Some(_))) && !pause.take_trial(&first));
        lock(&pause.state).until = None;
        assert!(pause.take_trial(&first) && !pause.take_trial(&second));
        assert_eq!(pause.gate(), Gate::Closed(None));
        assert!(first.settle_unstarted(), "it is handed back");
        assert!(pause.take_trial(&second) && second.begin());
        pause.look(&reporter);
        assert!(pause.is_on(), "it has run for a moment");
        assert!(second.settle(), "its time limit is over");
        assert_eq!(pause.gate(), Gate::Trial);
    }

    #[test]
    fn a_reason_is_reported_once_and_its_end_once_and_tries_become_rarer() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let reporter = Reporter::new(move |line| lock(&sink).push(line.to_owned()));
        let pause = Pause::default();
        assert_eq!(pause.gate(), Gate::Open);
        let mut now = Instant::now() + Duration::from_secs(3_600);
        let delay = |now| lock(&pause.state).until.unwrap() - now;
        for expected_ms in [50, 100, 200, 400, 800, 1_600, 2_000, 2_000] {
            pause.begin_at(now, "no program", &reporter);
            // Another job meets it at the same time.
            pause.begin_at(now, "no program", &reporter);
            assert_eq!(delay(now), Duration::from_millis(expected_ms));
            now += delay(now);
        }
        pause.end(&reporter);
        pause.end(&reporter);
        assert_eq!((pause.gate(), lock(&lines).len()), (Gate::Open, 2), "{lines:?}");
        // It returns soon: as at a limit of processes, which some jobs pass and others do not.
        pause.begin("no program", &reporter);
        pause.end(&reporter);
        assert_eq!(lock(&lines).len(), 2, "{lines:?}");
        pause.begin("another reason", &reporter);
        assert!(lock(&lines)[2].starts_with("another reason; no job is fetched"), "{lines:?}");
        pause.begin("a third one", &reporter);
        assert_eq!(lock(&lines).len(), 4, "{lines:?}");
    }
}
