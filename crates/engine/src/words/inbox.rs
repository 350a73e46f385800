//! A Treiber stack that is only ever emptied as a whole.
//!
//! Producers push with one compare-and-swap; a consumer takes everything with one swap. No tag is
//! needed against ABA: since the stack is emptied at once, no `pop` reads a node's successor while
//! another thread removes that node. A producer that is preempted between its read and its swap
//! blocks no other thread.

use crate::words::sync::{AtomicPtr, Ordering};

/// A node that can sit in one [`Inbox`] at a time.
///
/// # Safety
/// `set_next` and `next` store and load one pointer inside the node, without side effects.
pub(crate) unsafe trait Node: Sized {
    /// Stores the successor.
    ///
    /// # Safety
    /// The caller alone may touch the node.
    unsafe fn set_next(this: *mut Self, next: *mut Self);

    /// Loads the successor.
    ///
    /// # Safety
    /// The caller alone may touch the node.
    unsafe fn next(this: *mut Self) -> *mut Self;
}

/// The stack.
pub(crate) struct Inbox<T>(AtomicPtr<T>);

impl<T: Node> Inbox<T> {
    pub(crate) fn new() -> Self {
        Inbox(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Pushes `node`.
    ///
    /// # Safety
    /// `node` is live and the caller's alone. From here on it belongs to the thread that takes the
    /// inbox.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn push(&self, node: *mut T) {
        // SAFETY: by this function's contract.
        unsafe { self.push_noting(node, |_| {}) }
    }

    /// As [`Inbox::push`]. If the inbox looks empty, so that `node` will be its first, `first` is
    /// called with the node before that is visible; perhaps several times, the last one counts.
    ///
    /// # Safety
    /// As of [`Inbox::push`].
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn push_noting(&self, node: *mut T, first: impl Fn(*mut T)) {
        // SAFETY: a chain of one node; by this function's contract.
        unsafe { self.push_chain((node, node), first) };
    }

    /// Pushes a chain of nodes at once. `newest` is its start: each node's successor is the node
    /// that is older than it, down to `oldest`, whose successor this call sets. The consumer sees
    /// them as if they were pushed one by one, the oldest first. `first` is called with the oldest,
    /// as by [`Inbox::push_noting`].
    ///
    /// # Safety
    /// As of [`Inbox::push`], for every node of the chain.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn push_chain(
        &self,
        (newest, oldest): (*mut T, *mut T),
        first: impl Fn(*mut T),
    ) {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            if head.is_null() {
                first(oldest);
            }
            // SAFETY: the chain is the caller's alone until the exchange below succeeds.
            unsafe { T::set_next(oldest, head) };
            // SeqCst: the push comes before the pusher's check whether a consumer must be woken.
            // Its partner is a consumer that announces its sleep and then reads this inbox
            // (`is_empty`). With weaker orderings each side could miss the other, and the node
            // would stay.
            match self.0.compare_exchange_weak(head, newest, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything, last pushed first. Returns null when empty.
    #[inline]
    #[track_caller]
    pub(crate) fn take_all(&self) -> *mut T {
        // SeqCst, as in `is_empty`: a consumer that has just announced its scan must not miss a
        // node that was pushed before the announcement became visible.
        if self.0.load(Ordering::SeqCst).is_null() {
            return std::ptr::null_mut();
        }
        self.0.swap(std::ptr::null_mut(), Ordering::AcqRel)
    }

    /// Takes everything, first pushed first. Returns null when empty.
    #[track_caller]
    pub(crate) fn take_all_in_order(&self) -> *mut T {
        let mut stack = self.take_all();
        let mut ordered = std::ptr::null_mut();
        while !stack.is_null() {
            // SAFETY: everything that `take_all` returned is ours alone.
            unsafe {
                let next = T::next(stack);
                T::set_next(stack, ordered);
                ordered = stack;
                stack = next;
            }
        }
        ordered
    }

    /// Whether the stack is empty. This is the consumer's half of the handshake in [`Inbox::push`].
    #[inline]
    #[track_caller]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::SeqCst).is_null()
    }
}
