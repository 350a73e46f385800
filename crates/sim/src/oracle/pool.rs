//! What the oracle knows of a pool.

use super::PoolRules;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) rules: PoolRules,
    /// Since when the pool is below its target and has a runnable item.
    pub(super) since: Option<u64>,
    /// The same, while that is because of runs that compute for too long.
    pub(super) exposed_since: Option<u64>,
    /// Runs in this segment that count as running, that compute, that compute for too long, that
    /// block undeclared.
    pub(super) held: u32,
    pub(super) computing: u32,
    pub(super) hogs: u32,
    pub(super) asleep: u32,
    pub(super) waits: bool,
    /// A run that computes competes for a CPU.
    pub(super) competes: bool,
}

impl Pool {
    /// Whether another run may start: a CPU of the target has no counted run, or one that computes
    /// for too long. Where pods share their work, runs of that kind are replaced only where all
    /// are.
    pub(super) fn is_below_target(&self) -> bool {
        let is_free = |held: u32| held < self.rules.target;
        match self.rules.shared {
            false => is_free(self.held),
            true => is_free(self.held + self.hogs) || self.held == 0,
        }
    }

    /// Whether runs that compute for too long are replaced.
    pub(super) fn has_room(&self) -> bool {
        match (self.rules.per_cpu, self.rules.shared) {
            (true, _) => true,
            (false, false) => self.computing < 2 * self.rules.target,
            (false, true) => self.computing <= self.rules.target,
        }
    }
}
