//! Byte buffers whose memory is charged to the server's budget.

use std::sync::Arc;

use crate::charge::Charge;
use crate::keyspace::{Budget, OutOfMemory};

/// A buffer with more capacity than this is freed after use instead of being kept for the next use.
const KEPT_MAX: usize = 64 * 1024;
/// The first capacity of a buffer.
const FIRST: usize = 4 * 1024;
/// An upper bound for a reply without a value: an error, a number, a digest.
const LINE: usize = 128;

/// Bytes to receive, to send or to hand over.
///
/// A caller that may append many bytes asks for room first. A few bytes are appended without
/// asking, and charged when the buffer is settled.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    charge: Charge,
}

impl Buffer {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self { bytes: Vec::new(), charge: Charge::new(budget) }
    }

    /// Makes room for `more` bytes beyond the current length.
    #[inline]
    pub(crate) fn make_room(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let Self { bytes, charge } = self;
        if has_room(bytes, more) { Ok(()) } else { charge.grow(bytes, more, FIRST) }
    }

    /// Makes room for `least` bytes in total, or for `wanted` (which may be more) if there is
    /// memory for it.
    pub(crate) fn make_room_of(&mut self, least: usize, wanted: usize) -> Result<(), OutOfMemory> {
        let Self { bytes, charge } = self;
        if bytes.capacity() >= least {
            return Ok(());
        }
        charge.grow_to(bytes, least, wanted.max(FIRST))
    }

    /// Makes room for a reply without a value.
    #[inline]
    pub(crate) fn make_room_for_line(&mut self) -> Result<(), OutOfMemory> {
        self.make_room_for(LINE)
    }

    /// As `make_room`, but the first allocation of a buffer always succeeds and is charged even
    /// beyond the limit. So a client can still send the commands that free memory when none is
    /// left.
    #[inline]
    pub(crate) fn make_room_for(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let Self { bytes, charge } = self;
        if has_room(bytes, more) { Ok(()) } else { charge.grow_beyond_first(bytes, more, FIRST) }
    }

    /// Appends any number of bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), OutOfMemory> {
        self.make_room(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends a requested value. The first allocation of a buffer always succeeds, as in
    /// `make_room_for`.
    pub(crate) fn append_reply(&mut self, bytes: &[u8]) -> Result<(), OutOfMemory> {
        self.make_room_for(bytes.len())?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Charges memory that was allocated without asking.
    #[inline]
    pub(crate) fn settle(&mut self) {
        self.charge.settle(&self.bytes);
    }

    /// Empties the buffer; returns whether it is small enough to be kept.
    pub(crate) fn clear(&mut self) -> bool {
        self.bytes.clear();
        self.settle();
        (1..=KEPT_MAX).contains(&self.charge.bytes())
    }

    /// Empties the buffer, and frees its memory if it is larger than a buffer that is kept.
    pub(crate) fn clear_or_free(&mut self) {
        if !self.clear() {
            self.bytes = Vec::new();
            self.settle();
        }
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        self.charge.budget()
    }

    /// Bytes charged to the budget.
    pub(crate) fn charged(&self) -> usize {
        self.charge.bytes()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

#[inline]
fn has_room(bytes: &Vec<u8>, more: usize) -> bool {
    bytes.capacity() - bytes.len() >= more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_charged_and_released() {
        let budget = Arc::new(Budget::new(10_000));
        let mut buffer = Buffer::new(&budget);
        buffer.append(&[1; 3_000]).unwrap();
        assert_eq!(budget.used(), FIRST);
        buffer.append(&[1; 3_000]).unwrap();
        assert_eq!(budget.used(), 2 * FIRST);
        assert_eq!(buffer.append(&[1; 5_000]), Err(OutOfMemory));
        assert_eq!(buffer.len(), 6_000);
        // Not twice the capacity, but enough.
        buffer.append(&[1; 3_500]).unwrap();
        assert_eq!(budget.used(), 9_500);
        drop(buffer);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn bytes_appended_without_asking_are_charged_when_settled() {
        let budget = Arc::new(Budget::new(10));
        let mut buffer = Buffer::new(&budget);
        buffer.bytes.extend_from_slice(&[0; 100]);
        buffer.settle();
        assert!(budget.used() >= 100);
        buffer.clear_or_free();
        drop(buffer);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn lines_ask_for_room_once_they_are_many() {
        let budget = Arc::new(Budget::new(1));
        let mut buffer = Buffer::new(&budget);
        while buffer.make_room_for_line().is_ok() {
            buffer.bytes.extend_from_slice(&[b'-'; LINE]);
        }
        assert_eq!((buffer.len(), budget.used()), (FIRST, FIRST));
    }
}
