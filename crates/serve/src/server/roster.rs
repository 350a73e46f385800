//! Who is connected, for `CLIENT LIST`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::session::Session;

/// A copy of each session by its number, as of the last change.
///
/// The lock is taken when a client comes, goes, or says something of itself; never for a key.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<BTreeMap<u64, Session>>);

impl Roster {
    pub(crate) fn note(&self, session: &Session) {
        self.lock().insert(session.id, session.clone());
    }

    pub(crate) fn forget(&self, id: u64) {
        self.lock().remove(&id);
    }

    /// A line for each, the oldest first.
    pub(crate) fn described(&self, now: u64) -> String {
        self.lock().values().map(|session| session.described(now)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Session>> {
        // Each change is one call of the map's.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
