//! What all CPUs' magazines are filled from and emptied to: free objects, and the memory they are in.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

/// The first chunk has about so many bytes; each next one is as large as all before.
const CHUNK_MIN: usize = 16 << 10;
/// No chunk is larger, but for an object that is.
const CHUNK_MAX: usize = 4 << 20;

/// Memory that was taken from the system at once.
struct Chunk {
    base: NonNull<u8>,
    layout: Layout,
    objects: usize,
}

/// See the module.
pub(in crate::percpu) struct Depot {
    object: Layout,
    /// Objects that were in use before.
    free: Vec<NonNull<u8>>,
    /// The newest chunk's objects that never were.
    fresh: NonNull<u8>,
    fresh_left: usize,
    /// In the order of their addresses.
    chunks: Vec<Chunk>,
    /// Objects in all chunks.
    objects: usize,
}

// SAFETY: the memory is the depot's alone.
unsafe impl Send for Depot {}

impl Depot {
    pub(super) fn new(object: Layout) -> Depot {
        // From one object to the next each is aligned; two have different addresses.
        let size = object.size().max(1);
        let object =
            Layout::from_size_align(size, object.align()).expect("as it was").pad_to_align();
        Depot {
            object,
            free: Vec::new(),
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
        self.free.len() + self.fresh_left
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

    /// Gives chunks back to the system whose objects are all in here. How many bytes.
    pub(super) fn shrink(&mut self) -> usize {
        let size = self.object.size();
        let fresh = (0..self.fresh_left).map(|number| {
            // SAFETY: within the newest chunk.
            unsafe { self.fresh.byte_add(number * size) }
        });
        self.free.extend(fresh);
        self.fresh_left = 0;
        let chunk_of = |chunks: &[Chunk], object: NonNull<u8>| {
            chunks.partition_point(|chunk| chunk.base <= object) - 1
        };
        let mut free_in = vec![0; self.chunks.len()];
        for &object in &self.free {
            free_in[chunk_of(&self.chunks, object)] += 1;
        }
        let goes = |number: usize| free_in[number] == self.chunks[number].objects;
        self.free.retain(|&object| !goes(chunk_of(&self.chunks, object)));
        self.free.shrink_to(2 * self.free.len());
        let (mut bytes, mut number) = (0, 0);
        self.chunks.retain(|chunk| {
            let stays = free_in[number] != chunk.objects;
            number += 1;
            if !stays {
                self.objects -= chunk.objects;
                bytes += chunk.layout.size();
                // SAFETY: from `alloc` with this layout; none of its objects is anywhere any more.
                unsafe { dealloc(chunk.base.as_ptr(), chunk.layout) };
            }
            stays
        });
        bytes
    }
}
