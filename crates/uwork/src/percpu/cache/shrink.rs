//! Giving memory back: which chunks have all of their objects in the depot.
//!
//! Every free object is looked at for that, which takes up to tenths of a second. So it is done without the depot's
//! lock: under it the free objects are set aside, and then put back or given up. Meanwhile the depot has those that
//! are freed, those that were never used, and new chunks.
//!
//! The list that is set aside stays the depot's and is not changed: a child of a fork that does not have the
//! thread which looks takes it back. Chunks leave the depot under its lock only, by the one thread that looks.

use std::ptr::NonNull;
use std::sync::Arc;

use super::depot::{Aside, Chunk, Depot};

/// What is looked through.
pub(super) struct Contents {
    free: Arc<Aside>,
    /// Of each chunk where it begins, in the order of that, and how many objects it has.
    chunks: Vec<(NonNull<u8>, usize)>,
    /// The chunk, by its number, that has objects which were never used.
    newest: Option<usize>,
}

/// What was found.
pub(super) struct Sorted {
    /// Objects of chunks that stay.
    kept: Vec<NonNull<u8>>,
    /// Where chunks begin that have no other objects than free ones.
    gone: Vec<NonNull<u8>>,
    /// Where the newest chunk begins, and the objects of it that were in use before: whether it goes is not known
    /// without the lock.
    newest: Option<(NonNull<u8>, Vec<NonNull<u8>>)>,
}

impl Contents {
    fn chunk_of(&self, object: NonNull<u8>) -> usize {
        self.chunks.partition_point(|&(base, _)| base <= object) - 1
    }

    /// Finds the chunks that nobody uses.
    pub(super) fn sort(self) -> Sorted {
        let mut free_in = vec![0; self.chunks.len()];
        for &object in &self.free.0 {
            free_in[self.chunk_of(object)] += 1;
        }
        let goes = |number: usize| free_in[number] == self.chunks[number].1;
        let (mut kept, mut of_newest) = (Vec::new(), Vec::new());
        for &object in &self.free.0 {
            let chunk = self.chunk_of(object);
            if self.newest == Some(chunk) {
                of_newest.push(object);
            } else if !goes(chunk) {
                kept.push(object);
            }
        }
        let bases = self.chunks.iter().enumerate();
        let gone = bases.filter(|&(number, _)| goes(number)).map(|(_, &(base, _))| base).collect();
        let newest = self.newest.map(|number| (self.chunks[number].0, of_newest));
        Sorted { kept, gone, newest }
    }
}

impl Depot {
    /// Sets the free objects aside to be looked through. Nothing if another thread has them.
    pub(super) fn set_aside(&mut self) -> Option<Contents> {
        if self.aside.is_some() {
            return None;
        }
        let free = Arc::new(Aside(std::mem::take(&mut self.free)));
        self.aside = Some(free.clone());
        let chunks = self.chunks.iter().map(|chunk| (chunk.base, chunk.objects)).collect();
        let newest = (self.fresh_left > 0).then(|| self.chunk_of(self.fresh));
        Some(Contents { free, chunks, newest })
    }

    /// Takes back what stays. The chunks that go, of whose objects none is anywhere any more.
    pub(super) fn put_back(&mut self, sorted: Sorted) -> Vec<Chunk> {
        let Sorted { mut kept, mut gone, newest } = sorted;
        if let Some((base, mut free)) = newest {
            // Objects that were taken meanwhile are in use, or in the list of those that were freed meanwhile.
            let is_newest =
                self.fresh_left > 0 && self.chunks[self.chunk_of(self.fresh)].base == base;
            let objects = self.chunks[self.chunk_of(base)].objects;
            if is_newest && free.len() + self.fresh_left == objects {
                self.fresh_left = 0;
                gone.insert(gone.partition_point(|&other| other < base), base);
            } else {
                kept.append(&mut free);
            }
        }
        self.aside = None;
        if self.free.len() < kept.len() {
            std::mem::swap(&mut self.free, &mut kept);
        }
        self.free.append(&mut kept);
        let goes = |chunk: &mut Chunk| gone.binary_search(&chunk.base).is_ok();
        let chunks: Vec<_> = self.chunks.extract_if(.., goes).collect();
        self.objects -= chunks.iter().map(|chunk| chunk.objects).sum::<usize>();
        chunks
    }

    /// In a child that does not have the thread which looked through them: takes the objects back.
    pub(in crate::percpu) fn recover(&mut self) {
        if let Some(aside) = self.aside.take() {
            self.free.extend_from_slice(&aside.0);
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

    use super::*;

    const SIZE: usize = 64;

    fn depot() -> Depot {
        Depot::new(Layout::from_size_align(SIZE, 8).expect("a layout"))
    }

    fn take(depot: &mut Depot, count: usize) -> Vec<NonNull<u8>> {
        let mut objects = vec![NonNull::dangling(); count];
        let mut taken = 0;
        while taken < count {
            taken += depot.take(&mut objects[taken..]);
        }
        objects
    }

    /// Gives everything back, which must be as many different objects as there are.
    fn end(mut depot: Depot, mut objects: Vec<NonNull<u8>>) {
        let all = depot.objects();
        let free = depot.free();
        objects.extend(take(&mut depot, free));
        assert_eq!(objects.len(), all);
        assert_eq!(objects.iter().collect::<BTreeSet<_>>().len(), all);
        depot.put(&objects);
        let sorted = depot.set_aside().expect("nobody else").sort();
        // SAFETY: the depot has given up all of their objects.
        depot.put_back(sorted).into_iter().for_each(|chunk| _ = unsafe { chunk.free() });
        assert_eq!((depot.objects(), depot.free(), depot.bytes()), (0, 0, 0));
    }

    #[test]
    fn what_is_freed_and_allocated_meanwhile_is_neither_lost_nor_given_back() {
        let mut depot = depot();
        let mut objects = take(&mut depot, 5_000);
        let used = objects.split_off(4_000);
        depot.put(&objects);
        let free = depot.free();
        let contents = depot.set_aside().expect("nobody else");
        assert!(depot.set_aside().is_none(), "one at a time");
        assert_eq!(depot.free(), free, "they are still there");
        let sorted = contents.sort();
        // More than there was of objects that were never used: of a new chunk, too.
        let mut meanwhile = take(&mut depot, 3_000);
        let freed = meanwhile.split_off(1_000);
        depot.put(&freed);
        depot.put(&used[500..]);
        let before = depot.bytes();
        let chunks = depot.put_back(sorted);
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
    fn a_chunk_goes_with_its_objects_that_were_never_used() {
        let mut depot = depot();
        let objects = take(&mut depot, 10);
        depot.put(&objects[1..]);
        let sorted = depot.set_aside().expect("nobody else").sort();
        assert!(depot.put_back(sorted).is_empty(), "one is in use");
        end(depot, objects[..1].to_vec());
    }

    #[test]
    fn a_child_takes_back_what_a_lost_thread_looked_through() {
        let mut depot = depot();
        let objects = take(&mut depot, 1_000);
        depot.put(&objects[1..]);
        let free = depot.free();
        let _lost = depot.set_aside().expect("nobody else").sort();
        depot.recover();
        assert_eq!(depot.free(), free);
        end(depot, objects[..1].to_vec());
    }
}
