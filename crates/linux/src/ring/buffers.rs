//! Receive buffers from which the kernel picks: one ring of them per reactor.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

/// The alignment that the kernel requires of the ring's address.
const PAGE: usize = 4096;

/// The ring and the buffers. Outlives the io_uring.
pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    data: NonNull<u8>,
    count: u16,
    size: u32,
    /// The index at which the next buffer is added. The ring's own tail is a copy for the kernel.
    tail: Cell<u16>,
}

impl Buffers {
    /// `count` buffers of `size` bytes, all of them given to the kernel. `count` is a power of two.
    ///
    /// # Errors
    /// No memory for the buffers.
    pub(super) fn new(count: u16, size: u32) -> io::Result<Rc<Buffers>> {
        let (entries, data) = Self::layouts(count, size);
        // SAFETY: neither layout is empty.
        let allocate = |layout: Layout| NonNull::new(unsafe { alloc_zeroed(layout) });
        let data = allocate(data).ok_or_else(|| {
            let what = format!("no memory for {count} buffers of {size} bytes");
            io::Error::new(io::ErrorKind::OutOfMemory, what)
        })?;
        let entries = allocate(entries).unwrap_or_else(|| handle_alloc_error(entries)).cast();
        let buffers = Rc::new(Buffers { entries, data, count, size, tail: Cell::new(0) });
        (0..count).for_each(|id| buffers.give_back(id));
        Ok(buffers)
    }

    fn layouts(count: u16, size: u32) -> (Layout, Layout) {
        let entries = Layout::array::<BufRingEntry>(usize::from(count));
        let data = Layout::array::<u8>(usize::from(count) * size as usize);
        let entries = entries.and_then(|layout| layout.align_to(PAGE));
        (entries.expect("32,768 entries at most"), data.expect("checked by the builder"))
    }

    /// The ring's address.
    pub(super) fn address(&self) -> u64 {
        self.entries.as_ptr().expose_provenance() as u64
    }

    pub(super) fn count(&self) -> u16 {
        self.count
    }

    /// A buffer that the kernel has filled.
    ///
    /// # Safety
    /// The kernel has handed this buffer out, for an operation that returned this number of bytes,
    /// and it was not given back since.
    pub(super) unsafe fn take(self: &Rc<Self>, id: u16, returned: u32) -> Buffer {
        // A receive with `MSG_TRUNC` returns the length of the message, of which the buffer may
        // hold only the start.
        let len = returned.min(self.size);
        Buffer { buffers: self.clone(), id, len }
    }

    fn at(&self, id: u16) -> *mut u8 {
        self.data.as_ptr().wrapping_add(usize::from(id) * self.size as usize)
    }

    fn give_back(&self, id: u16) {
        let tail = self.tail.get();
        let place = usize::from(tail & (self.count - 1));
        // SAFETY: within the ring. The kernel reads an entry only after the tail has passed it,
        // which comes next.
        let entry = unsafe { &mut *self.entries.as_ptr().add(place) };
        entry.set_addr(self.at(id).expose_provenance() as u64);
        entry.set_len(self.size);
        entry.set_bid(id);
        self.tail.set(tail.wrapping_add(1));
        // SAFETY: the tail is a field of the first entry that `set_addr` and the other setters do
        // not write.
        let shared = unsafe { &*BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>() };
        // Release: publishes the entry to the kernel.
        shared.store(self.tail.get(), Ordering::Release);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        let (entries, data) = Self::layouts(self.count, self.size);
        // SAFETY: allocated with these layouts, and the kernel no longer uses them: the reactor has
        // ended first.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), entries);
            dealloc(self.data.as_ptr(), data);
        }
    }
}

/// A buffer with bytes that the kernel received. Dropping it gives the buffer back to the reactor.
pub struct Buffer {
    buffers: Rc<Buffers>,
    id: u16,
    len: u32,
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this value owns the buffer until it is given back, so the kernel does not write
        // it; `len` bytes of it are initialized.
        unsafe { std::slice::from_raw_parts(self.buffers.at(self.id), self.len as usize) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.buffers.give_back(self.id);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("id", &self.id).field("len", &self.len).finish()
    }
}
