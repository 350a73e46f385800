//! How threads reach each other: task work. What arrives waits in the thread's inbox until its next turn.

use std::cell::RefCell;
use std::mem;
use std::os::fd::OwnedFd;

use uwork::task::{self, Added, Notify, TaskHandle, TaskItem};

use super::handover::{Handover, Item};

/// What has been handed to a thread.
#[derive(Default)]
pub(crate) struct Inbox {
    /// There and back.
    pub(crate) items: Vec<Item>,
    pub(crate) connections: Vec<OwnedFd>,
    pub(crate) stops: bool,
    /// The thread is to panic.
    #[cfg(test)]
    pub(crate) panics: bool,
}

thread_local! {
    static INBOX: RefCell<Inbox> = RefCell::default();
}

/// Changes places with the thread's inbox, which is empty afterwards if `with` was.
pub(crate) fn swap(with: &mut Inbox) {
    INBOX.with_borrow_mut(|inbox| mem::swap(inbox, with));
}

/// Takes no more from anybody. What comes late needs the inbox, which the end of the thread may free before it
/// ends the thread's task work.
pub(crate) fn close() {
    task::exit();
    swap(&mut Inbox::default());
}

/// A thread takes no more.
#[derive(Debug)]
pub(crate) struct Ended;

/// Where to reach a thread.
#[derive(Clone, Debug)]
pub(crate) struct Post(TaskHandle);

impl Post {
    /// The calling thread's.
    pub(crate) fn current() -> Self {
        Self(TaskHandle::current())
    }

    /// Hands an item over; without telling the thread where it may take its time. A thread that has ended does not
    /// want it, and neither does anybody else then.
    pub(crate) fn handover(&self, item: Item, notify: Notify) {
        match self.0.add(item, notify) {
            Added::Added => {}
            Added::Pending(_) => unreachable!("whoever has the item is the only one"),
            Added::Exited(item) => drop(item),
        }
    }

    /// Hands a new connection over.
    ///
    /// # Errors
    /// The thread has ended, and the connection is closed.
    pub(crate) fn connection(&self, socket: OwnedFd) -> Result<(), Ended> {
        let add = move || INBOX.with_borrow_mut(|inbox| inbox.connections.push(socket));
        self.0.add_fn(Notify::Signal, add).map_err(|_| Ended)
    }

    /// Has the thread end, after it has answered what it has received.
    pub(crate) fn stop(&self) {
        let stop = || INBOX.with_borrow_mut(|inbox| inbox.stops = true);
        // One that has ended already needs not be told.
        let _ = self.0.add_fn(Notify::Signal, stop);
    }

    /// Has the thread panic in its turn: a panic of task work's would be caught.
    #[cfg(test)]
    pub(crate) fn panic(&self) {
        let panic = || INBOX.with_borrow_mut(|inbox| inbox.panics = true);
        assert!(self.0.add_fn(Notify::Signal, panic).is_ok());
    }

    /// Has the thread look around.
    pub(crate) fn wake(&self) {
        let _ = self.0.add_fn(Notify::Signal, || ());
    }
}

impl TaskItem for Handover {
    type Pointer = Item;

    fn run(this: Item) {
        INBOX.with_borrow_mut(|inbox| inbox.items.push(this));
    }
}
