//! The thread that ends blocks at their times. It belongs to no pool.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::Places;

/// What to do with a place.
#[derive(Clone, Copy)]
pub(in crate::bench::blocking) enum Step {
    Release,
    SetUp,
}

struct Entry {
    at: Instant,
    places: &'static Places,
    place: usize,
    step: Step,
}

/// See the module.
#[derive(Default)]
pub(in crate::bench::blocking) struct Releaser {
    /// In the order of arrival. The times of releases ascend in this order; places that must be set
    /// up may wait behind others.
    entries: Mutex<VecDeque<Entry>>,
    changed: Condvar,
}

impl Releaser {
    pub(super) fn start() -> io::Result<&'static Self> {
        let releaser: &'static Self = Box::leak(Box::default());
        thread::Builder::new().name("releaser".to_owned()).spawn(|| releaser.run())?;
        Ok(releaser)
    }

    pub(super) fn push(&self, at: Instant, places: &'static Places, place: usize, step: Step) {
        let mut entries = self.lock();
        let was_empty = entries.is_empty();
        entries.push_back(Entry { at, places, place, step });
        drop(entries);
        // Otherwise the thread is awake, or wakes for the first entry.
        if was_empty {
            self.changed.notify_one();
        }
    }

    /// Makes all current entries due at once.
    pub(super) fn hurry(&self) {
        let now = Instant::now();
        self.lock().iter_mut().for_each(|entry| entry.at = now);
        self.changed.notify_one();
    }

    fn run(&self) -> ! {
        let mut entries = self.lock();
        loop {
            let Some(first) = entries.front() else {
                entries = self.changed.wait(entries).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let early = first.at.saturating_duration_since(Instant::now());
            if !early.is_zero() {
                let waited = self.changed.wait_timeout(entries, early);
                entries = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let entry = entries.pop_front().expect("the queue is not empty");
            drop(entries);
            entry.act();
            entries = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn act(&self) {
        let obstacle = &self.places.obstacle;
        match self.step {
            Step::Release => obstacle.release(self.place),
            Step::SetUp => {
                obstacle.set_up(self.place);
                self.places.put_back(self.place);
            }
        }
    }
}
