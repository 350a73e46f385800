//! Hooks for the threads that run items, and state of those threads.
//!
//! A pair of hooks gives each thread that runs items a state: the start hook makes it, items reach it
//! by [`Hooks::with`], and the stop hook gets it back, all on that thread.
//!
//! ```
//! use std::cell::Cell;
//! use uwork::threads;
//!
//! // A counter for each thread, which items of the thread share.
//! let counters = threads::add_lazy_hooks(
//!     |_thread| Cell::new(0_u64),
//!     |thread, ran| println!("{} ran {} items", thread.name(), ran.get()),
//! );
//! let queue = uwork::Queue::builder("counted").dedicated().build()?;
//! let count = move || counters.with(|ran| { ran.set(ran.get() + 1); ran.get() });
//! // On whichever thread it runs: this one may run the item while it waits.
//! assert_eq!(queue.spawn(count).join().unwrap(), Some(1));
//! // Outside of items no state is made.
//! assert_eq!(std::thread::spawn(count).join().unwrap(), None);
//! # Ok::<(), uwork::Error>(())
//! ```
//!
//! **Which threads**: every thread that runs an item after the hooks were added, whenever it began.
//! [`ThreadKind`] has the kinds: workers, the workers of BH and dedicated queues, rescuers, and
//! *helpers*, which are threads of the program's that run an item while they wait for it
//! ([`JoinHandle::join`](crate::JoinHandle::join),
//! [`Work::flush_helping`](crate::Work::flush_helping), [`scope`](fn@crate::scope)). The halves of
//! [`join`](fn@crate::join) are items only where a worker has taken them, or where the call itself is
//! in an item.
//!
//! | hooks added by | the start hook runs on a thread |
//! |---|---|
//! | [`add_hooks`] | before its first item; on threads that uwork starts for items later, as they start |
//! | [`add_lazy_hooks`] | when an item first asks for the state |
//! | and [`Queue::add_hooks`] | before its first item of that queue |
//!
//! **The stop hook** runs when the thread ends, or outside of items once the hooks are removed. Stop
//! hooks run in the reverse of the order in which the start hooks returned. A worker without work ends
//! after some minutes, or when the last queue of its pool ends. A helper calls its stop hooks among the
//! destructors of its thread-local values, in no fixed order. uwork's threads that exist when the
//! process exits call none.
//!
//! **Items on other threads**: a closure that is to run on a thread of uwork's is joined by
//! [`join_waiting`](crate::JoinHandle::join_waiting), which never runs it on the thread that waits.
//!
//! **What a hook may do**: everything that an item may do, except wait for items. It may queue items,
//! and a start hook may ask for the state of other hooks. It may sleep, also in
//! [`blocking`](crate::blocking). While a start hook blocks, the items that its thread has
//! taken wait, and if it was called as the thread started its pool waits too: other pools continue. The
//! stop hooks of hooks that are removed hold up no pool. A call that waits for items panics in a hook,
//! before it has any effect: a flush, a join of a handle that is not done, a
//! [`scope`](fn@crate::scope), [`on_stack`](crate::on_stack), a `cancel_sync`,
//! [`work_on_cpu`](crate::work_on_cpu), a [`shutdown`](crate::shutdown()) and the like. The drop of the
//! last handle of a queue does not wait in a hook: another thread waits for that queue's items. A hook
//! that panics is reported as [`Report::HookPanicked`](crate::Report::HookPanicked); the thread
//! continues, without the state, and calls neither hook of that pair again.
//!
//! **Forks**: the child has none of the parent's workers, so their stop hooks are not called there.
//! The thread that forked keeps its states. Threads of the child call the hooks that were added before
//! the fork. In a child that a hook itself forks, the process ends when the hook returns.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;

pub use uwork_engine::host::ThreadKind;
use uwork_linux::{Error, hooks, started};

use crate::queue::Queue;

/// A thread that runs items, as its hooks see it.
#[derive(Clone, Copy)]
pub struct Thread<'a>(&'a hooks::Thread);

impl<'a> Thread<'a> {
    /// The thread's kind.
    pub fn kind(&self) -> ThreadKind {
        self.0.runner.kind
    }

    /// Its name, for example `uw/3`; the system shows 15 bytes of it. A worker that moves to another
    /// pool changes its name in the system, but not here. A helper has its name of the system when it
    /// first called a hook.
    pub fn name(&self) -> &'a str {
        &self.0.name
    }

    /// The queue for which the thread was started: that of a rescuer or of a dedicated worker. `None`
    /// for helpers, and for workers that several queues share. When a dedicated queue ends, its thread may serve a
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
        f.debug_struct("Hooks").finish_non_exhaustive()
    }
}

/// Adds a pair of hooks for every thread that runs items: `start` makes the thread's state before the
/// first item that the thread begins after this call, and `stop` gets it back, both on that thread.
///
/// Does not start uwork. Hooks stay in memory for the life of the process, because a thread may be
/// about to call them: add them once, not for each task. The module says what they may do.
pub fn add_hooks<S: 'static>(
    start: impl Fn(Thread<'_>) -> S + Send + Sync + 'static,
    stop: impl Fn(Thread<'_>, S) + Send + Sync + 'static,
) -> Hooks<S> {
    add(hooks::When::FirstItem, start, stop)
}

/// As [`add_hooks`], for states that only some items need: `start` is called on a thread when an item
/// asks for the state there ([`Hooks::with`]), and before its first item of a queue with these hooks
/// ([`Queue::add_hooks`]). Other threads have no state.
pub fn add_lazy_hooks<S: 'static>(
    start: impl Fn(Thread<'_>) -> S + Send + Sync + 'static,
    stop: impl Fn(Thread<'_>, S) + Send + Sync + 'static,
) -> Hooks<S> {
    add(hooks::When::Asked, start, stop)
}

fn add<S: 'static>(
    when: hooks::When,
    start: impl Fn(Thread<'_>) -> S + Send + Sync + 'static,
    stop: impl Fn(Thread<'_>, S) + Send + Sync + 'static,
) -> Hooks<S> {
    let begin = move |thread: &hooks::Thread| Box::new(start(Thread(thread))) as hooks::State;
    let end = move |thread: &hooks::Thread, state: hooks::State| {
        let state = state.downcast::<S>().expect("the type that the start hook made");
        stop(Thread(thread), *state);
    };
    Hooks { raw: hooks::add(when, Box::new(begin), Box::new(end)), state: PhantomData }
}

impl<S: 'static> Hooks<S> {
    /// Calls `f` with the calling thread's state. In an item, the first such call of a thread calls the
    /// start hook.
    ///
    /// `None` if the thread has no state: it is in no item and has made none before; the hooks are
    /// removed; or their start hook is being called on the thread, or has panicked there.
    ///
    /// Costs a few nanoseconds: a thread-local read, and a search among the thread's states.
    pub fn with<R>(&self, f: impl FnOnce(&S) -> R) -> Option<R> {
        hooks::with_state(self.raw, |state: &dyn Any| {
            f(state.downcast_ref().expect("the type that the start hook made"))
        })
    }
}

impl<S> Hooks<S> {
    /// Always 0: no thread is too early for hooks. For programs that check it.
    pub fn missed(&self) -> usize {
        0
    }

    /// Removes the hooks: from now on no thread calls the start hook, and each thread that has a state
    /// calls the stop hook outside of items. The calling thread does so at once, uwork's threads when
    /// the items that they have taken have run, and another thread of the program's at its end, or when
    /// it next runs an item. Does not wait. A second call does nothing.
    pub fn remove(&self) {
        self.raw.remove();
    }

    /// As [`Hooks::remove`], and waits until uwork's threads have called the stop hook. Returns how
    /// many threads of the program's have not: 0 says that no thread calls the hooks from now on.
    ///
    /// Threads are shared: if one that has a state is in a long item, of whatever queue, this waits for
    /// the item's end.
    ///
    /// # Errors
    /// The caller is in an item, or in [`Hooks::with`]: it would wait for itself. Nothing is removed.
    ///
    /// # Panics
    /// In a thread hook, as every wait.
    ///
    /// ```
    /// use uwork::threads;
    ///
    /// let hooks = threads::add_lazy_hooks(|_thread| vec![0_u8; 64], |_thread, buffer| drop(buffer));
    /// let queue = uwork::Queue::builder("removed").build()?;
    /// let length = move || hooks.with(|buffer| buffer.len());
    /// assert_eq!(queue.spawn(length).join().unwrap(), Some(64));
    /// assert_eq!(hooks.remove_sync()?, 0);
    /// assert_eq!(queue.spawn(length).join().unwrap(), None);
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn remove_sync(&self) -> Result<usize, Error> {
        if let Some(engine) = started() {
            engine.assert_may_wait();
        }
        Ok(self.raw.remove_sync()?)
    }
}

impl Queue {
    /// From now on a thread calls the start hook of these hooks before the first item of this queue
    /// that it begins, if it has not called it yet. For hooks of [`add_lazy_hooks`] whose state the
    /// items use without asking for it, such as a registration with a library. Items that were queued
    /// before may still run without. A second call with the same hooks does nothing.
    ///
    /// ```
    /// use std::cell::Cell;
    /// use uwork::threads;
    /// thread_local! { static REGISTERED: Cell<bool> = const { Cell::new(false) }; }
    ///
    /// let hooks =
    ///     threads::add_lazy_hooks(|_thread| REGISTERED.set(true), |_thread, ()| REGISTERED.set(false));
    /// let queue = uwork::Queue::builder("readers").build()?;
    /// queue.add_hooks(hooks);
    /// assert!(queue.spawn(|| REGISTERED.get()).join().unwrap());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn add_hooks<S>(&self, hooks: Hooks<S>) {
        hooks.raw.serve(self.0.demands());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Catches: a list that grows with each pair of hooks that comes and goes; its readers are slower each
    // time.
    #[test]
    fn no_queue_demands_hooks_that_are_removed() {
        let queue = Queue::builder("demands").build().expect("a free name");
        let demands = || {
            let mut count = 0;
            queue.0.demands().for_each(|_| count += 1);
            count
        };
        for _ in 0..100 {
            let (hooks, others) =
                (add_lazy_hooks(|_| (), |_, ()| ()), add_lazy_hooks(|_| (), |_, ()| ()));
            queue.add_hooks(hooks);
            queue.add_hooks(others);
            assert_eq!(demands(), 2);
            hooks.remove();
            assert_eq!(demands(), 1);
            others.remove();
            queue.add_hooks(others);
            assert_eq!(demands(), 0);
        }
    }
}
