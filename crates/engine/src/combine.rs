//! Flat combining: whoever finds nobody at it does the work of all, the others leave theirs and go.
//!
//! One word: the node that was left last, and three bits that a node's alignment leaves free.
//!
//! | nodes | HELD | STALLED | AGAIN | meaning |
//! |---|---|---|---|---|
//! | none | 0 | 0 | 0 | nothing is there, nobody is at it |
//! | any | 1 | 0 | 0 | the *holder* works; it takes what is left here before it lets go |
//! | any | 1 | 0 | 1 | the same, and whatever it may find it cannot do now is worth another try |
//! | any | 1 | 1 | 0 | nobody works: the holder could not go on, and waits for a `resume` |
//! | any | 1 | 1 | 1 | *offered*: nobody works; whoever pushes or resumes next is the holder, or who offered, again |
//!
//! Nodes without HELD cannot be, nor AGAIN or STALLED without it.
//!
//! **Nothing is left lying.** A push sets HELD in the same exchange, so either it makes the caller the holder, or
//! there is one, which lets go only by an exchange that finds no node; or it has stalled, and then whoever
//! resumes it becomes the holder. A resume that comes before the holder has stalled is kept in AGAIN:
//!
//! ```text
//! holder                                   who sees that there is room again
//! no room: asks to be told of room
//!                                          resume: HELD, not STALLED: sets AGAIN
//! stall: AGAIN is set: tries again
//! ```
//!
//! **An offer is not left lying** either: whoever offers takes it back, unless it finds that somebody has taken it.
//! What it takes back may be a later offer, of somebody else's, who then finds it taken. So each offer has somebody
//! who has yet to look. An offer forgets AGAIN: whoever takes it tries anyway, after the resume.
//!
//! A holder that panics cannot try again. It leaves the place as after a stall; where a resume has come already, as
//! after an offer, so that whoever pushes next goes on.
//!
//! **Progress.** A push is lock-free and waits for nobody, whatever the holder does. Nodes come out in the order of
//! their pushes. The holder may find more for as long as others push; it can end that by an offer, which one of those
//! takes, or by stalling.

use crate::sync::{AtomicPtr, Cell, Link, Ordering};

const HELD: usize = 1;
const STALLED: usize = 2;
const AGAIN: usize = 4;
const BITS: usize = HELD | STALLED | AGAIN;
const OFFERED: usize = HELD | STALLED | AGAIN;

/// What is left: the first field of what users leave.
#[repr(C, align(8))]
pub struct CombineNode {
    /// Guard: who has the node; the list while it is in one.
    next: Cell<Link<CombineNode>>,
}

const _: () = assert!(align_of::<CombineNode>() > BITS);

impl Default for CombineNode {
    fn default() -> CombineNode {
        CombineNode { next: Cell::new(Link(std::ptr::null_mut())) }
    }
}

/// Nodes of the holder's, first come first.
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

// SAFETY: the nodes are those of whoever has the chain.
unsafe impl Send for CombineChain {}

impl CombineChain {
    /// The first node, null if there is none.
    pub fn first(&self) -> *mut CombineNode {
        self.head
    }

    /// The one behind `node`, null if there is none.
    ///
    /// # Safety
    /// `node` is in this chain.
    pub unsafe fn after(&self, node: *mut CombineNode) -> *mut CombineNode {
        // SAFETY: by this function's contract; the chain's nodes are live.
        unsafe { (*node).next.get().0 }
    }

    /// Takes the first node, null if there is none.
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

/// The word. Who is the holder may call what says so.
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
    /// Nothing left, nobody at it.
    pub fn new() -> Combine {
        Combine(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// Exchanges the word for what `next` makes of it, until that succeeds or `next` gives up.
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

    /// Leaves a node. True: the caller is the holder now.
    ///
    /// # Safety
    /// `left` is live and the caller's alone; from here on it is the holder's.
    #[must_use]
    pub unsafe fn push(&self, left: *mut CombineNode) -> bool {
        let before = self.exchange(|now| {
            // SAFETY: the caller's alone until the exchange succeeds.
            unsafe { (*left).next.set(Link(node(now))) };
            let bits = if bits(now) == OFFERED { HELD } else { bits(now) | HELD };
            Some(with_bits(left, bits))
        });
        before.is_some_and(|before| bits(before) & HELD == 0 || bits(before) == OFFERED)
    }

    /// Moves what was left to the end of the chain.
    ///
    /// # Safety
    /// The caller is the holder; the chain is of this list.
    pub unsafe fn take(&self, chain: &mut CombineChain) {
        let taken = self.exchange(|now| {
            let empty = with_bits(std::ptr::null_mut(), bits(now));
            (!node(now).is_null()).then_some(empty)
        });
        if let Some(taken) = taken {
            // SAFETY: what the list gave up is the holder's.
            unsafe { chain.append_stack(node(taken)) };
        }
    }

    /// Lets go, unless something was left meanwhile: then false, and the caller is still the holder.
    ///
    /// # Safety
    /// The caller is the holder, and its chain is empty.
    #[must_use]
    pub unsafe fn release(&self) -> bool {
        self.exchange(|now| node(now).is_null().then_some(std::ptr::null_mut())).is_some()
    }

    /// Lets go without having done everything, until a [`Combine::resume`]. False: there was one already, so the
    /// caller is still the holder, and is to try again.
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

    /// Lets go without having done everything and cannot try again. As [`Combine::stall`]; after a resume that has
    /// come already it is an offer that nobody takes back.
    ///
    /// # Safety
    /// The caller is the holder.
    pub unsafe fn abandon(&self) {
        self.exchange(|now| Some(with_bits(node(now), bits(now) | STALLED)));
    }

    /// Offers to let go, although something may be left, to whoever pushes or resumes next. To be followed by
    /// [`Combine::retake`].
    ///
    /// # Safety
    /// The caller is the holder.
    pub unsafe fn offer(&self) {
        self.exchange(|now| Some(with_bits(node(now), OFFERED)));
    }

    /// Looks what became of an offer. True: nobody has taken it, and the caller is the holder again.
    #[must_use]
    pub fn retake(&self) -> bool {
        self.exchange(|now| (bits(now) == OFFERED).then(|| with_bits(node(now), HELD))).is_some()
    }

    /// Says that another try is worth it. True: the caller is the holder now, and is to try.
    #[must_use]
    pub fn resume(&self) -> bool {
        let before = self.exchange(|now| match bits(now) {
            bits if bits & STALLED != 0 => Some(with_bits(node(now), HELD)),
            bits if bits & HELD != 0 => Some(with_bits(node(now), HELD | AGAIN)),
            _ => None,
        });
        before.is_some_and(|before| bits(before) & STALLED != 0)
    }

    /// Whether it waits for a resume. Out of date as soon as it is known.
    pub fn is_stalled(&self) -> bool {
        bits(self.0.load(Ordering::Relaxed)) == HELD | STALLED
    }
}
