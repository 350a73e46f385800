//! The keys and values that one thread owns.
//!
//! Plain data: locks and messages between threads are the caller's. The caller passes the time, in
//! milliseconds of any clock. Threads may pass times that differ a little: a key that was removed as
//! expired does not come back at an earlier time.

mod budget;
mod entry;
mod expiry;

pub use budget::Budget;

use std::sync::Arc;

use hashbrown::HashTable;

use entry::Entry;
use expiry::Deadlines;

/// The budget has no memory left for the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

/// When a key expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// Never.
    Never,
    /// At this time, in milliseconds.
    At(u64),
}

/// The condition on the key's existence under which `set` sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    Always,
    /// Only if the key does not exist.
    Absent,
    /// Only if the key exists.
    Present,
}

/// The keys of one thread.
#[derive(Debug)]
pub struct Keyspace {
    table: HashTable<Entry>,
    deadlines: Deadlines,
    budget: Arc<Budget>,
    /// Bytes taken from the budget for the table itself.
    table_bytes: usize,
    /// Bytes taken from the budget for the entries.
    entry_bytes: usize,
    /// Bytes taken from the budget for the deadlines.
    deadline_bytes: usize,
}

impl Keyspace {
    /// An empty keyspace.
    pub fn new(budget: Arc<Budget>) -> Self {
        let (table, deadlines) = (HashTable::new(), Deadlines::default());
        Self { table, deadlines, budget, table_bytes: 0, entry_bytes: 0, deadline_bytes: 0 }
    }

    /// The number of keys, including expired keys that are not removed yet.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The number of keys that have a deadline.
    pub fn expiring(&self) -> usize {
        self.deadlines.live()
    }

    /// The key's value.
    #[inline]
    pub fn get(&mut self, hash: u64, key: &[u8], now: u64) -> Option<&[u8]> {
        self.find(hash, key, now).map(|entry| entry.value())
    }

    /// Sets the key's value and expiry if the condition holds; returns whether it held.
    ///
    /// # Errors
    /// There is no memory left; nothing has changed.
    pub fn set(
        &mut self,
        (hash, key): (u64, &[u8]),
        value: &[u8],
        expiry: Expiry,
        condition: Condition,
        now: u64,
    ) -> Result<bool, OutOfMemory> {
        let Self { table, deadlines, budget, entry_bytes, .. } = self;
        let Some(entry) = table.find_mut(hash, |entry| entry.is(hash, key)) else {
            return self.insert(hash, key, value, expiry, condition);
        };
        let holds = match condition {
            Condition::Always => true,
            Condition::Absent => entry.has_expired(now),
            Condition::Present => !entry.has_expired(now),
        };
        if !holds {
            return Ok(false);
        }
        replace(entry, value, budget, entry_bytes)?;
        deadlines.change(hash, &mut entry.expiry, expiry);
        self.tidy_deadlines();
        Ok(true)
    }

    /// Adds to the key's value, which must be a number. A missing key counts as 0.
    ///
    /// The expiry does not change.
    ///
    /// # Errors
    /// The value is not a number, the sum overflows, or there is no memory left; nothing has
    /// changed.
    pub fn add(
        &mut self,
        (hash, key): (u64, &[u8]),
        summand: i64,
        now: u64,
    ) -> Result<i64, AddError> {
        use crate::resp::number;

        let value = match self.get(hash, key, now) {
            Some(text) => number::parse(text).ok_or(AddError::NotANumber)?,
            None => 0,
        };
        let sum = value.checked_add(summand).ok_or(AddError::Overflow)?;
        let digits = number::Digits::of(sum);
        let text = digits.as_bytes();
        let Self { table, budget, entry_bytes, .. } = self;
        let outcome = match table.find_mut(hash, |entry| entry.is(hash, key)) {
            Some(entry) => replace(entry, text, budget, entry_bytes),
            None => self.insert(hash, key, text, Expiry::Never, Condition::Always).map(|_| ()),
        };
        outcome.map(|()| sum).map_err(|OutOfMemory| AddError::OutOfMemory)
    }

    /// Removes the key; returns whether it existed.
    pub fn remove(&mut self, hash: u64, key: &[u8], now: u64) -> bool {
        let live = self.find(hash, key, now).is_some();
        if live {
            self.take(hash, |entry| entry.is(hash, key));
        }
        live
    }

    /// When the key expires.
    pub fn expiry(&mut self, hash: u64, key: &[u8], now: u64) -> Option<Expiry> {
        self.find(hash, key, now).map(|entry| entry.expiry)
    }

    /// Changes when the key expires; returns whether the key exists.
    pub fn set_expiry(&mut self, (hash, key): (u64, &[u8]), expiry: Expiry, now: u64) -> bool {
        if self.find(hash, key, now).is_none() {
            return false;
        }
        let Self { table, deadlines, .. } = self;
        if let Some(entry) = table.find_mut(hash, |entry| entry.is(hash, key)) {
            deadlines.change(hash, &mut entry.expiry, expiry);
        }
        self.tidy_deadlines();
        true
    }

    /// Removes up to `most` expired keys. Returns the time of the next deadline, if there is one.
    pub fn expire(&mut self, now: u64, most: usize) -> Option<u64> {
        for _ in 0..most {
            match self.deadlines.due(now)? {
                Ok(hash) => self.take(hash, |entry| entry.hash == hash && entry.has_expired(now)),
                Err(next) => return Some(next),
            }
        }
        self.deadlines.next()
    }

    /// A time at or before the next expiry, if any key will expire.
    pub fn next_expiry(&self) -> Option<u64> {
        self.deadlines.next()
    }

    /// Takes all keys out. Their memory returns to the budget when the result is dropped, on any
    /// thread.
    pub fn clear(&mut self) -> Keyspace {
        let budget = Arc::clone(&self.budget);
        std::mem::replace(self, Keyspace::new(budget))
    }

    /// The key's entry. Removes the entry and returns `None` if it has expired.
    #[inline]
    fn find(&mut self, hash: u64, key: &[u8], now: u64) -> Option<&Entry> {
        // The second lookup happens only if the entry has expired. One lookup would not pass the
        // borrow checker: a borrow that is returned on one path extends over all paths.
        match self.table.find(hash, |entry| entry.is(hash, key)) {
            Some(entry) if !entry.has_expired(now) => {}
            Some(_) => {
                self.take(hash, |entry| entry.is(hash, key));
                return None;
            }
            None => return None,
        }
        self.table.find(hash, |entry| entry.is(hash, key))
    }

    fn take(&mut self, hash: u64, is_it: impl FnMut(&Entry) -> bool) {
        let Ok(found) = self.table.find_entry(hash, is_it) else { return };
        let (mut entry, _) = found.remove();
        self.deadlines.change(hash, &mut entry.expiry, Expiry::Never);
        self.entry_bytes -= entry.bytes();
        self.budget.give(entry.bytes());
        self.tidy_deadlines();
    }

    fn insert(
        &mut self,
        hash: u64,
        key: &[u8],
        value: &[u8],
        expiry: Expiry,
        condition: Condition,
    ) -> Result<bool, OutOfMemory> {
        if condition == Condition::Present {
            return Ok(false);
        }
        let bytes = Entry::bytes_of(key.len(), value.len());
        if !self.budget.take(bytes) {
            return Err(OutOfMemory);
        }
        if self.table.len() == self.table.capacity() && self.grow().is_err() {
            self.budget.give(bytes);
            return Err(OutOfMemory);
        }
        let mut entry = Entry::new(hash, key, value);
        debug_assert_eq!(entry.bytes(), bytes);
        self.deadlines.change(hash, &mut entry.expiry, expiry);
        self.table.insert_unique(hash, entry, |entry| entry.hash);
        self.entry_bytes += bytes;
        self.tidy_deadlines();
        Ok(true)
    }

    /// Doubles the capacity of the table. Both tables are charged while the entries move.
    fn grow(&mut self) -> Result<(), OutOfMemory> {
        const ENTRIES_FIRST: usize = 64;
        let wanted = (self.table.capacity() * 2).max(ENTRIES_FIRST);
        // An upper bound: the bucket count is a power of two of at least 8/7 of the capacity, with
        // one control byte per bucket.
        let most = (wanted * 8 / 7 + 1).next_power_of_two() * (size_of::<Entry>() + 1) + 64;
        if !self.budget.take(most) {
            return Err(OutOfMemory);
        }
        self.table.reserve(wanted - self.table.len(), |entry| entry.hash);
        self.budget.give(most + self.table_bytes);
        self.table_bytes = self.table.allocation_size();
        self.budget.force(self.table_bytes);
        Ok(())
    }

    /// Removes the stale deadlines of keys that were set again, once there are too many.
    fn tidy_deadlines(&mut self) {
        let Self { table, deadlines, budget, deadline_bytes, .. } = self;
        if deadlines.has_too_many_stale() {
            deadlines.forget_stale(|time, hash| {
                let waits = |entry: &Entry| entry.hash == hash && entry.expiry == Expiry::At(time);
                table.find(hash, waits).is_some()
            });
        }
        if deadlines.bytes() != *deadline_bytes {
            budget.give(*deadline_bytes);
            *deadline_bytes = deadlines.bytes();
            budget.force(*deadline_bytes);
        }
    }
}

impl Drop for Keyspace {
    fn drop(&mut self) {
        self.table.clear();
        self.table.shrink_to(0, |entry| entry.hash);
        self.budget.give(self.table_bytes + self.entry_bytes + self.deadline_bytes);
    }
}

fn replace(
    entry: &mut Entry,
    value: &[u8],
    budget: &Budget,
    entry_bytes: &mut usize,
) -> Result<(), OutOfMemory> {
    if entry.set_in_place(value) {
        return Ok(());
    }
    let (before, after) = (entry.bytes(), Entry::bytes_of(entry.key_len(), value.len()));
    // The old allocation lives until the new one is filled. This short overlap is not charged.
    if after > before && !budget.take(after - before) {
        return Err(OutOfMemory);
    }
    if before > after {
        budget.give(before - after);
    }
    entry.set_anew(value);
    *entry_bytes = *entry_bytes - before + after;
    Ok(())
}

/// Why `add` failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// The value is not a number.
    NotANumber,
    /// The sum does not fit into an `i64`.
    Overflow,
    /// There is no memory left.
    OutOfMemory,
}
