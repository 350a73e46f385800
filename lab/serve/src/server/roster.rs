//! The connected clients, for `CLIENT LIST`.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::session::Session;

/// A copy of each session as of its last change, by its number.
///
/// The lock is taken when a client connects, disconnects or changes its session, and never for an
/// operation on a key.
#[derive(Debug, Default)]
pub(crate) struct Roster(Mutex<BTreeMap<u64, Session>>);

impl Roster {
    pub(crate) fn note(&self, session: &Session) {
        self.lock().insert(session.id, session.clone());
    }

    pub(crate) fn forget(&self, id: u64) {
        self.lock().remove(&id);
    }

    /// One line for each client, oldest first.
    pub(crate) fn described(&self, now: u64) -> String {
        self.lock().values().map(|session| session.described(now)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Session>> {
        // Each change is a single call to the map, so a panic cannot leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
