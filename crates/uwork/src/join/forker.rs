//! The state of a thread that calls `join`: its deque, and the item that sends a thief to it.
//!
//! A visit may be pending, or a thief may read the deque, when the thread has ended. So this state
//! is never freed: a thread that ends leaves it to the next thread that joins for the first time.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use uwork_engine::deque::Deque;
use uwork_engine::{Action, ItemName, Queued, Work as RawWork};
use uwork_linux::{Linux, current_cpu, engine, forks};

use super::halves::Half;
use crate::system;

/// See the module.
#[repr(C)]
pub(super) struct Forker {
    /// First, so that the address of the item is that of the whole. Queued while a visit is asked
    /// for.
    visit: RawWork,
    pub(super) deque: Deque<Half>,
    /// The other CPU that is looked at next for a worker to spare. Owner only.
    turn: Cell<u32>,
    /// The CPU of a thread that is no worker and from whose halves the present ones come, or
    /// `NO_CPU`: that CPU is not free, although no worker runs there. A hint.
    outside: AtomicU32,
}

const NO_CPU: u32 = u32::MAX;

// SAFETY: the deque has a protocol for its owner and its thieves. The halves that it points to are
// `Send`: `join` demands that of their closures and results. `turn` is the owner's.
unsafe impl Sync for Forker {}
// SAFETY: as above; a thread that ends leaves it to another as a whole.
unsafe impl Send for Forker {}

/// What threads that have ended left. Only tried, never waited for: in a child after a fork, a
/// thread of the parent may seem to hold it.
static LEFT: Mutex<Vec<(&'static Forker, u32)>> = Mutex::new(Vec::new());

/// The calling thread's, and the number of forks when it was made: in a child, the threads that
/// hold its lock or have taken its halves do not exist.
struct Mine(Cell<Option<(&'static Forker, u32)>>);

thread_local! {
    static MINE: Mine = const { Mine(Cell::new(None)) };
}

impl Drop for Mine {
    fn drop(&mut self) {
        if let Some(mine) = self.0.get()
            && let Ok(mut left) = LEFT.try_lock()
        {
            left.push(mine);
        }
    }
}

impl Forker {
    /// The calling thread's. None while its local data is being destroyed.
    #[inline]
    pub(super) fn mine() -> Option<&'static Forker> {
        MINE.try_with(|mine| match mine.0.get() {
            Some((forker, forked)) if forked == forks() => forker,
            _ => Forker::first(mine),
        })
        .ok()
    }

    #[cold]
    fn first(mine: &Mine) -> &'static Forker {
        // The first use of the queue may panic, which it must not once a half is in the deque.
        let _ = system::dfl_long();
        let left = LEFT.try_lock().ok().and_then(|mut left| left.pop());
        // A thief of the parent may have held the lock of one that is older than the last fork.
        let left = left.filter(|&(_, forked)| forked == forks()).map(|(forker, _)| forker);
        let new = || {
            let (visit, deque) = (RawWork::new(perform), Deque::new());
            let (turn, outside) = (Cell::new(0), AtomicU32::new(NO_CPU));
            &*Box::leak(Box::new(Forker { visit, deque, turn, outside }))
        };
        let forker = left.unwrap_or_else(new);
        // The thread that left it may have been no worker.
        forker.outside.store(NO_CPU, Ordering::Relaxed);
        mine.0.set(Some((forker, forks())));
        forker
    }

    /// The owner has pushed a half that no visit will see. Asks for one if a pool has a worker to
    /// spare.
    #[inline]
    pub(super) fn consider_a_visit(&'static self) {
        let queue = &system::dfl_long().0;
        let turn = self.turn.get().wrapping_add(1);
        self.turn.set(turn);
        if !engine().is_worker() {
            self.outside.store(current_cpu(), Ordering::Relaxed);
        }
        let outside = Some(self.outside.load(Ordering::Relaxed));
        if let Some(cpu) = queue.cpu_with_room(turn, outside) {
            self.ask(queue, cpu);
        }
    }

    #[cold]
    fn ask(&'static self, queue: &uwork_engine::Queue<Linux>, cpu: u32) {
        self.deque.ask();
        // SAFETY: a forker lives forever. Its item is only queued here.
        let queued = unsafe { queue.queue_on(cpu, NonNull::from(self).cast()) };
        if queued != Ok(Queued::Yes) {
            self.deque.take_request_back();
        }
    }

    /// Takes the oldest half of this thread if `wanted` says so under the lock of its deque, and
    /// runs it on the thread of `thief`. False if it took none.
    pub(super) fn steal_one_for(
        &self,
        thief: &'static Forker,
        wanted: impl FnOnce() -> bool,
    ) -> bool {
        let accept = |half: NonNull<Half>| {
            let wanted = wanted();
            if wanted {
                // SAFETY: the deque holds halves that are live, and this is called under its lock.
                unsafe { half.as_ref() }.note_thief(thief);
            }
            wanted
        };
        let Some(half) = self.deque.steal(engine().host(), accept) else { return false };
        let before = thief.outside.swap(self.outside.load(Ordering::Relaxed), Ordering::Relaxed);
        // SAFETY: stolen just now.
        unsafe { Half::run(half) };
        thief.outside.store(before, Ordering::Relaxed);
        true
    }
}

/// A visit: takes halves of the thread that asked until it has none.
///
/// # Safety
/// `work` is the first field of a forker.
unsafe fn perform(work: NonNull<RawWork>, action: Action) {
    // SAFETY: by this function's contract; forkers are never freed.
    let host: &'static Forker = unsafe { work.cast().as_ref() };
    match action {
        Action::Run => {
            host.deque.begin_visit(engine().host());
            if let Some(thief) = Forker::mine() {
                while host.steal_one_for(thief, || true) {}
            }
        }
        // No thief comes: the engine shuts down. The owner runs its halves itself.
        Action::Release => host.deque.take_request_back(),
        // SAFETY: the engine asked for the name.
        Action::Name => unsafe { ItemName::of_type::<Forker>(0).report(work) },
    }
}
