//! A key and its value in one allocation.

use super::Expiry;

/// The estimated overhead of an allocation, in bytes.
const ALLOCATION: usize = 16;
/// A value moves to a smaller allocation if it needs less than 1 / `ROOM_USED_MIN` of the current
/// allocation.
const ROOM_USED_MIN: usize = 4;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) hash: u64,
    pub(super) expiry: Expiry,
    key_len: u32,
    /// The key, followed by the value.
    data: Vec<u8>,
}

impl Entry {
    /// # Panics
    /// The key is larger than 4 GiB; the server limits requests to less.
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

    /// Replaces the value if the existing allocation fits it; returns whether it does.
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

    /// Replaces the value in a new allocation of its own size.
    pub(super) fn set_anew(&mut self, value: &[u8]) {
        let mut data = Vec::with_capacity(room(self.key_len(), value.len()));
        data.extend_from_slice(&self.data[..self.key_len()]);
        data.extend_from_slice(value);
        self.data = data;
    }

    /// The memory of the entry in bytes, without its slot in the table.
    pub(super) fn bytes(&self) -> usize {
        self.data.capacity() + ALLOCATION
    }

    /// The memory that a new entry will take.
    pub(super) fn bytes_of(key_len: usize, value_len: usize) -> usize {
        room(key_len, value_len) + ALLOCATION
    }
}

/// The size rounded up to the allocator's steps, so that a slightly longer value stays in place.
fn room(key_len: usize, value_len: usize) -> usize {
    (key_len + value_len).next_multiple_of(16).max(16)
}
