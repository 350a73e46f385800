//! The settings that an administrator changes while the process runs: the CPUs of unbound queues,
//! the default scope, the size of cache shards, and whether power-efficient queues save power.
//!
//! A value of them and a value of the CPUs form a [`Fit`]: what a queue's routes are made for. A
//! change publishes a new fit, moves the workers of unbound pools if their CPUs change, and gives every
//! queue its routes anew, with the protocol of [`super::cpus`]. Items that are queued already stay in
//! their pools, and armed timers in their wheels; the next submission of an item uses the new routes.

use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScope;

use crate::engine::{Config, Engine};
use crate::queue::QueueError;
use crate::queue::owner::Owner;
use crate::words::host::{Cpus, Host};

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Housekeeping {
    /// The CPUs that unbound queues may use, if that was chosen (the kernel's `cpumask`). While the
    /// process may use none of them, the choice has no effect.
    pub cpumask: Option<CpuSet>,
    /// The affinity scope of queues that chose none.
    pub default_scope: AffinityScope,
    /// Cores in a `cache_shard` pod. 0 counts as 1.
    pub cache_shard_size: u32,
    /// Whether queues with the flag `POWER_EFFICIENT` save power: per-CPU queues are unbound, and
    /// queues without a scope of their own share one pool of unpinned workers.
    pub power_efficient: bool,
}

impl Housekeeping {
    pub(crate) fn new(config: &Config) -> Housekeeping {
        Housekeeping {
            cpumask: None,
            default_scope: config.default_scope,
            cache_shard_size: config.cache_shard_size,
            power_efficient: config.power_efficient,
        }
    }
}

/// What the routes of a queue are made for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fit {
    /// The CPUs, with the mask of unbound queues in effect.
    pub(crate) cpus: Cpus,
    pub(crate) housekeeping: Housekeeping,
    /// The mask of unbound queues without a choice.
    given_unbound: CpuSet,
}

impl Fit {
    pub(crate) fn new(given: Cpus, housekeeping: Housekeeping) -> Fit {
        let given_unbound = given.unbound_cpumask.clone();
        let chosen = housekeeping.cpumask.as_ref().map(|mask| mask.and(&given.allowed));
        let unbound_cpumask = match chosen {
            Some(mask) if !mask.is_empty() => mask,
            _ => given_unbound.clone(),
        };
        Fit { cpus: Cpus { unbound_cpumask, ..given }, housekeeping, given_unbound }
    }

    /// The chosen mask of unbound queues, if the process may use none of its CPUs.
    pub(crate) fn mask_without_cpu(&self) -> Option<&CpuSet> {
        self.housekeeping.cpumask.as_ref().filter(|mask| !mask.intersects(&self.cpus.allowed))
    }

    /// The CPUs as the host gave them.
    fn given(&self) -> Cpus {
        Cpus { unbound_cpumask: self.given_unbound.clone(), ..self.cpus.clone() }
    }
}

impl<H: Host> Engine<H> {
    /// The settings in effect.
    #[inline]
    pub fn housekeeping(&self) -> &Housekeeping {
        &self.versions.now().housekeeping
    }

    /// Changes the settings, for all queues that exist and all that are created later. `change` gets
    /// a copy; it runs under the lock of all changes, and must not call the engine.
    ///
    /// Items that are queued or armed stay in their pools, whose workers move to the CPUs that unbound
    /// queues may use from now on. A queue for which no thread could be created stays as it was and is
    /// tried again later; that is reported. Creates threads.
    ///
    /// # Errors
    /// The mask has no CPU that the process may use; then nothing changes.
    pub fn set_housekeeping(
        &self,
        change: impl FnOnce(&mut Housekeeping),
    ) -> Result<(), QueueError> {
        let announced = self.reports.begin_change(self);
        let mut changing = self.versions.hold();
        let now = self.versions.now();
        let mut housekeeping = now.housekeeping.clone();
        change(&mut housekeeping);
        housekeeping.cache_shard_size = housekeeping.cache_shard_size.max(1);
        let (chosen, allowed) = (&housekeeping.cpumask, &now.cpus.allowed);
        // A mask that is in effect already stays valid, whatever CPUs were taken away.
        if let Some(mask) = chosen.as_ref().filter(|_| *chosen != now.housekeeping.cpumask)
            && !mask.intersects(allowed)
        {
            return Err(QueueError::NoCpu { cpumask: mask.clone(), allowed: allowed.clone() });
        }
        if !self.versions.publish(Fit::new(now.given(), housekeeping)) {
            return Ok(());
        }
        // Dropped only after the lock is released: dropping the last owner of a queue waits for its
        // items.
        let owners = self.registry.owners();
        if self.versions.now().cpus != now.cpus {
            self.versions.move_workers(self, &owners);
        }
        let unfit = self.versions.refit_all(&mut changing, &owners);
        drop(changing);
        drop(announced);
        owners.into_iter().for_each(Owner::let_go);
        self.report_unfit(unfit);
        Ok(())
    }
}
