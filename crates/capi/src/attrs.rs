//! Attributes of existing queues.

use std::ffi::{c_char, c_int, c_uint, c_ulong};

use uwork::{AffinityScope, AffinityScopeChoice, CpuSet};

use crate::delayed::duration_of;
use crate::error::{Written, done, fail, failed, misuse};
use crate::queue::{UwQueue, change_queue, queue, with_queue};

/// `enum uw_scope` without `UW_SCOPE_DEFAULT`, which is 0.
const SCOPES: [AffinityScope; 7] = [
    AffinityScope::Cpu,
    AffinityScope::Smt,
    AffinityScope::Cluster,
    AffinityScope::CacheShard,
    AffinityScope::Cache,
    AffinityScope::Numa,
    AffinityScope::System,
];

/// `None` for the default.
pub(crate) fn scope_of(number: c_uint) -> Result<Option<AffinityScopeChoice>, c_int> {
    match number.checked_sub(1) {
        None => Ok(None),
        Some(index) => match SCOPES.get(index as usize) {
            Some(&scope) => Ok(Some(AffinityScopeChoice::Explicit(scope))),
            None => {
                let text = format!(
                    "{} is no affinity scope; allowed are 0 to {}",
                    Written(number),
                    SCOPES.len()
                );
                Err(fail(libc::EINVAL, text))
            }
        },
    }
}

/// A `max_active`, whose range the library checks. A negative one is refused here, because the
/// library would report another number.
pub(crate) fn limit_of(number: c_uint) -> Result<u32, c_int> {
    if c_int::try_from(number).is_ok() {
        return Ok(number);
    }
    let given = Written(number);
    Err(fail(libc::EINVAL, format!("max_active {given} is out of range; allowed are 1 to 2048")))
}

/// A CPU number. This function does not check that the CPU exists.
pub(crate) fn cpu_of(cpu: c_int) -> Result<u32, c_int> {
    u32::try_from(cpu)
        .map_err(|_| misuse(libc::EINVAL, format!("{cpu} is no CPU; allowed are 0 and above")))
}

const WORD: usize = size_of::<c_ulong>();

/// Reads a mask in the format of the kernel and of `cpu_set_t`. Returns `None` for null.
///
/// # Safety
/// `mask` is null, or points to `bytes` bytes.
pub(crate) unsafe fn cpus_of(mask: *const c_ulong, bytes: usize) -> Result<Option<CpuSet>, c_int> {
    if mask.is_null() {
        return Ok(None);
    }
    if bytes == 0 || !bytes.is_multiple_of(WORD) {
        let text = format!("the size of a CPU mask is a multiple of {WORD} bytes, not {bytes}");
        return Err(fail(libc::EINVAL, text));
    }
    // SAFETY: by this function's contract.
    let words = unsafe { std::slice::from_raw_parts(mask, bytes / WORD) };
    let mut cpus = CpuSet::new();
    for (index, word) in words.iter().enumerate() {
        for bit in (0..c_ulong::BITS).filter(|bit| word >> bit & 1 == 1) {
            cpus.insert(index as u32 * c_ulong::BITS + bit);
        }
    }
    Ok(Some(cpus))
}

/// Writes a mask of that format. Returns the number of the highest CPU, plus one.
///
/// # Safety
/// `mask` is null, or points to `bytes` bytes.
pub(crate) unsafe fn write_cpus(cpus: &CpuSet, mask: *mut c_ulong, bytes: usize) -> c_int {
    let needed = cpus.last().map_or(0, |last| last as usize + 1);
    if mask.is_null() {
        return needed as c_int;
    }
    if bytes * 8 < needed {
        return fail(
            libc::ERANGE,
            format!("the mask has room for {} CPUs; {needed} are needed", bytes * 8),
        );
    }
    // SAFETY: by this function's contract.
    let words = unsafe { std::slice::from_raw_parts_mut(mask, bytes / WORD) };
    words.fill(0);
    for cpu in cpus.iter() {
        words[(cpu / c_ulong::BITS) as usize] |= 1 << (cpu % c_ulong::BITS);
    }
    needed as c_int
}

/// Copies a text to C: as much as fits, always with a terminating zero byte. Returns the length of
/// the whole text, like `snprintf`.
///
/// # Safety
/// `buffer` points to `size` bytes, or `size` is 0.
pub(crate) unsafe fn write_text(text: &str, buffer: *mut c_char, size: usize) -> c_int {
    if size > 0 && !buffer.is_null() {
        let count = text.len().min(size - 1);
        // SAFETY: by this function's contract. One byte is left for the terminator.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr().cast(), buffer, count);
            *buffer.add(count) = 0;
        }
    }
    c_int::try_from(text.len()).unwrap_or(c_int::MAX)
}

/// The queue's name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_name(
    handle: *const UwQueue,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: by uwork.h.
    with_queue(handle, |queue| unsafe { write_text(queue.name(), buffer, size) })
}

/// The `UW_*` flags, after the rules for flags were applied.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_flags(handle: *const UwQueue) -> c_int {
    with_queue(handle, |queue| queue.flags().bits() as c_int)
}

/// How many items may run at the same time.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_max_active(handle: *const UwQueue) -> c_int {
    with_queue(handle, |queue| queue.max_active() as c_int)
}

/// Changes that.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_set_max_active(handle: *mut UwQueue, max_active: c_uint) -> c_int {
    with_queue(handle, |queue| {
        limit_of(max_active).map_or_else(|code| code, |limit| done(queue.set_max_active(limit)))
    })
}

/// The part of `max_active` that each NUMA node is guaranteed.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_min_active(handle: *const UwQueue) -> c_int {
    with_queue(handle, |queue| match queue.min_active() {
        Some(min_active) => min_active as c_int,
        None => fail(libc::EINVAL, "per-CPU and ordered queues have no min_active"),
    })
}

/// Changes that.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_set_min_active(handle: *mut UwQueue, min_active: c_uint) -> c_int {
    with_queue(handle, |queue| done(queue.set_min_active(min_active)))
}

/// The affinity scope in force, as text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_scope(
    handle: *const UwQueue,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    with_queue(handle, |queue| match queue.affinity_scope() {
        // SAFETY: by uwork.h.
        Some(scope) => unsafe { write_text(&scope.to_string(), buffer, size) },
        None => fail(libc::EINVAL, "this kind of queue has no affinity scope"),
    })
}

/// Changes the affinity scope.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_set_scope(handle: *mut UwQueue, scope: c_uint) -> c_int {
    change_queue(handle, |queue| match scope_of(scope) {
        Ok(choice) => {
            done(queue.set_affinity_scope(choice.unwrap_or(AffinityScopeChoice::Default)))
        }
        Err(code) => code,
    })
}

/// Changes whether pods never share their work with other pods.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_set_strict(handle: *mut UwQueue, strict: bool) -> c_int {
    change_queue(handle, |queue| done(queue.set_affinity_strict(strict)))
}

/// Changes the workers' niceness.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_set_nice(handle: *mut UwQueue, nice: c_int) -> c_int {
    change_queue(handle, |queue| done(queue.set_nice(nice)))
}

/// The CPUs that the queue uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_cpumask(
    handle: *const UwQueue,
    mask: *mut c_ulong,
    bytes: usize,
) -> c_int {
    // SAFETY: by uwork.h.
    with_queue(handle, |queue| unsafe { write_cpus(&queue.cpumask(), mask, bytes) })
}

/// Changes the CPUs that the queue uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_queue_set_cpumask(
    handle: *mut UwQueue,
    mask: *const c_ulong,
    bytes: usize,
) -> c_int {
    // SAFETY: by uwork.h.
    change_queue(handle, |queue| match unsafe { cpus_of(mask, bytes) } {
        Ok(Some(cpus)) => done(queue.set_cpumask(cpus)),
        Ok(None) => fail(libc::EINVAL, "the mask is NULL"),
        Err(code) => code,
    })
}

/// How much later than their deadlines timers of the queue may expire, in nanoseconds.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_timer_slack(handle: *const UwQueue) -> i64 {
    match queue(handle) {
        Ok(queue) => i64::try_from(queue.timer_slack().as_nanos()).unwrap_or(i64::MAX),
        Err(code) => i64::from(code),
    }
}

/// Changes the slack of timers that are armed from now on.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_set_timer_slack(handle: *mut UwQueue, slack_ns: u64) -> c_int {
    with_queue(handle, |queue| match duration_of("slack_ns", slack_ns) {
        Ok(slack) => {
            queue.set_timer_slack(slack);
            0
        }
        Err(code) => code,
    })
}

/// Whether items of the calling CPU wait because `max_active` is reached.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_is_congested(handle: *const UwQueue) -> c_int {
    with_queue(handle, |queue| c_int::from(queue.is_congested()))
}

/// The same, for one CPU.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_is_congested_on(handle: *const UwQueue, cpu: c_int) -> c_int {
    with_queue(handle, |queue| match cpu_of(cpu) {
        Ok(cpu) => queue.is_congested_on(cpu).map_or_else(|error| failed(&error), c_int::from),
        Err(code) => code,
    })
}

/// Whether items can be queued on this CPU.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_check_cpu(handle: *const UwQueue, cpu: c_int) -> c_int {
    with_queue(handle, |queue| match cpu_of(cpu) {
        Ok(cpu) => done(queue.check_cpu(cpu)),
        Err(code) => code,
    })
}
