//! Thread hooks: functions of the program that give each thread which runs items a state, and take it
//! back.
//!
//! | hooks | their start hook runs |
//! |---|---|
//! | [`When::FirstItem`] | before the first item that the thread begins; on the library's threads as they start |
//! | [`When::Asked`] | when an item asks for the state, and before the first item of a queue that demands it |
//!
//! A thread calls the stop hook at its end, or outside of items once the hooks are removed. `states`
//! has the thread's part. **Changes** reach the threads by a number, `GENERATION`, which each thread
//! compares with the one that it has seen before it runs items and before it parks:
//!
//! ```text
//! adder or remover                         thread that runs items
//! changes the list, or sets `is_removed`   takes items
//! GENERATION += 1                          GENERATION != the one seen: reads list and marks
//! queues an item, or wakes parked threads  runs the items, or parks
//! ```
//!
//! An item that is queued after the change carries the number to the thread that takes it, by the
//! release and acquire of the queue. A parked thread wakes by an event, which remembers a wake: so a
//! worker either reads the new number before it parks, or does not stay parked.
//!
//! **A remover that waits**, and a thread that begins beside it: see [`Hooked`].
//!
//! **A queue's demand** of hooks ends with the hooks: the remover visits all queues. One that is added
//! meanwhile is removed by the adder, which adds first and reads the mark second, as the remover sets
//! the mark first and visits the queues second. All of these are SeqCst.
//!
//! Hooks are never freed: a thread may be about to call them, and a handle may be used after the
//! removal. `LOCK` is held over a fork, so no allocation is made and no user code is called under it.

mod states;

use std::any::Any;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uwork_engine::handle::{Hooked, Owner};
use uwork_engine::host::Runner;
use uwork_engine::{Demands, QueueError, ThreadState, Wanted};

use crate::futex::Forever;
use crate::process::started;

pub(crate) use states::{catch_up, outside_items, run};
pub use states::{may_run_items, with_state};

/// A thread that runs items, as its hooks see it.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its name when it started, or when it first called a hook. The system has the first 15 bytes.
    pub name: String,
    /// How it runs items.
    pub runner: Runner,
}

/// A thread's state, of the type that its hook chose.
pub type State = Box<dyn Any>;

type Start = Box<dyn Fn(&Thread) -> State + Send + Sync>;
type Stop = Box<dyn Fn(&Thread, State) + Send + Sync>;

/// When a thread calls a start hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Before its first item, whichever queue that is of.
    FirstItem,
    /// When an item asks for the state, and before the first item of a queue that demands it.
    Asked,
}

/// A pair of hooks, from its registration to the end of the process.
pub struct Hooks {
    start: Start,
    stop: Stop,
    when: When,
    /// The threads that have called them, and whether they are removed.
    hooked: Hooked,
    /// Whether a queue may demand them.
    is_demanded: AtomicBool,
    /// The hooks that were added before.
    earlier: Option<&'static Hooks>,
    /// The next older hooks that are not removed, or null. Written under `LOCK`.
    next: AtomicPtr<Hooks>,
}

/// How often hooks were added, removed, or demanded by a queue. 0 if the program has no hooks.
static GENERATION: Line = Line(AtomicU32::new(0));

/// Alone in its cache lines: every batch reads it.
#[repr(align(128))]
struct Line(AtomicU32);

/// All hooks, the last one first, by `earlier`. Changed under `LOCK`.
static ALL: AtomicPtr<Hooks> = AtomicPtr::new(ptr::null_mut());
/// The hooks that are not removed, the last one first, by `next`. Changed under `LOCK`. A removed entry
/// keeps its `next`, so a reader that stands on it goes on.
static LIVE: AtomicPtr<Hooks> = AtomicPtr::new(ptr::null_mut());
static LOCK: Mutex<()> = Mutex::new(());

fn lock() -> MutexGuard<'static, ()> {
    // No user code runs under this lock.
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// Null, or hooks.
unsafe fn hooks_at(address: *const Hooks) -> Option<&'static Hooks> {
    // SAFETY: by this function's contract; hooks are never freed.
    unsafe { address.as_ref() }
}

/// The hooks that are not removed, the last one first.
fn live() -> impl Iterator<Item = &'static Hooks> {
    // SAFETY: only hooks are in the list. Acquire: their fields are visible.
    let at = |link: &AtomicPtr<Hooks>| unsafe { hooks_at(link.load(Ordering::Acquire)) };
    std::iter::successors(at(&LIVE), move |hooks| at(&hooks.next))
}

/// Tells the threads that something has changed.
fn announce() {
    // Not to 0, which says that there are no hooks.
    if GENERATION.0.fetch_add(1, Ordering::SeqCst) == u32::MAX {
        GENERATION.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// The lock, for the time of a fork.
pub(crate) struct Held {
    _lock: MutexGuard<'static, ()>,
}

impl Held {
    /// In the child, in which only the calling thread is left.
    pub(crate) fn child(self) {
        // SAFETY: only hooks are in the list.
        let all = unsafe { hooks_at(ALL.load(Ordering::Acquire)) };
        for hooks in std::iter::successors(all, |hooks| hooks.earlier) {
            hooks.hooked.forget_threads();
        }
        states::child();
    }
}

/// Before a fork: no thread changes the list until the guard is dropped.
pub(crate) fn hold() -> Held {
    Held { _lock: lock() }
}

/// Adds hooks.
pub fn add(when: When, start: Start, stop: Stop) -> &'static Hooks {
    crate::fork::ensure_fork_handlers();
    let hooks = Box::leak(Box::new(Hooks {
        start,
        stop,
        when,
        hooked: Hooked::new(),
        is_demanded: AtomicBool::new(false),
        earlier: None,
        next: AtomicPtr::new(ptr::null_mut()),
    }));
    let guard = lock();
    // SAFETY: only hooks are in the list.
    hooks.earlier = unsafe { hooks_at(ALL.load(Ordering::Relaxed)) };
    *hooks.next.get_mut() = LIVE.load(Ordering::Relaxed);
    let hooks: &'static Hooks = hooks;
    let address = ptr::from_ref(hooks).cast_mut();
    // Release: a reader of the list sees the fields.
    ALL.store(address, Ordering::Release);
    LIVE.store(address, Ordering::Release);
    drop(guard);
    announce();
    hooks
}

impl Hooks {
    /// From now on a thread calls the start hook before its first item of the queue of these demands.
    pub fn serve(&'static self, queue: &Demands) {
        let demand = ptr::from_ref(self).expose_provenance();
        self.is_demanded.store(true, Ordering::SeqCst);
        if queue.add(demand) {
            announce();
        }
        // SeqCst: see the module.
        if self.hooked.is_removed() {
            queue.remove(demand);
        }
    }

    /// The hooks are removed: no queue demands them any more.
    fn remove_demands(&'static self) {
        if self.is_demanded.load(Ordering::SeqCst)
            && let Some(engine) = started()
        {
            let demand = ptr::from_ref(self).addr();
            engine.for_each_queue(|queue| queue.demands().remove(demand));
        }
    }

    /// From now on no thread calls the start hook, and each thread that has called it calls the stop
    /// hook outside of items: the caller at once, the library's threads when their present items have
    /// ended, others at their next use of items or at their end. Does not wait.
    pub fn remove(&'static self) {
        if self.hooked.remove() {
            self.unlink();
            announce();
            if self.hooked.inside(Owner::Library) > 0
                && let Some(engine) = started()
            {
                engine.wake_parked_threads();
            }
            self.remove_demands();
        }
        states::stop_removed();
    }

    fn unlink(&self) {
        let _guard = lock();
        let mut link = &LIVE;
        // SAFETY: only hooks are in the list.
        while let Some(hooks) = unsafe { hooks_at(link.load(Ordering::Relaxed)) } {
            if ptr::eq(hooks, self) {
                link.store(self.next.load(Ordering::Relaxed), Ordering::Release);
                return;
            }
            link = &hooks.next;
        }
    }

    /// As [`Hooks::remove`], and waits until the library's threads have called the stop hook. Returns
    /// the number of other threads that have not.
    ///
    /// # Errors
    /// The caller is in an item or uses a state: it would wait for itself. Nothing is removed.
    pub fn remove_sync(&'static self) -> Result<usize, QueueError> {
        if states::is_in_use() {
            return Err(QueueError::WouldDeadlock);
        }
        self.remove();
        self.hooked.wait(&Forever);
        Ok(self.hooked.inside(Owner::Program) as usize)
    }
}

/// Whether the hooks have changed since the calling thread, which is outside of items, has called what
/// was due.
#[inline(always)]
pub(crate) fn are_due(thread: &ThreadState) -> bool {
    // SeqCst: see the module, of a worker that parks.
    thread.hooks_seen() != GENERATION.0.load(Ordering::SeqCst)
}

/// What the calling thread is to do before it helps with an item of a queue that makes these demands.
#[inline(always)]
pub(crate) fn wanted(thread: &ThreadState, demands: &Demands) -> Option<Wanted> {
    // Relaxed: see the module.
    match GENERATION.0.load(Ordering::Relaxed) {
        0 => None,
        generation => wanted_of(thread.hooks_seen() == generation, demands),
    }
}

#[cold]
fn wanted_of(is_up_to_date: bool, demands: &Demands) -> Option<Wanted> {
    let mut wanted = Wanted::default();
    demands.for_each(|hooks| {
        // SAFETY: `Hooks::serve` exposed it. Hooks are never freed.
        if states::lacks(unsafe { &*ptr::with_exposed_provenance::<Hooks>(hooks) }) {
            // Those that find no room are wanted at the next call.
            let _ = wanted.add(hooks);
        }
    });
    (!is_up_to_date || !wanted.numbers().is_empty()).then_some(wanted)
}

/// Does that. No lock is held: hooks may block.
#[cold]
pub(crate) fn prepare(thread: &ThreadState, wanted: Wanted) {
    states::catch_up(thread);
    for &hooks in wanted.numbers() {
        // SAFETY: `Hooks::serve` exposed it. Hooks are never freed.
        states::ensure(unsafe { &*ptr::with_exposed_provenance::<Hooks>(hooks) });
    }
}

/// The calling thread is about to run items of a queue that makes these demands.
#[inline(always)]
pub(crate) fn before_items(thread: &ThreadState, demands: &Demands) {
    // Relaxed: see the module.
    let generation = GENERATION.0.load(Ordering::Relaxed);
    if generation == 0 {
        return;
    }
    if thread.hooks_seen() != generation {
        states::catch_up(thread);
    }
    demands.for_each(|hooks| {
        // SAFETY: `Hooks::serve` exposed it. Hooks are never freed.
        states::ensure(unsafe { &*ptr::with_exposed_provenance::<Hooks>(hooks) });
    });
}
