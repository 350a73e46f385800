//! The counters of the process's consumers, in its control socket.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::shared::{Shared, lock};
use crate::counters::to_openmetrics;
use crate::process::Process;

/// The consumers of one process. Never freed.
struct Consumers {
    process: Process,
    list: Mutex<Vec<Weak<Shared>>>,
}

/// Those of this process. In a forked child at first those of its parent, whose lock may be taken.
static LIVE: AtomicPtr<Consumers> = AtomicPtr::new(ptr::null_mut());

fn live() -> &'static Consumers {
    let mut known = LIVE.load(Ordering::Acquire);
    loop {
        // SAFETY: null or from `Box::leak`.
        let found = NonNull::new(known).map(|known| unsafe { known.as_ref() });
        if let Some(found) = found.filter(|found| !found.process.is_parent()) {
            return found;
        }
        let process = Process::current();
        let made = Box::into_raw(Box::new(Consumers { process, list: Mutex::default() }));
        // Release pairs with the loads: another thread sees the list.
        match LIVE.compare_exchange(known, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => known = made,
            Err(other) => {
                // SAFETY: made above, and seen by no other thread.
                drop(unsafe { Box::from_raw(made) });
                known = other;
            }
        }
    }
}

/// Shows the consumer's counters in the process's control socket, while it lives.
pub(super) fn show(shared: &Arc<Shared>) {
    fn metrics() -> String {
        let live: Vec<Arc<Shared>> = lock(&live().list).iter().filter_map(Weak::upgrade).collect();
        let of = |shared: &Arc<Shared>| {
            (shared.consumer.clone(), shared.tally.read(shared.held() as u64))
        };
        if live.is_empty() {
            return String::new();
        }
        to_openmetrics(&live.iter().map(of).collect::<Vec<_>>())
    }
    let mut live = lock(&live().list);
    live.retain(|known| known.strong_count() > 0);
    live.push(Arc::downgrade(shared));
    drop(live);
    uwork::control::add_metrics(metrics);
}
