//! A cache of objects of one type. `raw` has its mechanism.

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
use uwork_linux::{Error, engine};

use raw::{Capacity, RawCache, capacity};

/// A cache of objects of one type: gives out memory for a `T` from a magazine of the caller's CPU,
/// without a call of the system's allocator.
///
/// An allocation and a release are some ten instructions each; in modes 0 and 2 none of them is
/// locked. Memory allocated on one CPU can be freed on any. Memory returns to the system only by
/// [`Cache::shrink`] and when the cache is dropped.
///
/// A child after `fork` has the same cache. Objects that another thread was about to allocate or
/// free at the fork stay allocated there, and so do those in magazines whose lock another thread
/// held.
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

/// The sizes of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Objects in all of its memory.
    pub objects: usize,
    /// Of these, how many are allocated. Exact while no thread allocates or frees.
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

    /// A cache whose memory is all zeros when it is new.
    #[cfg(test)]
    pub(super) fn zeroed_in_mode(mode: super::Mode) -> Cache<T> {
        let raw = RawCache::zeroed_in_mode(mode, Layout::new::<T>());
        Cache { name: "tested".to_owned(), raw, owns: PhantomData }
    }

    /// An object with this value. It is freed when the handle is dropped.
    ///
    /// Aborts if the system has no memory, as a `Box` does.
    #[inline]
    pub fn alloc(&self, value: T) -> Cached<'_, T> {
        let object = self.alloc_raw();
        // SAFETY: memory for a T that this call owns.
        unsafe { object.write(value) };
        Cached { object, cache: self }
    }

    /// Memory for an object, uninitialized. The cache does not reclaim it by itself: see
    /// [`Cache::free_raw`].
    ///
    /// Aborts if the system has no memory, as a `Box` does.
    #[inline(always)]
    pub fn alloc_raw(&self) -> NonNull<T> {
        match self.raw.alloc(Self::CAPACITY) {
            Some(object) => object.cast(),
            None => handle_alloc_error(Layout::new::<T>()),
        }
    }

    /// Frees memory from [`Cache::alloc_raw`]. Does not drop the value in it.
    ///
    /// # Safety
    /// `object` is from this cache, was not freed since, and is not in use.
    #[inline(always)]
    pub unsafe fn free_raw(&self, object: NonNull<T>) {
        // SAFETY: by this function's contract.
        unsafe { self.raw.free(object.cast(), Self::CAPACITY) };
    }

    /// Moves the objects in the magazines of all CPUs to the depot, and returns their number.
    /// Objects that another thread is moving between a magazine and the depot at that moment, half
    /// a magazine at most, are in neither.
    ///
    /// The mode decides how other CPUs are accessed: see [`Mode`](super::Mode). CPUs with an empty
    /// magazine are left alone.
    ///
    /// # Errors
    /// None that a user of the cache can cause; the type is that of similar calls.
    pub fn flush_all(&self) -> Result<usize, Error> {
        self.raw.flush_all()
    }

    /// Flushes, and returns memory to the system that contains no allocated object. Returns the
    /// number of bytes.
    ///
    /// Examines every free object: up to tenths of a second for millions of them. Allocations do
    /// not wait for that, but may take new memory meanwhile. One thread does it at a time, others
    /// wait for it.
    ///
    /// # Errors
    /// As [`Cache::flush_all`].
    pub fn shrink(&self) -> Result<usize, Error> {
        self.raw.shrink()
    }

    /// The current sizes.
    pub fn stats(&self) -> CacheStats {
        self.raw.stats()
    }

    /// Returns all memory to the system.
    ///
    /// # Errors
    /// Objects are allocated. The cache is returned unchanged.
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
    /// Frees all memory. If objects are allocated, it leaks the memory that they are in, and
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

/// The error of [`Cache::close`] while objects are allocated.
pub struct CacheInUse<T> {
    /// The number of allocated objects.
    pub out: usize,
    /// The cache, unchanged.
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

/// An object of a [`Cache`], as a `Box` is an object of the system's allocator.
pub struct Cached<'a, T> {
    object: NonNull<T>,
    cache: &'a Cache<T>,
}

// SAFETY: it owns its object; the cache is shared, and frees from any thread.
unsafe impl<T: Send> Send for Cached<'_, T> {}
// SAFETY: a shared one gives shared access to the object only.
unsafe impl<T: Sync> Sync for Cached<'_, T> {}

impl<'a, T> Cached<'a, T> {
    /// Releases the object from its handle, so that it is not freed: for [`Cached::from_raw`], or
    /// for ever.
    pub fn into_raw(this: Cached<'a, T>) -> NonNull<T> {
        ManuallyDrop::new(this).object
    }

    /// Makes a handle for such an object again.
    ///
    /// # Safety
    /// `object` is from [`Cached::into_raw`] of an object of this cache, and there is no other
    /// handle.
    pub unsafe fn from_raw(cache: &'a Cache<T>, object: NonNull<T>) -> Cached<'a, T> {
        Cached { object, cache }
    }
}

impl<T> Deref for Cached<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this handle owns it, initialized.
        unsafe { self.object.as_ref() }
    }
}

impl<T> DerefMut for Cached<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this handle owns it, initialized.
        unsafe { self.object.as_mut() }
    }
}

impl<T> Drop for Cached<'_, T> {
    #[inline]
    fn drop(&mut self) {
        /// Frees the memory, also if the value's destructor panics.
        struct Free<'a, T>(NonNull<T>, &'a Cache<T>);
        impl<T> Drop for Free<'_, T> {
            #[inline(always)]
            fn drop(&mut self) {
                // SAFETY: from this cache, and its handle is being dropped.
                unsafe { self.1.free_raw(self.0) };
            }
        }
        let free = Free(self.object, self.cache);
        // SAFETY: this handle owns it, initialized, and does not use it afterwards.
        unsafe { free.0.drop_in_place() };
    }
}

impl<T: fmt::Debug> fmt::Debug for Cached<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
