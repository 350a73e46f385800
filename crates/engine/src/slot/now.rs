//! The item that a slot runs now, for other threads that ask, and the run's description of itself.
//!
//! The engine makes only a single decision from this: whether a run that an item names is a run of
//! that item (`Slot::is_running_item`). The owner stores the item as it begins a run, between two
//! values of the run word. A reader on any thread that sees the same value before and after has
//! read what belongs to that run:
//!
//! ```text
//! owner                             reader
//! run = n - 1, SECTION              run == n, RUNNING ?       (acquire)
//! item, function   (release)        item, function            (acquire)
//! run = n, RUNNING (release)        run still n, RUNNING ?
//! run = n, SECTION ...
//! ```
//!
//! The first load of `run` means that the reader sees the item of run n, or of a later run. Suppose
//! that it sees the item of a later run. Then the acquire also makes the SECTION before that run
//! visible, and the last load does not find n any more.
//!
//! The item's own function may free the item while it still runs: the values are identities, not
//! pointers to follow.

use crate::words::item::Work;
use crate::words::sync::{Hint, Lock, LockGuard};

/// The greatest length of a description, in bytes (the kernel's 32, with its final NUL).
pub const DESCRIPTION_MAX: usize = 31;

/// The item and the function of the current or last run. Written by the slot's owner.
pub(super) struct Now {
    item: Hint,
    func: Hint,
}

impl Now {
    pub(super) fn new() -> Now {
        Now { item: Hint::new(0), func: Hint::new(0) }
    }

    /// Owner, before it stores that the run is on.
    #[inline(always)]
    pub(super) fn set(&self, item: *const Work, func: usize) {
        self.item.set(item.addr());
        self.func.set(func);
    }

    /// Whether the current or last run is one of `item`.
    pub(super) fn is_about(&self, item: *const Work) -> bool {
        self.item.get() == item.addr()
    }

    pub(super) fn get(&self) -> Running {
        Running { item: self.item.get(), func: self.func.get() }
    }
}

/// An item that runs, as identities only: it may be freed already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// The item's address.
    pub item: usize,
    /// Its function, as an identity.
    pub func: usize,
}

/// A run's description of itself.
pub(super) struct Description(Lock<Text>);

struct Text {
    /// The run that gave the description; `u64::MAX`, which is no run's number, if none did.
    run: u64,
    len: usize,
    bytes: [u8; DESCRIPTION_MAX],
}

/// A description, locked.
pub(crate) struct HeldDescription<'a>(#[expect(dead_code, reason = "held")] LockGuard<'a, Text>);

impl Description {
    pub(super) fn new() -> Description {
        Description(Lock::new(Text { run: u64::MAX, len: 0, bytes: [0; DESCRIPTION_MAX] }))
    }

    /// Locks the description.
    pub(super) fn hold(&self) -> HeldDescription<'_> {
        HeldDescription(self.0.lock())
    }

    /// Keeps as much of `text` as fits, cut between two characters.
    pub(super) fn set(&self, run: u64, text: &str) {
        let fits = |end: &usize| text.is_char_boundary(*end);
        let end = (0..=text.len().min(DESCRIPTION_MAX)).rev().find(fits).unwrap_or(0);
        let cut = &text[..end];
        let mut kept = self.0.lock();
        kept.run = run;
        kept.len = cut.len();
        kept.bytes[..cut.len()].copy_from_slice(cut.as_bytes());
    }

    /// The description that `run` gave, if it gave one.
    pub(super) fn get(&self, run: u64) -> Option<String> {
        let (len, bytes) = {
            let kept = self.0.lock();
            (kept.run == run).then_some((kept.len, kept.bytes))?
        };
        // The text was cut between characters, so nothing is lost here.
        Some(String::from_utf8_lossy(&bytes[..len]).into_owned())
    }
}
