//! Hooks for the threads that run items, and state of those threads.
//!
//! A hook is called on every thread that may run items, when the thread starts and when it ends:
//! workers, the workers of BH and dedicated queues, rescuers, and all of these in a forked child.
//! [`ThreadKind`] has the kinds. Library threads that run no items (the watcher, standbys, the
//! threads that report or release) call no hook.
//!
//! ```
//! use std::cell::Cell;
//! use uwork::threads;
//!
//! // A counter for each thread, which items of the thread share.
//! let counters = threads::add_hooks(
//!     |_thread| Cell::new(0_u64),
//!     |thread, ran| println!("{} ran {} items", thread.name(), ran.get()),
//! );
//! assert_eq!(counters.missed(), 0, "add hooks before the first use of uwork");
//!
//! let queue = uwork::Queue::builder("counted").dedicated().build()?;
//! let count = move || counters.with(|ran| { ran.set(ran.get() + 1); ran.get() });
//! let (tell, told) = std::sync::mpsc::channel();
//! queue.spawn(move || tell.send(count()));
//! assert_eq!(told.recv().unwrap(), Some(1));
//! // This thread has no state: it is not one of uwork's.
//! assert_eq!(count(), None);
//! # Ok::<(), uwork::Error>(())
//! ```
//!
//! **When**: a start hook runs before the thread's first item, and a stop hook after its last. Hooks
//! start in the order in which they were added, and stop in reverse. A worker without work ends after
//! some minutes, or when the last queue of its pool ends. No call waits for a stop hook; threads that
//! exist when the process exits call none.
//!
//! **Items on other threads**: a thread of the program's that waits for an item may run it itself
//! ([`JoinHandle::join`](crate::JoinHandle::join), [`scope`](fn@crate::scope)). It calls no hook and has no
//! state. A closure that needs the state is joined by
//! [`join_waiting`](crate::JoinHandle::join_waiting), which never runs it here.
//!
//! **What a hook may do**: everything that an item may do, except wait. It may queue items. While a
//! start hook blocks, its pool waits for that thread: other pools continue. A call that waits for
//! items panics in a hook, before it has any effect: a flush, a join of a handle that is not done, a
//! [`scope`](fn@crate::scope), [`on_stack`](crate::on_stack), a `cancel_sync`,
//! [`work_on_cpu`](crate::work_on_cpu), a [`shutdown`](crate::shutdown()) and the like. The drop of the
//! last handle of a queue does not wait in a hook: another thread waits for that queue's items. A hook
//! that panics is reported as [`Report::HookPanicked`](crate::Report::HookPanicked); the thread
//! continues, without the state, and does not call that stop hook.
//!
//! **Changes**: [`add_hooks`] affects the threads that start later, and [`Hooks::missed`] counts those
//! that were too early. A thread calls both hooks of a pair or neither.
//!
//! **Forks**: the child has none of the parent's workers, so their stop hooks are not called there.
//! Workers of the child call the hooks that were added before the fork. In a child that a hook itself
//! forks, the process ends when the hook returns.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

pub use uwork_engine::host::ThreadKind;
use uwork_linux::hooks;

/// A thread that may run items, as its hooks see it.
#[derive(Clone, Copy)]
pub struct Thread<'a>(&'a hooks::Thread);

impl<'a> Thread<'a> {
    /// The thread's kind.
    pub fn kind(&self) -> ThreadKind {
        self.0.runner.kind
    }

    /// Its name, for example `uw/3`; the system shows 15 bytes of it. A worker that moves to another
    /// pool changes its name in the system, but not here.
    pub fn name(&self) -> &'a str {
        &self.0.name
    }

    /// The queue for which the thread was started: that of a rescuer or of a dedicated worker. `None`
    /// for workers that several queues share. When a dedicated queue ends, its thread may serve a
    /// later one.
    pub fn queue(&self) -> Option<&'a str> {
        self.0.runner.queue.as_deref()
    }
}

impl fmt::Debug for Thread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Thread")
            .field("kind", &self.kind())
            .field("name", &self.name())
            .field("queue", &self.queue())
            .finish()
    }
}

/// A pair of hooks, and the way to the state that they keep for each thread. A copy is the same
/// hooks.
pub struct Hooks<S> {
    raw: &'static hooks::Hooks,
    /// Invariant: the state is looked up as exactly the type that the start hook made.
    state: PhantomData<fn(S) -> S>,
}

impl<S> Clone for Hooks<S> {
    fn clone(&self) -> Hooks<S> {
        *self
    }
}

impl<S> Copy for Hooks<S> {}

impl<S> fmt::Debug for Hooks<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("missed", &self.missed()).finish_non_exhaustive()
    }
}

/// Adds a pair of hooks for the threads that start from now on. `start` makes the thread's state and
/// `stop` gets it back, both on that thread.
///
/// Does not start uwork. Hooks stay in memory for the life of the process, because a thread may be
/// about to call them: add them once, not for each task. The module says what they may do.
pub fn add_hooks<S: 'static>(
    start: impl Fn(Thread<'_>) -> S + Send + Sync + 'static,
    stop: impl Fn(Thread<'_>, S) + Send + Sync + 'static,
) -> Hooks<S> {
    let begin = move |thread: &hooks::Thread| Box::new(start(Thread(thread))) as hooks::State;
    let end = move |thread: &hooks::Thread, state: hooks::State| {
        let state = state.downcast::<S>().expect("the type that the start hook made");
        stop(Thread(thread), *state);
    };
    Hooks { raw: hooks::add(Box::new(begin), Box::new(end)), state: PhantomData }
}

impl<S: 'static> Hooks<S> {
    /// Calls `f` with the calling thread's state. `None` if the thread has none: it is not a thread
    /// that may run items, it started before these hooks were added, or its start hook has panicked.
    ///
    /// Costs a few nanoseconds: a thread-local read, and a search among the pairs of hooks.
    pub fn with<R>(&self, f: impl FnOnce(&S) -> R) -> Option<R> {
        hooks::with_state(self.raw, |state: &dyn Any| {
            f(state.downcast_ref().expect("the type that the start hook made"))
        })
    }
}

impl<S> Hooks<S> {
    /// How many threads that may run items had started before these hooks were added. They never call
    /// these hooks. 0 if the hooks were added before the first use of uwork.
    pub fn missed(&self) -> usize {
        self.raw.missed()
    }

    /// Removes the hooks: threads that start from now on do not call them. A thread that has called
    /// the start hook keeps its state and calls the stop hook. A second call does nothing.
    pub fn remove(&self) {
        self.raw.remove();
    }
}
