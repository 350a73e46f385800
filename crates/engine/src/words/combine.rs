//! Flat combining: the first thread to arrive does the work of all; the others leave their nodes
//! and return.
//!
//! One word: the node that was pushed last, and three bits that a node's alignment leaves free.
//!
//! | nodes | HELD | STALLED | AGAIN | meaning |
//! |---|---|---|---|---|
//! | none | 0 | 0 | 0 | empty, without a holder |
//! | any | 1 | 0 | 0 | the *holder* works; it takes the nodes that are pushed here before it releases |
//! | any | 1 | 0 | 1 | the same, and a step that the holder cannot do now is worth another try |
//! | any | 1 | 1 | 0 | *stalled*: the holder could not continue, and waits for a `resume` |
//! | any | 1 | 1 | 1 | *offered*: the next thread to push or resume, or else the offering one, becomes the holder |
//!
//! Nodes without HELD are impossible, and so are AGAIN or STALLED without it.
//!
//! **No node is forgotten.** A push sets HELD in the same exchange. So either it makes the caller
//! the holder, or there is a holder, which releases only by an exchange that finds no node. Or the
//! holder has stalled; then the thread that resumes becomes the holder. A resume that comes before
//! the stall is kept in AGAIN:
//!
//! ```text
//! holder                                   the thread that sees room again
//! no room: asks to be notified of room
//!                                          resume: HELD, not STALLED: sets AGAIN
//! stall: AGAIN is set: tries again
//! ```
//!
//! **No offer is lost.** After an offer, the offering thread calls `retake`. Either that makes it
//! the holder again, or another thread has accepted the offer and is the holder. The word does not
//! say which thread made an offer. So a `retake` may take a later offer of another thread, and the
//! `retake` of that thread then finds none. So while an offer stands, a `retake` is still to come. An
//! offer clears AGAIN without harm: the next holder tries every step anyway.
//!
//! A holder that panics cannot try again. It leaves the word as after a stall. If a resume has come
//! before, it leaves the word as after an offer, and the next pusher becomes the holder.
//!
//! **Progress.** A push is lock-free and waits for no thread, whatever the holder does. Nodes come
//! out in the order of their pushes. The holder may find more for as long as others push. It can
//! end that by an offer, which a pusher takes, or by stalling.

use crate::words::sync::{AtomicPtr, Cell, Link, Ordering};

const HELD: usize = 1;
const STALLED: usize = 2;
const AGAIN: usize = 4;
const BITS: usize = HELD | STALLED | AGAIN;
const OFFERED: usize = HELD | STALLED | AGAIN;

/// A node: the first field of the user's type.
#[repr(C, align(8))]
pub struct CombineNode {
    /// Guard: the owner of the node; the list while it is in one.
    next: Cell<Link<CombineNode>>,
}

const _: () = assert!(align_of::<CombineNode>() > BITS);

impl Default for CombineNode {
    fn default() -> CombineNode {
        CombineNode { next: Cell::new(Link(std::ptr::null_mut())) }
    }
}

/// Nodes that the holder owns, in the order of their pushes.
#[derive(Debug)]
pub struct CombineChain {
    head: *mut CombineNode,
    tail: *mut CombineNode,
}

impl Default for CombineChain {
    fn default() -> CombineChain {
        CombineChain { head: std::ptr::null_mut(), tail: std::ptr::null_mut() }
    }
}

// SAFETY: the owner of the chain owns the nodes.
unsafe impl Send for CombineChain {}

impl CombineChain {
    /// The first node; null if there is none.
    pub fn first(&self) -> *mut CombineNode {
        self.head
    }

    /// The node behind `node`; null if there is none.
    ///
    /// # Safety
    /// `node` is in this chain.
    pub unsafe fn after(&self, node: *mut CombineNode) -> *mut CombineNode {
        // SAFETY: by this function's contract; the chain's nodes are live.
        unsafe { (*node).next.get().0 }
    }

    /// Removes the first node; null if there is none.
    pub fn pop(&mut self) -> *mut CombineNode {
        let node = self.head;
        if !node.is_null() {
            // SAFETY: it is in this chain.
            self.head = unsafe { self.after(node) };
        }
        node
    }

    /// # Safety
    /// The stack is live and the caller's alone.
    unsafe fn append_stack(&mut self, mut stack: *mut CombineNode) {
        if stack.is_null() {
            return;
        }
        let (last, mut first) = (stack, std::ptr::null_mut());
        while !stack.is_null() {
            // SAFETY: by this function's contract.
            unsafe {
                let next = (*stack).next.get().0;
                (*stack).next.set(Link(first));
                first = stack;
                stack = next;
            }
        }
        if self.head.is_null() {
            self.head = first;
        } else {
            // SAFETY: the tail of a chain with a head is in it.
            unsafe { (*self.tail).next.set(Link(first)) };
        }
        self.tail = last;
    }
}

/// The word. Some functions are for the holder only; their safety contracts say so.
pub struct Combine(AtomicPtr<CombineNode>);

fn node(word: *mut CombineNode) -> *mut CombineNode {
    word.map_addr(|addr| addr & !BITS)
}

fn bits(word: *mut CombineNode) -> usize {
    word.addr() & BITS
}

fn with_bits(node: *mut CombineNode, bits: usize) -> *mut CombineNode {
    node.map_addr(|addr| addr | bits)
}

impl Default for Combine {
    fn default() -> Combine {
        Combine::new()
    }
}

impl Combine {
    /// An empty word, without a holder.
    pub fn new() -> Combine {
        Combine(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Replaces the word by `next` of it, until the exchange succeeds or `next` returns `None`.
    ///
    /// Acquire: nodes, and what the last holder wrote. Release: a node, and what this holder wrote.
    fn exchange(
        &self,
        mut next: impl FnMut(*mut CombineNode) -> Option<*mut CombineNode>,
    ) -> Option<*mut CombineNode> {
        let mut now = self.0.load(Ordering::Relaxed);
        loop {
            let new = next(now)?;
            match self.0.compare_exchange_weak(now, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(now),
                Err(other) => now = other,
            }
        }
    }

    /// Pushes a node. True: the caller is the holder now.
    ///
    /// # Safety
    /// `pushed` is live and the caller's alone; from here on the holder owns it.
    #[must_use]
    pub unsafe fn push(&self, pushed: *mut CombineNode) -> bool {
        let before = self.exchange(|now| {
            // SAFETY: the caller's alone until the exchange succeeds.
            unsafe { (*pushed).next.set(Link(node(now))) };
            let bits = if bits(now) == OFFERED { HELD } else { bits(now) | HELD };
            Some(with_bits(pushed, bits))
        });
        before.is_some_and(|before| bits(before) & HELD == 0 || bits(before) == OFFERED)
    }

    /// Moves the pushed nodes to the end of the chain.
    ///
    /// # Safety
    /// The caller is the holder; the chain belongs to this word.
    pub unsafe fn take(&self, chain: &mut CombineChain) {
        let taken = self.exchange(|now| {
            let empty = with_bits(std::ptr::null_mut(), bits(now));
            (!node(now).is_null()).then_some(empty)
        });
        if let Some(taken) = taken {
            // SAFETY: the holder owns the nodes that the exchange returned.
            unsafe { chain.append_stack(node(taken)) };
        }
    }

    /// Releases, unless a node was pushed meanwhile: then false, and the caller is still the
    /// holder.
    ///
    /// # Safety
    /// The caller is the holder, and its chain is empty.
    #[must_use]
    pub unsafe fn release(&self) -> bool {
        self.exchange(|now| node(now).is_null().then_some(std::ptr::null_mut())).is_some()
    }

    /// Stops without having done everything, until a [`Combine::resume`]. False: a resume has come
    /// already, so the caller is still the holder, and must try again.
    ///
    /// # Safety
    /// The caller is the holder.
    #[must_use]
    pub unsafe fn stall(&self) -> bool {
        let before = self.exchange(|now| {
            let bits = if bits(now) & AGAIN != 0 { HELD } else { HELD | STALLED };
            Some(with_bits(node(now), bits))
        });
        before.is_some_and(|before| bits(before) & AGAIN == 0)
    }

    /// Stops without having done everything, for a holder that cannot try again. As
    /// [`Combine::stall`]; if a resume has come already, it becomes an offer that no thread takes
    /// back.
    ///
    /// # Safety
    /// The caller is the holder.
    pub unsafe fn abandon(&self) {
        self.exchange(|now| Some(with_bits(node(now), bits(now) | STALLED)));
    }

    /// Offers to release, although nodes may be left, to the next thread that pushes or resumes.
    /// [`Combine::retake`] must follow.
    ///
    /// # Safety
    /// The caller is the holder.
    pub unsafe fn offer(&self) {
        self.exchange(|now| Some(with_bits(node(now), OFFERED)));
    }

    /// Takes an offer back. True: no thread has taken it, and the caller is the holder again.
    #[must_use]
    pub fn retake(&self) -> bool {
        self.exchange(|now| (bits(now) == OFFERED).then(|| with_bits(node(now), HELD))).is_some()
    }

    /// Reports that another try is worthwhile. True: the caller is the holder now, and must try.
    #[must_use]
    pub fn resume(&self) -> bool {
        let before = self.exchange(|now| match bits(now) {
            bits if bits & STALLED != 0 => Some(with_bits(node(now), HELD)),
            bits if bits & HELD != 0 => Some(with_bits(node(now), HELD | AGAIN)),
            _ => None,
        });
        before.is_some_and(|before| bits(before) & STALLED != 0)
    }

    /// Whether the holder waits for a resume. A hint: it may change at any time.
    pub fn is_stalled(&self) -> bool {
        bits(self.0.load(Ordering::Relaxed)) == HELD | STALLED
    }
}
