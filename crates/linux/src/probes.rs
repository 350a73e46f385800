//! USDT probes with the names and values of the kernel's workqueue tracepoints, for `perf`, `bpftrace`
//! and debuggers. `readelf -n` lists them. Their provider is `uwork`.
//!
//! Each probe has a semaphore that a tool raises while it looks. Until then a probe costs a load and
//! a branch that is not taken, and its values are not computed.

use probe::probe_lazy;
use uwork_engine::host::{ItemPoint, ItemProbe, SubmissionProbe};

/// `workqueue_queue_work`: item, function, the queue's name, the requested CPU, and the pool's CPU or
/// -1. The name does not end with a NUL, so its length is the sixth value.
#[inline(always)]
pub(crate) fn submission<'a>(values: impl Fn() -> SubmissionProbe<'a>) {
    probe_lazy!(
        uwork,
        workqueue_queue_work,
        values().item.item,
        values().item.function,
        values().queue.as_ptr(),
        values().requested_cpu,
        values().cpu.map_or(-1, |cpu| cpu as isize),
        values().queue.len(),
    );
}

/// The other three: item and function.
#[inline(always)]
pub(crate) fn item(point: ItemPoint, values: impl Fn() -> ItemProbe) {
    match point {
        ItemPoint::Activated => {
            probe_lazy!(uwork, workqueue_activate_work, values().item, values().function);
        }
        ItemPoint::Started => {
            probe_lazy!(uwork, workqueue_execute_start, values().item, values().function);
        }
        ItemPoint::Ended => {
            probe_lazy!(uwork, workqueue_execute_end, values().item, values().function);
        }
    }
}
