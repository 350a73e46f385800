//! Settings of all queues that can change while the process runs, as the kernel's administrator
//! changes them: the CPUs of unbound queues, the default affinity scope, the size of cache shards,
//! and whether power-efficient queues save power.
//!
//! A change holds for all queues at once. Items that are queued or armed stay in their pools; the
//! next submission of an item uses the new setting. If the CPUs of unbound queues change, their workers
//! move at once, also those in items. The attribute tree (`sysfs`) has the same settings under the
//! kernel's names. If a queue needs a thread that cannot be created, it stays as it was, is tried again
//! later, and a [`Report::SpawnFailed`](crate::Report::SpawnFailed) is issued.
//!
//! ```standalone_crate
//! use uwork::{AffinityScope, Queue, housekeeping};
//!
//! let queue = Queue::builder("poll").power_efficient().build()?;
//! assert!(queue.affinity_scope().is_none(), "a per-CPU queue");
//! housekeeping::set_power_efficient(true);
//! assert_eq!(queue.affinity_scope().unwrap().effective, AffinityScope::System);
//! assert_eq!(queue.spawn(|| 6 * 7).join().unwrap(), 42);
//! # Ok::<(), uwork::Error>(())
//! ```

use uwork_engine::Housekeeping;
use uwork_linux::{Error, engine};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScope;

/// The CPUs that unbound queues use at present.
pub fn cpumask() -> CpuSet {
    engine().cpus().unbound_cpumask.clone()
}

/// Chooses the CPUs that unbound queues use. Isolated CPUs are excluded at the start, and can be
/// chosen here. While the process may use none of the chosen CPUs, unbound queues use those that
/// they would use without a choice, and items that wait are run there; that is reported
/// ([`Report::CpumaskWithoutCpu`](crate::Report::CpumaskWithoutCpu)).
///
/// # Errors
/// The mask has no CPU that the process may use; then nothing changes.
pub fn set_cpumask(cpumask: CpuSet) -> Result<(), Error> {
    Ok(engine().set_housekeeping(|settings| settings.cpumask = Some(cpumask))?)
}

/// The affinity scope of queues that chose none.
pub fn default_affinity_scope() -> AffinityScope {
    engine().housekeeping().default_scope
}

/// Changes the affinity scope of all queues that chose none. Where it would make one pod of a
/// queue's CPUs, the next smaller scope is in effect, as ever.
pub fn set_default_affinity_scope(scope: AffinityScope) {
    change(|settings| settings.default_scope = scope);
}

/// Cores in a pod of the scope `cache_shard`.
pub fn cache_shard_size() -> u32 {
    engine().housekeeping().cache_shard_size
}

/// Changes the number of cores in a pod of the scope `cache_shard`. 0 counts as 1.
pub fn set_cache_shard_size(cores: u32) {
    change(|settings| settings.cache_shard_size = cores);
}

/// Whether power-efficient queues save power.
pub fn power_efficient() -> bool {
    engine().housekeeping().power_efficient
}

/// Switches whether the queues with the flag [`POWER_EFFICIENT`](crate::Flags::POWER_EFFICIENT)
/// save power ([`Builder::power_efficient`](crate::Builder::power_efficient)). `UWORK_POWER_EFFICIENT`
/// and [`Setup::power_efficient`](crate::Setup::power_efficient) give the value at the start.
pub fn set_power_efficient(saves: bool) {
    change(|settings| settings.power_efficient = saves);
}

/// Applies a change that no mask makes invalid.
fn change(change: impl FnOnce(&mut Housekeeping)) {
    let changed = engine().set_housekeeping(change);
    debug_assert!(changed.is_ok(), "only a new mask is refused");
}
