//! Notes on requests that are under way, whose memory is taken from the server's budget.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::vec::Drain;

use crate::charge::Charge;
use crate::keyspace::{Budget, OutOfMemory};

/// Room for so many is had without asking, so that what makes room can be asked for where none is left.
const FEW: usize = 16;

/// Entries, one behind the other.
///
/// Whoever may add many asks for room first; a few are added at once, and charged.
#[derive(Debug)]
pub(crate) struct Notes<T> {
    entries: Vec<T>,
    charge: Charge,
}

impl<T> Notes<T> {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self { entries: Vec::new(), charge: Charge::new(budget) }
    }

    /// Makes room for so many entries more.
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

    /// Bytes that it has taken from the budget.
    pub(crate) fn charged(&self) -> usize {
        self.charge.bytes()
    }

    /// Takes all entries out.
    pub(crate) fn drain(&mut self) -> Drain<'_, T> {
        self.entries.drain(..)
    }

    /// Empties it, and gives the memory back for all but so many entries.
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
    fn many_are_charged_when_there_is_room_for_them_and_given_back() {
        let budget = Arc::new(Budget::new(1000));
        let mut notes: Notes<u64> = Notes::new(&budget);
        notes.make_room(50).unwrap();
        assert_eq!(budget.used(), 400);
        (0..50).for_each(|entry| notes.push(entry));
        assert_eq!((budget.used(), notes[49]), (400, 49));
        // Not twice as many, but enough.
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
    fn a_few_are_charged_without_being_asked_for() {
        let budget = Arc::new(Budget::new(1));
        let mut notes: Notes<u64> = Notes::new(&budget);
        notes.make_room(1).unwrap();
        assert_eq!(budget.used(), FEW * 8);
        (0..=FEW as u64).for_each(|entry| notes.push(entry));
        assert!(budget.used() > FEW * 8);
        assert_eq!(notes.make_room(100), Err(OutOfMemory));
    }
}
