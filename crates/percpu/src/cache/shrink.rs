//! Freeing memory: finds the chunks all of whose objects are in the depot.
//!
//! That examines every free object, which takes up to tenths of a second, so it is done without the
//! depot's lock. Under the lock the free objects are set aside, and later put back or released.
//! Meanwhile the depot has the objects freed since, those never used, and new chunks. Lists are
//! allocated before the lock is taken and freed after it is released.
//!
//! The depot keeps the list that is set aside, and it never changes: a child of a fork in which
//! the examining thread does not exist takes it back. Chunks leave the depot under its lock only,
//! and only the examining thread removes them.

use std::ptr::NonNull;
use std::sync::Arc;

use super::depot::{Aside, Chunk, Depot, Flushed};

/// The lists that a depot needs to set its objects aside.
#[derive(Default)]
pub(super) struct Room {
    aside: Arc<Aside>,
    /// For objects freed meanwhile: the depot's list, and the flushed list beside it.
    free: Vec<NonNull<u8>>,
    flushed: Vec<NonNull<u8>>,
    chunks: Vec<(NonNull<u8>, usize)>,
}

impl Room {
    /// Lists for this many objects and chunks.
    pub(super) fn new(objects: usize, chunks: usize) -> Room {
        Room {
            aside: Arc::default(),
            free: Vec::with_capacity(objects),
            flushed: Vec::with_capacity(objects),
            chunks: Vec::with_capacity(chunks),
        }
    }

    /// Whether it is enough.
    pub(super) fn fits(&self, depot: &Depot) -> bool {
        self.free.capacity() >= depot.objects() && self.chunks.capacity() >= depot.chunks.len()
    }
}

/// The objects to examine.
pub(super) struct Contents {
    aside: Arc<Aside>,
    /// The address and number of objects of each chunk, sorted by address.
    chunks: Vec<(NonNull<u8>, usize)>,
    /// The index of the chunk that has never-used objects.
    newest: Option<usize>,
}

/// The result of the examination.
pub(super) struct Sorted {
    /// Objects of chunks that stay, with room for all objects.
    kept: Vec<NonNull<u8>>,
    /// The addresses of chunks whose objects are all free.
    gone: Vec<NonNull<u8>>,
    /// The address of the newest chunk, and its free objects that were in use before: only under
    /// the lock is it known whether that chunk can be freed.
    newest: Option<(NonNull<u8>, Vec<NonNull<u8>>)>,
    /// The chunks that were removed in the end.
    chunks: Vec<Chunk>,
    /// Not to be dropped under the lock.
    _aside: Arc<Aside>,
}

impl Contents {
    fn chunk_of(&self, object: NonNull<u8>) -> usize {
        self.chunks.partition_point(|&(base, _)| base <= object) - 1
    }

    /// Finds the chunks without an allocated object.
    pub(super) fn sort(self) -> Sorted {
        let mut free_in = vec![0; self.chunks.len()];
        for object in self.aside.objects() {
            free_in[self.chunk_of(object)] += 1;
        }
        let goes = |number: usize| free_in[number] == self.chunks[number].1;
        let objects = self.chunks.iter().map(|&(_, objects)| objects).sum();
        let (mut kept, mut of_newest) = (Vec::with_capacity(objects), Vec::new());
        for object in self.aside.objects() {
            let chunk = self.chunk_of(object);
            if self.newest == Some(chunk) {
                of_newest.push(object);
            } else if !goes(chunk) {
                kept.push(object);
            }
        }
        // One more chunk, the newest, may be removed in the end.
        let mut gone = Vec::with_capacity(self.chunks.len() + 1);
        let bases = self.chunks.iter().enumerate();
        gone.extend(bases.filter(|&(number, _)| goes(number)).map(|(_, &(base, _))| base));
        let newest = self.newest.map(|number| (self.chunks[number].0, of_newest));
        let chunks = Vec::with_capacity(gone.len() + 1);
        Sorted { kept, gone, newest, chunks, _aside: self.aside }
    }
}

impl Sorted {
    /// The chunks that the depot has removed. None of their objects is used or listed anywhere.
    pub(super) fn into_chunks(self) -> Vec<Chunk> {
        self.chunks
    }
}

impl Depot {
    /// Sets the free objects aside for examination, together with those that flushes have brought.
    /// Requires that no other thread does so already, and that `room` fits.
    pub(super) fn set_aside(&mut self, flushed: &mut Flushed, room: Room) -> Contents {
        debug_assert!(self.aside.is_none() && room.fits(self));
        let Room { mut aside, free, flushed: empty, mut chunks } = room;
        let lists = [std::mem::replace(&mut self.free, free), flushed.take_all(empty)];
        Arc::get_mut(&mut aside).expect("this is the only reference").0 = lists;
        self.aside = Some(aside.clone());
        chunks.extend(self.chunks.iter().map(|chunk| (chunk.base, chunk.objects)));
        let newest = (self.fresh_left > 0).then(|| self.chunk_of(self.fresh));
        Contents { aside, chunks, newest }
    }

    /// Takes back the objects that stay. `sorted` keeps the removed chunks, and lists that are no
    /// longer needed.
    pub(super) fn put_back(&mut self, sorted: &mut Sorted) {
        let Sorted { kept, gone, newest, chunks, .. } = sorted;
        if let Some((base, free)) = newest {
            // Objects taken meanwhile are in use, or in the list of objects freed meanwhile.
            let is_newest =
                self.fresh_left > 0 && self.chunks[self.chunk_of(self.fresh)].base == *base;
            let objects = self.chunks[self.chunk_of(*base)].objects;
            if is_newest && free.len() + self.fresh_left == objects {
                self.fresh_left = 0;
                gone.insert(gone.partition_point(|other| other < base), *base);
            } else {
                kept.append(free);
            }
        }
        self.aside = None;
        // The current list always has room; the other one only if no chunk was added meanwhile.
        if self.free.len() < kept.len() && kept.capacity() >= self.objects {
            std::mem::swap(&mut self.free, kept);
        }
        self.free.append(kept);
        let goes = |chunk: &mut Chunk| gone.binary_search(&chunk.base).is_ok();
        chunks.extend(self.chunks.extract_if(.., goes));
        self.objects -= chunks.iter().map(|chunk| chunk.objects).sum::<usize>();
    }

    /// In a child in which the examining thread does not exist: takes the objects back.
    pub(crate) fn recover(&mut self) {
        if let Some(aside) = self.aside.take() {
            aside.0.iter().for_each(|list| self.free.extend_from_slice(list));
        }
    }

    fn chunk_of(&self, object: NonNull<u8>) -> usize {
        self.chunks.partition_point(|chunk| chunk.base <= object) - 1
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::Layout;
    use std::collections::BTreeSet;

    use super::super::depot::tests::take;
    use super::*;

    const SIZE: usize = 64;

    fn depot() -> Depot {
        Depot::new(Layout::from_size_align(SIZE, 8).expect("a layout"), None)
    }

    fn look_through(depot: &mut Depot) -> Contents {
        let room = Room::new(depot.objects(), depot.chunks.len());
        depot.set_aside(&mut Flushed::default(), room)
    }

    fn put_back(depot: &mut Depot, mut sorted: Sorted) -> Vec<Chunk> {
        depot.put_back(&mut sorted);
        sorted.into_chunks()
    }

    /// Returns everything, which must be exactly the depot's distinct objects.
    fn end(mut depot: Depot, mut objects: Vec<NonNull<u8>>) {
        let all = depot.objects();
        let free = depot.free();
        objects.extend(take(&mut depot, free));
        assert_eq!(objects.len(), all);
        assert_eq!(objects.iter().collect::<BTreeSet<_>>().len(), all);
        depot.put(&objects);
        let sorted = look_through(&mut depot).sort();
        // SAFETY: the depot no longer lists any of their objects.
        put_back(&mut depot, sorted).into_iter().for_each(|chunk| _ = unsafe { chunk.free() });
        assert_eq!((depot.objects(), depot.free(), depot.bytes()), (0, 0, 0));
    }

    #[test]
    fn objects_freed_or_allocated_during_an_examination_are_neither_lost_nor_released() {
        let mut depot = depot();
        let mut objects = take(&mut depot, 5_000);
        let used = objects.split_off(4_000);
        depot.put(&objects);
        let free = depot.free();
        let contents = look_through(&mut depot);
        assert_eq!(depot.free(), free, "they are still there");
        let sorted = contents.sort();
        // More than the never-used objects, so that some come from a new chunk.
        let mut meanwhile = take(&mut depot, 3_000);
        let freed = meanwhile.split_off(1_000);
        depot.put(&freed);
        depot.put(&used[500..]);
        let before = depot.bytes();
        let chunks = put_back(&mut depot, sorted);
        assert!(!chunks.is_empty());
        // SAFETY: as above.
        let bytes: usize = chunks.into_iter().map(|chunk| unsafe { chunk.free() }).sum();
        assert_eq!(depot.bytes(), before - bytes);
        meanwhile.extend(&used[..500]);
        for object in &meanwhile {
            // SAFETY: of this size, and in use.
            unsafe { object.write_bytes(1, SIZE) };
        }
        end(depot, meanwhile);
    }

    #[test]
    fn a_chunk_is_freed_together_with_its_never_used_objects() {
        let mut depot = depot();
        let objects = take(&mut depot, 10);
        depot.put(&objects[1..]);
        let sorted = look_through(&mut depot).sort();
        assert!(put_back(&mut depot, sorted).is_empty(), "one is in use");
        end(depot, objects[..1].to_vec());
    }

    #[test]
    fn a_child_takes_back_the_objects_that_a_missing_thread_examined() {
        let mut depot = depot();
        let objects = take(&mut depot, 1_000);
        depot.put(&objects[1..]);
        let free = depot.free();
        let _lost = look_through(&mut depot).sort();
        depot.recover();
        assert_eq!(depot.free(), free);
        end(depot, objects[..1].to_vec());
    }
}
