//! Chains: several items for one push.
//!
//! A push costs a compare-and-swap on a cache line that all submitters for a CPU share. A chain
//! pays that once. Its items are linked beforehand in the form in which they lie in the inbox: each
//! item's successor is the one before it.
//!
//! An item of a chain is not pending until the chain is pushed. Otherwise a thread that cancels the
//! item would wait for it to enter a list, for as long as the user's code takes to make the rest of
//! the chain. So only two kinds of chains exist. [`Chain`] is of items that no other thread can
//! reach, and any code may run between two links. [`Wq::queue_each`] makes chains of items that are
//! shared: it acquires, links and pushes them in a row, without any other code between.

use std::ptr::NonNull;

use super::Destination;
use super::Wq;
use super::submit::Queued;
use crate::words::host::Host;
use crate::words::inbox::Node;
use crate::words::item::Work;
use crate::words::item::word::Acquire;

/// Items that no thread but the holder of the chain can reach, in the order in which they run.
pub struct Chain {
    /// Null if the chain is empty.
    newest: *mut Work,
    oldest: *mut Work,
    len: usize,
}

impl Default for Chain {
    fn default() -> Chain {
        Chain::new()
    }
}

impl Chain {
    /// An empty chain.
    pub const fn new() -> Chain {
        Chain { newest: std::ptr::null_mut(), oldest: std::ptr::null_mut(), len: 0 }
    }

    /// How many items it has.
    #[allow(clippy::len_without_is_empty, reason = "no caller needs it")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends an item, which will run after those that the chain has.
    ///
    /// # Safety
    /// `work` is live and stays at its address while it is in the chain. It was never enqueued, it
    /// is in no chain, and no other thread can reach it.
    #[inline]
    pub unsafe fn append(&mut self, work: NonNull<Work>) {
        // SAFETY: by this function's contract.
        unsafe { Work::set_next(work.as_ptr(), self.newest) };
        if self.newest.is_null() {
            self.oldest = work.as_ptr();
        }
        self.newest = work.as_ptr();
        self.len += 1;
    }

    /// Removes the item that was appended last.
    pub fn remove_last(&mut self) -> Option<NonNull<Work>> {
        let last = NonNull::new(self.newest)?;
        // SAFETY: the items of a chain are the holder's alone.
        self.newest = unsafe { Work::next(self.newest) };
        self.len -= 1;
        Some(last)
    }
}

impl<H: Host> Wq<H> {
    /// As [`Wq::queue`], for an item that no other thread submits, cancels or disables: without a
    /// locked instruction for its ownership. The item counts as one that never ran.
    ///
    /// # Safety
    /// As [`Wq::queue`]. No other thread can become the owner of the item: none has a reference to
    /// it, or each asks a word of the library's own first. The item is in no list, and disabled by
    /// no thread. If a run of it has not ended, that run does not use it any more.
    #[inline(always)]
    pub unsafe fn queue_unshared(&self, work: NonNull<Work>) -> Queued {
        if !self.looks_open() && !self.admits_caller_or_reports() {
            return Queued::Refused;
        }
        let cpu = self.engine().host().current_cpu();
        // SAFETY: by this function's contract.
        let _ = unsafe { work.as_ref() }.word.acquire_unshared();
        // SAFETY: live, and ours.
        unsafe { self.push(work, self.route_near(cpu), cpu, false) };
        Queued::Yes
    }

    /// Enqueues all items of a chain, with one push, where [`Wq::queue`] would enqueue one.
    ///
    /// # Errors
    /// The queue drains or is being destroyed, and the caller is not one of its items. The chain is
    /// unchanged.
    ///
    /// # Safety
    /// As [`Wq::queue`], for each item.
    pub unsafe fn queue_chain(&self, chain: Chain) -> Result<(), Chain> {
        if chain.newest.is_null() {
            return Ok(());
        }
        if !self.looks_open() && !self.admits_caller_or_reports() {
            return Err(chain);
        }
        let cpu = self.engine().host().current_cpu();
        let pwq = self.route_near(cpu);
        let mut item = chain.newest;
        loop {
            // SAFETY: the items of a chain are live, and the holder's alone.
            let work = unsafe { &*item };
            let _ = work.word.acquire_unshared();
            self.address(work, pwq, cpu, false);
            if item == chain.oldest {
                break;
            }
            // SAFETY: as above.
            item = unsafe { Work::next(item) };
        }
        // SAFETY: addressed, linked by `append`, and ours.
        unsafe { self.push_addressed((chain.newest, chain.oldest), pwq, cpu, false) };
        Ok(())
    }

    /// Enqueues items where [`Wq::queue`] would, in their order, and tells `outcome` by index what
    /// became of each that was not enqueued. Consecutive items that have neither run nor were disabled
    /// before share one push.
    ///
    /// `outcome` is called after the push of the items before it. It must not unwind.
    ///
    /// # Safety
    /// As [`Wq::queue`], for each item.
    pub unsafe fn queue_each(
        &self,
        items: &[NonNull<Work>],
        mut outcome: impl FnMut(usize, Queued),
    ) {
        let cpu = self.engine().host().current_cpu();
        let pwq = self.route_near(cpu);
        // All go to one pwq, so that they stay in their order.
        let to = pwq.home().cpu().map_or(Destination::Here, Destination::On);
        let is_open = self.looks_open();
        let (mut newest, mut oldest) = (std::ptr::null_mut(), std::ptr::null_mut());
        let push = |newest: &mut *mut Work, oldest: *mut Work| {
            if !newest.is_null() {
                // SAFETY: acquired, addressed and linked below.
                unsafe { self.push_addressed((*newest, oldest), pwq, cpu, false) };
                *newest = std::ptr::null_mut();
            }
        };
        for (index, &item) in items.iter().enumerate() {
            // SAFETY: by this function's contract.
            let work = unsafe { item.as_ref() };
            let queued = if is_open && work.word.looks_fresh() {
                match work.word.acquire() {
                    Acquire::Pending => Queued::AlreadyPending,
                    Acquire::Owned(owned) if owned.is_fresh() => {
                        self.address(work, pwq, cpu, false);
                        // SAFETY: acquired above.
                        unsafe { Work::set_next(item.as_ptr(), newest) };
                        if newest.is_null() {
                            oldest = item.as_ptr();
                        }
                        newest = item.as_ptr();
                        Queued::Yes
                    }
                    // Another thread has queued and run it, or disabled it, since the look.
                    Acquire::Owned(owned) => {
                        push(&mut newest, oldest);
                        // SAFETY: acquired above; the caller's promise.
                        unsafe { self.queue_owned(item, owned, to) }
                    }
                }
            } else {
                // These checks may call code of the user, so no item is held meanwhile.
                push(&mut newest, oldest);
                match work.word.acquire() {
                    Acquire::Pending => Queued::AlreadyPending,
                    // SAFETY: acquired here; the caller's promise.
                    Acquire::Owned(owned) => unsafe { self.queue_owned(item, owned, to) },
                }
            };
            if queued != Queued::Yes {
                push(&mut newest, oldest);
                outcome(index, queued);
            }
        }
        push(&mut newest, oldest);
    }
}
