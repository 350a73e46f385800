//! A table whose entries never move and are never freed while the table lives.
//!
//! A stale id still names a live entry of the same type. So `cancel` and
//! `flush` can follow an item's location without any lock: they take the lock of the entry that
//! they find, and check the location again under it.

use crate::words::sync::{AtomicPtr, Lock, LockGuard, Ordering, SLAB_FIRST_CHUNK};

/// The first chunk's size; each further chunk doubles it.
const FIRST_CHUNK: u32 = SLAB_FIRST_CHUNK;
const CHUNKS: usize = 19;

pub(crate) struct Slab<T> {
    chunks: [AtomicPtr<T>; CHUNKS],
    free: Lock<Free>,
    limit: u32,
}

struct Free {
    /// Ids that were released.
    ids: Vec<u32>,
    /// The smallest id that was never allocated.
    next: u32,
    /// Entries that exist.
    created: u32,
}

/// The chunk of an id, the chunk's first id, and its size.
fn chunk_of(id: u32) -> (usize, u32, u32) {
    let chunk = (id / FIRST_CHUNK + 1).ilog2();
    let first = FIRST_CHUNK * ((1 << chunk) - 1);
    (chunk as usize, first, FIRST_CHUNK << chunk)
}

impl<T: Send + Sync> Slab<T> {
    /// A table for at most `limit` entries.
    pub(crate) fn new(limit: u32) -> Slab<T> {
        Slab {
            chunks: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            free: Lock::new(Free { ids: Vec::new(), next: 0, created: 0 }),
            limit,
        }
    }

    /// The entry with this id, if its chunk exists.
    #[inline]
    #[track_caller]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        let (chunk, first, _) = chunk_of(id);
        let entries = self.chunks.get(chunk)?.load(Ordering::Acquire);
        if entries.is_null() {
            return None;
        }
        // SAFETY: chunks live as long as the table and hold every id of their range.
        Some(unsafe { &*entries.add((id - first) as usize) })
    }

    /// Allocates an id; `make` creates entries that do not exist yet. `None` at the limit.
    pub(crate) fn allocate(&self, mut make: impl FnMut(u32) -> T) -> Option<(u32, &T)> {
        let mut free = self.free.lock();
        let id = match free.ids.pop() {
            Some(id) => id,
            None if free.next < self.limit => {
                free.next += 1;
                free.next - 1
            }
            None => return None,
        };
        // Reserve now, so that neither `release` nor a fork allocates.
        let given_out = free.next as usize;
        let room = given_out.saturating_sub(free.ids.len());
        free.ids.reserve(room);
        if id >= free.created {
            let (chunk, first, size) = chunk_of(id);
            let entries: Box<[T]> = (first..first + size).map(&mut make).collect();
            free.created = first + size;
            self.chunks[chunk].store(Box::into_raw(entries).cast::<T>(), Ordering::Release);
        }
        drop(free);
        self.get(id).map(|entry| (id, entry))
    }

    /// Locks the set of free ids and of existing entries.
    pub(crate) fn hold(&self) -> HeldIds<'_> {
        HeldIds(self.free.lock())
    }

    /// Visits every entry that exists.
    pub(crate) fn for_each(&self, f: impl FnMut((u32, &T))) {
        (0..self.limit).map_while(|id| self.get(id).map(|entry| (id, entry))).for_each(f);
    }

    /// Makes an id free again.
    pub(crate) fn release(&self, id: u32) {
        self.free.lock().ids.push(id);
    }
}

/// A table whose set of free ids is locked.
pub(crate) struct HeldIds<'a>(LockGuard<'a, Free>);

impl HeldIds<'_> {
    /// Makes all ids free, except these.
    pub(crate) fn free_all_but(&mut self, kept: &[u32]) {
        let Free { ids, next, .. } = &mut *self.0;
        ids.clear();
        // `allocate` has reserved room for every allocated id.
        ids.extend((0..*next).rev().filter(|id| !kept.contains(id)));
    }
}

impl<T> Drop for Slab<T> {
    fn drop(&mut self) {
        for (index, chunk) in self.chunks.iter().enumerate() {
            let entries = chunk.load(Ordering::Acquire);
            if !entries.is_null() {
                let size = (FIRST_CHUNK << index) as usize;
                // SAFETY: made by `Box::into_raw` of a slice of this length, and no reference can
                // exist any more.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(entries, size)) });
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_id_always_names_the_same_entry() {
        let slab: Slab<u32> = Slab::new(1_000);
        let ids: Vec<u32> = (0..1_000).map(|_| slab.allocate(|id| id).unwrap().0).collect();
        assert!(slab.allocate(|id| id).is_none());
        assert!(ids.iter().all(|&id| slab.get(id) == Some(&id)));
        slab.release(63);
        assert_eq!(slab.allocate(|id| id).unwrap(), (63, &63));
        assert_eq!(slab.get(1 << 24), None);
    }
}
