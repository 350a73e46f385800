//! An architecture without sections.

use uwork_engine::percpu::{CpuLock, Place};

pub(super) const HAS_SECTIONS: bool = false;
pub(super) const SIGNATURE: u32 = 0;

/// An address that is unique to the calling thread.
#[inline]
pub(super) fn thread_pointer() -> *mut u8 {
    thread_local! {
        static PLACE: u64 = const { 0 };
    }
    PLACE.with(|place| std::ptr::from_ref(place).cast_mut().cast())
}

/// Takes no lock.
///
/// # Safety
/// None is needed.
pub(super) unsafe fn claim(_: isize, _: &Place, _: u64) -> *mut CpuLock {
    std::ptr::null_mut()
}
