//! A cache of objects of one type. What it is made of is in `raw`.

pub(super) mod depot;
pub(crate) mod raw;
mod shrink;

use std::alloc::{Layout, handle_alloc_error};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use uwork_engine::host::{Host, Report};

use crate::error::Error;
use crate::linux::engine;
use raw::{Capacity, RawCache, capacity};

/// A cache of objects of one type: memory for a `T` without a system allocator's work, from a magazine of the
/// CPU that the caller is on.
///
/// An allocation and a release are some ten instructions each, in modes 0 and 2 none of them locked. What is
/// allocated on one CPU can be freed on any. Memory goes back to the system only by [`Cache::shrink`] and when the
/// cache is dropped.
///
/// A child after `fork` has the cache as it was. Objects that another thread was about to allocate or free stay
/// allocated there, and those in magazines whose lock another thread held.
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
    raw: RawCache,
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
    const CAPACITY: Capacity = capacity(size_of::<T>());

    /// A cache without memory. The name is for reports.
    pub fn new(name: impl Into<String>) -> Cache<T> {
        Cache { name: name.into(), raw: RawCache::new(Layout::new::<T>()), owns: PhantomData }
    }

    #[cfg(test)]
    pub(super) fn in_mode(mode: super::Mode) -> Cache<T> {
        let raw = RawCache::in_mode(mode, Layout::new::<T>());
        Cache { name: "tested".to_owned(), raw, owns: PhantomData }
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
    ///
    /// Aborts where the system has no memory, as a `Box` does.
    #[inline(always)]
    pub fn alloc_raw(&self) -> NonNull<T> {
        match self.raw.alloc(Self::CAPACITY) {
            Some(object) => object.cast(),
            None => handle_alloc_error(Layout::new::<T>()),
        }
    }

    /// Gives back memory that [`Cache::alloc_raw`] gave. Does not drop the value in it.
    ///
    /// # Safety
    /// `object` is from this cache, was not given back since, and nobody uses it.
    #[inline(always)]
    pub unsafe fn free_raw(&self, object: NonNull<T>) {
        // SAFETY: by this function's contract.
        unsafe { self.raw.free(object.cast(), Self::CAPACITY) };
    }

    /// Moves what is in the magazines of all CPUs to the depot. How many objects. What another thread is moving
    /// between a magazine and the depot at that moment, half a magazine at most, is in neither.
    ///
    /// Reaches other CPUs as the mode says: see [`Mode`](super::Mode). CPUs whose magazine is empty are left alone.
    ///
    /// # Errors
    /// None that a user of the cache can cause; the type is that of its like.
    pub fn flush_all(&self) -> Result<usize, Error> {
        self.raw.flush_all()
    }

    /// Flushes, and gives memory back to the system of which no object is allocated. How many bytes.
    ///
    /// Looks at every free object: up to tenths of a second for millions of them. Allocations are not held up by
    /// that, but may take new memory meanwhile. One thread does it at a time, others wait for it.
    ///
    /// # Errors
    /// As [`Cache::flush_all`].
    pub fn shrink(&self) -> Result<usize, Error> {
        self.raw.shrink()
    }

    /// How much it has.
    pub fn stats(&self) -> CacheStats {
        self.raw.stats()
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
        match self.raw.gather() {
            0 => Ok(()),
            out => Err(CacheInUse { out, cache: Box::new(self) }),
        }
    }
}

impl<T> Drop for Cache<T> {
    /// Gives all memory back. If objects are allocated it keeps the memory that they are in, for ever, and
    /// reports that.
    fn drop(&mut self) {
        let objects = self.raw.gather();
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
