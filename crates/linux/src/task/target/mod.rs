//! A thread that is a target: its list, and its notifications. Its waits are in `wait` and `ring`;
//! its creation and end in `current`.

mod current;
mod ring;
mod wait;

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

use uwork_engine::task::{Added, Notification, Notify, TaskList, TaskWork};

pub(crate) use current::child;
pub use current::{ENDED, current, current_or_none, ended, has_ended, own, run_due, thread_ends};
pub use wait::Wait;

use super::descriptor::Descriptor;
use super::turn::Turn;
use super::{ring_message, signal};
use crate::descriptor::OwnDescriptor;
use crate::{forks, futex, relax};

/// How a thread is notified of task work that was added with [`Notify::Signal`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Delivery {
    /// A declared wait is ended by its own means. Everywhere else, where the thread may compute or
    /// be in a system call unknown to uwork, it gets a signal.
    #[default]
    Auto,
    /// A declared wait is ended by its own means. Everywhere else no notification is sent: the
    /// program promises that every wait of the thread is declared, and the thread checks at its
    /// next safe point.
    Light,
    /// Always a signal, also in declared waits: the method used without task work, for comparison.
    Signal,
}

/// See the module. Methods that only its own thread may call are marked.
pub struct Target {
    list: TaskList,
    /// Its number in the system.
    thread: libc::pid_t,
    /// Forks before it was made: in a child, the targets of the parent have no thread.
    forks: u32,
    delivery: AtomicU8,
    /// The thread takes the signal.
    accepts: AtomicBool,
    /// How it waits, a [`Wait`]. Written before the list records that it waits.
    wait: AtomicU8,
    /// It is in a wait for its descriptor, inside which it may begin another. Accessed by its own
    /// thread alone.
    waits_for_descriptor: AtomicBool,
    /// The ring that it waits in, if that takes messages, or null. Freed when no adder can have it
    /// any more.
    ring: AtomicPtr<OwnDescriptor>,
    /// It has a ring. Accessed by its own thread alone.
    has_ring: AtomicBool,
    descriptor: Descriptor,
    turn: Turn,
}

impl Target {
    /// Adds an item, and notifies the target if necessary.
    ///
    /// # Safety
    /// As [`TaskList::add`].
    #[inline]
    pub unsafe fn add(&self, work: NonNull<TaskWork>, notify: Notify) -> Outcome {
        if self.is_of_parent() {
            return Outcome::Exited;
        }
        // SAFETY: by this function's contract.
        match unsafe { self.list.add(work, notify) } {
            Added::Yes(None) => Outcome::Added,
            Added::Yes(Some(notification)) => {
                self.notify(notification);
                Outcome::Added
            }
            Added::Pending => Outcome::Pending,
            Added::Exited => Outcome::Exited,
        }
    }

    /// As [`TaskList::cancel`].
    ///
    /// # Safety
    /// As there.
    pub unsafe fn cancel(&self, work: NonNull<TaskWork>) -> bool {
        // SAFETY: by this function's contract.
        !self.is_of_parent() && unsafe { self.list.cancel(work) }
    }

    /// As [`TaskList::cancel_match`].
    pub fn cancel_match(
        &self,
        matches: impl FnMut(NonNull<TaskWork>) -> bool,
    ) -> Option<NonNull<TaskWork>> {
        if self.is_of_parent() { None } else { self.list.cancel_match(matches) }
    }

    /// Whether this is a forked child's copy of a target of its parent.
    pub fn is_of_parent(&self) -> bool {
        self.forks != forks()
    }

    fn notify(&self, notification: Notification<'_>) {
        if notification.waits() {
            match Wait::from_u8(self.wait.load(Ordering::Relaxed)) {
                Wait::Yield => {}
                Wait::Futex => futex::wake(self.list.futex().cast()),
                Wait::Descriptor if !self.descriptor.write() => {
                    return self.notify_lost(notification);
                }
                Wait::Ring if !self.send_to_ring() => return self.notify_lost(notification),
                Wait::Descriptor | Wait::Ring => {}
                Wait::Call => return self.notify_by_signal(notification),
            }
        } else if self.delivery() != Delivery::Light && !self.is_current() {
            return self.notify_by_signal(notification);
        }
        notification.sent();
    }

    fn notify_by_signal(&self, notification: Notification<'_>) {
        if signal::send(self.thread) { notification.sent() } else { notification.failed() }
    }

    /// For a target whose descriptors the program has closed: only a signal can end its wait.
    fn notify_lost(&self, notification: Notification<'_>) {
        match self.accepts.load(Ordering::Relaxed) {
            true => self.notify_by_signal(notification),
            false => notification.failed(),
        }
    }

    /// False if the program has closed the descriptors.
    fn send_to_ring(&self) -> bool {
        // SAFETY: null, or live until the notification was sent. Acquire: it is complete.
        let ring = unsafe { self.ring.load(Ordering::Acquire).as_ref() };
        ring.and_then(OwnDescriptor::get).is_some_and(ring_message::send) || self.descriptor.write()
    }

    /// How items reach the thread.
    pub fn delivery(&self) -> Delivery {
        match self.delivery.load(Ordering::Relaxed) {
            0 => Delivery::Auto,
            1 => Delivery::Light,
            _ => Delivery::Signal,
        }
    }

    /// Chooses how the thread is notified from now on. For its own thread.
    ///
    /// # Errors
    /// No signal is free.
    pub fn set_delivery(&self, delivery: Delivery) -> Result<(), signal::SignalError> {
        if delivery != Delivery::Light {
            self.accept_signal()?;
        }
        self.delivery.store(delivery as u8, Ordering::Relaxed);
        // Waits for concurrent adders, so that every later addition follows the new choice.
        self.list.settle(relax);
        Ok(())
    }

    /// Makes the thread take the signal. For its own thread; only the first call has an effect.
    pub fn accept_signal(&self) -> Result<(), signal::SignalError> {
        if !self.accepts.load(Ordering::Relaxed) {
            signal::accept()?;
            self.accepts.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// # Safety
    /// On the target's own thread.
    pub unsafe fn run(&self) -> usize {
        // SAFETY: by this function's contract.
        unsafe { self.list.run() }
    }

    /// # Safety
    /// On the target's own thread.
    pub unsafe fn run_once(&self) -> usize {
        // SAFETY: by this function's contract.
        unsafe { self.list.run_once() }
    }

    /// As [`TaskList::can_run`].
    ///
    /// # Safety
    /// On the target's own thread.
    pub unsafe fn can_run(&self) -> bool {
        // SAFETY: by this function's contract.
        unsafe { self.list.can_run() }
    }

    /// Whether a notification waits for the thread.
    #[inline]
    pub fn is_notified(&self) -> bool {
        self.list.is_notified()
    }

    /// # Safety
    /// On the target's own thread.
    unsafe fn exit(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.list.exit(relax) };
    }

    /// The eventfd that ends waits for descriptors, if it was made. For its own thread.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.descriptor.get()
    }

    /// Makes that eventfd, also if the program has closed it since it was made. For its own thread.
    ///
    /// # Errors
    /// No eventfd can be created.
    pub fn open_descriptor(&self) -> io::Result<()> {
        self.descriptor.open(|| self.list.settle(relax))
    }
}

/// The outcome of adding an item.
pub enum Outcome {
    /// It will run.
    Added,
    /// It was added before and has not started.
    Pending,
    /// The thread takes no more items.
    Exited,
}
