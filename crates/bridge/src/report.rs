//! Reports of faults: one line when a fault begins, another when it ends, and no line in between.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::fault::Error;

/// The delay after a first fault, which doubles.
const DELAY_FIRST: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(2);

type Print = dyn Fn(&str) + Send + Sync;

/// Where reports go.
#[derive(Clone)]
pub(crate) struct Reporter(Arc<Print>);

impl Reporter {
    pub(crate) fn new(print: impl Fn(&str) + Send + Sync + 'static) -> Reporter {
        Reporter(Arc::new(print))
    }

    pub(crate) fn say(&self, line: &str) {
        (self.0)(line);
    }
}

/// The faults of one thread: reported once, and followed by growing delays.
pub(crate) struct Faults {
    reporter: Reporter,
    current: Mutex<Option<(String, u32)>>,
}

impl Faults {
    pub(crate) fn new(reporter: Reporter) -> Faults {
        Faults { reporter, current: Mutex::new(None) }
    }

    /// Records a fault and returns the delay before the next try.
    pub(crate) fn failed(&self, error: &Error) -> Duration {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let text = error.to_string();
        let count = match &*current {
            Some((known, count)) if *known == text => count.saturating_add(1),
            Some((_, count)) => {
                self.reporter.say(&text);
                count.saturating_add(1)
            }
            None => {
                self.reporter.say(&text);
                0
            }
        };
        *current = Some((text, count));
        let delay = DELAY_FIRST.saturating_mul(2_u32.saturating_pow(count)).min(DELAY_MAX);
        // Consumers that lost one server do not all come back at once.
        delay.mul_f64(1.0 - fastrand::f64() / 4.0)
    }

    /// The exchange succeeds again.
    pub(crate) fn succeeded(&self, address: &str) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.take().is_some() {
            self.reporter.say(&format!("{address}: works again"));
        }
    }
}

/// Sleeps, but looks ten times a second whether `is_over`.
pub(crate) fn pause(delay: Duration, is_over: impl Fn() -> bool) {
    let end = std::time::Instant::now() + delay;
    while !is_over() {
        let left = end.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return;
        }
        thread::sleep(left.min(Duration::from_millis(100)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::ErrorKind;

    #[test]
    fn a_lasting_fault_is_reported_once_and_its_end_once() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let reporter = Reporter::new(move |line| sink.lock().unwrap().push(line.to_owned()));
        let faults = Faults::new(reporter);
        let error = Error::new(ErrorKind::Busy, "host: the server says: LOADING");
        let delays: Vec<Duration> = (0..10).map(|_| faults.failed(&error)).collect();
        assert!(delays[0] <= DELAY_FIRST && delays[9] > DELAY_MAX / 2 && delays[9] <= DELAY_MAX);
        faults.succeeded("host");
        faults.succeeded("host");
        assert_eq!(*lines.lock().unwrap(), [error.to_string(), "host: works again".to_owned()]);
    }
}
