//! Free objects of one layout: a magazine for each CPU over a shared depot. Types, and the rule
//! that no object is allocated at the end, are its user's concern.
//!
//! A magazine is an array of pointers, accessed under its CPU's lock. It is filled from the depot
//! and emptied to it by halves, so that a magazine that was just filled or emptied does not go
//! there again with the next object. No thread waits for a CPU's lock here: if its holder is
//! preempted, the depot serves instead. A flush has a lock of its own beside the depot's, for which
//! no allocation waits. A thread that has a magazine's lock may take these locks, never the
//! reverse. No thread asks the system for memory under the depot's lock. A thread that allocates or
//! frees asks for it only if there are no free objects.

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, PoisonError};

use uwork_linux::{Error, current_cpu};

use super::CacheStats;
use super::depot::{Depots, Source};
use super::shrink::Room;
use crate::Mode;
use crate::forks::Registration;
use crate::mode::mode;
use crate::parts::{Held, Lost, Parts};

/// The maximum number of objects in a magazine: two kilobytes of pointers.
const MAGAZINE: usize = 256;
/// The memory of a magazine's objects together, unless that makes fewer than `MAGAZINE_MIN`.
const MAGAZINE_BYTES: usize = 64 << 10;
const MAGAZINE_MIN: usize = 8;
/// The maximum number of objects moved to or from the depot at once.
const BULK: usize = MAGAZINE / 2 + 1;

/// The first `used` entries are free objects, the rest is stale or uninitialized.
struct Magazine([MaybeUninit<NonNull<u8>>; MAGAZINE]);

// SAFETY: no thread uses a free object.
unsafe impl Send for Magazine {}

impl Magazine {
    fn new() -> Magazine {
        Magazine([MaybeUninit::uninit(); MAGAZINE])
    }

    /// The free objects.
    ///
    /// # Safety
    /// The first `used` entries are initialized.
    unsafe fn objects(&self, used: usize) -> &[NonNull<u8>] {
        // SAFETY: initialized, by the caller; `MaybeUninit` has the layout of its content.
        unsafe { &*(&raw const self.0[..used] as *const [NonNull<u8>]) }
    }
}

/// How a child treats a magazine whose lock another thread held: its objects stay allocated.
struct Forget;

impl Lost<Magazine> for Forget {
    fn lost(held: &mut Held<'_, Magazine>) {
        held.set_used(0);
    }
}

/// The number of objects in a magazine. From [`capacity`] only, and so between `MAGAZINE_MIN` and
/// `MAGAZINE`: accesses to magazines rely on that and skip the bounds check.
#[derive(Clone, Copy, Debug)]
pub struct Capacity(usize);

/// The number of objects in a magazine, for objects of a size: every user of a [`RawCache`] passes
/// it.
pub const fn capacity(size: usize) -> Capacity {
    let fit = MAGAZINE_BYTES / if size == 0 { 1 } else { size };
    Capacity(if fit < MAGAZINE_MIN {
        MAGAZINE_MIN
    } else if fit < MAGAZINE {
        fit
    } else {
        MAGAZINE
    })
}

/// See the module. Callers should pass the `capacity` of the objects' size, as a constant where the
/// compiler knows the size. Another capacity is slower, and otherwise harmless.
pub struct RawCache {
    magazines: Parts<Magazine>,
    /// Dropped before the depot.
    _registration: Registration,
    /// Boxed: forks find it at this address.
    depots: Box<Depots>,
    /// Signalled when the depot has its objects back after a thread has examined them.
    shrunk: Condvar,
}

impl RawCache {
    /// A cache without memory, in the process's mode.
    pub fn new(object: Layout) -> RawCache {
        RawCache::build(mode(), object, None)
    }

    /// The same, with memory from a source.
    ///
    /// # Safety
    /// The source's functions may be called by any thread while the cache exists, and do not use the
    /// cache. Its memory is as large and aligned as asked for, and stays until it is taken back.
    pub unsafe fn from(object: Layout, source: Source) -> RawCache {
        RawCache::build(mode(), object, Some(source))
    }

    #[cfg(test)]
    pub(super) fn in_mode(mode: Mode, object: Layout) -> RawCache {
        RawCache::build(mode, object, None)
    }

    #[cfg(test)]
    pub(super) fn zeroed_in_mode(mode: Mode, object: Layout) -> RawCache {
        RawCache::build(mode, object, Some(Source::zeroed()))
    }

    fn build(mode: Mode, object: Layout, source: Option<Source>) -> RawCache {
        let magazines = Parts::in_mode::<Forget>(mode, |_| Magazine::new());
        let depots = Box::new(Depots::new(object, source));
        // SAFETY: on the heap, until `drop`.
        let registration = unsafe { Registration::depots(&depots) };
        RawCache { magazines, _registration: registration, depots, shrunk: Condvar::new() }
    }

    /// Memory for an object, uninitialized. None if the system has no memory.
    #[inline(always)]
    pub fn alloc(&self, capacity: Capacity) -> Option<NonNull<u8>> {
        if let Some(mut held) = self.magazines.try_here() {
            let used = held.used() as usize;
            if used > 0 {
                // SAFETY: `used` is at most the magazine's length, and all entries below it are
                // initialized.
                let object = unsafe { held.0.get_unchecked(used - 1).assume_init() };
                held.set_used(used as u32 - 1);
                return Some(object);
            }
        }
        self.refill(capacity)
    }

    /// Frees memory.
    ///
    /// # Safety
    /// `object` is from this cache, was not freed since, and is not in use.
    #[inline(always)]
    pub unsafe fn free(&self, object: NonNull<u8>, capacity: Capacity) {
        if let Some(mut held) = self.magazines.try_here() {
            let used = held.used() as usize;
            if used < capacity.0 {
                // SAFETY: below the magazine's length, which no capacity exceeds.
                unsafe { held.0.get_unchecked_mut(used) }.write(object);
                held.set_used(used as u32 + 1);
                return;
            }
        }
        self.spill(object, capacity);
    }

    /// One object from the depot, and some for the magazine of this CPU.
    #[cold]
    fn refill(&self, Capacity(capacity): Capacity) -> Option<NonNull<u8>> {
        let mut objects = [NonNull::dangling(); BULK];
        let taken = self.depots.take(current_cpu(), &mut objects[..=capacity / 2]);
        // The caller gets the last one, as it would from the magazine.
        let (&object, mut rest) = objects[..taken].split_last()?;
        if let Some(mut held) = self.magazines.try_here() {
            let used = held.used() as usize;
            let (fits, others) = rest.split_at(rest.len().min(capacity.saturating_sub(used)));
            for (place, &object) in held.0[used..].iter_mut().zip(fits) {
                place.write(object);
            }
            held.set_used((used + fits.len()) as u32);
            rest = others;
        }
        if !rest.is_empty() {
            self.depots.put(current_cpu(), rest);
        }
        Some(object)
    }

    /// Frees an object for which the magazine of this CPU has no room.
    #[cold]
    fn spill(&self, object: NonNull<u8>, Capacity(capacity): Capacity) {
        let mut objects = [object; BULK];
        let mut spilled = 0;
        if let Some(mut held) = self.magazines.try_here() {
            let used = held.used() as usize;
            // Half of the magazine, or less if another thread was here meanwhile; more stays if it
            // was filled to a larger capacity.
            spilled = used.saturating_sub(capacity - capacity / 2).min(BULK - 1);
            let rest = used - spilled;
            for (to, from) in objects.iter_mut().zip(&held.0[rest..used]) {
                // SAFETY: below `used`.
                *to = unsafe { from.assume_init() };
            }
            held.set_used(rest as u32);
        }
        objects[spilled] = object;
        self.depots.put(current_cpu(), &objects[..=spilled]);
    }

    /// Moves the objects in the magazines of all CPUs to the depot. Returns their number.
    ///
    /// # Errors
    /// None that a user of the cache can cause.
    pub fn flush_all(&self) -> Result<usize, Error> {
        let expected = self.magazines.in_use().map(|cpu| self.magazines.used(cpu) as usize).sum();
        // Allocates before, so that little is left to do with a CPU's lock held.
        self.depots.flushed().reserve(expected);
        let moved = Mutex::new(0);
        self.magazines.visit_all(self.magazines.in_use(), |_, mut held| {
            let used = held.used() as usize;
            // SAFETY: the entries below `used` are initialized.
            self.depots.flushed().put(unsafe { held.objects(used) });
            // After that: a thread that finds the magazine empty finds its objects in the depot.
            held.set_used(0);
            drop(held);
            *moved.lock().expect("no panic under this lock") += used;
        })?;
        Ok(moved.into_inner().expect("no panic under this lock"))
    }

    /// Flushes, and returns memory to the system that contains no allocated object. Returns the
    /// number of bytes.
    ///
    /// # Errors
    /// As [`RawCache::flush_all`].
    pub fn shrink(&self) -> Result<usize, Error> {
        self.flush_all()?;
        Ok(self.give_back())
    }

    fn give_back(&self) -> usize {
        let mut room = Room::default();
        let contents = loop {
            let (mut flushed, depot) = self.depots.lock();
            let mut depot = match depot.aside {
                None => depot,
                Some(_) => {
                    drop(flushed);
                    drop(self.shrunk.wait(depot).unwrap_or_else(PoisonError::into_inner));
                    continue;
                }
            };
            if room.fits(&depot) {
                break depot.set_aside(&mut flushed, room);
            }
            let (objects, chunks) = (depot.objects(), depot.chunks.len());
            drop((depot, flushed));
            room = Room::new(objects, chunks);
        };
        let mut sorted = contents.sort();
        self.depots.depot().put_back(&mut sorted);
        self.shrunk.notify_all();
        // SAFETY: the depot no longer lists any of their objects.
        sorted.into_chunks().into_iter().map(|chunk| unsafe { chunk.free() }).sum()
    }

    /// The current sizes.
    pub fn stats(&self) -> CacheStats {
        let in_magazines =
            (0..self.magazines.len()).map(|cpu| self.magazines.used(cpu) as usize).sum();
        let (flushed, depot) = self.depots.lock();
        let objects = depot.objects();
        let out = objects.saturating_sub(in_magazines + flushed.len() + depot.free());
        CacheStats { objects, out, in_magazines, bytes: depot.bytes() }
    }

    /// Empties the magazines; returns the number of allocated objects.
    pub fn gather(&mut self) -> usize {
        // Locked, as a fork by another thread may access them.
        let (mut flushed, mut depot) = self.depots.lock();
        depot.put(&flushed.take_all(Vec::new()));
        for (used, magazine) in self.magazines.values_mut() {
            let used = std::mem::take(used) as usize;
            // SAFETY: below `used`.
            depot.put(unsafe { magazine.objects(used) });
        }
        depot.objects() - depot.free()
    }
}

impl Drop for RawCache {
    /// Frees all memory except that of allocated objects.
    fn drop(&mut self) {
        self.gather();
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{cpus, modes, on_cpu};

    const OBJECT: Layout = Layout::new::<[u64; 8]>();
    const CAPACITY: Capacity = capacity(OBJECT.size());

    fn alloc(cache: &RawCache, count: usize) -> Vec<NonNull<u8>> {
        (0..count).map(|_| cache.alloc(CAPACITY).expect("there is memory")).collect()
    }

    fn free(cache: &RawCache, objects: Vec<NonNull<u8>>) {
        // SAFETY: from this cache, and not in use.
        objects.into_iter().for_each(|object| unsafe { cache.free(object, CAPACITY) });
    }

    // Catches: an allocation or a release that waits for a flush; here it would wait for ever.
    #[test]
    fn allocation_and_release_do_not_wait_for_a_flush() {
        for mode in modes() {
            let cache = RawCache::in_mode(mode, OBJECT);
            // Over several chunks and many magazines, with objects from a flush and without.
            for count in [10 * CAPACITY.0, 40 * CAPACITY.0] {
                free(&cache, alloc(&cache, count));
                cache.flush_all().unwrap();
                let preempted = cache.depots.flushed();
                let objects = alloc(&cache, 2 * count);
                free(&cache, objects);
                drop(preempted);
            }
            assert_eq!(cache.stats().out, 0, "mode {mode}");
        }
    }

    // Catches: an allocation or a release that waits for another thread's few instructions in one
    // of the lists, where that thread may be preempted.
    #[test]
    fn allocation_and_release_do_not_wait_for_the_holder_of_one_list() {
        const COUNT: usize = 10 * CAPACITY.0;
        for mode in modes() {
            for cpu in cpus() {
                let cache = RawCache::in_mode(mode, OBJECT);
                let use_it = || free(&cache, alloc(&cache, COUNT));
                // Pinned: the magazine of another CPU is out of reach.
                on_cpu(cpu, || {
                    use_it();
                    // All of them are in the depot; then all are in the list.
                    cache.flush_all().unwrap();
                    let (mut list, mut depot) = cache.depots.lock();
                    depot.put(&list.take_all(Vec::with_capacity(COUNT)));
                    drop(depot);
                    use_it();
                    drop(list);
                    cache.flush_all().unwrap();
                    let (mut list, mut depot) = cache.depots.lock();
                    list.put(&std::mem::replace(&mut depot.free, Vec::with_capacity(2 * COUNT)));
                    drop(list);
                    use_it();
                    drop(depot);
                });
                assert_eq!(cache.stats().out, 0, "mode {mode}, CPU {cpu}");
            }
        }
    }

    // Catches: a caller's capacity that is mistaken for the length of a magazine, and bounds the
    // writes there.
    #[test]
    fn a_capacity_of_another_size_bounds_no_access_to_a_magazine() {
        let (large, small) = (capacity(1), capacity(MAGAZINE_BYTES));
        for mode in modes() {
            let cache = RawCache::in_mode(mode, OBJECT);
            on_cpu(0, || {
                let fill = || {
                    let objects = alloc(&cache, 2 * MAGAZINE);
                    // SAFETY: from this cache, and not in use.
                    objects.into_iter().for_each(|object| unsafe { cache.free(object, large) });
                    cache.stats().in_magazines
                };
                let full = fill();
                assert!(full > MAGAZINE_MIN && full <= MAGAZINE, "mode {mode}: {full}");
                // The magazine has more objects than the capacity given here.
                let object = cache.refill(small).expect("there is memory");
                assert_eq!(cache.stats().in_magazines, full, "mode {mode}");
                cache.spill(object, small);
                assert!(cache.stats().in_magazines <= full, "mode {mode}");
                assert!(fill() <= MAGAZINE, "mode {mode}");
            });
            assert_eq!(cache.stats().out, 0, "mode {mode}");
        }
    }

    // Catches: objects that stay in the list of flushes while new memory is taken.
    #[test]
    fn flushed_objects_are_allocated_before_new_memory() {
        for mode in modes() {
            let cache = RawCache::in_mode(mode, OBJECT);
            free(&cache, alloc(&cache, CAPACITY.0 / 2));
            let before = cache.stats();
            for _ in 0..10 * before.objects {
                free(&cache, alloc(&cache, 1));
                cache.flush_all().unwrap();
                assert_eq!((cache.stats().out, cache.stats().in_magazines), (0, 0));
            }
            assert_eq!(cache.stats(), CacheStats { in_magazines: 0, ..before }, "mode {mode}");
            assert_eq!(cache.shrink().unwrap(), before.bytes);
            assert_eq!(cache.stats().objects, 0);
        }
    }
}
