//! Consumers.

use std::ffi::{CString, c_char, c_int, c_void};
use std::time::Duration;

use uwork_bridge::{Bridge, Counters, Handlers};
use uwork_capi::error::{fail, guard, guarded, misuse, must_return};
use uwork_capi::memory::can_create;

use crate::config::{UwBridgeConfig, checked};
use crate::error::{failed, leaked};
use crate::given::{array, text};
use crate::job::{UwBridgeFn, run};

/// A running consumer, and its name for C.
pub struct UwBridge {
    bridge: Bridge,
    consumer: CString,
}

/// `struct uw_bridge_handler`.
#[repr(C)]
pub struct UwBridgeHandler {
    /// The name of the jobs that it takes; NULL: all that no other handler takes.
    pub name: *const c_char,
    /// The function.
    pub func: UwBridgeFn,
    /// Its argument.
    pub arg: *mut c_void,
}

/// `struct uw_bridge_counters`.
#[derive(Default)]
#[repr(C)]
pub struct UwBridgeCounters {
    /// Jobs that were acknowledged.
    pub done: u64,
    /// Attempts that failed and are tried again.
    pub retries: u64,
    /// Jobs that became dead letters.
    pub dead: u64,
    /// Jobs taken over from other consumers.
    pub reclaimed: u64,
    /// Jobs that another consumer took over from this one.
    pub lost: u64,
    /// Completions of jobs that were no longer pending.
    pub duplicates: u64,
    /// Jobs that came back to the stream at the end.
    pub handed_back: u64,
    /// Exchanges with a server that failed.
    pub faults: u64,
    /// Jobs held now.
    pub held: u64,
    /// At the end: runs that had not ended within the limit.
    pub abandoned: u64,
    /// At the end: jobs whose fate no server has heard of.
    pub uncommitted: u64,
}

/// The function that gets the consumer's lines.
pub type UwBridgeReport = Option<unsafe extern "C-unwind" fn(*const c_char, *mut c_void)>;

/// The program's argument of a function.
#[derive(Clone, Copy)]
struct Argument(*mut c_void);

// SAFETY: by uwork-bridge.h the functions run on any thread, several at once, with that argument.
unsafe impl Send for Argument {}
// SAFETY: as above.
unsafe impl Sync for Argument {}

impl Argument {
    /// A method, so that a closure captures the whole and not the pointer in it.
    fn get(self) -> *mut c_void {
        self.0
    }
}

impl UwBridgeCounters {
    fn of(counters: Counters) -> UwBridgeCounters {
        UwBridgeCounters {
            done: counters.done,
            retries: counters.retries,
            dead: counters.dead,
            reclaimed: counters.reclaimed,
            lost: counters.lost,
            duplicates: counters.duplicates,
            handed_back: counters.handed_back,
            faults: counters.faults,
            held: counters.held,
            ..UwBridgeCounters::default()
        }
    }
}

/// # Safety
/// The handlers are as `uwork-bridge.h` describes them.
unsafe fn handlers(given: &[UwBridgeHandler]) -> Result<Handlers, c_int> {
    let mut handlers = Handlers::new();
    for handler in given {
        // SAFETY: by the caller.
        let name = unsafe { text("the name of a handler", handler.name) }?;
        let Some(function) = handler.func else {
            return Err(misuse(libc::EINVAL, "the function of a handler is NULL"));
        };
        let arg = Argument(handler.arg);
        let handler = move |job: &uwork_bridge::Job| run(job, function, arg.get());
        handlers = match name {
            Some(name) => handlers.add(name, handler),
            None => handlers.otherwise(handler),
        };
    }
    Ok(handlers)
}

/// Starts a consumer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_start(
    config: *const UwBridgeConfig,
    first: *const UwBridgeHandler,
    count: usize,
    report: UwBridgeReport,
    arg: *mut c_void,
) -> *mut UwBridge {
    let arg = Argument(arg);
    let print = move |line: &str| match report {
        Some(report) => {
            let line = CString::new(line.replace('\0', " ")).unwrap_or_default();
            // SAFETY: by uwork-bridge.h.
            must_return(|| unsafe { report(line.as_ptr(), arg.get()) });
        }
        None => uwork_capi::error::print(&format!("uwork bridge: {line}\n")),
    };
    let body = || {
        can_create()?;
        // SAFETY: by uwork-bridge.h.
        let (config, handlers) = unsafe {
            (checked(config)?.settings()?, handlers(array("the handlers", first, count)?)?)
        };
        let bridge = Bridge::start(config, handlers, print).map_err(|error| failed(&error))?;
        let consumer = CString::new(bridge.consumer()).unwrap_or_default();
        Ok(UwBridge { bridge, consumer })
    };
    leaked(guarded(body).and_then(|made| made))
}

/// The name of the consumer on the server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_consumer(bridge: *const UwBridge) -> *const c_char {
    // SAFETY: NULL, or from `uw_bridge_start` and not stopped (uwork-bridge.h).
    unsafe { bridge.as_ref() }.map_or(c"".as_ptr(), |bridge| bridge.consumer.as_ptr())
}

/// The error of a call for a consumer that runs in the parent of this forked process.
fn of_parent() -> c_int {
    fail(libc::ECANCELED, "the consumer runs in the parent of this forked process")
}

/// Reads the counters.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_get_counters(
    bridge: *const UwBridge,
    counters: *mut UwBridgeCounters,
) -> c_int {
    // SAFETY: NULL, or from `uw_bridge_start` and not stopped; NULL or a valid place.
    match unsafe { (bridge.as_ref(), counters.as_mut()) } {
        (Some(bridge), Some(_)) if bridge.bridge.is_of_parent() => of_parent(),
        (Some(bridge), Some(counters)) => guard(|| {
            *counters = UwBridgeCounters::of(bridge.bridge.counters());
            0
        }),
        _ => misuse(libc::EINVAL, "the consumer or the place for its counters is NULL"),
    }
}

/// Ends a consumer, and frees it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_bridge_stop(
    bridge: *mut UwBridge,
    limit_ns: u64,
    counters: *mut UwBridgeCounters,
) -> c_int {
    if bridge.is_null() {
        return misuse(libc::EINVAL, "the consumer is NULL");
    }
    // SAFETY: from `uw_bridge_start`, and stopped once (uwork-bridge.h).
    let bridge = unsafe { Box::from_raw(bridge) };
    guard(|| {
        if bridge.bridge.is_of_parent() {
            drop(bridge);
            return of_parent();
        }
        let stopped = bridge.bridge.stop(Duration::from_nanos(limit_ns));
        // SAFETY: NULL or a valid place (uwork-bridge.h).
        if let Some(counters) = unsafe { counters.as_mut() } {
            *counters = UwBridgeCounters {
                abandoned: stopped.abandoned as u64,
                uncommitted: stopped.uncommitted as u64,
                ..UwBridgeCounters::of(stopped.counters)
            };
        }
        0
    })
}
