//! What all CPUs' magazines are filled from and emptied to: free objects, and the memory they are in.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The first chunk has about so many bytes; each next one is as large as all before.
const CHUNK_MIN: usize = 16 << 10;
/// No chunk is larger, but for an object that is.
const CHUNK_MAX: usize = 4 << 20;

/// Memory that was taken from the system at once.
pub(super) struct Chunk {
    pub(super) base: NonNull<u8>,
    layout: Layout,
    pub(super) objects: usize,
}

impl Chunk {
    /// Gives it back. How many bytes.
    ///
    /// # Safety
    /// None of its objects is anywhere.
    pub(super) unsafe fn free(self) -> usize {
        // SAFETY: from `alloc` with this layout, and nobody's.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
        self.layout.size()
    }
}

/// A depot, and beside it what flushes bring, under locks of their own: that of [`Flushed`] before the other.
pub(in crate::percpu) struct Depots {
    flushed: Mutex<Flushed>,
    depot: Mutex<Depot>,
}

/// Free objects that flushes have brought. Whoever allocates or frees never waits for this lock while there is
/// memory: a flush may be preempted under it.
#[derive(Default)]
pub(in crate::percpu) struct Flushed(Vec<NonNull<u8>>);

// SAFETY: the memory is the depot's alone.
unsafe impl Send for Flushed {}

impl Flushed {
    /// Brings objects.
    pub(super) fn put(&mut self, objects: &[NonNull<u8>]) {
        self.0.extend_from_slice(objects);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Depots {
    pub(super) fn new(object: Layout) -> Depots {
        Depots { flushed: Mutex::default(), depot: Mutex::new(Depot::new(object)) }
    }

    // Nothing of a user's runs under either, so that poison says nothing.

    pub(super) fn depot(&self) -> MutexGuard<'_, Depot> {
        self.depot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn flushed(&self) -> MutexGuard<'_, Flushed> {
        self.flushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Both.
    pub(in crate::percpu) fn lock(&self) -> (MutexGuard<'_, Flushed>, MutexGuard<'_, Depot>) {
        // In this order: a flush under its lock is waited for, and nobody who allocates is to wait for that.
        let flushed = self.flushed();
        (flushed, self.depot())
    }

    /// The depot, with all that flushes have brought.
    pub(super) fn gathered(&self) -> MutexGuard<'_, Depot> {
        let (mut flushed, mut depot) = self.lock();
        depot.accept(&mut flushed);
        depot
    }

    /// As [`Depot::take`], also of what flushes have brought. Waits for a flush only where the system has no
    /// memory.
    pub(super) fn take(&self, to: &mut [NonNull<u8>]) -> usize {
        let mut depot = self.depot();
        if depot.free.is_empty() {
            match self.flushed.try_lock() {
                Ok(mut flushed) => depot.accept(&mut flushed),
                Err(TryLockError::Poisoned(flushed)) => depot.accept(&mut flushed.into_inner()),
                // A flush brings more: objects that were never used serve meanwhile.
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let taken = depot.take(to);
        drop(depot);
        if taken > 0 { taken } else { self.gathered().take(to) }
    }
}

/// See the module.
pub(in crate::percpu) struct Depot {
    object: Layout,
    /// Objects that were in use before.
    pub(super) free: Vec<NonNull<u8>>,
    /// Of these, what a thread looks through to give memory back: see `shrink`.
    pub(super) aside: Option<Arc<Aside>>,
    /// The newest chunk's objects that never were.
    pub(super) fresh: NonNull<u8>,
    pub(super) fresh_left: usize,
    /// In the order of their addresses.
    pub(super) chunks: Vec<Chunk>,
    /// Objects in all chunks.
    pub(super) objects: usize,
}

// SAFETY: the memory is the depot's alone.
unsafe impl Send for Depot {}

/// Free objects that are looked at, but not used.
pub(super) struct Aside(pub(super) Vec<NonNull<u8>>);

// SAFETY: addresses, which nobody follows.
unsafe impl Send for Aside {}
// SAFETY: as above.
unsafe impl Sync for Aside {}

impl Depot {
    pub(super) fn new(object: Layout) -> Depot {
        // From one object to the next each is aligned; two have different addresses.
        let size = object.size().max(1);
        let object =
            Layout::from_size_align(size, object.align()).expect("as it was").pad_to_align();
        Depot {
            object,
            free: Vec::new(),
            aside: None,
            fresh: NonNull::dangling(),
            fresh_left: 0,
            chunks: Vec::new(),
            objects: 0,
        }
    }

    /// Objects in all chunks, used, free or in magazines.
    pub(super) fn objects(&self) -> usize {
        self.objects
    }

    /// Objects in here.
    pub(super) fn free(&self) -> usize {
        self.free.len() + self.aside.as_ref().map_or(0, |aside| aside.0.len()) + self.fresh_left
    }

    /// Bytes of all chunks.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.layout.size()).sum()
    }

    /// Takes at most as many objects as `to` has room for. How many: none where the system has no memory.
    pub(super) fn take(&mut self, to: &mut [NonNull<u8>]) -> usize {
        if !self.free.is_empty() {
            let rest = self.free.len().saturating_sub(to.len());
            let taken = self.free.len() - rest;
            to[..taken].copy_from_slice(&self.free[rest..]);
            self.free.truncate(rest);
            return taken;
        }
        if self.fresh_left == 0 && !self.grow() {
            return 0;
        }
        let taken = to.len().min(self.fresh_left);
        for (number, place) in to[..taken].iter_mut().enumerate() {
            // The last one first: what is taken from the end of a magazine goes up through memory.
            // SAFETY: within the chunk.
            *place = unsafe { self.fresh.byte_add((taken - 1 - number) * self.object.size()) };
        }
        // SAFETY: within the chunk, or its end.
        self.fresh = unsafe { self.fresh.byte_add(taken * self.object.size()) };
        self.fresh_left -= taken;
        taken
    }

    /// Takes what flushes have brought. A swap of pointers if nothing else is free.
    fn accept(&mut self, Flushed(flushed): &mut Flushed) {
        if self.free.len() < flushed.len() {
            std::mem::swap(&mut self.free, flushed);
        }
        self.free.append(flushed);
    }

    /// Gives objects back.
    pub(super) fn put(&mut self, objects: &[NonNull<u8>]) {
        self.free.extend_from_slice(objects);
    }

    /// One more chunk, if there is memory for it.
    fn grow(&mut self) -> bool {
        let bytes = self.bytes().clamp(CHUNK_MIN, CHUNK_MAX);
        let objects = (bytes / self.object.size()).max(1);
        let size = objects.checked_mul(self.object.size()).expect("an object fits into memory");
        let layout =
            Layout::from_size_align(size, self.object.align()).expect("an object's layout");
        // SAFETY: not of size 0.
        let Some(base) = NonNull::new(unsafe { alloc(layout) }) else { return false };
        let place = self.chunks.partition_point(|chunk| chunk.base < base);
        self.chunks.insert(place, Chunk { base, layout, objects });
        (self.fresh, self.fresh_left) = (base, objects);
        self.objects += objects;
        true
    }
}
