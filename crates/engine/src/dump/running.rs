//! What a slot runs, as far as others can see.

use crate::dump::RunningInfo;
use crate::host::Host;
use crate::slot::Slot;

/// What runs in a slot; nothing if its owner is in no item. Takes no lock. The parts may be of two
/// runs that follow each other.
pub(crate) fn running_of<H: Host>(slot: &Slot<H>) -> Option<RunningInfo> {
    let run = slot.run_in_progress()?;
    let (pwq, batch_began_ns) = slot.batch.get();
    Some(RunningInfo { run, batch_began_ns, pwq, queue: None, function: None, description: None })
}
