//! Task work: runs a function on a given thread, even while that thread sleeps.
//!
//! A thread registers by asking for its [`TaskHandle`]. Any thread that has the handle adds items,
//! which the registered thread runs itself, first in, first out, when it reaches a point at which
//! it checks for them. [`Notify`] chooses how soon that is. Adding is lock-free and allocates
//! nothing; however many items are added, the thread is woken once until it has run them.
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
//! Items run at the points listed here, and nowhere else: never in a signal handler.
//!
//! | the thread | `None` | `Resume` | `Signal` |
//! |---|---|---|---|
//! | calls [`run`] or [`run_once`] | run | run | run |
//! | calls [`safe_point`], or begins or ends one of the waits below | stay, unless others are due | run | run |
//! | sleeps in one of the waits below | stay | stay | the wait ends, run |
//! | computes | stay | stay | stay until the next of the above |
//! | is in a system call that uwork does not know | stay | stay | it returns `EINTR` ([`Delivery::Auto`]) |
//!
//! The waits are [`park`], [`Notifier::wait`] (around epoll, poll or any other call that ends when
//! a descriptor is readable), [`epoll_wait`], [`read`], [`syscall`], and that of a `ring::Reactor`.
//! Waits for items of queues (`Work::flush`, `JoinHandle::join`) do not run task work and do not end
//! early, as in the kernel.
//!
//! # Order
//!
//! Items run in the order in which they were added, one after the other, whatever their [`Notify`]
//! and their adder. An item added by an item runs after those that were in the list already. The
//! adder's earlier writes are visible to the run.
//!
//! # Runs inside of items
//!
//! An item that calls [`run`], [`run_once`] or [`safe_point`], or waits, runs the items queued
//! behind it, inside its own run. Those runs do not nest further: in one of them such a call
//! returns 0, a wait for which an item is due ends at once ([`park`] with 0, [`read`] with
//! `Interrupted`), and the pending items run when the outer run has returned. So the stack does not
//! grow with the number of added items, and no wait hangs. Do not repeat such a wait in a loop
//! until another item of the thread has run: that item cannot run before the loop ends. The
//! kernel's task work runs no item from a wait inside task work; such a wait ends with `EINTR`.
//!
//! # Progress
//!
//! Adding is lock-free: it waits neither for the thread nor for other adders. If the thread must be
//! notified by a signal and the user has as many queued as the system permits
//! (`RLIMIT_SIGPENDING`), it retries for half a second; after that the item waits for the next
//! addition with [`Notify::Signal`], or for the thread's next check. A cancel takes a lock, which
//! other cancels hold while they search the list, and which the thread holds for a few
//! instructions.
//!
//! # Panics of items
//!
//! A panic ends the item, not the thread. It interrupts the thread's wait for no longer than the
//! item ran. Panics are counted (`uwork::panics`) and reported.
//!
//! # The end of a thread
//!
//! All added items run when the thread ends, or calls [`exit`]. Items added later, also by those
//! items, are returned ([`Added::Exited`]). Destructors of thread-local data may run the remaining
//! items, and add some; destructors that run after uwork's find no items, and the items that they
//! add are returned.
//!
//! A forked child begins without task work: handles of the parent's threads return every item, and
//! items that were pending at the fork stay pending in the child and never run there. A thread that
//! replaces the program (`execve`) calls [`exit`] first: a signal in flight would end the new
//! program.

mod closure;
mod handle;
mod item;
mod wait;

pub use handle::{Added, ExitedError, TaskHandle};
pub use item::{HasTaskWork, TaskItem, TaskWork};
pub use uwork_engine::task::Notify;
pub use uwork_linux::task::{Delivery, SignalError, epoll_wait, read, syscall};
use uwork_linux::task::{
    current, current_or_none, run_due, set_signal as choose_signal, thread_ends,
};
pub use wait::{Notifier, notifier, park, park_timeout};

/// Runs the items added for the calling thread, in the order in which they were added, until none
/// is left. Returns the number of items run.
///
/// An item that adds itself again keeps this from returning, as in the kernel: use [`run_once`] in
/// loops. Runs nest [two deep](self#runs-inside-of-items): deeper calls return 0.
///
/// ```
/// use uwork::task::{Notify, TaskHandle, run};
/// let handle = TaskHandle::current();
/// handle.add_fn(Notify::None, || ()).unwrap();
/// assert_eq!(run(), 1);
/// ```
pub fn run() -> usize {
    // SAFETY: the target is the calling thread's own.
    current_or_none().map_or(0, |target| unsafe { target.run() })
}

/// As [`run`], but only the items in the list at the call: items added meanwhile stay for the next
/// call.
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

/// Whether the calling thread was notified to run its items and has not done so yet. Takes a
/// nanosecond or two.
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

/// A point at which the calling thread can run items. Does nothing unless the thread was notified
/// ([`Notify::Resume`], [`Notify::Signal`]); then as [`run_once`]. Cheap enough for inner loops: a
/// nanosecond or two.
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
    run_due()
}

/// Ends the calling thread's task work now and for good, as the end of the thread would: added
/// items run, items added later are returned. A second call does nothing.
///
/// When it returns, no other thread is about to wake or signal this one, now or later: handles of
/// this thread return every item from now on, and [`park`] sleeps for ever.
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

/// Chooses how the calling thread is notified of items added with [`Notify::Signal`], and registers
/// it if necessary.
///
/// Threads whose waits are all declared should use [`Delivery::Light`]: it never sends a signal and
/// installs no handler.
///
/// # Errors
/// [`Delivery::Auto`] and [`Delivery::Signal`] need a real-time signal, and the program has a
/// handler for each of them; or the thread's thread-local destructors have run.
///
/// ```
/// use uwork::task::{Delivery, set_delivery};
/// set_delivery(Delivery::Light)?;
/// # Ok::<(), uwork::task::SignalError>(())
/// ```
pub fn set_delivery(delivery: Delivery) -> Result<(), SignalError> {
    current(Delivery::Light).ok_or(SignalError::Ended)?.set_delivery(delivery)
}

/// Chooses the signal of this process's task work: a number from `SIGRTMIN` to `SIGRTMAX`. Call it
/// before the first thread registers: by default uwork takes the highest number without a handler,
/// except the signal for workers' stacks. A handler that the program has for the signal is still
/// called for all signals except uwork's own.
///
/// A signal that the first thread blocks is taken only if no other is free, since the program may
/// wait for it, by `signalfd(2)` or `sigwait(3)`. One that it blocks in other threads only, or all of
/// them, appears to uwork as unused: the program's signals go to uwork's handler, and uwork's to the
/// program. Such a program chooses another number here.
///
/// `restarts`: system calls unknown to uwork continue after the signal, if they can (`SA_RESTART`).
/// The program sees fewer `EINTR`; items wait until such a call returns by itself. Calls in
/// [`read`], [`epoll_wait`] and [`syscall`] end in either case.
///
/// # Errors
/// The number is out of range, or a signal was chosen before.
///
/// ```
/// let error = uwork::task::set_signal(9, false).unwrap_err();
/// assert!(error.to_string().starts_with("signal 9 is not a real-time signal"));
/// ```
pub fn set_signal(number: i32, restarts: bool) -> Result<(), SignalError> {
    choose_signal(number, restarts)
}
