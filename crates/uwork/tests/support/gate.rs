//! Gates and logs: a test uses them to hold an item at a point, and to record the order of events.

use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::WAIT_MAX;
use super::guard::{in_turns, progress};

/// Closed until opened, once.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate::default()
    }

    pub(crate) fn open(&self) {
        progress();
        *self.lock() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.lock()
    }

    /// Waits without declaring it: to the pool this is an item that computes.
    pub(crate) fn wait(&self) {
        let is_open = |turn| {
            let open = self.0.1.wait_timeout_while(self.lock(), turn, |open| !*open);
            let (open, _timeout) = open.unwrap_or_else(PoisonError::into_inner);
            open.then_some(())
        };
        in_turns(WAIT_MAX, is_open).unwrap_or_else(|hang| panic!("a gate was not opened: {hang}"));
    }

    /// Waits, declared.
    pub(crate) fn wait_blocking(&self) {
        uwork::blocking(|| self.wait());
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events, in order.
#[derive(Clone)]
pub(crate) struct Log<E>(Arc<(Mutex<Vec<E>>, Condvar)>);

impl<E: Clone + PartialEq + Debug> Log<E> {
    pub(crate) fn new() -> Log<E> {
        Log(Arc::new((Mutex::new(Vec::new()), Condvar::new())))
    }

    pub(crate) fn push(&self, event: E) {
        progress();
        self.lock().push(event);
        self.0.1.notify_all();
    }

    pub(crate) fn events(&self) -> Vec<E> {
        self.lock().clone()
    }

    pub(crate) fn has(&self, event: &E) -> bool {
        self.lock().contains(event)
    }

    /// Waits until `event` has happened.
    pub(crate) fn wait_for(&self, event: &E) {
        self.wait_until(&format!("{event:?}"), |events| events.contains(event));
    }

    /// Waits until `count` events have happened.
    pub(crate) fn wait_for_count(&self, count: usize) {
        self.wait_until(&format!("{count} events"), |events| events.len() >= count);
    }

    fn wait_until(&self, what: &str, happened: impl Fn(&[E]) -> bool) {
        let has_happened = |turn| {
            let waited = self.0.1.wait_timeout_while(self.lock(), turn, |events| !happened(events));
            let (events, _timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            happened(&events).then_some(())
        };
        in_turns(WAIT_MAX, has_happened).unwrap_or_else(|hang| {
            panic!("{what} did not happen ({hang}); what did: {:?}", self.events())
        });
    }

    /// Asserts that `first` happened, and happened before `then` if that happened.
    #[track_caller]
    pub(crate) fn assert_order(&self, first: &E, then: &E) {
        let events = self.events();
        let at = |event: &E| events.iter().position(|seen| seen == event);
        let first_at = at(first);
        assert!(
            first_at.is_some() && at(then).is_none_or(|at| first_at < Some(at)),
            "{first:?} should come before {then:?}: {events:?}"
        );
    }

    fn lock(&self) -> MutexGuard<'_, Vec<E>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
