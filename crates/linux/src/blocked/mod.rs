//! How this system detects that a worker is blocked: the method in use, and the reason.
//!
//! Chosen when the engine is made: the best method that the system permits, or the one that
//! `UWORK_BLOCKING` or a `Setup` asks for, if the system permits it. It may be
//! lowered later, if the system refuses what it had permitted; it is never raised.

pub(super) mod kept;
mod perf;
mod proc;
mod ring;

use std::io::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use uwork_engine::host::{Activity, Detection, Report};
use uwork_policy::blocking::{Tier, UnknownTier};

pub use perf::Records;
use perf::Refused;
pub(super) use perf::child;
use proc::Unknown;
pub(super) use proc::run_delay;

use crate::descriptor::is_passing;
use crate::latest::Latest;
use crate::small_files::contents;
use crate::time_namespace;

/// The environment variable that asks for a method.
const VARIABLE: &str = "UWORK_BLOCKING";

/// The file with the state of a thread.
const STAT: &str = "/proc/self/task/TID/stat";

/// See the module.
pub(super) struct BlockDetector {
    tier: AtomicU8,
    reason: Latest<String>,
    /// The error in the environment's choice, if any.
    ignored: Option<String>,
    /// A report is due and was not issued yet.
    pending_report: AtomicBool,
    /// The system refuses records: no more are opened.
    records_refused: AtomicBool,
    /// It was reported that some threads are sampled.
    said_exhausted: AtomicBool,
}

impl BlockDetector {
    /// `asked`: the program's choice.
    pub(super) fn new(asked: Option<Tier>) -> BlockDetector {
        // Before an `unshare` of the program's, if it can be.
        let _ = time_namespace::ahead_ns();
        let variable = crate::environment::variable(VARIABLE);
        let variable = variable.as_ref().map(|value| value.to_string_lossy());
        let wish = Wish::of(variable.as_deref(), asked);
        let (tier, first, as_requested) = settle(&wish, refusal_of);
        let reason = Latest::empty();
        reason.replace(|_| first.clone());
        BlockDetector {
            tier: AtomicU8::new(tier as u8),
            reason,
            ignored: wish.ignored,
            pending_report: AtomicBool::new(!as_requested),
            records_refused: AtomicBool::new(false),
            said_exhausted: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn tier(&self) -> Tier {
        let tier = self.tier.load(Ordering::Relaxed);
        Tier::ALL.into_iter().find(|&known| known as u8 == tier).unwrap_or(Tier::Declared)
    }

    pub(super) fn detection(&self) -> Detection {
        let reason = self.reason();
        let reason = match &self.ignored {
            Some(ignored) => format!("{reason}; {ignored}"),
            None => reason,
        };
        Detection { tier: self.tier(), reason }
    }

    fn reason(&self) -> String {
        self.reason.get().cloned().unwrap_or_default()
    }

    /// The report on the choice, if due, once. Called by a thread that holds no lock.
    pub(super) fn pending_report(&self) -> Option<Report> {
        // Acquire: the reason is complete.
        if !self.pending_report.load(Ordering::Relaxed)
            || !self.pending_report.swap(false, Ordering::Acquire)
        {
            return None;
        }
        let (tier, reason, ignored) = (self.tier(), self.reason(), self.ignored.clone());
        Some(Report::BlockingTier { tier, reason, ignored })
    }

    pub(super) fn activity(&self, thread: u64) -> Option<Activity> {
        match kept::activity(thread) {
            Ok(activity) => Some(activity),
            Err(Unknown::Ended | Unknown::Exhausted) => None,
            Err(Unknown::Hidden(error)) => {
                self.lose_states(&Error::from_raw_os_error(error));
                None
            }
        }
    }

    /// Called by the watcher from time to time: whether the system still shows the states of threads.
    /// Files that are kept open would hide it for a while.
    pub(super) fn check(&self) {
        if self.tier() != Tier::Declared
            && let Err(error) = proc::is_there()
            && !is_passing(error)
        {
            self.lose_states(&Error::from_raw_os_error(error));
        }
    }

    /// The system does not show the states of threads any more, without which no tier but the last
    /// one detects anything. The caller may hold locks: the report is left for
    /// [`BlockDetector::pending_report`].
    fn lose_states(&self, error: &Error) {
        let declared = Tier::Declared as u8;
        if self.tier.swap(declared, Ordering::Relaxed) != declared {
            self.add_reason(&format!("{STAT} cannot be read: {error}"));
            self.pending_report.store(true, Ordering::Release);
        }
    }

    /// Records a thread. `zero_at`: the host's zero in `CLOCK_MONOTONIC`. Returns a report too, if a
    /// refusal must be reported.
    pub(super) fn record(&self, thread: u64, zero_at: u64) -> (Option<Records>, Option<Report>) {
        if self.records_refused.load(Ordering::Relaxed) {
            return (None, None);
        }
        let offset_ns = time_namespace::ahead_ns().wrapping_sub(zero_at);
        let refused = match Records::new(thread, offset_ns) {
            Ok(records) => return (Some(records), None),
            Err(refused) => refused,
        };
        let report = match refused {
            Refused::Gone | Refused::NotReady => None,
            Refused::Exhausted(error) => {
                let more =
                    || format!("some workers are sampled, as one more record was refused: {error}");
                let first = !self.said_exhausted.swap(true, Ordering::Relaxed);
                first.then(|| self.explain(&more()))
            }
            Refused::Forbidden(error) => {
                self.records_refused.store(true, Ordering::Relaxed);
                let reason = format!("perf_event_open was allowed, and is refused now: {error}");
                // The tier of standbys does without records.
                self.lower(Tier::Events, &reason)
            }
        };
        (None, report)
    }

    /// The system refuses a standby's priority: the next tier from here on. Returns the report that
    /// is due, if the tier was not lowered before.
    pub(super) fn refuse_standby(&self, error: &Error) -> Option<Report> {
        let reason = format!("SCHED_BATCH was allowed, and is refused now: {error}");
        self.lower(Tier::Standby, &reason)
    }

    /// Goes to the next tier that the system permits, if the present one is `from`: of several
    /// threads that meet a refusal, one reports it.
    fn lower(&self, from: Tier, reason: &str) -> Option<Report> {
        let is_refused = |tier| match tier {
            Tier::Events if self.records_refused.load(Ordering::Relaxed) => true,
            tier => refusal_of(tier).is_some(),
        };
        let mut tiers = std::iter::successors(from.next(), |tier| tier.next());
        let to = tiers.find(|&tier| !is_refused(tier)).unwrap_or(Tier::Declared);
        let (from, to) = (from as u8, to as u8);
        let lowered = self.tier.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        lowered.is_ok().then(|| self.explain(reason))
    }

    /// Adds to the tier's reason, and returns the report of it.
    fn explain(&self, reason: &str) -> Report {
        let reason = self.add_reason(reason);
        Report::BlockingTier { tier: self.tier(), reason, ignored: None }
    }

    fn add_reason(&self, reason: &str) -> String {
        let more = |text: Option<&String>| match text {
            Some(text) => format!("{text}; {reason}"),
            None => reason.to_owned(),
        };
        self.reason.replace(more).clone()
    }

    pub(super) fn poll(&self, records: &[&Records], timeout_ns: u64) -> bool {
        perf::poll(records, timeout_ns)
    }
}

/// The requested method.
struct Wish {
    tier: Tier,
    /// The source of the request, for the text of the reason.
    by: String,
    /// The error in the environment's choice, if any.
    ignored: Option<String>,
}

impl Wish {
    /// The environment takes precedence over the program: the operator knows the machine.
    fn of(variable: Option<&str>, asked: Option<Tier>) -> Wish {
        let (tier, by) = match asked {
            Some(tier) => (tier, "the program asked for it".to_owned()),
            None => (Tier::Standby, "the best there is".to_owned()),
        };
        // An empty value counts as unset, for environments in which a variable cannot be removed.
        match variable.filter(|value| !value.is_empty()).map(str::parse::<Tier>) {
            None => Wish { tier, by, ignored: None },
            Some(Ok(tier)) => Wish { tier, by: format!("{VARIABLE}={tier}"), ignored: None },
            Some(Err(UnknownTier(value))) => {
                let all = Tier::ALL.map(Tier::name).join(", ");
                let ignored = format!("{VARIABLE}={value:?} is ignored: allowed are {all}");
                Wish { tier, by, ignored: Some(ignored) }
            }
        }
    }
}

/// Decides the method to use, the reason, and whether it is the requested one. `refusal` returns
/// why the system does not permit a method.
fn settle(wish: &Wish, refusal: impl Fn(Tier) -> Option<String>) -> (Tier, String, bool) {
    let (mut tier, mut reason) = (wish.tier, wish.by.clone());
    while let (Some(why), Some(next)) = (refusal(tier), tier.next()) {
        reason = format!("{reason}; {tier} is refused: {why}");
        tier = next;
    }
    (tier, reason, tier == wish.tier && wish.ignored.is_none())
}

/// The reason for which the system does not permit this method, if any. Without a free descriptor no
/// method is refused: a thread whose state is unknown is sampled again later. A system that does not
/// permit a method is found by [`BlockDetector::check`] and [`BlockDetector::record`].
fn refusal_of(tier: Tier) -> Option<String> {
    match tier {
        Tier::Declared => None,
        // Needs no records: where they are refused, the states of threads show the same later.
        Tier::Standby => refusal_of(Tier::Sampling).or_else(|| {
            // Beside busy programs this tier records switches, too, if it may. A filter that kills the process
            // for that call does so now, and not on a busy day.
            let _ = perf::probe();
            super::thread::standby_refusal().map(|error| format!("SCHED_BATCH: {error}"))
        }),
        Tier::Sampling => {
            let error = proc::is_there().err().filter(|&error| !is_passing(error));
            error.map(|error| format!("{STAT} cannot be read: {}", Error::from_raw_os_error(error)))
        }
        Tier::Events => match perf::probe() {
            // Needed too: a thread that sleeps before it is observed has no records.
            Ok(()) => refusal_of(Tier::Sampling),
            Err(error) if error.raw_os_error().is_some_and(is_passing) => {
                refusal_of(Tier::Sampling)
            }
            Err(error) => Some(refusal_of_perf(&error)),
        },
    }
}

fn refusal_of_perf(error: &Error) -> String {
    let paranoid = contents(Path::new("/proc/sys/kernel/perf_event_paranoid"), 16);
    let paranoid = paranoid.and_then(|text| String::from_utf8(text).ok());
    let paranoid = paranoid.as_deref().map_or("unknown", str::trim);
    format!(
        "perf_event_open: {error} (kernel.perf_event_paranoid is {paranoid}; 2 or less is needed, and no \
         filter of system calls)"
    )
}

/// Whether a thread of this process sleeps now. False if that is unknown, which changes no tier. Some
/// system calls, 8 us.
pub fn thread_sleeps(thread: u64) -> bool {
    matches!(proc::activity(thread), Ok(Activity::Sleeps { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(wish: &Wish, refused: &[Tier]) -> (Tier, String, bool) {
        settle(wish, |tier| refused.contains(&tier).then(|| "no".to_owned()))
    }

    #[test]
    fn the_environment_comes_before_the_program() {
        for (variable, asked, tier, odd) in [
            (None, None, Tier::Standby, false),
            (None, Some(Tier::Sampling), Tier::Sampling, false),
            (Some("declared"), Some(Tier::Sampling), Tier::Declared, false),
            (Some("events"), None, Tier::Events, false),
            (Some("evnts"), Some(Tier::Sampling), Tier::Sampling, true),
            (Some(" events"), None, Tier::Standby, true),
            (Some(""), None, Tier::Standby, false),
            (Some(""), Some(Tier::Sampling), Tier::Sampling, false),
        ] {
            let wish = Wish::of(variable, asked);
            assert_eq!((wish.tier, wish.ignored.is_some()), (tier, odd), "{variable:?} {asked:?}");
        }
    }

    #[test]
    fn a_refused_method_falls_back_and_is_reported() {
        let best = Wish::of(None, None);
        assert_eq!(settled(&best, &[]), (Tier::Standby, "the best there is".to_owned(), true));
        assert_eq!(settled(&best, &[Tier::Events]), settled(&best, &[]), "it needs no records");
        let (tier, reason, as_requested) = settled(&best, &[Tier::Standby]);
        assert_eq!((tier, as_requested), (Tier::Events, false));
        assert_eq!(reason, "the best there is; standby is refused: no");
        let (tier, reason, as_requested) = settled(&best, &[Tier::Standby, Tier::Events]);
        assert_eq!((tier, as_requested), (Tier::Sampling, false));
        assert_eq!(reason, "the best there is; standby is refused: no; events is refused: no");
        let all = [Tier::Standby, Tier::Events, Tier::Sampling];
        let (tier, _, as_requested) = settled(&best, &all);
        assert_eq!((tier, as_requested), (Tier::Declared, false));
        let odd = Wish::of(Some("maybe"), None);
        let (tier, reason, as_requested) = settled(&odd, &[]);
        assert_eq!((tier, as_requested), (Tier::Standby, false));
        assert_eq!(reason, "the best there is");
        assert_eq!(
            odd.ignored.as_deref(),
            Some(
                "UWORK_BLOCKING=\"maybe\" is ignored: allowed are declared, standby, events, sampling"
            )
        );
    }
}
