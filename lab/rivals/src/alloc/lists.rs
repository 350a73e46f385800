//! One value for each CPU, without any protection.

use std::cell::UnsafeCell;

use crate::cpus;

/// See the module.
pub struct BareLists<T>(Box<[Padded<T>]>);

#[repr(align(128))]
struct Padded<T>(UnsafeCell<T>);

// SAFETY: callers of `here` guarantee exclusive access.
unsafe impl<T: Send> Sync for BareLists<T> {}

impl<T> BareLists<T> {
    /// Creates values with `value`, from CPU 0 to the last CPU that this process may use.
    pub fn new(value: impl Fn(usize) -> T) -> Self {
        let cpus = cpus::allowed().last().map_or(1, |last| last + 1);
        Self((0..cpus).map(|cpu| Padded(UnsafeCell::new(value(cpu)))).collect())
    }

    /// The value of the caller's CPU.
    ///
    /// # Safety
    /// No reference from another call is in use.
    #[inline(always)]
    #[allow(clippy::mut_from_ref, reason = "its caller answers for it")]
    pub unsafe fn here(&self) -> &mut T {
        // SAFETY: by this function's contract.
        unsafe { &mut *self.0[cpus::current()].0.get() }
    }

    /// Pointers to all values. The user of a pointer guarantees exclusive access.
    pub fn all(&self) -> impl Iterator<Item = *mut T> {
        self.0.iter().map(|value| value.0.get())
    }
}
