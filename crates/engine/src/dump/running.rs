//! What a slot runs, as far as others can see.

use crate::dump::{Function, RunningInfo};
use crate::host::Host;
use crate::slot::Slot;

/// What runs in a slot; nothing if its owner is in no item. Takes no lock but that of the description. The
/// parts may be of two runs that follow each other.
pub(crate) fn running_of<H: Host>(slot: &Slot<H>) -> Option<RunningInfo> {
    let run = slot.present_run()?;
    let (pwq, batch_began_ns) = slot.batch.get();
    let running = slot.running();
    let item = running.map(|running| running.item);
    let function = running.map(|running| Function { address: running.func, name: None });
    let description = slot.description(run);
    Some(RunningInfo { run, batch_began_ns, pwq, queue: None, item, function, description })
}
