//! The ready pwqs of a pool, first in, first out.

use crate::queue::pwq::Pwq;
use crate::words::host::Host;
use crate::words::inbox::Node;

/// A singly linked queue. Guard: the pool lock.
pub(crate) struct ReadyList<H: Host> {
    head: *mut Pwq<H>,
    tail: *mut Pwq<H>,
}

// SAFETY: the list's pwqs belong to the holder of the list.
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

    /// Visits all pwqs, in order.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Pwq<H>)) {
        let mut pwq = self.head;
        // SAFETY: everything in our list is live, and its links are guarded by the pool lock.
        while let Some(here) = unsafe { pwq.as_ref() } {
            f(here);
            // SAFETY: as above.
            pwq = unsafe { Pwq::next(pwq) };
        }
    }

    /// Takes this pwq out. Returns false if it is not in the list.
    pub(crate) fn remove(&mut self, pwq: &Pwq<H>) -> bool {
        let (mut before, mut here) = (std::ptr::null_mut::<Pwq<H>>(), self.head);
        while !here.is_null() && !std::ptr::eq(here, pwq) {
            before = here;
            // SAFETY: everything in our list is live, and its links are guarded by the pool lock.
            here = unsafe { Pwq::next(here) };
        }
        if here.is_null() {
            return false;
        }
        // SAFETY: as above.
        unsafe {
            let after = Pwq::next(here);
            if before.is_null() {
                self.head = after;
            } else {
                Pwq::set_next(before, after);
            }
            if after.is_null() {
                self.tail = before;
            }
        }
        true
    }

    /// Takes the first pwq, or returns null.
    pub(crate) fn pop_front(&mut self) -> *mut Pwq<H> {
        let first = self.head;
        if !first.is_null() {
            // SAFETY: `first` is in our list.
            self.head = unsafe { Pwq::next(first) };
        }
        first
    }
}
