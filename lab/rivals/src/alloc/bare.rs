//! A free list for each CPU without any protection, valid only while a single thread uses it. It is
//! the lower bound for the cost of protected allocators.

use super::{Allocator, BareLists, OBJECT, SpinLock};

/// Objects of a list: as many as in a magazine of uwork.
const LIST: usize = 256;
const HALF: usize = LIST / 2;
/// Bytes requested from the system at once.
const CHUNK: usize = 4 << 20;

// SAFETY: the list owns its objects.
unsafe impl Send for List {}

/// One list. The first `used` entries are free objects.
#[repr(C)]
pub(super) struct List {
    used: usize,
    objects: [*mut u8; LIST],
    /// Objects that were never used, and objects that did not fit into the list.
    fresh: *mut u8,
    fresh_left: usize,
    spilled: Vec<*mut u8>,
}

impl List {
    pub(super) const fn new() -> Self {
        let null = std::ptr::null_mut();
        Self { used: 0, objects: [null; LIST], fresh: null, fresh_left: 0, spilled: Vec::new() }
    }

    #[inline(always)]
    pub(super) fn pop(&mut self) -> *mut u8 {
        if self.used == 0 {
            self.refill();
        }
        self.used -= 1;
        // SAFETY: at most `used` objects are in the list, and at least one.
        unsafe { *self.objects.get_unchecked(self.used) }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, object: *mut u8) {
        if self.used == LIST {
            self.spill();
        }
        // SAFETY: `used` is below the list's length.
        unsafe { *self.objects.get_unchecked_mut(self.used) = object };
        self.used += 1;
    }

    #[cold]
    fn refill(&mut self) {
        let rest = self.spilled.len().saturating_sub(HALF);
        let taken = self.spilled.len() - rest;
        self.objects[..taken].copy_from_slice(&self.spilled[rest..]);
        self.spilled.truncate(rest);
        self.used = taken;
        if taken > 0 {
            return;
        }
        if self.fresh_left == 0 {
            self.fresh =
                Vec::<[u8; OBJECT]>::with_capacity(CHUNK / OBJECT).leak().as_mut_ptr().cast();
            self.fresh_left = CHUNK / OBJECT;
        }
        // In reverse order, so that successive pops return ascending addresses.
        for place in self.objects[..HALF].iter_mut().rev() {
            *place = self.fresh;
            self.fresh = self.fresh.wrapping_add(OBJECT);
        }
        self.used = HALF;
        self.fresh_left -= HALF;
    }

    #[cold]
    fn spill(&mut self) {
        self.spilled.extend_from_slice(&self.objects[HALF..]);
        self.used = HALF;
    }
}

/// See the module. With `LOCKED`, each list has a lock that is acquired and released. This measures
/// the cost of one locked instruction alone, without the other work of a real lock.
pub struct Bare<const LOCKED: bool>(BareLists<Part>);

/// The lock is next to the field that is used first, on the same cache line.
#[repr(C)]
struct Part {
    lock: SpinLock,
    list: List,
}

impl<const LOCKED: bool> Bare<LOCKED> {
    /// Empty lists for all CPUs that this process may use.
    pub fn new() -> Self {
        Self(BareLists::new(|_| Part { lock: SpinLock::default(), list: List::new() }))
    }

    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce(&mut List) -> R) -> R {
        // SAFETY: only one thread uses the lists, as the module requires.
        let Part { lock, list } = unsafe { self.0.here() };
        if LOCKED { lock.with(|| f(list)) } else { f(list) }
    }
}

impl<const LOCKED: bool> Default for Bare<LOCKED> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const LOCKED: bool> Allocator for Bare<LOCKED> {
    #[inline(always)]
    fn alloc(&self) -> *mut u8 {
        self.with(List::pop)
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8) {
        self.with(|list| list.push(object));
    }
}
