//! The charge of one vector to the server's budget, and the growth of a vector within the budget.

use std::sync::Arc;

use crate::keyspace::{Budget, OutOfMemory};

/// The charge of one vector; released on drop.
#[derive(Debug)]
pub(crate) struct Charge {
    bytes: usize,
    budget: Arc<Budget>,
}

impl Charge {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self { bytes: 0, budget: Arc::clone(budget) }
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes room for `more` further entries, and for at least `first` entries in total.
    #[cold]
    pub(crate) fn grow<T>(
        &mut self,
        entries: &mut Vec<T>,
        more: usize,
        first: usize,
    ) -> Result<(), OutOfMemory> {
        let least = entries.len() + more;
        // Doubling bounds the number of copies.
        self.grow_to(entries, least, (entries.capacity() * 2).max(first))
    }

    /// Makes room for `wanted` entries in total, or, if memory is short, for just enough entries.
    #[cold]
    pub(crate) fn grow_to<T>(
        &mut self,
        entries: &mut Vec<T>,
        least: usize,
        wanted: usize,
    ) -> Result<(), OutOfMemory> {
        self.settle(entries);
        for capacity in [least.max(wanted), least] {
            let added = capacity * size_of::<T>() - self.bytes;
            if self.budget.take(added) {
                self.bytes += added;
                entries.reserve_exact(capacity - entries.len());
                self.settle(entries);
                return Ok(());
            }
        }
        Err(OutOfMemory)
    }

    /// As `grow`, but the first `first` entries always succeed and are charged even beyond the
    /// limit. So a client can still send the commands that free memory when none is left.
    #[cold]
    pub(crate) fn grow_beyond_first<T>(
        &mut self,
        entries: &mut Vec<T>,
        more: usize,
        first: usize,
    ) -> Result<(), OutOfMemory> {
        if entries.len() + more > first {
            return self.grow(entries, more, first);
        }
        entries.reserve_exact(first - entries.len());
        self.settle(entries);
        Ok(())
    }

    /// Charges everything that is allocated, including allocations made without asking.
    #[inline]
    pub(crate) fn settle<T>(&mut self, entries: &Vec<T>) {
        let bytes = entries.capacity() * size_of::<T>();
        if bytes != self.bytes {
            self.budget.give(self.bytes);
            self.bytes = bytes;
            self.budget.force(bytes);
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}
