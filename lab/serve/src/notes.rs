//! Bookkeeping entries of requests in flight, whose memory is charged to the server's budget.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::vec::Drain;

use crate::charge::Charge;
use crate::keyspace::{Budget, OutOfMemory};

/// Room for this many entries is always granted, so that a client can still send the commands that
/// free memory when none is left.
const FEW: usize = 16;

/// A list of entries, in order.
///
/// A caller that may add many entries asks for room first. A few entries are added without asking,
/// and charged at once.
#[derive(Debug)]
pub(crate) struct Notes<T> {
    entries: Vec<T>,
    charge: Charge,
}

impl<T> Notes<T> {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self { entries: Vec::new(), charge: Charge::new(budget) }
    }

    /// Makes room for `more` further entries.
    #[inline]
    pub(crate) fn make_room(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let Self { entries, charge } = self;
        let has_room = entries.capacity() - entries.len() >= more;
        if has_room { Ok(()) } else { charge.grow_beyond_first(entries, more, FEW) }
    }

    /// Adds an entry, whether room was made for it or not.
    #[inline]
    pub(crate) fn push(&mut self, entry: T) {
        self.entries.push(entry);
        self.charge.settle(&self.entries);
    }

    /// Bytes charged to the budget.
    pub(crate) fn charged(&self) -> usize {
        self.charge.bytes()
    }

    /// Takes all entries out.
    pub(crate) fn drain(&mut self) -> Drain<'_, T> {
        self.entries.drain(..)
    }

    /// Empties the list, and frees its memory beyond `kept` entries.
    pub(crate) fn clear(&mut self, kept: usize) {
        self.entries.clear();
        self.entries.shrink_to(kept);
        self.charge.settle(&self.entries);
    }
}

impl<T> Deref for Notes<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.entries
    }
}

impl<T> DerefMut for Notes<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_for_many_entries_is_charged_and_released() {
        let budget = Arc::new(Budget::new(1000));
        let mut notes: Notes<u64> = Notes::new(&budget);
        notes.make_room(50).unwrap();
        assert_eq!(budget.used(), 400);
        (0..50).for_each(|entry| notes.push(entry));
        assert_eq!((budget.used(), notes[49]), (400, 49));
        // Not twice the capacity, but enough.
        notes.make_room(60).unwrap();
        assert_eq!(budget.used(), 880);
        assert_eq!(notes.make_room(76), Err(OutOfMemory));
        assert_eq!(budget.used(), 880);
        notes.clear(20);
        assert_eq!(budget.used(), 160);
        drop(notes);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_few_entries_are_charged_without_asking() {
        let budget = Arc::new(Budget::new(1));
        let mut notes: Notes<u64> = Notes::new(&budget);
        notes.make_room(1).unwrap();
        assert_eq!(budget.used(), FEW * 8);
        (0..=FEW as u64).for_each(|entry| notes.push(entry));
        assert!(budget.used() > FEW * 8);
        assert_eq!(notes.make_room(100), Err(OutOfMemory));
    }
}
