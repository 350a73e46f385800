//! The ring through which the kernel passes the records of one thread (perf_event_open(2)).
//!
//! If a record does not fit, the kernel drops it, and reports the loss with the next record that
//! fits. A thread that sleeps for good has no next record: so a ring that was full counts as one
//! that has lost a record.

use std::io::{Error, ErrorKind};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use perf_event_open_sys::bindings::{PERF_RECORD_LOST, PERF_RECORD_SWITCH, perf_event_mmap_page};

/// A header alone.
const HEADER: u64 = 8;
/// A header and a time: the requested records.
const SWITCH: u64 = 16;
/// The record of a loss, which precedes the next one that fits.
const LOST: u64 = 32;

/// A record of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The thread has left a CPU or got one, depending on the flags, at this time.
    Switch { misc: u32, at_ns: u64 },
    /// Some records are missing here, or may be.
    Lost,
}

/// The mapped page of control and page of records.
pub(super) struct Ring {
    at: NonNull<u8>,
    page: usize,
}

// SAFETY: a mapping of the whole process; only the owner of the records uses it.
unsafe impl Send for Ring {}

impl Ring {
    pub(super) fn map(file: RawFd) -> Result<Ring, Error> {
        // SAFETY: no pointers.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })
            .map_err(|_| Error::from(ErrorKind::Unsupported))?;
        // SAFETY: a new mapping of a file that is open; the kernel chooses where.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(|| Error::from(ErrorKind::OutOfMemory))?;
        Ok(Ring { at, page })
    }

    fn control(&self) -> *const perf_event_mmap_page {
        self.at.as_ptr().cast_const().cast()
    }

    /// A position in the control page, shared with the kernel.
    fn position(&self, field: *const u64) -> &AtomicU64 {
        // SAFETY: an aligned field of the mapped control page, which lives as long as the ring, and
        // is used by both sides with atomic accesses only.
        unsafe { AtomicU64::from_ptr(field.cast_mut()) }
    }

    /// How far the kernel has written.
    fn head(&self) -> &AtomicU64 {
        // SAFETY: within the mapped page; no reference is made.
        self.position(unsafe { &raw const (*self.control()).data_head })
    }

    /// How far this side has read.
    fn tail(&self) -> &AtomicU64 {
        // SAFETY: within the mapped page; no reference is made.
        self.position(unsafe { &raw const (*self.control()).data_tail })
    }

    /// Whether the kernel has written nothing since the last read.
    pub(super) fn is_empty(&self) -> bool {
        self.head().load(Ordering::Relaxed) == self.tail().load(Ordering::Relaxed)
    }

    /// Reads the records since the last call.
    pub(super) fn read(&mut self, mut each: impl FnMut(Record)) {
        let mut from = self.tail().load(Ordering::Relaxed);
        loop {
            // Acquire: the records up to there are written (the kernel's release is in
            // perf_output_put_handle).
            let head = self.head().load(Ordering::Acquire);
            if head == from {
                return;
            }
            self.parse(from, head, &mut each);
            // No room was left for one more record together with the record of a loss before it.
            if head.wrapping_sub(from) + LOST + SWITCH >= self.page as u64 {
                each(Record::Lost);
            }
            // Release: these reads precede the kernel's later writes to the same bytes.
            self.tail().store(head, Ordering::Release);
            // The kernel may drop records until it sees the new tail, but only after it has filled
            // the ring; the next round must detect that. Here the tail is stored before the head is
            // loaded; the kernel, which switches threads in between, stores the head before it
            // loads the tail. So one side sees the other's store.
            fence(Ordering::SeqCst);
            from = head;
        }
    }

    fn parse(&self, mut from: u64, head: u64, each: &mut impl FnMut(Record)) {
        while from != head {
            let header = self.word(from);
            let (kind, misc) = (header as u32, (header >> 32) as u32 & 0xffff);
            let (size, left) = (header >> 48, head.wrapping_sub(from));
            let smallest = if kind == PERF_RECORD_SWITCH { SWITCH } else { HEADER };
            if !(smallest..=left).contains(&size) {
                // The kernel never writes such a size; the rest cannot be parsed.
                return each(Record::Lost);
            }
            match kind {
                PERF_RECORD_SWITCH => {
                    each(Record::Switch { misc, at_ns: self.word(from.wrapping_add(HEADER)) });
                }
                PERF_RECORD_LOST => each(Record::Lost),
                _ => {}
            }
            from = from.wrapping_add(size);
        }
    }

    /// Eight bytes of a record. Records begin at multiples of eight, so a wrap never splits these
    /// bytes.
    fn word(&self, position: u64) -> u64 {
        let at = (position as usize % self.page) & !7;
        // SAFETY: within the page of records, aligned, and not written by the kernel before it is
        // released.
        unsafe { self.at.add(self.page + at).cast::<u64>().read_volatile() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this ring's own mapping, of this length, no longer used.
        unsafe { libc::munmap(self.at.as_ptr().cast(), 2 * self.page) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring that a test writes.
    struct Written(Ring);

    impl Written {
        /// An empty ring with head and tail at this position.
        fn at(position: u64) -> Written {
            // SAFETY: no pointers.
            let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: a new mapping; the kernel chooses where.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), 2 * page, protection, kind, -1, 0) };
            assert_ne!(at, libc::MAP_FAILED);
            let ring = Ring { at: NonNull::new(at.cast()).unwrap(), page };
            ring.head().store(position, Ordering::Relaxed);
            ring.tail().store(position, Ordering::Relaxed);
            Written(ring)
        }

        fn write(&self, word: u64) {
            let head = self.0.head().load(Ordering::Relaxed);
            let at = self.0.page + head as usize % self.0.page;
            // SAFETY: within the page of records, aligned.
            unsafe { self.0.at.add(at).cast::<u64>().write(word) };
            self.0.head().store(head.wrapping_add(8), Ordering::Release);
        }

        /// A well-formed record with this body.
        fn record(&self, kind: u32, misc: u16, body: &[u64]) {
            let size = 8 + 8 * body.len() as u64;
            self.write(u64::from(kind) | u64::from(misc) << 32 | size << 48);
            body.iter().for_each(|&word| self.write(word));
        }

        fn switch(&self, at_ns: u64) {
            self.record(PERF_RECORD_SWITCH, at_ns as u16, &[at_ns]);
        }

        fn read(&mut self) -> Vec<Record> {
            let mut records = Vec::new();
            self.0.read(|record| records.push(record));
            let (head, tail) = (self.0.head(), self.0.tail());
            assert_eq!(head.load(Ordering::Relaxed), tail.load(Ordering::Relaxed), "all is read");
            records
        }

        fn page(&self) -> u64 {
            self.0.page as u64
        }
    }

    fn switches(times: impl IntoIterator<Item = u64>) -> Vec<Record> {
        let switch = |at_ns| Record::Switch { misc: u32::from(at_ns as u16), at_ns };
        times.into_iter().map(switch).collect()
    }

    #[test]
    fn records_are_read_once_and_in_order_wherever_the_page_ends() {
        // The second record begins at the start of the page, wraps at its end, and wraps the
        // position itself.
        for start in [4096 - 16, 4096 - 24, 65_536 - 24, 0_u64.wrapping_sub(24)] {
            let mut ring = Written::at(start);
            assert_eq!(ring.read(), []);
            for round in 0..1_000 {
                ring.switch(2 * round);
                ring.switch(2 * round + 1);
                assert_eq!(ring.read(), switches([2 * round, 2 * round + 1]), "{start}");
                assert_eq!(ring.read(), []);
            }
        }
    }

    #[test]
    fn other_records_are_skipped_and_losses_reported() {
        let mut ring = Written::at(8);
        ring.switch(1);
        ring.record(99, 7, &[1, 2, 3]);
        ring.record(98, 0, &[]);
        ring.switch(2);
        ring.record(PERF_RECORD_LOST, 0, &[5, 100, 3]);
        ring.switch(3);
        let mut wanted = switches([1, 2]);
        wanted.push(Record::Lost);
        wanted.extend(switches([3]));
        assert_eq!(ring.read(), wanted);
    }

    /// The record of the thread's last sleep may be the one that did not fit.
    #[test]
    fn a_full_ring_counts_as_a_loss_without_a_loss_record() {
        let mut ring = Written::at(0);
        let room = ring.page() / SWITCH;
        (0..room - 1).for_each(|at| ring.switch(at));
        let read = ring.read();
        assert_eq!(read[..read.len() - 1], switches(0..room - 1));
        assert_eq!(read.last(), Some(&Record::Lost));
        // After a loss, room for three records is not enough.
        (0..room - 3).for_each(|at| ring.switch(at));
        assert_eq!(ring.read().last(), Some(&Record::Lost));
        (0..room - 4).for_each(|at| ring.switch(at));
        assert_eq!(ring.read(), switches(0..room - 4), "and then all is well");
    }

    #[test]
    fn a_malformed_record_counts_as_a_loss_and_ends_the_read() {
        let header = |size: u64| u64::from(PERF_RECORD_SWITCH) | size << 48;
        // Zero, less than a header, less than a switch record, and more than was written.
        for size in [0, 7, 8, 64, 0xffff] {
            let mut ring = Written::at(4096 - 8);
            ring.switch(1);
            ring.write(header(size));
            ring.switch(2);
            let mut wanted = switches([1]);
            wanted.push(Record::Lost);
            assert_eq!(ring.read(), wanted, "{size}");
            ring.switch(3);
            assert_eq!(ring.read(), switches([3]), "the next one is read");
        }
    }
}
