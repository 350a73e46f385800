//! The pwqs that have something to do, first come first.

use crate::host::Host;
use crate::inbox::Node;
use crate::pwq::Pwq;

/// A singly linked queue. Guard: the pool lock.
pub(crate) struct ReadyList<H: Host> {
    head: *mut Pwq<H>,
    tail: *mut Pwq<H>,
}

// SAFETY: the list's pwqs belong to whoever holds the list.
unsafe impl<H: Host> Send for ReadyList<H> {}

impl<H: Host> ReadyList<H> {
    pub(crate) fn new() -> Self {
        ReadyList { head: std::ptr::null_mut(), tail: std::ptr::null_mut() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Appends a chain in order.
    pub(crate) fn append(&mut self, chain: *mut Pwq<H>) {
        if chain.is_null() {
            return;
        }
        // SAFETY: the chain is ours alone, and so is our tail.
        unsafe {
            if self.head.is_null() {
                self.head = chain;
            } else {
                Pwq::set_next(self.tail, chain);
            }
            let mut last = chain;
            while !Pwq::next(last).is_null() {
                last = Pwq::next(last);
            }
            self.tail = last;
        }
    }

    /// Visits all, first come first.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Pwq<H>)) {
        let mut pwq = self.head;
        // SAFETY: the pwqs of our list are live, and their links ours.
        while let Some(ready) = unsafe { pwq.as_ref() } {
            f(ready);
            // SAFETY: as above.
            pwq = unsafe { Pwq::next(pwq) };
        }
    }

    /// Takes the first, or null.
    pub(crate) fn pop_front(&mut self) -> *mut Pwq<H> {
        let first = self.head;
        if !first.is_null() {
            // SAFETY: `first` is in our list.
            self.head = unsafe { Pwq::next(first) };
        }
        first
    }
}
