//! A target's word: the stack of what was added, whether a notification is outstanding, whether the target waits.
//!
//! The table of its states, and why its transitions lose nothing, is in the README.

use super::item::TaskWork;
use crate::sync::{AtomicPtr, AtomicU32, Ordering, low_half};

/// How a target learns that an item was added for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// Not at all: the item runs when the target runs its list.
    None,
    /// At its next safe point. Nobody is woken.
    Resume,
    /// At once: its wait ends, whatever it is, and it runs its list.
    Signal,
}

const SIGNAL: usize = 1;
const RESUME: usize = 2;
const WAITS: usize = 4;
const BITS: usize = SIGNAL | RESUME | WAITS;
/// Where no item can be, with no bit set: an exited target is neither told of anything nor waits.
const EXITED: usize = !BITS;
/// Those of the bits that say that the target is to run its list.
pub(super) const NOTIFIED: u32 = (SIGNAL | RESUME) as u32;

const _: () = assert!(align_of::<TaskWork>() > BITS);

/// What became of an item that was to be pushed.
#[must_use]
pub(super) enum Pushed {
    /// The target has exited: it was not.
    Exited,
    /// Nobody needs to be told, or has been told already.
    Quiet,
    /// The target is to be told, by the caller, which counts as a sender until it has done so.
    Tell { waits: bool },
}

/// See the module.
pub(super) struct State {
    word: AtomicPtr<TaskWork>,
    /// Notifications that are being sent. Raised before the exchange that makes the caller a sender.
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
            let tells = set & SIGNAL != 0 && bits(now) & SIGNAL == 0;
            if tells && !counted {
                // Relaxed: the exchange below publishes it to `close` and `settle`.
                self.senders.fetch_add(1, Ordering::Relaxed);
                counted = true;
            }
            // SAFETY: the node is the caller's alone until the exchange succeeds.
            unsafe { TaskWork::set_next(node, item(now)) };
            let next = with_bits(node, bits(now) | set);
            // Release: the node, the count, and what the caller wrote. Acquire: how the target waits.
            match self.word.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if tells => return Pushed::Tell { waits: bits(now) & WAITS != 0 },
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

    /// A sender is done.
    pub(super) fn sent(&self) {
        // Release: what it used may go away once this was seen.
        self.senders.fetch_sub(1, Ordering::Release);
    }

    /// A notification could not be sent: none is outstanding, though the target is still to look. If the target has
    /// looked meanwhile, and was told anew, it may be told once more than needed. For a sender.
    pub(super) fn unsent(&self) {
        let mut now = self.word.load(Ordering::Relaxed);
        while !is_exited(now) && bits(now) & SIGNAL != 0 {
            let next = with_bits(item(now), bits(now) & !SIGNAL | RESUME);
            // Relaxed would do for the bits; the exchange stands in the order of those that the proof is about.
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

    /// Whether the target is to run its list. For the target.
    #[inline]
    pub(super) fn is_notified(&self) -> bool {
        bits(self.word.load(Ordering::Relaxed)) & (SIGNAL | RESUME) != 0
    }

    /// Says that the target waits. False if it had better run its list. For the target, which does not wait yet, or
    /// from here on in another way.
    #[must_use]
    pub(super) fn declare(&self) -> bool {
        let mut now = self.word.load(Ordering::Relaxed);
        loop {
            if is_exited(now) {
                // Nobody will ever tell it anything; it may wait.
                return true;
            }
            if bits(now) & (SIGNAL | RESUME) != 0 {
                return false;
            }
            // Release: how it waits. An adder that finds WAITS acquires it.
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

    /// Says that the target does not wait any more, if it does. True if it is to run its list.
    #[must_use]
    pub(super) fn leave(&self) -> bool {
        let mut now = self.word.load(Ordering::Relaxed);
        // WAITS is the target's own to change; a target that has exited has none.
        while bits(now) & WAITS != 0 {
            let next = now.map_addr(|addr| addr & !WAITS);
            match self.word.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => break,
                Err(other) => now = other,
            }
        }
        bits(now) & (SIGNAL | RESUME) != 0
    }

    /// Takes everything, last added first, and with it what the target was told. For the target.
    pub(super) fn detach(&self) -> *mut TaskWork {
        self.empty(WAITS)
    }

    /// Takes everything, last added first; the target is still to look. For who cancels.
    pub(super) fn steal(&self) -> *mut TaskWork {
        self.empty(BITS)
    }

    fn empty(&self, kept: usize) -> *mut TaskWork {
        let mut now = self.word.load(Ordering::Relaxed);
        loop {
            // A look that finds nothing to take leaves the line where it is.
            if is_exited(now) || (item(now).is_null() && bits(now) & !kept == 0) {
                return std::ptr::null_mut();
            }
            let next = with_bits(std::ptr::null_mut(), bits(now) & kept);
            // Acquire: the items. Release: an adder that turns SIGNAL on again is ordered after this.
            match self.word.compare_exchange_weak(now, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return item(now),
                Err(other) => now = other,
            }
        }
    }

    /// Ends the list: takes everything, last added first, and from here on nothing is added. For the target.
    pub(super) fn close(&self) -> *mut TaskWork {
        let exited = std::ptr::without_provenance_mut(EXITED);
        // Acquire: the items, and the counts of those that came before. Release: what is unpublished for those that
        // come later.
        let last = self.word.swap(exited, Ordering::AcqRel);
        if is_exited(last) { std::ptr::null_mut() } else { item(last) }
    }

    /// An exchange that changes nothing: who adds is ordered before it or after it. As `close`.
    pub(super) fn touch(&self) {
        let mut now = self.word.load(Ordering::Relaxed);
        while let Err(other) =
            self.word.compare_exchange_weak(now, now, Ordering::AcqRel, Ordering::Relaxed)
        {
            now = other;
        }
    }

    /// The half of the word that has the bits, for a wait that compares it; `None` if the target is to run its
    /// list. For the target, which has declared that it waits.
    pub(super) fn sleeping(&self) -> Option<u32> {
        let now = self.word.load(Ordering::Relaxed);
        (bits(now) & (SIGNAL | RESUME) == 0).then_some(now.addr() as u32)
    }

    /// Where that half is.
    pub(super) fn half(&self) -> *const u32 {
        low_half(&self.word)
    }
}
