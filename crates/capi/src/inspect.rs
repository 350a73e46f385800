//! Inspection: the current item, its description, dumps and reports.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use uwork::{Flags, Report, foreign};

use crate::error::{c_string, caught, fail, give, guard, guarded, misuse};
use crate::item::UwWork;
use crate::memory::can_describe;
use crate::queue::{UwQueue, queue};

/// The item that the calling thread runs.
#[unsafe(no_mangle)]
pub extern "C" fn uw_current_work() -> *mut UwWork {
    let Ok(Some((address, function))) = caught(foreign::current_item) else {
        return std::ptr::null_mut();
    };
    match crate::debug::user_of(address) {
        Some(item) => item,
        // A job, or an item of Rust code, is not an item of the C interface.
        None if !foreign::is_foreign(function) => std::ptr::null_mut(),
        None => std::ptr::with_exposed_provenance_mut(address),
    }
}

/// Whether the calling thread is a rescuer.
#[unsafe(no_mangle)]
pub extern "C" fn uw_current_is_rescuer() -> bool {
    caught(uwork::current_is_rescuer).unwrap_or(false)
}

/// Describes the running item, for dumps and reports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_set_worker_desc(text: *const c_char) -> c_int {
    if text.is_null() {
        return misuse(libc::EINVAL, "the description is NULL");
    }
    // SAFETY: by uwork.h.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    guard(|| c_int::from(uwork::set_worker_desc(&text)))
}

/// The function that `uw_blocking` and `uw_unpinned` call.
pub type UwBlockingFn = Option<unsafe extern "C-unwind" fn(*mut c_void)>;

/// Declares to the pool that the running item blocks while the function runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_blocking(func: UwBlockingFn, arg: *mut c_void) -> c_int {
    match crate::cpu::given(func) {
        Ok(func) => guard(|| {
            // SAFETY: by uwork.h.
            uwork::blocking(|| foreign::must_return(|| unsafe { func(arg) }));
            0
        }),
        Err(code) => code,
    }
}

/// Calls the function on all CPUs of the running item's pod.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_unpinned(func: UwBlockingFn, arg: *mut c_void) -> c_int {
    match crate::cpu::given(func) {
        Ok(func) => guard(|| {
            // SAFETY: by uwork.h.
            uwork::unpinned(|| foreign::must_return(|| unsafe { func(arg) }));
            0
        }),
        Err(code) => code,
    }
}

/// How many runs of items have ended in a panic.
#[unsafe(no_mangle)]
pub extern "C" fn uw_panics() -> u64 {
    uwork::panics()
}

fn text_or_null(text: Result<String, c_int>) -> *mut c_char {
    match text {
        Ok(text) => give(text),
        Err(code) => {
            crate::queue::set_errno(-code);
            std::ptr::null_mut()
        }
    }
}

/// A dump of everything, as text.
#[unsafe(no_mangle)]
pub extern "C" fn uw_dump() -> *mut c_char {
    text_or_null(can_describe().and_then(|()| guarded(|| uwork::dump().to_string())))
}

/// A dump of one queue.
#[unsafe(no_mangle)]
pub extern "C" fn uw_queue_dump(handle: *const UwQueue) -> *mut c_char {
    let dump = |queue: &uwork::Queue| guarded(|| queue.dump().to_string());
    text_or_null(queue(handle).and_then(|queue| can_describe().and_then(|()| dump(queue))))
}

/// A dump of the queues that have all of these flags.
#[unsafe(no_mangle)]
pub extern "C" fn uw_dump_queues(flags: c_uint) -> *mut c_char {
    let wanted = Flags::from_bits_retain(flags);
    let dump = || {
        let queues = uwork::dump_queues(|_, flags| flags.contains(wanted));
        queues.iter().map(ToString::to_string).collect()
    };
    text_or_null(can_describe().and_then(|()| guarded(dump)))
}

/// Has a signal write a dump.
#[unsafe(no_mangle)]
pub extern "C" fn uw_dump_on_signal(signal: c_int) -> c_int {
    guard(|| {
        let outcome = uwork::control::dump_on_signal(signal);
        outcome.map_or_else(|reason| fail(libc::EINVAL, reason), |()| 0)
    })
}

/// The function that receives reports.
pub type UwReporter = Option<unsafe extern "C-unwind" fn(*const c_char)>;

/// Sets the function that receives the library's reports. It can be set once.
#[unsafe(no_mangle)]
pub extern "C" fn uw_set_reporter(reporter: UwReporter) -> c_int {
    let reporter = match crate::cpu::given(reporter) {
        Ok(reporter) => reporter,
        Err(code) => return code,
    };
    let report = move |report: &Report| {
        if let Some(text) = foreign::report_text(report) {
            // SAFETY: by uwork.h.
            unsafe { reporter(c_string(text).as_ptr()) };
        }
    };
    if uwork::set_reporter(report).is_err() {
        return fail(libc::EEXIST, "a reporter was set before");
    }
    0
}

/// The function that receives reports, with an argument of the program's.
pub type UwReporterWith = Option<unsafe extern "C-unwind" fn(*mut c_void, *const c_char)>;

/// An argument that the program passes to its reporter.
struct Argument(*mut c_void);

// SAFETY: only passed on; by uwork.h the reporter may be called from any thread.
unsafe impl Send for Argument {}
// SAFETY: as above.
unsafe impl Sync for Argument {}

/// Replaces the function that receives the library's reports.
#[unsafe(no_mangle)]
pub extern "C" fn uw_replace_reporter(reporter: UwReporterWith, arg: *mut c_void) -> c_int {
    let reporter = match crate::cpu::given(reporter) {
        Ok(reporter) => reporter,
        Err(code) => return code,
    };
    let arg = Argument(arg);
    guard(|| {
        uwork::replace_reporter(move |report| {
            // The whole of it is captured, which may be sent to other threads.
            let Argument(arg) = &arg;
            if let Some(text) = foreign::report_text(report) {
                // SAFETY: by uwork.h.
                unsafe { reporter(*arg, c_string(text).as_ptr()) };
            }
        });
        0
    })
}
