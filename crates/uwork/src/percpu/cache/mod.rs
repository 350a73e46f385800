//! A cache of objects: a magazine for each CPU over a shared depot.
//!
//! A magazine is an array of pointers, taken from and put to under its CPU's lock. It is filled from and emptied to
//! the depot by halves, so that one that is just full or empty does not go there again with the next object.
//! Nobody waits for a CPU's lock here: where its holder is preempted, the depot serves instead. A thread that
//! has a magazine's lock may take the depot's, never the other way round.

mod depot;

use std::alloc::Layout;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uwork_engine::host::{Host, Report};

use super::parts::Parts;
use crate::error::Error;
use crate::linux::engine;
use depot::Depot;

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

/// A cache of objects of one type: memory for a `T` without a system allocator's work, from a magazine of the
/// CPU that the caller is on.
///
/// An allocation and a release are some ten instructions each, in modes 0 and 2 none of them locked. What is
/// allocated on one CPU can be freed on any. Memory goes back to the system only by [`Cache::shrink`] and when the
/// cache is dropped.
///
/// ```
/// use uwork::percpu::Cache;
///
/// let cache = Cache::new("requests");
/// let mut request = cache.alloc([0_u8; 64]);
/// request[0] = 1;
/// drop(request);
/// assert_eq!(cache.stats().out, 0);
/// assert!(cache.flush_all()? > 0);
/// assert!(cache.shrink()? > 0);
/// assert_eq!(cache.stats().bytes, 0);
/// # Ok::<(), uwork::Error>(())
/// ```
pub struct Cache<T> {
    name: String,
    magazines: Parts<Magazine>,
    depot: Mutex<Depot>,
    owns: PhantomData<fn(T) -> T>,
}

/// How much a cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Objects in all of its memory.
    pub objects: usize,
    /// Of these, how many are allocated. Exact while nobody allocates or frees.
    pub out: usize,
    /// Free ones in the magazines of CPUs.
    pub in_magazines: usize,
    /// Memory taken from the system, in bytes.
    pub bytes: usize,
}

impl<T> Cache<T> {
    /// Objects of a magazine.
    const CAPACITY: usize = {
        let size = if size_of::<T>() == 0 { 1 } else { size_of::<T>() };
        let fit = MAGAZINE_BYTES / size;
        if fit < MAGAZINE_MIN {
            MAGAZINE_MIN
        } else if fit < MAGAZINE {
            fit
        } else {
            MAGAZINE
        }
    };
    /// What goes to the depot or comes from it at once, beside the one that is asked for.
    const HALF: usize = Self::CAPACITY / 2;

    /// A cache without memory. The name is for reports.
    pub fn new(name: impl Into<String>) -> Cache<T> {
        Cache::over(name.into(), Parts::new(|_| Magazine::new()))
    }

    #[cfg(test)]
    pub(super) fn in_mode(mode: super::Mode) -> Cache<T> {
        Cache::over("tested".to_owned(), Parts::in_mode(mode, |_| Magazine::new()))
    }

    fn over(name: String, magazines: Parts<Magazine>) -> Cache<T> {
        Cache {
            name,
            magazines,
            depot: Mutex::new(Depot::new(Layout::new::<T>())),
            owns: PhantomData,
        }
    }

    fn depot(&self) -> MutexGuard<'_, Depot> {
        // Nothing of a user's runs under it.
        self.depot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object with this value. It is freed when the handle is dropped.
    ///
    /// Aborts where the system has no memory, as a `Box` does.
    #[inline]
    pub fn alloc(&self, value: T) -> Cached<'_, T> {
        let object = self.alloc_raw();
        // SAFETY: memory for a T that is nobody else's.
        unsafe { object.write(value) };
        Cached { object, cache: self }
    }

    /// Memory for an object, uninitialized. The cache does not take it back by itself: see
    /// [`Cache::free_raw`].
    #[inline(always)]
    pub fn alloc_raw(&self) -> NonNull<T> {
        if let Some(mut held) = self.magazines.try_here() {
            let used = held.used() as usize;
            if used > 0 {
                // SAFETY: `used` is at most the magazine's length, and what is below it is initialized.
                let object = unsafe { held.0.get_unchecked(used - 1).assume_init() };
                held.set_used(used as u32 - 1);
                return object.cast();
            }
        }
        self.refill().cast()
    }

    /// Gives back memory that [`Cache::alloc_raw`] gave. Does not drop the value in it.
    ///
    /// # Safety
    /// `object` is from this cache, was not given back since, and nobody uses it.
    #[inline(always)]
    pub unsafe fn free_raw(&self, object: NonNull<T>) {
        if let Some(mut held) = self.magazines.try_here() {
            let used = held.used() as usize;
            if used < Self::CAPACITY {
                // SAFETY: below the magazine's length.
                unsafe { held.0.get_unchecked_mut(used) }.write(object.cast());
                held.set_used(used as u32 + 1);
                return;
            }
        }
        self.spill(object.cast());
    }

    /// One object from the depot, and some for the magazine of this CPU.
    #[cold]
    fn refill(&self) -> NonNull<u8> {
        let mut objects = [NonNull::dangling(); BULK];
        let taken = self.depot().take(&mut objects[..=Self::HALF]);
        // The last of them is the caller's, as it would be from the magazine.
        let (&mut object, objects) = objects[..taken].split_last_mut().expect("at least one");
        let mut rest: &[NonNull<u8>] = objects;
        if let Some(mut held) = self.magazines.try_here() {
            let used = held.used() as usize;
            let (fits, others) = rest.split_at(rest.len().min(Self::CAPACITY - used));
            for (place, &object) in held.0[used..].iter_mut().zip(fits) {
                place.write(object);
            }
            held.set_used((used + fits.len()) as u32);
            rest = others;
        }
        if !rest.is_empty() {
            self.depot().put(rest);
        }
        object
    }

    /// Takes an object that the magazine of this CPU has no room for.
    #[cold]
    fn spill(&self, object: NonNull<u8>) {
        let mut objects = [object; BULK];
        let mut spilled = 0;
        if let Some(mut held) = self.magazines.try_here() {
            let used = held.used() as usize;
            // Half of it, or less if somebody else was here.
            let rest = used.min(Self::CAPACITY - Self::HALF);
            spilled = used - rest;
            for (to, from) in objects.iter_mut().zip(&held.0[rest..used]) {
                // SAFETY: below `used`.
                *to = unsafe { from.assume_init() };
            }
            held.set_used(rest as u32);
        }
        objects[spilled] = object;
        self.depot().put(&objects[..=spilled]);
    }

    /// Moves what is in the magazines of all CPUs to the depot. How many objects.
    ///
    /// Reaches other CPUs as the mode says: see [`Mode`](super::Mode). CPUs whose magazine is empty are left alone.
    ///
    /// # Errors
    /// None that a user of the cache can cause; the type is that of its like.
    pub fn flush_all(&self) -> Result<usize, Error> {
        let moved = Mutex::new(0);
        let wanted = |cpu| self.magazines.used(cpu) > 0;
        self.magazines.visit_all(wanted, |_, mut held| {
            let used = held.used() as usize;
            let objects = held.0;
            held.set_used(0);
            drop(held);
            // SAFETY: what is below `used` is initialized.
            self.depot().put(unsafe { objects[..used].assume_init_ref() });
            *moved.lock().expect("nobody panics under it") += used;
        })?;
        Ok(moved.into_inner().expect("nobody panics under it"))
    }

    /// Flushes, and gives memory back to the system of which no object is allocated. How many bytes.
    ///
    /// # Errors
    /// As [`Cache::flush_all`].
    pub fn shrink(&self) -> Result<usize, Error> {
        self.flush_all()?;
        Ok(self.depot().shrink())
    }

    /// How much it has.
    pub fn stats(&self) -> CacheStats {
        let in_magazines =
            (0..self.magazines.len()).map(|cpu| self.magazines.used(cpu) as usize).sum();
        let depot = self.depot();
        let objects = depot.objects();
        let out = objects.saturating_sub(in_magazines + depot.free());
        CacheStats { objects, out, in_magazines, bytes: depot.bytes() }
    }

    /// Gives all memory back to the system.
    ///
    /// # Errors
    /// Objects are allocated. The cache comes back, and is as before.
    ///
    /// ```
    /// let cache = uwork::percpu::Cache::new("early");
    /// let object = cache.alloc_raw();
    /// let error = cache.close().unwrap_err();
    /// assert_eq!(error.out, 1);
    /// let cache: uwork::percpu::Cache<u64> = *error.cache;
    /// // SAFETY: from `alloc_raw`, once.
    /// unsafe { cache.free_raw(object) };
    /// cache.close().unwrap();
    /// ```
    pub fn close(mut self) -> Result<(), CacheInUse<T>> {
        match self.gather() {
            0 => Ok(()),
            out => Err(CacheInUse { out, cache: Box::new(self) }),
        }
    }

    /// Empties the magazines; how many objects are allocated.
    fn gather(&mut self) -> usize {
        let depot = self.depot.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (used, magazine) in self.magazines.values_mut() {
            let used = std::mem::take(used) as usize;
            // SAFETY: below `used`.
            depot.put(unsafe { magazine.0[..used].assume_init_ref() });
        }
        depot.objects() - depot.free()
    }
}

impl<T> Drop for Cache<T> {
    /// Gives all memory back. If objects are allocated it keeps the memory that they are in, for ever, and
    /// reports that.
    fn drop(&mut self) {
        let objects = self.gather();
        self.depot.get_mut().unwrap_or_else(PoisonError::into_inner).shrink();
        if objects > 0 {
            let cache = std::mem::take(&mut self.name);
            engine().host().report(Report::CacheInUse { cache, objects });
        }
    }
}

impl<T> fmt::Debug for Cache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("name", &self.name).field("stats", &self.stats()).finish()
    }
}

/// A cache was to be closed while objects of it were allocated.
pub struct CacheInUse<T> {
    /// How many.
    pub out: usize,
    /// The cache, as it was.
    pub cache: Box<Cache<T>>,
}

impl<T> fmt::Debug for CacheInUse<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheInUse({self})")
    }
}

impl<T> fmt::Display for CacheInUse<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CacheInUse { out, cache } = self;
        write!(f, "{out} object(s) of cache {:?} are allocated: free them first", cache.name)
    }
}

impl<T> std::error::Error for CacheInUse<T> {}

/// An object of a [`Cache`], as a `Box` is one of the system's allocator.
pub struct Cached<'a, T> {
    object: NonNull<T>,
    cache: &'a Cache<T>,
}

// SAFETY: it owns its object; the cache is shared, and frees from any thread.
unsafe impl<T: Send> Send for Cached<'_, T> {}
// SAFETY: a shared one gives shared access to the object only.
unsafe impl<T: Sync> Sync for Cached<'_, T> {}

impl<'a, T> Cached<'a, T> {
    /// The object, which is not freed by itself any more: for [`Cached::from_raw`], or for ever.
    pub fn into_raw(this: Cached<'a, T>) -> NonNull<T> {
        ManuallyDrop::new(this).object
    }

    /// The handle of such an object again.
    ///
    /// # Safety
    /// `object` is from [`Cached::into_raw`] of an object of this cache, and there is no other handle.
    pub unsafe fn from_raw(cache: &'a Cache<T>, object: NonNull<T>) -> Cached<'a, T> {
        Cached { object, cache }
    }
}

impl<T> Deref for Cached<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: ours, initialized.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for Cached<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: ours, initialized.
        unsafe { self.object.as_mut() }
    }
}

impl<T> Drop for Cached<'_, T> {
    #[inline]
    fn drop(&mut self) {
        /// Frees the memory also where the value's destructor panics.
        struct Free<'a, T>(NonNull<T>, &'a Cache<T>);
        impl<T> Drop for Free<'_, T> {
            #[inline(always)]
            fn drop(&mut self) {
                // SAFETY: from this cache, and given up by its handle.
                unsafe { self.1.free_raw(self.0) };
            }
        }
        let free = Free(self.object, self.cache);
        // SAFETY: ours, initialized, and not used any more.
        unsafe { free.0.drop_in_place() };
    }
}

impl<T: fmt::Debug> fmt::Debug for Cached<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
