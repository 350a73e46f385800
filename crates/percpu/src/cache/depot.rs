//! The depot, from which all CPUs' magazines are filled and to which they are emptied: free
//! objects, and the memory that they are in.
//!
//! Under the depot's lock no code calls the system's allocator: other threads hold its locks, and
//! it may sleep in the kernel, so all threads that allocate or free objects would wait for that as
//! well. The list of free objects has room for all objects, so that returning one does not allocate
//! either. New memory is allocated before the lock is taken, unneeded memory is freed after it is
//! released.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// The approximate size of the first chunk in bytes; each later one is as large as all earlier ones
/// together.
const CHUNK_MIN: usize = 16 << 10;
/// The maximum size of a chunk, unless a single object is larger.
const CHUNK_MAX: usize = 4 << 20;

/// Where a cache's memory comes from, in place of the system's allocator.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Source {
    /// Passed to both functions.
    pub context: *mut c_void,
    /// Memory of this size and alignment; NULL if there is none. Called by a thread that allocates,
    /// with no lock of the cache held. The memory may go back without use.
    pub alloc: unsafe extern "C" fn(context: *mut c_void, size: usize, align: usize) -> *mut u8,
    /// Takes back memory of this size, none of whose objects is allocated.
    pub free: unsafe extern "C" fn(context: *mut c_void, memory: *mut u8, size: usize),
}

// SAFETY: the context is for the two functions only, which any thread may call (`RawCache::from`).
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

#[cfg(test)]
impl Source {
    /// The system's allocator, with zeroed memory, for objects whose alignment is at most 16.
    pub(super) fn zeroed() -> Source {
        unsafe extern "C" fn alloc(_: *mut c_void, size: usize, align: usize) -> *mut u8 {
            assert!(align <= 16, "malloc aligns to 16");
            // SAFETY: any size is permitted.
            unsafe { libc::calloc(1, size) }.cast()
        }
        unsafe extern "C" fn free(_: *mut c_void, memory: *mut u8, _: usize) {
            // SAFETY: from `calloc`, by the caller.
            unsafe { libc::free(memory.cast()) };
        }
        Source { context: std::ptr::null_mut(), alloc, free }
    }
}

/// One allocation from the system, or from the cache's source.
pub(super) struct Chunk {
    pub(super) base: NonNull<u8>,
    layout: Layout,
    source: Option<Source>,
    pub(super) objects: usize,
}

impl Chunk {
    /// Frees it. Returns the number of bytes.
    ///
    /// # Safety
    /// None of its objects is used or listed anywhere.
    pub(super) unsafe fn free(self) -> usize {
        let (memory, size) = (self.base.as_ptr(), self.layout.size());
        match self.source {
            // SAFETY: from this source, and no longer used.
            Some(source) => unsafe { (source.free)(source.context, memory, size) },
            // SAFETY: from `alloc` with this layout, and no longer used.
            None => unsafe { dealloc(memory, self.layout) },
        }
        size
    }
}

/// A depot, and a second list beside it, under locks of their own; the lock of [`Flushed`] is taken
/// before the other.
///
/// The holder of either can be preempted. So a thread that allocates or frees takes whichever of
/// the two is free. It waits only if neither is free, or the free one has no objects, or no room.
pub(crate) struct Depots {
    flushed: Mutex<Flushed>,
    depot: Mutex<Depot>,
}

/// Whether a thread on this CPU tries the list before the depot. On even CPUs it tries the depot
/// first.
///
/// So the threads of two neighbouring CPUs begin with different locks, and rarely contend. That
/// matters where a thread of one CPU is preempted while it holds its lock: threads of the other CPU
/// then use the other lock.
fn tries_list_first(cpu: u32) -> bool {
    cpu % 2 == 1
}

/// Free objects that flushes have brought, and those that were freed on every other CPU. A thread
/// that allocates or frees never waits for this lock while the system has memory.
#[derive(Default)]
pub(crate) struct Flushed(Vec<NonNull<u8>>);

// SAFETY: the depot owns the memory.
unsafe impl Send for Flushed {}

impl Flushed {
    /// Makes room for this many more.
    pub(super) fn reserve(&mut self, objects: usize) {
        self.0.reserve(objects);
    }

    /// Makes room for this many in total.
    fn reserve_in_all(&mut self, objects: usize) {
        self.0.reserve(objects.saturating_sub(self.0.len()));
    }

    fn has_room(&self, objects: usize) -> bool {
        self.0.capacity() - self.0.len() >= objects
    }

    /// Adds objects.
    pub(super) fn put(&mut self, objects: &[NonNull<u8>]) {
        self.0.extend_from_slice(objects);
    }

    /// The number of objects.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes all objects, and leaves the list `empty` in their place.
    pub(super) fn take_all(&mut self, empty: Vec<NonNull<u8>>) -> Vec<NonNull<u8>> {
        std::mem::replace(&mut self.0, empty)
    }
}

/// Moves objects from the end of a list to `to`, at most as many as `to` has room for. Returns
/// their number.
fn move_last(list: &mut Vec<NonNull<u8>>, to: &mut [NonNull<u8>]) -> usize {
    let rest = list.len().saturating_sub(to.len());
    let taken = list.len() - rest;
    to[..taken].copy_from_slice(&list[rest..]);
    list.truncate(rest);
    taken
}

/// How often a thread tries the lock of its first choice, before it tries the other.
const TRIES: u32 = 5;

/// Tries a lock so many times, and yields in between: its holder may be waiting for the caller's
/// CPU. If threads moved to the other lock at once, they would all contend for that one as soon as
/// a holder of this one is preempted.
fn several<G>(tries: u32, lock: impl Fn() -> Option<G>) -> Option<G> {
    for _ in 1..tries {
        if let Some(guard) = lock() {
            return Some(guard);
        }
        std::thread::yield_now();
    }
    lock()
}

impl Depots {
    pub(super) fn new(object: Layout, source: Option<Source>) -> Depots {
        Depots { flushed: Mutex::default(), depot: Mutex::new(Depot::new(object, source)) }
    }

    // No user code runs under either lock, so that poison means nothing.

    pub(super) fn depot(&self) -> MutexGuard<'_, Depot> {
        self.depot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn flushed(&self) -> MutexGuard<'_, Flushed> {
        self.flushed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_list(&self) -> Option<MutexGuard<'_, Flushed>> {
        match self.flushed.try_lock() {
            Ok(flushed) => Some(flushed),
            Err(TryLockError::Poisoned(flushed)) => Some(flushed.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn try_depot(&self) -> Option<MutexGuard<'_, Depot>> {
        match self.depot.try_lock() {
            Ok(depot) => Some(depot),
            Err(TryLockError::Poisoned(depot)) => Some(depot.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Takes both locks.
    pub(crate) fn lock(&self) -> (MutexGuard<'_, Flushed>, MutexGuard<'_, Depot>) {
        // In this order: this may wait for a flush that holds the first lock, and must not hold the
        // depot, which allocations need, meanwhile.
        let flushed = self.flushed();
        (flushed, self.depot())
    }

    /// Returns objects, from a thread on `cpu`.
    pub(super) fn put(&self, cpu: u32, objects: &[NonNull<u8>]) {
        let to_list = |tries| {
            let list = several(tries, || self.try_list());
            let list = list.filter(|list| list.has_room(objects.len()));
            list.map(|mut list| list.put(objects)).is_some()
        };
        let to_depot = |tries| {
            let depot = several(tries, || self.try_depot());
            depot.map(|mut depot| depot.put(objects)).is_some()
        };
        // One lock at a time, so that a preempted thread never holds both.
        let is_there = match tries_list_first(cpu) {
            true => to_list(TRIES) || to_depot(1),
            false => to_depot(TRIES) || to_list(1),
        };
        if !is_there {
            self.depot().put(objects);
        }
    }

    /// Takes at most as many objects as `to` has room for, for a thread on `cpu`. Returns their
    /// number: 0 if the system has no memory.
    ///
    /// Waits for a flush only where the system has no memory.
    pub(super) fn take(&self, cpu: u32, to: &mut [NonNull<u8>]) -> usize {
        let from_list = |tries, to: &mut [NonNull<u8>]| {
            let list = several(tries, || self.try_list());
            list.map_or(0, |mut list| move_last(&mut list.0, to))
        };
        let from_depot = |tries, to: &mut [NonNull<u8>]| {
            let depot = several(tries, || self.try_depot());
            depot.map_or(0, |mut depot| move_last(&mut depot.free, to))
        };
        loop {
            // One lock at a time, as above.
            let is_list = tries_list_first(cpu);
            let mut taken = if is_list { from_list(TRIES, to) } else { from_depot(TRIES, to) };
            if taken == 0 {
                taken = if is_list { from_depot(1, to) } else { from_list(1, to) };
            }
            if taken > 0 {
                return taken;
            }
            // While a flush is adding more, never-used objects serve.
            let mut depot = self.depot();
            taken = move_last(&mut depot.free, to);
            if taken == 0 {
                taken = depot.take_fresh(to);
            }
            if taken > 0 {
                return taken;
            }
            let (wanted, objects) = (depot.wanted(), depot.objects());
            drop(depot);
            let Some(mut more) = wanted.get() else {
                let (mut flushed, mut depot) = self.lock();
                let taken = move_last(&mut depot.free, to);
                return if taken > 0 { taken } else { move_last(&mut flushed.0, to) };
            };
            // If another thread has added a chunk meanwhile, that one is used, and this one is
            // freed.
            self.depot().add(&mut more);
            if let Some(mut list) = self.try_list() {
                list.reserve_in_all(objects);
            }
        }
    }
}

/// See the module.
pub(crate) struct Depot {
    object: Layout,
    /// None: the system's allocator.
    source: Option<Source>,
    /// Free objects that were in use before, with room for those of all chunks.
    pub(super) free: Vec<NonNull<u8>>,
    /// The free objects that a thread examines to free memory: see `shrink`.
    pub(super) aside: Option<Arc<Aside>>,
    /// The newest chunk's objects that were never used.
    pub(super) fresh: NonNull<u8>,
    pub(super) fresh_left: usize,
    /// Sorted by address.
    pub(super) chunks: Vec<Chunk>,
    /// Objects in all chunks.
    pub(super) objects: usize,
}

// SAFETY: the depot owns the memory.
unsafe impl Send for Depot {}

/// Free objects set aside for examination: the depot's, and those that flushes had brought.
#[derive(Default)]
pub(super) struct Aside(pub(super) [Vec<NonNull<u8>>; 2]);

impl Aside {
    pub(super) fn objects(&self) -> impl Iterator<Item = NonNull<u8>> {
        self.0.iter().flatten().copied()
    }

    fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }
}

// SAFETY: addresses for comparison, never dereferenced.
unsafe impl Send for Aside {}
// SAFETY: as above.
unsafe impl Sync for Aside {}

impl Depot {
    pub(super) fn new(object: Layout, source: Option<Source>) -> Depot {
        // Padded, so that each object in a row is aligned, and at least one byte, so that two have
        // different addresses.
        let size = object.size().max(1);
        let object =
            Layout::from_size_align(size, object.align()).expect("as it was").pad_to_align();
        Depot {
            object,
            source,
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

    /// Free objects in here.
    pub(super) fn free(&self) -> usize {
        self.free.len() + self.aside.as_ref().map_or(0, |aside| aside.len()) + self.fresh_left
    }

    /// Bytes of all chunks.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.layout.size()).sum()
    }

    /// Takes objects that were never used, at most as many as `to` has room for. Returns their
    /// number.
    pub(super) fn take_fresh(&mut self, to: &mut [NonNull<u8>]) -> usize {
        let taken = to.len().min(self.fresh_left);
        for (number, place) in to[..taken].iter_mut().enumerate() {
            // In reverse order, so that objects taken from the end of a magazine have ascending
            // addresses.
            // SAFETY: within the chunk.
            *place = unsafe { self.fresh.byte_add((taken - 1 - number) * self.object.size()) };
        }
        // SAFETY: within the chunk, or its end.
        self.fresh = unsafe { self.fresh.byte_add(taken * self.object.size()) };
        self.fresh_left -= taken;
        taken
    }

    /// Returns objects.
    pub(super) fn put(&mut self, objects: &[NonNull<u8>]) {
        debug_assert!(self.free.capacity() - self.free.len() >= objects.len(), "there is room");
        self.free.extend_from_slice(objects);
    }

    /// The memory that one more chunk requires.
    fn wanted(&self) -> Wanted {
        let bytes = self.bytes().clamp(CHUNK_MIN, CHUNK_MAX);
        let objects = (bytes / self.object.size()).max(1);
        // Doubled each time, so that few lists are allocated in total.
        let twice = |has: usize, needs: usize| if has < needs { needs.max(2 * has) } else { 0 };
        Wanted {
            object: self.object,
            source: self.source,
            objects,
            free: twice(self.free.capacity(), self.objects + objects),
            chunks: twice(self.chunks.capacity(), self.chunks.len() + 1),
        }
    }

    /// Adds the chunk if there are no objects, and the lists have room for it. If it is not added,
    /// it stays with `more`; so do lists that were replaced as too short.
    fn add(&mut self, more: &mut More) {
        if !self.free.is_empty() || self.fresh_left > 0 {
            return;
        }
        if self.free.capacity() < more.free.capacity() {
            std::mem::swap(&mut self.free, &mut more.free);
        }
        if self.chunks.capacity() < more.chunks.capacity() {
            more.chunks.append(&mut self.chunks);
            std::mem::swap(&mut self.chunks, &mut more.chunks);
        }
        let fits = |chunk: &mut Chunk| {
            self.free.capacity() >= self.objects + chunk.objects
                && self.chunks.capacity() > self.chunks.len()
        };
        let Some(chunk) = more.chunk.take_if(fits) else { return };
        (self.fresh, self.fresh_left) = (chunk.base, chunk.objects);
        self.objects += chunk.objects;
        let place = self.chunks.partition_point(|other| other.base < chunk.base);
        self.chunks.insert(place, chunk);
    }
}

/// The memory to allocate for a depot without objects.
struct Wanted {
    object: Layout,
    source: Option<Source>,
    /// The number of objects in the chunk.
    objects: usize,
    /// The capacity of a new list of free objects; 0 if the current list suffices.
    free: usize,
    /// The same for the list of chunks.
    chunks: usize,
}

impl Wanted {
    /// Allocates it. None if the system has no memory.
    fn get(self) -> Option<More> {
        let size = self.objects.checked_mul(self.object.size()).expect("it fits into memory");
        let layout =
            Layout::from_size_align(size, self.object.align()).expect("an object's layout");
        let (mut free, mut chunks) = (Vec::new(), Vec::new());
        free.try_reserve_exact(self.free).ok()?;
        chunks.try_reserve_exact(self.chunks).ok()?;
        let source = self.source;
        let base = NonNull::new(match source {
            // SAFETY: its functions are for any thread (`RawCache::from`).
            Some(source) => unsafe { (source.alloc)(source.context, size, layout.align()) },
            // SAFETY: not of size 0.
            None => unsafe { alloc(layout) },
        })?;
        Some(More {
            chunk: Some(Chunk { base, layout, source, objects: self.objects }),
            free,
            chunks,
        })
    }
}

/// The memory allocated for a depot without objects.
struct More {
    chunk: Option<Chunk>,
    /// Empty, as is `chunks`.
    free: Vec<NonNull<u8>>,
    chunks: Vec<Chunk>,
}

impl Drop for More {
    fn drop(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            // SAFETY: no depot has it, so none of its objects is in use.
            unsafe { chunk.free() };
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Takes `count` objects, and adds chunks as needed.
    pub(in super::super) fn take(depot: &mut Depot, count: usize) -> Vec<NonNull<u8>> {
        let mut objects = vec![NonNull::dangling(); count];
        let mut taken = 0;
        while taken < count {
            let to = &mut objects[taken..];
            let now = match move_last(&mut depot.free, to) {
                0 => depot.take_fresh(to),
                some => some,
            };
            if now == 0 {
                depot.add(&mut depot.wanted().get().expect("there is memory"));
            }
            taken += now;
        }
        objects
    }

    #[test]
    fn a_chunk_added_meanwhile_is_used() {
        let mut depot = Depot::new(Layout::new::<[u64; 8]>(), None);
        let mut late = depot.wanted().get().expect("there is memory");
        let mut objects = take(&mut depot, 1);
        let before = (depot.objects(), depot.bytes());
        depot.add(&mut late);
        assert_eq!((depot.objects(), depot.bytes()), before, "there are objects");
        // Several chunks later its lists are certainly too short.
        while depot.free.capacity() < 4 * late.free.capacity() {
            let all = depot.free();
            objects.extend(take(&mut depot, all + 1));
        }
        let all = depot.free();
        objects.extend(take(&mut depot, all));
        depot.free = Vec::with_capacity(depot.objects());
        let before = depot.objects();
        depot.add(&mut late);
        assert!(late.chunk.is_some() && depot.objects() == before, "there is no room");
        // All objects have room, without an allocation.
        let room = depot.free.capacity();
        depot.put(&objects);
        assert_eq!((depot.free(), depot.free.capacity()), (depot.objects(), room));
        // SAFETY: the depot has all of their objects.
        depot.chunks.drain(..).for_each(|chunk| _ = unsafe { chunk.free() });
    }
}
