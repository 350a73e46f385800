//! A key and its value, in one piece of memory.

use super::Expiry;

/// What an allocation costs beyond its size.
const ALLOCATION: usize = 16;
/// A value that takes less than this part of its room moves to a smaller one.
const ROOM_USED_MIN: usize = 4;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) hash: u64,
    pub(super) expiry: Expiry,
    key_len: u32,
    /// The key, and behind it the value.
    data: Vec<u8>,
}

impl Entry {
    /// # Panics
    /// The key is larger than 4 GiB; requests are limited to less.
    pub(super) fn new(hash: u64, key: &[u8], value: &[u8]) -> Self {
        let key_len = u32::try_from(key.len()).expect("a key is below 4 GiB");
        let mut data = Vec::with_capacity(room(key.len(), value.len()));
        data.extend_from_slice(key);
        data.extend_from_slice(value);
        Self { hash, expiry: Expiry::Never, key_len, data }
    }

    #[inline]
    pub(super) fn is(&self, hash: u64, key: &[u8]) -> bool {
        self.hash == hash && &self.data[..self.key_len()] == key
    }

    #[inline]
    pub(super) fn has_expired(&self, now: u64) -> bool {
        matches!(self.expiry, Expiry::At(time) if time <= now)
    }

    pub(super) fn key_len(&self) -> usize {
        self.key_len as usize
    }

    #[inline]
    pub(super) fn value(&self) -> &[u8] {
        &self.data[self.key_len()..]
    }

    /// Sets the value where the room fits it.
    pub(super) fn set_in_place(&mut self, value: &[u8]) -> bool {
        let wanted = room(self.key_len(), value.len());
        let fits = wanted <= self.data.capacity();
        let wastes = wanted < self.data.capacity() / ROOM_USED_MIN;
        if !fits || wastes {
            return false;
        }
        self.data.truncate(self.key_len());
        self.data.extend_from_slice(value);
        true
    }

    /// Sets the value in a room of its own size.
    pub(super) fn set_anew(&mut self, value: &[u8]) {
        let mut data = Vec::with_capacity(room(self.key_len(), value.len()));
        data.extend_from_slice(&self.data[..self.key_len()]);
        data.extend_from_slice(value);
        self.data = data;
    }

    /// What it takes in memory, apart from its place in the table.
    pub(super) fn bytes(&self) -> usize {
        self.data.capacity() + ALLOCATION
    }

    /// What a new one will take.
    pub(super) fn bytes_of(key_len: usize, value_len: usize) -> usize {
        room(key_len, value_len) + ALLOCATION
    }
}

/// In steps in which memory is handed out, so that a slightly longer value stays where it is.
fn room(key_len: usize, value_len: usize) -> usize {
    (key_len + value_len).next_multiple_of(16).max(16)
}
