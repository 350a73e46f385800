//! The child process: restricts itself to its CPUs, measures a part of a variant's tries and prints
//! them.

use std::time::Duration;

use uwork::topology::Machine;

use super::plan::{DECLARED, Order, READY, TIMER_COMPUTE};
use super::{lateness, ready, timer};
use crate::UserError;
use crate::bench::{affinity, measured};

/// A try fails if the expected event does not occur for this long. No item takes a tenth of it, but
/// other programs may keep the process off its CPUs for seconds.
pub(super) const HANGS: Duration = Duration::from_secs(60);

/// Measures and prints. Items are not cleaned up, because the process ends.
pub(super) fn run(order: &Order) -> Result<(), UserError> {
    measured::end_on_panic();
    restrict(order.cpus)?;
    let blocking = uwork::dump().blocking;
    if blocking.tier.to_string() != order.tier {
        eprintln!("the tier is {}, not {}: {}", blocking.tier, order.tier, blocking.reason);
    }
    let late = match order.case.as_str() {
        READY => ready::measure(order.samples, order.first)?,
        case => timer::measure(&timer::Way {
            computes: case == TIMER_COMPUTE,
            // On a single CPU this tier cannot detect an undeclared sleep.
            declares: order.tier == DECLARED && order.cpus == 1,
            spare: order.spare,
            samples: order.samples,
        })?,
    };
    lateness::print(&late);
    Ok(())
}

/// Must be called before the engine starts, which reads the affinity mask and starts threads that
/// inherit it.
fn restrict(count: usize) -> Result<(), UserError> {
    let machine = Machine::read().map_err(|error| UserError(error.to_string()))?;
    let cpus: Vec<u32> = machine.allowed.iter().take(count).collect();
    if cpus.len() < count {
        return Err(UserError(format!("the process may use {} CPU(s) only", cpus.len())));
    }
    affinity::restrict_to(&cpus)
        .map_err(|error| UserError(format!("sched_setaffinity for CPUs {cpus:?}: {error}")))
}
