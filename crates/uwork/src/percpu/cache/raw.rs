//! Free objects of one layout: a magazine for each CPU over a shared depot. Types, and whether objects are out, are
//! its user's.
//!
//! A magazine is an array of pointers, taken from and put to under its CPU's lock. It is filled from and emptied to
//! the depot by halves, so that one that is just full or empty does not go there again with the next object.
//! Nobody waits for a CPU's lock here: where its holder is preempted, the depot serves instead. A flush has a
//! lock of its own beside the depot's, for which no allocation waits. A thread that has a magazine's lock may take
//! these, never the other way round. Nobody asks the system for memory under the depot's lock; and who allocates or
//! frees asks for it only where there are no objects.

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, PoisonError};

use super::CacheStats;
use super::depot::Depots;
use super::shrink::Room;
use crate::error::Error;
use crate::linux::current_cpu;
use crate::percpu::Mode;
use crate::percpu::forks::Registration;
use crate::percpu::mode::mode;
use crate::percpu::parts::{Held, Lost, Parts};

/// Objects of a magazine, at most: two kilobytes of pointers.
const MAGAZINE: usize = 256;
/// Memory in the objects of a magazine, as far as there are some of them.
const MAGAZINE_BYTES: usize = 64 << 10;
const MAGAZINE_MIN: usize = 8;
/// Objects that go to the depot or come from it at once, at most.
const BULK: usize = MAGAZINE / 2 + 1;

/// The first `used` are free objects, the rest is whatever was there.
struct Magazine([MaybeUninit<NonNull<u8>>; MAGAZINE]);

// SAFETY: free objects are nobody's.
unsafe impl Send for Magazine {}

impl Magazine {
    fn new() -> Magazine {
        Magazine([MaybeUninit::uninit(); MAGAZINE])
    }
}

/// A child's way with a magazine that another thread held: its objects stay allocated.
struct Forget;

impl Lost<Magazine> for Forget {
    fn lost(held: &mut Held<'_, Magazine>) {
        held.set_used(0);
    }
}

/// How many objects a magazine has: from [`capacity`] only, and so between `MAGAZINE_MIN` and `MAGAZINE`. Magazines
/// are accessed without a look at their length because of that.
#[derive(Clone, Copy, Debug)]
pub struct Capacity(usize);

/// How many objects a magazine has, for objects of a size: what every user of a [`RawCache`] gives to it.
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

/// See the module. `capacity` should be that of the objects' size wherever it is asked for: a constant where the
/// size is known to the compiler. Another one is slower, and wrong in no other way.
pub struct RawCache {
    magazines: Parts<Magazine>,
    /// Dropped before the depot.
    _registration: Registration,
    /// Where forks find it.
    depots: Box<Depots>,
    /// The depot has back what a thread has looked through.
    shrunk: Condvar,
}

impl RawCache {
    /// Without memory, in the process's mode.
    pub fn new(object: Layout) -> RawCache {
        RawCache::in_mode(mode(), object)
    }

    pub(super) fn in_mode(mode: Mode, object: Layout) -> RawCache {
        let magazines = Parts::in_mode::<Forget>(mode, |_| Magazine::new());
        let depots = Box::new(Depots::new(object));
        // SAFETY: on the heap, until `drop`.
        let registration = unsafe { Registration::depots(&depots) };
        RawCache { magazines, _registration: registration, depots, shrunk: Condvar::new() }
    }

    /// Memory for an object, uninitialized. Nothing where the system has none.
    #[inline(always)]
    pub fn alloc(&self, capacity: Capacity) -> Option<NonNull<u8>> {
        if let Some(mut held) = self.magazines.try_here() {
            let used = held.used() as usize;
            if used > 0 {
                // SAFETY: `used` is at most the magazine's length, and what is below it is initialized.
                let object = unsafe { held.0.get_unchecked(used - 1).assume_init() };
                held.set_used(used as u32 - 1);
                return Some(object);
            }
        }
        self.refill(capacity)
    }

    /// Gives memory back.
    ///
    /// # Safety
    /// `object` is from this cache, was not given back since, and nobody uses it.
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
        // The last of them is the caller's, as it would be from the magazine.
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

    /// Takes an object that the magazine of this CPU has no room for.
    #[cold]
    fn spill(&self, object: NonNull<u8>, Capacity(capacity): Capacity) {
        let mut objects = [object; BULK];
        let mut spilled = 0;
        if let Some(mut held) = self.magazines.try_here() {
            let used = held.used() as usize;
            // Half of it, or less if another thread was here; more stays if it was filled to a larger capacity.
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

    /// Moves what is in the magazines of all CPUs to the depot. How many objects.
    ///
    /// # Errors
    /// None that a user of the cache can cause.
    pub fn flush_all(&self) -> Result<usize, Error> {
        let expected = self.magazines.in_use().map(|cpu| self.magazines.used(cpu) as usize).sum();
        // So that little is left to be done with a CPU's lock held.
        self.depots.flushed().reserve(expected);
        let moved = Mutex::new(0);
        self.magazines.visit_all(self.magazines.in_use(), |_, mut held| {
            let used = held.used() as usize;
            // SAFETY: what is below `used` is initialized.
            self.depots.flushed().put(unsafe { held.0[..used].assume_init_ref() });
            // After that: who finds an empty magazine, finds its objects with the depot.
            held.set_used(0);
            drop(held);
            *moved.lock().expect("nobody panics under it") += used;
        })?;
        Ok(moved.into_inner().expect("nobody panics under it"))
    }

    /// Flushes, and gives memory back to the system of which no object is allocated. How many bytes.
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
        // SAFETY: the depot has given up all of their objects.
        sorted.into_chunks().into_iter().map(|chunk| unsafe { chunk.free() }).sum()
    }

    /// How much it has.
    pub fn stats(&self) -> CacheStats {
        let in_magazines =
            (0..self.magazines.len()).map(|cpu| self.magazines.used(cpu) as usize).sum();
        let (flushed, depot) = self.depots.lock();
        let objects = depot.objects();
        let out = objects.saturating_sub(in_magazines + flushed.len() + depot.free());
        CacheStats { objects, out, in_magazines, bytes: depot.bytes() }
    }

    /// Empties the magazines; how many objects are allocated.
    pub fn gather(&mut self) -> usize {
        // Locked, as a fork of another thread may look.
        let (mut flushed, mut depot) = self.depots.lock();
        depot.put(&flushed.take_all(Vec::new()));
        for (used, magazine) in self.magazines.values_mut() {
            let used = std::mem::take(used) as usize;
            // SAFETY: below `used`.
            depot.put(unsafe { magazine.0[..used].assume_init_ref() });
        }
        depot.objects() - depot.free()
    }
}

impl Drop for RawCache {
    /// Gives memory back but for what allocated objects are in.
    fn drop(&mut self) {
        self.gather();
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::percpu::tests::{cpus, modes, on_cpu};

    const OBJECT: Layout = Layout::new::<[u64; 8]>();
    const CAPACITY: Capacity = capacity(OBJECT.size());

    fn alloc(cache: &RawCache, count: usize) -> Vec<NonNull<u8>> {
        (0..count).map(|_| cache.alloc(CAPACITY).expect("there is memory")).collect()
    }

    fn free(cache: &RawCache, objects: Vec<NonNull<u8>>) {
        // SAFETY: from this cache, and nobody uses them.
        objects.into_iter().for_each(|object| unsafe { cache.free(object, CAPACITY) });
    }

    // Catches: an allocation or a release that waits for a flush, as it would here for ever.
    #[test]
    fn nobody_who_allocates_or_frees_waits_for_a_flush() {
        for mode in modes() {
            let cache = RawCache::in_mode(mode, OBJECT);
            // Over several chunks and many magazines, with what a flush has brought and without.
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

    // Catches: an allocation or a release that waits for another one's few instructions in one of the lists, where that
    // may be preempted.
    #[test]
    fn nobody_waits_for_who_is_in_one_of_the_two_lists() {
        const COUNT: usize = 10 * CAPACITY.0;
        for mode in modes() {
            for cpu in cpus() {
                let cache = RawCache::in_mode(mode, OBJECT);
                let use_it = || free(&cache, alloc(&cache, COUNT));
                // Stays there: what is in the magazine of another CPU is out of reach.
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

    // Catches: a capacity of the caller's that is taken for the length of a magazine, and bounds what is written there.
    #[test]
    fn a_capacity_of_another_size_bounds_no_access_to_a_magazine() {
        let (large, small) = (capacity(1), capacity(MAGAZINE_BYTES));
        for mode in modes() {
            let cache = RawCache::in_mode(mode, OBJECT);
            on_cpu(0, || {
                let fill = || {
                    let objects = alloc(&cache, 2 * MAGAZINE);
                    // SAFETY: from this cache, and nobody uses them.
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
    fn what_a_flush_has_brought_is_allocated_before_new_memory() {
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
