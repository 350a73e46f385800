//! The counters of queues and functions, as plain structures. C reads their fields.

use std::ffi::{CString, c_char};

use uwork::{Counters, FunctionCounters, QueueCounters, Times};

use crate::error::{c_string, give, guarded};
use crate::memory::can_describe;
use crate::queue::set_errno;

/// `struct uw_times`
#[repr(C)]
pub struct UwTimes {
    count: u64,
    sum_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
}

/// `struct uw_queue_counters`
#[repr(C)]
pub struct UwQueueCounters {
    name: *const c_char,
    started: u64,
    ran: u64,
    run_ns: u64,
    cpu_ns: u64,
    cpu_intensive: u64,
    replaced: u64,
    stolen: u64,
    maydays: u64,
    rescued: u64,
    in_flight: u64,
    pending: u64,
    running: u64,
    max_active: u64,
    saturated: u64,
    run_times: UwTimes,
    waits: UwTimes,
}

/// `struct uw_function_counters`
#[repr(C)]
pub struct UwFunctionCounters {
    name: *const c_char,
    address: u64,
    run_times: UwTimes,
    waits: UwTimes,
}

/// `struct uw_counters`
#[repr(C)]
pub struct UwCounters {
    panics: u64,
    workers: u64,
    nr_queues: usize,
    nr_functions: usize,
    queues: *const *const UwQueueCounters,
    functions: *const *const UwFunctionCounters,
}

/// What `uw_counters` returns a pointer into: the structure, and what it points to. The elements of
/// a vector stay in place when the vector moves.
#[repr(C)]
struct Owned {
    /// The first field, so that its address is that of the whole.
    counters: UwCounters,
    queues: Vec<*const UwQueueCounters>,
    functions: Vec<*const UwFunctionCounters>,
    _names: Vec<CString>,
    _queues: Vec<UwQueueCounters>,
    _functions: Vec<UwFunctionCounters>,
}

fn times(times: &Times) -> UwTimes {
    let percentile = |percent| times.percentile(percent).map_or(0, |time| time.as_nanos() as u64);
    UwTimes {
        count: times.count(),
        sum_ns: times.sum().as_nanos() as u64,
        p50_ns: percentile(50),
        p90_ns: percentile(90),
        p99_ns: percentile(99),
    }
}

fn of_queue(name: *const c_char, queue: &QueueCounters) -> UwQueueCounters {
    UwQueueCounters {
        name,
        started: queue.started,
        ran: queue.ran,
        run_ns: queue.run_time.as_nanos() as u64,
        cpu_ns: queue.cpu_time.as_nanos() as u64,
        cpu_intensive: queue.cpu_intensive,
        replaced: queue.replaced,
        stolen: queue.stolen,
        maydays: queue.maydays,
        rescued: queue.rescued,
        in_flight: queue.in_flight,
        pending: queue.pending,
        running: queue.running,
        max_active: queue.max_active.into(),
        saturated: queue.saturated,
        run_times: times(&queue.run_times),
        waits: times(&queue.waits),
    }
}

fn of_function(name: *const c_char, function: &FunctionCounters) -> UwFunctionCounters {
    UwFunctionCounters {
        name,
        address: function.address as u64,
        run_times: times(&function.run_times),
        waits: times(&function.waits),
    }
}

fn own(counters: &Counters) -> Box<Owned> {
    let mut names = Vec::new();
    let mut named = |name: &str| {
        let name = c_string(name);
        // The text of a CString stays in place when the CString moves.
        let text = name.as_ptr();
        names.push(name);
        text
    };
    let queues: Vec<_> =
        counters.queues.iter().map(|queue| of_queue(named(&queue.name), queue)).collect();
    let functions: Vec<_> = counters
        .functions
        .iter()
        .map(|function| of_function(named(&function.name), function))
        .collect();
    let mut owned = Box::new(Owned {
        counters: UwCounters {
            panics: counters.panics,
            workers: counters.workers,
            nr_queues: queues.len(),
            nr_functions: functions.len(),
            queues: std::ptr::null(),
            functions: std::ptr::null(),
        },
        queues: queues.iter().map(std::ptr::from_ref).collect(),
        functions: functions.iter().map(std::ptr::from_ref).collect(),
        _names: names,
        _queues: queues,
        _functions: functions,
    });
    owned.counters.queues = owned.queues.as_ptr();
    owned.counters.functions = owned.functions.as_ptr();
    owned
}

/// The counters of every queue and every function.
#[unsafe(no_mangle)]
pub extern "C" fn uw_counters() -> *mut UwCounters {
    match can_describe().and_then(|()| guarded(|| own(&uwork::counters()))) {
        Ok(owned) => Box::into_raw(owned).cast(),
        Err(code) => {
            set_errno(-code);
            std::ptr::null_mut()
        }
    }
}

/// Frees what `uw_counters` returned; NULL is permitted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_counters_free(counters: *mut UwCounters) {
    if !counters.is_null() {
        // SAFETY: by uwork.h it is a pointer that `uw_counters` returned, and is not used any more.
        drop(unsafe { Box::from_raw(counters.cast::<Owned>()) });
    }
}

/// The counters as text in the format of OpenMetrics.
#[unsafe(no_mangle)]
pub extern "C" fn uw_metrics() -> *mut c_char {
    match can_describe().and_then(|()| guarded(|| uwork::counters().to_openmetrics())) {
        Ok(text) => give(text),
        Err(code) => {
            set_errno(-code);
            std::ptr::null_mut()
        }
    }
}
