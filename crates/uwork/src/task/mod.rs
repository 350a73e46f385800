//! Task work: run this on *that* thread, even while it sleeps.
//!
//! Any thread registers by asking for its [`TaskHandle`]; any thread that has the handle adds items, which the
//! registered thread runs itself, first in, first out, when it looks. [`Notify`] says how soon that is. Adding is
//! lock-free and allocates nothing; however many items are added, the thread is woken once until it has run them.
//!
//! ```
//! use uwork::task::{self, Notify, TaskHandle};
//!
//! let handle = TaskHandle::current();
//! let registered = std::thread::current().id();
//! let (sender, receiver) = std::sync::mpsc::channel();
//! let adder = std::thread::spawn(move || {
//!     handle.add_fn(Notify::Signal, move || {
//!         assert_eq!(std::thread::current().id(), registered);
//!         sender.send("on the registered thread").unwrap();
//!     })
//! });
//! // Sleeps until there is something to run, and runs it.
//! while task::park() == 0 {}
//! assert_eq!(receiver.try_recv(), Ok("on the registered thread"));
//! assert!(adder.join().unwrap().is_ok());
//! ```
//!
//! # Where items run
//!
//! Items run where the thread looks, and nowhere else: never in a signal handler.
//!
//! | the thread | `None` | `Resume` | `Signal` |
//! |---|---|---|---|
//! | calls [`run`] or [`run_once`] | run | run | run |
//! | calls [`safe_point`], or begins or ends one of the waits below | stay, unless others are due | run | run |
//! | sleeps in one of the waits below | stay | stay | the wait ends, run |
//! | computes | stay | stay | stay until the next of the above |
//! | is in a system call that uwork does not know | stay | stay | it returns `EINTR` ([`Delivery::Auto`]) |
//!
//! The waits are [`park`], [`Notifier::wait`] (epoll, poll and whatever else ends when a descriptor is readable),
//! [`epoll_wait`], [`read`], [`syscall`], and that of a `ring::Reactor`. Waits for work on queues
//! ([`Work::flush`](crate::Work::flush), [`JoinHandle::join`](crate::JoinHandle::join)) do not run items, nor end
//! early, as the kernel's do not.
//!
//! # Order
//!
//! Items run in the order in which they were added, one after the other, whatever their [`Notify`] and whoever added
//! them. What an item adds runs after what was there. What the adder wrote before is seen by the run.
//!
//! # Runs inside of items
//!
//! An item that calls [`run`], [`run_once`] or [`safe_point`], or waits, runs those behind it, inside of itself. In
//! one of these nothing more is run: such a call gives 0, a wait for which something is due ends at once ([`park`]
//! with 0, [`read`] with `Interrupted`), and what is there runs when the item has returned. So the stack does not
//! grow with what others add, and no wait hangs. It is an error to repeat such a wait until another item of the
//! thread has run: that one does not run before. The kernel's task work runs nothing at all from a wait inside of it,
//! which ends by `EINTR`.
//!
//! # Progress
//!
//! Adding is lock-free: it waits neither for the thread nor for others who add. Where the thread has to be told by a
//! signal and the user has as many queued as the system allows (`RLIMIT_SIGPENDING`), it tries for half a second; after
//! that the item waits for the next who adds with [`Notify::Signal`], or for the thread to look. A cancel takes a lock
//! that other cancels hold while they look through the list, and the thread for a few instructions.
//!
//! # Panics of items
//!
//! end the item, not the thread, nor its wait for longer than the item took; they are counted
//! ([`panics`](crate::panics)) and reported.
//!
//! # The end of a thread
//!
//! What has been added runs when the thread ends, or calls [`exit`]; what is added later, also by those items, comes
//! back ([`Added::Exited`]). Destructors of thread-local data may run what is left, and add; those that come after
//! uwork's have nothing to run, and what they add comes back.
//!
//! A forked child begins without: handles of the parent's threads give everything back, and items that were pending at
//! the fork stay so in the child, where they never run. A thread that replaces the program (`execve`) calls [`exit`]
//! first: a signal that is on its way would end the new program.

mod closure;
mod handle;
mod item;
mod wait;

pub use crate::linux::task::{Delivery, SignalError};
pub use handle::{Added, ExitedError, TaskHandle};
pub use item::{HasTaskWork, TaskItem, TaskWork};
pub use uwork_engine::task::Notify;
pub use wait::{Notifier, epoll_wait, notifier, park, park_timeout, read, syscall};

use crate::linux::task::{current, current_or_none, set_signal as choose_signal, thread_ends};

/// Runs what was added for the calling thread, in the order in which it was added, until nothing is left. How many
/// items that were.
///
/// An item that adds itself again keeps this from returning, as in the kernel: loops want [`run_once`]. Runs go
/// [two deep](self#runs-inside-of-items): further inside it gives 0.
///
/// ```
/// use uwork::task::{Notify, TaskHandle, run};
/// let handle = TaskHandle::current();
/// handle.add_fn(Notify::None, || ()).unwrap();
/// assert_eq!(run(), 1);
/// ```
pub fn run() -> usize {
    // SAFETY: the calling thread's own.
    current_or_none().map_or(0, |target| unsafe { target.run() })
}

/// As [`run`], but only what was there when it was called: what items add meanwhile stays for the next time.
///
/// ```
/// use uwork::task::{Notify, TaskHandle, run_once};
/// let handle = TaskHandle::current();
/// let again = handle.clone();
/// handle.add_fn(Notify::None, move || again.add_fn(Notify::None, || ()).unwrap()).unwrap();
/// assert_eq!((run_once(), run_once(), run_once()), (1, 1, 0));
/// ```
pub fn run_once() -> usize {
    // SAFETY: as in `run`.
    current_or_none().map_or(0, |target| unsafe { target.run_once() })
}

/// Whether the calling thread was told to run its items and has not done so yet. A nanosecond or two.
///
/// ```
/// use uwork::task::{Notify, TaskHandle, is_notified, run};
/// let handle = TaskHandle::current();
/// handle.add_fn(Notify::None, || ()).unwrap();
/// assert!(!is_notified());
/// handle.add_fn(Notify::Resume, || ()).unwrap();
/// assert!(is_notified());
/// assert_eq!(run(), 2);
/// ```
#[inline]
pub fn is_notified() -> bool {
    current_or_none().is_some_and(|target| target.is_notified())
}

/// A point at which the calling thread can run items. Does nothing unless it was told to
/// ([`Notify::Resume`], [`Notify::Signal`]): then as [`run_once`]. Cheap enough for inner loops: a nanosecond or two.
///
/// ```
/// use uwork::task::{Notify, TaskHandle, safe_point};
/// let handle = TaskHandle::current();
/// handle.add_fn(Notify::None, || ()).unwrap();
/// assert_eq!(safe_point(), 0);
/// handle.add_fn(Notify::Resume, || ()).unwrap();
/// assert_eq!(safe_point(), 2);
/// ```
#[inline]
pub fn safe_point() -> usize {
    match current_or_none() {
        // SAFETY: as in `run`.
        Some(target) if target.is_notified() => unsafe { target.run_once() },
        _ => 0,
    }
}

/// Ends the calling thread's task work now, as the end of the thread would: what was added runs, what is added later
/// comes back. For good. Does nothing the second time.
///
/// When it returns no other thread is about to wake or signal this one. It stays so: handles of this thread give
/// everything back from here on, and [`park`] sleeps for ever.
///
/// ```
/// use uwork::task::{Notify, TaskHandle, exit};
/// std::thread::spawn(|| {
///     let handle = TaskHandle::current();
///     exit();
///     assert!(handle.add_fn(Notify::Signal, || ()).is_err());
/// })
/// .join()
/// .unwrap();
/// ```
pub fn exit() {
    thread_ends();
}

/// Chooses how the calling thread is told of items added with [`Notify::Signal`], and registers it if it is not.
///
/// Threads whose waits are all declared want [`Delivery::Light`]: no signal ever, and no handler installed.
///
/// # Errors
/// [`Delivery::Auto`] and [`Delivery::Signal`] need a real-time signal, and each has a handler of the program's.
///
/// # Panics
/// If the thread's destructors have run.
///
/// ```
/// use uwork::task::{Delivery, set_delivery};
/// set_delivery(Delivery::Light)?;
/// # Ok::<(), uwork::task::SignalError>(())
/// ```
pub fn set_delivery(delivery: Delivery) -> Result<(), SignalError> {
    current(Delivery::Light).expect(handle::ENDED).set_delivery(delivery)
}

/// Chooses the signal of this process's task work: a number from `SIGRTMIN` to `SIGRTMAX`. To be called before the
/// first thread registers: otherwise the highest is taken that has no handler and is not that of workers' stacks. A
/// handler that the program has for it goes on to be called for all signals but uwork's.
///
/// A program that takes signals without a handler, by `signalfd(2)` or `sigwait(3)`, looks to uwork as if it did not
/// use them: if it takes the highest number so, it loses what is sent there to uwork's handler, and uwork's to
/// itself. It chooses another number here.
///
/// `restarts`: system calls that uwork does not know go on after the signal, where they can (`SA_RESTART`). The
/// program sees fewer `EINTR`; items wait until such a call returns by itself. Calls in [`read`], [`epoll_wait`] and
/// [`syscall`] end in either case.
///
/// # Errors
/// The number is not allowed, or a signal was chosen before.
///
/// ```
/// let error = uwork::task::set_signal(9, false).unwrap_err();
/// assert!(error.to_string().starts_with("signal 9 is not a real-time signal"));
/// ```
pub fn set_signal(number: i32, restarts: bool) -> Result<(), SignalError> {
    choose_signal(number, restarts)
}
