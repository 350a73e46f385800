//! A free list for each CPU without any protection: right only while one thread uses it. It is the floor
//! for everything that does protect.

use std::cell::UnsafeCell;

use super::{Allocator, OBJECT};
use crate::cpus;

/// Objects of a list: as many as uwork's magazines have.
const LIST: usize = 128;
const HALF: usize = LIST / 2;
/// Bytes that are taken from the system at once.
const CHUNK: usize = 4 << 20;

/// One list: the first `used` are free objects.
pub(super) struct List {
    used: usize,
    objects: [*mut u8; LIST],
    /// Objects that were never used, and those that there was no room for.
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
        // SAFETY: at most as many are used as there are.
        unsafe { *self.objects.get_unchecked(self.used) }
    }

    #[inline(always)]
    pub(super) fn push(&mut self, object: *mut u8) {
        if self.used == LIST {
            self.spill();
        }
        // SAFETY: fewer are used than there are.
        unsafe { *self.objects.get_unchecked_mut(self.used) = object };
        self.used += 1;
    }

    #[cold]
    fn refill(&mut self) {
        while self.used < HALF {
            let Some(object) = self.spilled.pop() else { break };
            self.objects[self.used] = object;
            self.used += 1;
        }
        if self.used > 0 {
            return;
        }
        if self.fresh_left == 0 {
            self.fresh =
                Vec::<[u8; OBJECT]>::with_capacity(CHUNK / OBJECT).leak().as_mut_ptr().cast();
            self.fresh_left = CHUNK / OBJECT;
        }
        for place in &mut self.objects[..HALF] {
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

/// See the module.
pub struct Bare {
    lists: Box<[Padded]>,
}

#[repr(align(128))]
struct Padded(UnsafeCell<List>);

// SAFETY: only ever used by one thread at a time: see the module.
unsafe impl Sync for Bare {}

impl Bare {
    /// Empty lists, for all CPUs that this process may use.
    pub fn new() -> Self {
        let cpus = cpus::allowed().last().map_or(1, |last| last + 1);
        Self { lists: (0..cpus).map(|_| Padded(UnsafeCell::new(List::new()))).collect() }
    }

    #[inline(always)]
    fn here(&self) -> *mut List {
        self.lists[cpus::current()].0.get()
    }
}

impl Default for Bare {
    fn default() -> Self {
        Self::new()
    }
}

impl Allocator for Bare {
    #[inline(always)]
    fn alloc(&self) -> *mut u8 {
        // SAFETY: nobody else uses it.
        unsafe { &mut *self.here() }.pop()
    }

    #[inline(always)]
    unsafe fn free(&self, object: *mut u8) {
        // SAFETY: nobody else uses it.
        unsafe { &mut *self.here() }.push(object);
    }
}
