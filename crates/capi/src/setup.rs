//! Choices that a program makes before the library starts, and the watchdog.

use std::ffi::{c_int, c_uint};
use std::mem::{MaybeUninit, offset_of};
use std::ptr;
use std::time::Duration;

use uwork::percpu::Mode;
use uwork::{BlockingTier, Setup, SetupError, watchdog};

use crate::error::{Written, fail, guard, misuse};

/// `enum uw_blocking_tier` without `UW_TIER_BEST`, which is 0.
const TIERS: [BlockingTier; 4] =
    [BlockingTier::Events, BlockingTier::Sampling, BlockingTier::Declared, BlockingTier::Standby];

/// `struct uw_setup`.
#[repr(C)]
pub struct UwSetup {
    /// The size of the structure as the caller was compiled with it.
    pub size: usize,
    /// `enum uw_blocking_tier`.
    pub blocking_tier: c_uint,
    /// `enum uw_percpu_mode`.
    pub percpu_mode: c_uint,
    /// `enum uw_power`.
    pub power: c_uint,
    /// How many workers a pool may have; 0: by the limits of its queues.
    pub pool_workers_max: c_uint,
    /// The stack of a thread that runs items, in bytes; 0: as plain threads.
    pub stack_size: usize,
}

/// The size of the structure of version 0.2, which ends before `stack_size`.
const FIRST_SIZE: usize = offset_of!(UwSetup, stack_size);

/// The choices of the caller, whose structure may be an earlier one: members that it lacks are 0.
///
/// # Safety
/// `setup` is null, or points to a structure of the size that its first member gives (uwork.h).
unsafe fn given(setup: *const UwSetup) -> Result<UwSetup, c_int> {
    if setup.is_null() {
        return Err(misuse(libc::EINVAL, "the setup is NULL"));
    }
    // SAFETY: by this function's contract.
    let size = unsafe { (&raw const (*setup).size).read() };
    if ![FIRST_SIZE, size_of::<UwSetup>()].contains(&size) {
        let known = size_of::<UwSetup>();
        let text =
            format!("the setup's size is {size} bytes and not {known}; begin with UW_SETUP_INIT");
        return Err(fail(libc::EINVAL, text));
    }
    let mut given = MaybeUninit::<UwSetup>::zeroed();
    // SAFETY: the caller's structure has this size, which is not larger than that of the copy.
    unsafe { ptr::copy_nonoverlapping(setup.cast::<u8>(), given.as_mut_ptr().cast(), size) };
    // SAFETY: numbers, all of them written or zero.
    Ok(unsafe { given.assume_init() })
}

/// The choice with this number, in an enumeration whose 0 leaves the choice to the library.
fn chosen<T: Copy>(what: &str, number: c_uint, choices: &[T]) -> Result<Option<T>, c_int> {
    match number.checked_sub(1) {
        None => Ok(None),
        Some(index) => choices.get(index as usize).copied().map(Some).ok_or_else(|| {
            let (number, last) = (Written(number), choices.len());
            let text = format!("{number} is not a {what}; allowed are 0 to {last}");
            fail(libc::EINVAL, text)
        }),
    }
}

/// Records the choices with which the library will start.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_setup(setup: *const UwSetup) -> c_int {
    guard(|| {
        // SAFETY: the pointer is null, or points to a setup (uwork.h).
        let given = match unsafe { given(setup) } {
            Ok(given) => given,
            Err(code) => return code,
        };
        let choices = chosen("blocking tier", given.blocking_tier, &TIERS)
            .and_then(|tier| Ok((tier, chosen("per-CPU mode", given.percpu_mode, &Mode::ALL)?)))
            .and_then(|(tier, mode)| {
                Ok((tier, mode, chosen("power mode", given.power, &[false, true])?))
            });
        let (tier, mode, saves) = match choices {
            Ok(choices) => choices,
            Err(code) => return code,
        };
        let mut setup = Setup::new();
        if let Some(tier) = tier {
            setup = setup.blocking_tier(tier);
        }
        if let Some(mode) = mode {
            setup = setup.percpu_mode(mode);
        }
        if let Some(saves) = saves {
            setup = setup.power_efficient(saves);
        }
        if given.pool_workers_max != 0 {
            setup = setup.pool_workers_max(given.pool_workers_max);
        }
        if given.stack_size != 0 {
            setup = setup.stack_size(given.stack_size);
        }
        setup.install().map_or_else(|error| fail(errno_of(error), error.to_string()), |()| 0)
    })
}

fn errno_of(error: SetupError) -> c_int {
    match error {
        SetupError::InstalledAlready => libc::EEXIST,
        SetupError::BadStackSize(_) => libc::EINVAL,
        _ => libc::EBUSY,
    }
}

/// Tells the watchdog that the running item takes long on purpose.
#[unsafe(no_mangle)]
pub extern "C" fn uw_watchdog_touch() {
    watchdog::touch();
}

/// How long work may wait with no progress before the watchdog reports it, in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn uw_watchdog_thresh() -> u64 {
    u64::try_from(watchdog::thresh().as_nanos()).unwrap_or(u64::MAX)
}

/// Changes that threshold.
#[unsafe(no_mangle)]
pub extern "C" fn uw_watchdog_set_thresh(thresh_ns: u64) {
    watchdog::set_thresh(Duration::from_nanos(thresh_ns));
}
