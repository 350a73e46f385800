//! Reports of faults: one line when a fault begins, another when it ends, and no line in between,
//! however many threads meet it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::fault::{ErrorKind, Fault};
use crate::shown::shown;

/// The delay after a first fault, which doubles.
const DELAY_FIRST: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(1);
type Print = dyn Fn(&str) + Send + Sync;

/// Where reports go.
#[derive(Clone)]
pub(crate) struct Reporter(Arc<Print>);

impl Reporter {
    pub(crate) fn new(print: impl Fn(&str) + Send + Sync + 'static) -> Reporter {
        Reporter(Arc::new(print))
    }

    /// A line: characters that end it, or that a terminal obeys, are escaped.
    pub(crate) fn say(&self, line: &str) {
        (self.0)(&shown(line.as_bytes()));
    }
}

/// The identity of a fault: the server, and the text unless the server is unreachable,
/// which has many texts.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    address: String,
    text: String,
}

impl Key {
    fn of(fault: &Fault) -> Key {
        let text = match fault.error.kind() {
            ErrorKind::Unreachable => String::new(),
            _ => fault.error.to_string(),
        };
        Key { address: fault.address.clone(), text }
    }
}

/// The failures of a thread since its last success.
struct Failing {
    key: Key,
    count: u32,
    is_reported: bool,
}

#[derive(Default)]
struct State {
    /// By the number of the thread.
    failing: HashMap<usize, Failing>,
    threads: usize,
    /// The servers with a fault that was reported and has not ended.
    open: HashSet<String>,
    /// Counts reports and exchanges, as a clock that no busy machine stretches.
    now: u64,
    /// When a fault was met last by a thread for which it was reported.
    met: HashMap<Key, u64>,
    /// The last success of each thread, or its begin.
    succeeded: HashMap<usize, u64>,
}

impl State {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }
}

/// The faults of a consumer, which all its threads share.
#[derive(Clone)]
pub(crate) struct Faults {
    reporter: Reporter,
    state: Arc<Mutex<State>>,
}

impl Faults {
    pub(crate) fn new(reporter: Reporter) -> Faults {
        Faults { reporter, state: Arc::default() }
    }

    /// The faults that one thread meets.
    pub(crate) fn of_thread(&self) -> ThreadFaults {
        let mut state = self.lock();
        state.threads += 1;
        let (thread, now) = (state.threads, state.tick());
        state.succeeded.insert(thread, now);
        ThreadFaults { all: self.clone(), thread }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The faults that one thread meets: each is followed by a growing delay.
pub(crate) struct ThreadFaults {
    all: Faults,
    thread: usize,
}

impl ThreadFaults {
    /// Records a failure, reports it if it is a new fault, and returns the delay before the next try.
    pub(crate) fn failed(&self, fault: &Fault) -> Duration {
        let key = Key::of(fault);
        let mut state = self.all.lock();
        let before = state.failing.remove(&self.thread);
        let count = before.as_ref().map_or(0, |before| before.count.saturating_add(1));
        let mut known = state.failing.values().chain(&before);
        let is_reported = known.any(|other| other.is_reported && other.key == key);
        let is_first = before.as_ref().is_none_or(|before| before.key != key);
        // The thread has only now used its connection: it has met the fault that the others have met
        // since its last success.
        let last = state.succeeded.get(&self.thread).copied().unwrap_or(0);
        let is_tail = is_first && state.met.get(&key).is_some_and(|&met| met > last);
        let is_new = !is_reported && !is_tail;
        if is_new {
            state.open.insert(fault.address.clone());
        }
        if is_reported || is_new {
            // What all threads have outlived concerns none of them any more.
            let oldest = state.succeeded.values().min().copied().unwrap_or(0);
            state.met.retain(|_, met| *met > oldest);
            let now = state.tick();
            state.met.insert(key.clone(), now);
        }
        let failing = Failing { key, count, is_reported: is_reported || is_new };
        state.failing.insert(self.thread, failing);
        drop(state);
        if is_new {
            self.all.reporter.say(&fault.error.to_string());
        }
        let delay = DELAY_FIRST.saturating_mul(2_u32.saturating_pow(count)).min(DELAY_MAX);
        // Consumers that lost one server do not all come back at once.
        delay.mul_f64(1.0 - fastrand::f64() / 4.0)
    }

    /// The thread's exchange succeeds, with the server at this address. The fault is over when no
    /// thread has it.
    pub(crate) fn succeeded(&self, address: &str) {
        let mut state = self.all.lock();
        let now = state.tick();
        state.succeeded.insert(self.thread, now);
        let Some(before) = state.failing.remove(&self.thread) else { return };
        let is_last = !state.failing.values().any(|other| other.key.address == before.key.address);
        let has_ended = is_last && state.open.remove(&before.key.address);
        drop(state);
        if has_ended {
            self.all.reporter.say(&format!("{address}: works again"));
        }
    }
}

impl Drop for ThreadFaults {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        state.succeeded.remove(&self.thread);
        state.failing.remove(&self.thread);
    }
}

/// Sleeps, but looks ten times a second whether `is_over`.
pub(crate) fn pause(delay: Duration, is_over: impl Fn() -> bool) {
    let end = Instant::now() + delay;
    while !is_over() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(100)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Error, Remedy};

    fn unreachable(address: &str, text: &str) -> Fault {
        let error = Error::new(ErrorKind::Unreachable, format!("{address}: {text}"));
        Fault { address: address.to_owned(), remedy: Remedy::Reconnect, error }
    }

    /// Faults, and the lines that they have caused.
    fn faults() -> (Faults, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let reporter = Reporter::new(move |line| sink.lock().unwrap().push(line.to_owned()));
        (Faults::new(reporter), lines)
    }

    #[test]
    fn a_lasting_fault_is_reported_once_and_its_end_once() {
        let (faults, lines) = faults();
        let thread = faults.of_thread();
        let loading = Fault::of_reply("LOADING", "LOADING", "host");
        let delays: Vec<Duration> = (0..10).map(|_| thread.failed(&loading)).collect();
        assert!(delays[0] <= DELAY_FIRST && delays[9] > DELAY_MAX / 2 && delays[9] <= DELAY_MAX);
        thread.succeeded("host");
        thread.succeeded("host");
        assert_eq!(*lines.lock().unwrap(), ["host: the server says: LOADING", "host: works again"]);
    }

    #[test]
    fn a_fault_that_several_threads_meet_is_reported_once() {
        let (faults, lines) = faults();
        let threads = [faults.of_thread(), faults.of_thread(), faults.of_thread()];
        let refused = unreachable("host", "connection refused");
        let reset = unreachable("host", "connection reset");
        threads[0].failed(&refused);
        threads[1].failed(&reset);
        threads[0].succeeded("host");
        threads[1].succeeded("host");
        // This thread finds its connection cut later.
        threads[2].failed(&reset);
        threads[2].succeeded("host");
        assert_eq!(*lines.lock().unwrap(), ["host: connection refused", "host: works again"]);
        threads[2].failed(&reset);
        threads[2].failed(&reset);
        assert_eq!(lines.lock().unwrap().len(), 3, "a second failure is a fault of its own");
    }

    #[test]
    fn a_line_is_one_line_that_no_terminal_obeys() {
        let (faults, lines) = faults();
        faults.reporter.say("a\nb\u{1b}[31m\u{202e} \"c\"");
        assert_eq!(*lines.lock().unwrap(), [r#"a\nb\u{1b}[31m\u{202e} "c""#]);
    }

    #[test]
    fn faults_of_two_servers_and_two_refusals_of_one_are_different() {
        let (faults, lines) = faults();
        let threads = [faults.of_thread(), faults.of_thread(), faults.of_thread()];
        let oom = Fault::of_reply("OOM", "OOM", "a");
        let readonly = Fault::of_reply("READONLY", "READONLY", "a");
        let other = unreachable("b", "timed out");
        threads[0].failed(&oom);
        threads[1].failed(&readonly);
        threads[2].failed(&other);
        threads[0].succeeded("a");
        assert_eq!(lines.lock().unwrap().len(), 3, "the server still refuses another thread");
        threads[1].succeeded("a");
        threads[2].succeeded("b");
        assert_eq!(lines.lock().unwrap()[3..], ["a: works again", "b: works again"]);
    }
}
