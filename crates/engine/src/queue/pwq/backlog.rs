//! What waits on a pwq, for the watcher and for dumps.

use super::{DEAD, Pwq};
use crate::words::host::Host;
use crate::words::inbox::Node;
use crate::words::item::{Location, Work};
use crate::words::sync::Ordering;

/// How many items of a worklist are searched for a given one, at most.
const SEARCH_MAX: usize = 1_000;

/// A pwq's backlog (see the module).
pub(crate) struct Backlog {
    /// Items that wait to be taken.
    pub(crate) queued: usize,
    /// A number that grows with each started item, of this queue and of those that the pwq served
    /// before.
    pub(crate) started: u64,
    /// Permits that are taken.
    pub(crate) nr_active: u32,
    /// The node with which the limit is shared, as an identity.
    pub(crate) node: Option<usize>,
    /// Whether all permits are taken.
    pub(crate) saturated: bool,
}

/// A pending item, as an identity, with its function's address.
pub(crate) struct Found {
    pub(crate) location: Location,
    pub(crate) func: usize,
}

impl<H: Host> Pwq<H> {
    fn is_dead(&self) -> bool {
        self.state.load(Ordering::Relaxed) & DEAD != 0
    }

    /// What waits here; None if the queue is destroyed or frozen.
    pub(crate) fn backlog(&self) -> Option<Backlog> {
        let mut inner = self.lock();
        if self.is_dead() || inner.is_frozen() {
            return None;
        }
        self.splice(&mut inner);
        Some(Backlog {
            queued: inner.queued,
            started: inner.started_before + inner.started,
            nr_active: inner.nr_active,
            node: inner.node_id(),
            saturated: inner.is_saturated(),
        })
    }

    /// Lets the next submission call the watcher, because the watchdog is about to stop its scans.
    /// Does so only if no item waits here.
    ///
    /// A submission to a saturated pwq settles no pool, so it would not call the watcher. Hence
    /// this clears SATURATED, although all permits may be taken. The next submitter makes the pwq
    /// ready and settles the pool, and the settlement calls the watcher. The worker that then takes
    /// the pwq finds no permit, and sets SATURATED again. Returns true if an item arrived
    /// meanwhile; the caller must then put the pwq on a ready list.
    #[must_use]
    pub(crate) fn arm_watch_call(&self) -> bool {
        let mut inner = self.lock();
        self.splice(&mut inner);
        let quiet = inner.queued == 0 && !inner.is_frozen() && !self.is_dead();
        // In a shared limit, SATURATED also says that the pwq is in the row, so it must stay.
        quiet && inner.node_id().is_none() && self.unsaturate(&inner)
    }

    /// Searches for a pending item at this address: among the items with waiters, and at the front
    /// of the worklist.
    pub(crate) fn find(&self, address: usize) -> Option<Found> {
        let mut inner = self.lock();
        self.splice(&mut inner);
        let found = |work: &Work| Found { location: work.location(), func: work.func().identity() };
        if inner.waiters.has(address) {
            // SAFETY: a flusher's waiter for the item is in the chain, whose lock we hold. So the
            // flush has not returned, and its caller promised that the item is live until then.
            return Some(found(unsafe { &*std::ptr::with_exposed_provenance::<Work>(address) }));
        }
        let mut item = inner.worklist.front();
        for _ in 0..SEARCH_MAX {
            // SAFETY: the items of a list are live while its guard is held, and so are the links.
            let work = unsafe { item.as_ref() }?;
            if item.addr() == address {
                return Some(found(work));
            }
            // SAFETY: as above.
            item = unsafe { <Work as Node>::next(item) };
        }
        None
    }

    /// The queue's name, even after the queue is destroyed.
    pub(crate) fn queue_name(&self) -> String {
        self.lock().name.as_str().to_owned()
    }
}
