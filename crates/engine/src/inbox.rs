//! A Treiber stack that is only ever emptied as a whole.
//!
//! Producers push with one compare-and-swap; a consumer takes everything with one swap. Taking all
//! at once is what makes it safe without tags: a node's successor is never read by a `pop` that
//! races with the node's removal. A producer that is preempted between its read and its swap blocks
//! nobody.

use crate::sync::{AtomicPtr, Ordering};

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
    /// `node` is live and the caller's alone; from here on it belongs to whoever takes the inbox.
    #[inline]
    pub(crate) unsafe fn push(&self, node: *mut T) {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is the caller's alone until the exchange below succeeds.
            unsafe { T::set_next(node, head) };
            // SeqCst: this push comes before the pusher's look at "does somebody have to be
            // woken?". Its partner is a consumer that announces its sleep and then looks in here
            // (`is_empty`). Were both weaker, each could miss the other and the node would stay.
            match self.0.compare_exchange_weak(head, node, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything, last pushed first. Null when empty.
    #[inline]
    pub(crate) fn take_all(&self) -> *mut T {
        // SeqCst, as `is_empty`: a consumer that has just announced that it looks must not miss what
        // was pushed before the announcement was seen.
        if self.0.load(Ordering::SeqCst).is_null() {
            return std::ptr::null_mut();
        }
        self.0.swap(std::ptr::null_mut(), Ordering::AcqRel)
    }

    /// Takes everything, first pushed first, and how many that were.
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

    /// Visits what is in it, last pushed first.
    ///
    /// # Safety
    /// Nobody takes the inbox meanwhile, and nothing that is in it goes away.
    pub(crate) unsafe fn for_each(&self, mut f: impl FnMut(&T)) {
        // Acquire: the links that were stored before the pushes.
        let mut node = self.0.load(Ordering::Acquire);
        // SAFETY: by this function's contract; the link of a node that is in is not written.
        while let Some(known) = unsafe { node.as_ref() } {
            f(known);
            // SAFETY: as above.
            node = unsafe { T::next(node) };
        }
    }

    /// Whether nothing is in it. The consumer's half of the handshake in [`Inbox::push`].
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::SeqCst).is_null()
    }
}
