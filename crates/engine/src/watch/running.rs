//! The item that a slot runs, as far as other threads can see it.

use crate::slot::Slot;
use crate::words::dump::{Function, RunningInfo};
use crate::words::host::Host;

/// The item that runs in a slot; `None` if its owner is in no item. Takes no lock but that of the
/// description. The parts may belong to two consecutive runs.
pub(crate) fn running_of<H: Host>(slot: &Slot<H>) -> Option<RunningInfo> {
    let run = slot.present_run()?;
    let (pwq, batch_began_ns) = slot.batch.get();
    let running = slot.running();
    let item = running.map(|running| running.item);
    let function = running.map(|running| Function { address: running.func, name: None });
    let description = slot.description(run);
    Some(RunningInfo { run, batch_began_ns, pwq, queue: None, item, function, description })
}
