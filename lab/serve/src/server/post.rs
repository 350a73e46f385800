//! Communication between threads by task work. Messages wait in a thread's inbox until its next
//! turn.

use std::cell::RefCell;
use std::mem;
use std::os::fd::OwnedFd;

use uwork::task::{self, Added, Notify, TaskHandle, TaskItem};

use super::handover::{Handover, Item};

/// Messages for a thread.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Items on their way to the thread of the keys, or back home.
    pub(crate) items: Vec<Item>,
    pub(crate) connections: Vec<OwnedFd>,
    pub(crate) stops: bool,
    /// A test asks the thread to panic.
    #[cfg(test)]
    pub(crate) panics: bool,
}

thread_local! {
    static INBOX: RefCell<Inbox> = RefCell::default();
}

/// Swaps `with` and the thread's inbox. If `with` was empty, the inbox is empty afterwards.
pub(crate) fn swap(with: &mut Inbox) {
    INBOX.with_borrow_mut(|inbox| mem::swap(inbox, with));
}

/// Stops accepting messages. Task work that runs later would access the inbox, and at the thread's
/// end the inbox may be destroyed before the thread's task work ends.
pub(crate) fn close() {
    task::exit();
    swap(&mut Inbox::default());
}

/// The thread has ended and accepts no messages.
#[derive(Debug)]
pub(crate) struct Ended;

/// The address of a thread.
#[derive(Clone, Debug)]
pub(crate) struct Post(TaskHandle);

impl Post {
    /// The address of the calling thread.
    pub(crate) fn current() -> Self {
        Self(TaskHandle::current())
    }

    /// Hands an item over; `notify` says how to notify the thread, if at all. If the thread has
    /// ended the item is dropped, because its connection or its keys no longer exist.
    pub(crate) fn handover(&self, item: Item, notify: Notify) {
        match self.0.add(item, notify) {
            Added::Added => {}
            Added::Pending(_) => unreachable!("the owner of the item is unique"),
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

    /// Requests that the thread end after it has answered the requests that it has received.
    pub(crate) fn stop(&self) {
        let stop = || INBOX.with_borrow_mut(|inbox| inbox.stops = true);
        // A thread that has ended already ignores this.
        let _ = self.0.add_fn(Notify::Signal, stop);
    }

    /// Makes the thread panic in its turn. A panic inside task work would be caught.
    #[cfg(test)]
    pub(crate) fn panic(&self) {
        let panic = || INBOX.with_borrow_mut(|inbox| inbox.panics = true);
        assert!(self.0.add_fn(Notify::Signal, panic).is_ok());
    }

    /// Wakes the thread, so that it checks its state.
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
