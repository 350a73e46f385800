//! A target's word: the stack of added items, whether a notification is outstanding, whether the
//! target waits.
//!
//! The table of its states, and why its transitions lose nothing, is in the README.

use super::item::TaskWork;
use crate::words::sync::{AtomicPtr, AtomicU32, Ordering, low_half};

/// How a target learns that an item was added for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// Not at all: the item runs when the target runs its list.
    None,
    /// At its next safe point. No thread is woken.
    Resume,
    /// At once: its wait ends, whatever it is, and it runs its list.
    Signal,
}

const SIGNAL: usize = 1;
const RESUME: usize = 2;
const WAITS: usize = 4;
const BITS: usize = SIGNAL | RESUME | WAITS;
/// An address that no item can have, with no bit set: an exited target gets no notification and
/// does not wait.
const EXITED: usize = !BITS;
/// The bits that ask the target to run its list.
pub(super) const NOTIFIED: u32 = (SIGNAL | RESUME) as u32;

const _: () = assert!(align_of::<TaskWork>() > BITS);

/// The outcome of a push.
#[must_use]
pub(super) enum Pushed {
    /// The target has exited; the item was not pushed.
    Exited,
    /// No notification is needed, or one is outstanding.
    Quiet,
    /// The caller must notify the target, and counts as a sender until it has done so.
    Notify { waits: bool },
}

/// See the module.
pub(super) struct State {
    word: AtomicPtr<TaskWork>,
    /// Notifications that are being sent. Incremented before the exchange that makes the caller a
    /// sender.
    senders: AtomicU32,
}

fn item(word: *mut TaskWork) -> *mut TaskWork {
    word.map_addr(|addr| addr & !BITS)
}

fn bits(word: *mut TaskWork) -> usize {
    word.addr() & BITS
}

fn with_bits(item: *mut TaskWork, bits: usize) -> *mut TaskWork {
    item.map_addr(|addr| addr | bits)
}

fn is_exited(word: *mut TaskWork) -> bool {
    word.addr() == EXITED
}

impl State {
    pub(super) fn new() -> State {
        State { word: AtomicPtr::new(std::ptr::null_mut()), senders: AtomicU32::new(0) }
    }

    /// Adds `node`.
    ///
    /// # Safety
    /// `node` is live and the caller's alone; unless the target has exited it belongs to the list from here on.
    #[inline]
    pub(super) unsafe fn push(&self, node: *mut TaskWork, notify: Notify) -> Pushed {
        let set = match notify {
            Notify::None => 0,
            Notify::Resume => RESUME,
            Notify::Signal => SIGNAL,
        };
        let mut now = self.word.load(Ordering::Relaxed);
        let mut counted = false;
        loop {
            if is_exited(now) {
                if counted {
                    self.sent();
                }
                return Pushed::Exited;
            }
            let notifies = set & SIGNAL != 0 && bits(now) & SIGNAL == 0;
            if notifies && !counted {
                // Relaxed: the exchange below publishes it to `close` and `settle`.
                self.senders.fetch_add(1, Ordering::Relaxed);
                counted = true;
            }
            // SAFETY: the node is the caller's alone until the exchange succeeds.
            unsafe { TaskWork::set_next(node, item(now)) };
            let next = with_bits(node, bits(now) | set);
            // Release: the node, the count, and the caller's earlier writes. Acquire: the target's
            // kind of wait.
            match self.word.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if notifies => return Pushed::Notify { waits: bits(now) & WAITS != 0 },
                Ok(_) => {
                    if counted {
                        self.sent();
                    }
                    return Pushed::Quiet;
                }
                Err(other) => now = other,
            }
        }
    }

    /// Ends the caller's time as a sender.
    pub(super) fn sent(&self) {
        // Release: after a thread has seen this, the resources that the sender used may be removed.
        self.senders.fetch_sub(1, Ordering::Release);
    }

    /// A notification could not be sent: none is outstanding, but the target must still check its
    /// list. If the target has detached meanwhile, and a new notification is outstanding, it may
    /// get one more than needed. For a sender.
    pub(super) fn unsent(&self) {
        let mut now = self.word.load(Ordering::Relaxed);
        while !is_exited(now) && bits(now) & SIGNAL != 0 {
            let next = with_bits(item(now), bits(now) & !SIGNAL | RESUME);
            // Relaxed would suffice for the bits; AcqRel puts the exchange into the order that the
            // proof uses.
            match self.word.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
    }

    /// Whether a notification is being sent. Acquire: see [`State::sent`].
    pub(super) fn has_senders(&self) -> bool {
        self.senders.load(Ordering::Acquire) != 0
    }

    /// Whether the target must run its list. For the target.
    #[inline]
    pub(super) fn is_notified(&self) -> bool {
        bits(self.word.load(Ordering::Relaxed)) & (SIGNAL | RESUME) != 0
    }

    /// Declares that the target waits. False if it must run its list instead. For a target that
    /// does not wait yet, or waits in another way from here on.
    #[must_use]
    pub(super) fn declare(&self) -> bool {
        let mut now = self.word.load(Ordering::Relaxed);
        loop {
            if is_exited(now) {
                // No notification will ever come; the target may wait.
                return true;
            }
            if bits(now) & (SIGNAL | RESUME) != 0 {
                return false;
            }
            // Release: the kind of wait. An adder that finds WAITS acquires it.
            match self.word.compare_exchange_weak(
                now,
                with_bits(now, WAITS),
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
    }

    /// Declares that the target does not wait any more. True if it must run its list.
    #[must_use]
    pub(super) fn leave(&self) -> bool {
        let mut now = self.word.load(Ordering::Relaxed);
        // Only the target changes WAITS; a target that has exited has none.
        while bits(now) & WAITS != 0 {
            let next = now.map_addr(|addr| addr & !WAITS);
            match self.word.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        bits(now) & (SIGNAL | RESUME) != 0
    }

    /// Takes all items, last added first, and clears the notification. For the target.
    pub(super) fn detach(&self) -> *mut TaskWork {
        self.empty(WAITS)
    }

    /// Takes all items, last added first; the target must still check its list. For a canceller.
    pub(super) fn steal(&self) -> *mut TaskWork {
        self.empty(BITS)
    }

    fn empty(&self, kept: usize) -> *mut TaskWork {
        let mut now = self.word.load(Ordering::Relaxed);
        loop {
            // Without anything to take, do not write: the cache line stays shared.
            if is_exited(now) || (item(now).is_null() && bits(now) & !kept == 0) {
                return std::ptr::null_mut();
            }
            let next = with_bits(std::ptr::null_mut(), bits(now) & kept);
            // Acquire: the items. Release: an adder that sets SIGNAL again is ordered after this.
            match self.word.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return item(now),
                Err(other) => now = other,
            }
        }
    }

    /// Ends the list: takes all items, last added first; none is added from here on. For the
    /// target.
    pub(super) fn close(&self) -> *mut TaskWork {
        let exited = std::ptr::without_provenance_mut(EXITED);
        // Acquire: the items, and the counts of earlier adders. Release: unpublished resources are
        // visible to later adders.
        let last = self.word.swap(exited, Ordering::AcqRel);
        if is_exited(last) { std::ptr::null_mut() } else { item(last) }
    }

    /// An exchange that changes nothing: it orders each adder before or after it. As `close`.
    pub(super) fn touch(&self) {
        let mut now = self.word.load(Ordering::Relaxed);
        while let Err(other) =
            self.word.compare_exchange_weak(now, now, Ordering::AcqRel, Ordering::Relaxed)
        {
            now = other;
        }
    }

    /// The half of the word that has the bits, for a wait that compares it; `None` if the target
    /// must run its list. For a target that has declared its wait.
    pub(super) fn sleeping(&self) -> Option<u32> {
        let now = self.word.load(Ordering::Relaxed);
        (bits(now) & (SIGNAL | RESUME) == 0).then_some(now.addr() as u32)
    }

    /// The address of that half.
    pub(super) fn half(&self) -> *const u32 {
        low_half(&self.word)
    }
}
