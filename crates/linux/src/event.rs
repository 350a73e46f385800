//! A binary event on a futex word.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::futex;

const CLEAR: u32 = 0;
const SET: u32 = 1;
/// Clear, and the event's thread sleeps or is about to.
const WAITING: u32 = 2;

/// One thread waits, any thread sets. A set before the wait is remembered.
pub struct Event(AtomicU32);

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}

impl uwork_engine::host::Event for Event {
    fn renew(&self) {
        self.0.store(CLEAR, Ordering::Relaxed);
    }
}

impl Event {
    /// Not set.
    pub const fn new() -> Event {
        Event(AtomicU32::new(CLEAR))
    }

    /// Waits until the event is set and clears it. True if it was set, false after `timeout`.
    pub fn wait(&self, timeout: Option<Duration>) -> bool {
        self.wait_noticing_signals(timeout, || ())
    }

    /// As [`Event::wait`]. Calls `interrupted` whenever a handler of a signal has ended the sleep, which
    /// then goes on.
    pub(crate) fn wait_noticing_signals(
        &self,
        timeout: Option<Duration>,
        interrupted: impl Fn(),
    ) -> bool {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            // Acquire pairs with the exchange in `set`. Consumed in one step, so that a later set
            // is not lost.
            if self.0.compare_exchange(SET, CLEAR, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return true;
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            let waits =
                self.0.compare_exchange(CLEAR, WAITING, Ordering::Relaxed, Ordering::Relaxed);
            if waits.is_ok() {
                if futex::wait(&self.0, WAITING, left) {
                    interrupted();
                }
                // Fails if the event was set meanwhile, which the next round detects.
                let _ =
                    self.0.compare_exchange(WAITING, CLEAR, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }

    /// Sets the event and wakes its thread.
    ///
    /// # Safety
    /// `event` is live. It may be freed as soon as the exchange is visible: afterwards only its
    /// address is used, for a wake that at worst finds no sleeper.
    #[inline]
    pub unsafe fn set(event: *const Event) {
        // SAFETY: by this function's contract.
        let word = unsafe { &raw const (*event).0 };
        // SAFETY: as above. Release pairs with the exchange in `wait`.
        if unsafe { (*word).swap(SET, Ordering::AcqRel) } == WAITING {
            futex::wake(word);
        }
    }
}
