//! Wake-ups as values: decided under locks, sent after the locks are released.

use crate::words::host::Host;
use crate::words::sync::{Cell, Link, assert_may_wake};

/// A thread that must be woken. Spend the token with [`WakeToken::send`] once every lock is
/// released.
#[must_use = "a wake that is not sent leaves a thread asleep with work waiting"]
pub(crate) struct WakeToken<H: Host>(*const H::Event);

impl<H: Host> WakeToken<H> {
    /// # Safety
    /// `event` stays live until the token is spent.
    pub(crate) unsafe fn new(event: *const H::Event) -> WakeToken<H> {
        WakeToken(event)
    }

    /// Wakes the thread.
    pub(crate) fn send(self, host: &H) {
        assert_may_wake();
        let event = self.0;
        std::mem::forget(self);
        // SAFETY: live, by the contract of `new`.
        unsafe { host.wake(event) };
    }
}

impl<H: Host> Drop for WakeToken<H> {
    fn drop(&mut self) {
        debug_assert!(std::thread::panicking(), "a wake token was dropped without being sent");
    }
}

/// A thread that waits for one event: a node on that thread's stack.
///
/// A waiter is in at most one chain at a time. The thread that takes it out of its chain wakes it,
/// and must not touch it afterwards.
pub(crate) struct Waiter<H: Host> {
    event: H::Event,
    next: Cell<Link<Waiter<H>>>,
    /// What the waiter waits for, in chains that hold waiters for different events.
    pub(crate) key: Cell<usize>,
}

impl<H: Host> Waiter<H> {
    pub(crate) fn new(key: usize) -> Waiter<H> {
        Waiter {
            event: H::Event::default(),
            next: Cell::new(Link(std::ptr::null_mut())),
            key: Cell::new(key),
        }
    }

    /// Sleeps until the waiter has been taken out of its chain and woken.
    pub(crate) fn wait(&self, host: &H) {
        // Only the wake itself counts. It is the waker's last access to this node, so the node may
        // be destroyed as soon as the wake is seen.
        while !host.park(&self.event, None) {}
    }

    /// As [`Waiter::wait`], but not beyond `deadline`. Returns false on timeout: the waiter may
    /// then still be in its chain, or a wake may be on its way to it.
    #[must_use]
    pub(crate) fn wait_until(&self, host: &H, deadline: u64) -> bool {
        loop {
            if host.park(&self.event, Some(deadline)) {
                return true;
            }
            if host.now() >= deadline {
                return false;
            }
        }
    }
}

/// The key of a waiter that is woken to check its condition again, although its event has not come.
pub(crate) const RECHECK: usize = 0;

/// A chain of waiters, in order of arrival.
pub(crate) struct Waiters<H: Host> {
    head: *mut Waiter<H>,
    tail: *mut Waiter<H>,
}

// SAFETY: the chain's nodes belong to the holder of the chain.
unsafe impl<H: Host> Send for Waiters<H> {}

impl<H: Host> Waiters<H> {
    pub(crate) const fn new() -> Waiters<H> {
        Waiters { head: std::ptr::null_mut(), tail: std::ptr::null_mut() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Appends `waiter`.
    ///
    /// # Safety
    /// `waiter` is in no chain, and its thread does not return from the wait before the wake.
    pub(crate) unsafe fn push(&mut self, waiter: &Waiter<H>) {
        let node = std::ptr::from_ref(waiter).cast_mut();
        // SAFETY: the node is ours until pushed, the tail is in this chain.
        unsafe {
            (*node).next.set(Link(std::ptr::null_mut()));
            if self.tail.is_null() {
                self.head = node;
            } else {
                (*self.tail).next.set(Link(node));
            }
        }
        self.tail = node;
    }

    /// Takes out the waiters with this key, in order.
    pub(crate) fn take_matching(&mut self, key: usize) -> Waiters<H> {
        let (mut matching, mut rest) = (Waiters::new(), Waiters::new());
        let mut node = self.head;
        while !node.is_null() {
            // SAFETY: the nodes of this chain are live and ours; each is pushed exactly once.
            unsafe {
                let next = (*node).next.get().0;
                if (*node).key.get() == key {
                    matching.push(&*node);
                } else {
                    rest.push(&*node);
                }
                node = next;
            }
        }
        self.head = rest.head;
        self.tail = rest.tail;
        matching
    }

    /// Takes all waiters and marks each one to check its condition again.
    pub(crate) fn take_to_recheck(&mut self) -> Waiters<H> {
        let mut node = self.head;
        while !node.is_null() {
            // SAFETY: the nodes of this chain are live and ours.
            unsafe {
                (*node).key.set(RECHECK);
                node = (*node).next.get().0;
            }
        }
        self.take()
    }

    /// Takes one waiter out. Returns false if it is not in this chain.
    #[must_use]
    pub(crate) fn remove(&mut self, waiter: &Waiter<H>) -> bool {
        let (mut rest, mut found) = (Waiters::new(), false);
        let mut node = self.head;
        while !node.is_null() {
            // SAFETY: the nodes of this chain are live and ours; each is pushed exactly once.
            unsafe {
                let next = (*node).next.get().0;
                if std::ptr::eq(node, waiter) {
                    found = true;
                } else {
                    rest.push(&*node);
                }
                node = next;
            }
        }
        *self = rest;
        found
    }

    /// Whether a waiter in this chain has this key.
    pub(crate) fn has(&self, key: usize) -> bool {
        let mut node = self.head;
        // SAFETY: the nodes of this chain are live while the caller holds it.
        while let Some(waiter) = unsafe { node.as_ref() } {
            // SAFETY: as above.
            let (its, next) = unsafe { (waiter.key.get(), waiter.next.get().0) };
            if its == key {
                return true;
            }
            node = next;
        }
        false
    }

    /// The number of waiters.
    pub(crate) fn len(&self) -> usize {
        let (mut count, mut node) = (0, self.head);
        while !node.is_null() {
            count += 1;
            // SAFETY: the nodes of this chain are live while the caller holds it.
            node = unsafe { (*node).next.get().0 };
        }
        count
    }

    /// Takes all waiters.
    pub(crate) fn take(&mut self) -> Waiters<H> {
        std::mem::replace(self, Waiters::new())
    }

    /// Appends all waiters of `other`.
    pub(crate) fn append(&mut self, other: Waiters<H>) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        // SAFETY: the tail is in this chain.
        unsafe { (*self.tail).next.set(Link(other.head)) };
        self.tail = other.tail;
    }

    /// Wakes all waiters. The caller holds no lock.
    pub(crate) fn complete(mut self, host: &H) {
        let mut node = std::mem::replace(&mut self.head, std::ptr::null_mut());
        while !node.is_null() {
            // SAFETY: the node is live until its event is woken, and `next` is read before that.
            unsafe {
                let next = (*node).next.get().0;
                WakeToken::<H>::new(&raw const (*node).event).send(host);
                node = next;
            }
        }
    }
}
