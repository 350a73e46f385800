//! The machine that this process runs on, as Linux describes it, and the part of it that the
//! process may use.
//!
//! Reads sysfs, procfs and the control groups once and returns a plain value. What is missing or
//! makes no sense is replaced by the nearest thing that does, with a note; nothing here panics on
//! what a file holds, and nothing watches for changes.

mod affinity;
mod cgroup;
mod files;
mod quota;
mod sysfs;
#[cfg(test)]
mod tests;
mod threads;

pub use quota::Quota;

use std::fmt;
use std::path::Path;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::topology::{Topology, TopologyError};

use files::Files;

/// A machine and what this process may use of it.
///
/// ```
/// use uwork::topology::Machine;
///
/// let machine = Machine::read().unwrap();
/// assert!(!machine.allowed.is_empty());
/// assert!(machine.allowed.is_subset(machine.topology.online()));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Machine {
    /// The CPUs and what they share.
    pub topology: Topology,
    /// The CPUs that the calling thread may run on: its affinity mask, within the cpuset of its
    /// control group and the online CPUs. Never empty.
    pub allowed: CpuSet,
    /// The cpuset of the control group; `None` where no cpuset controller is in sight.
    pub cgroup_cpuset: Option<CpuSet>,
    /// CPUs without a periodic tick (`nohz_full=`); they count as isolated in the topology too.
    pub nohz_full: CpuSet,
    /// How much CPU time the control groups grant, where they limit it.
    pub quota: Option<Quota>,
    /// How many threads there may be, by the tightest of `RLIMIT_NPROC`, the control groups' `pids.max`
    /// and the system's `kernel.threads-max`; `None` where none of them is in sight. Others may have made
    /// some of those already.
    pub threads_max: Option<u64>,
    /// What was missing, unreadable or contradictory, and what was assumed instead, one line each.
    pub notes: Vec<String>,
}

impl Machine {
    /// Reads the machine that the calling thread runs on.
    ///
    /// Reads a handful of files per CPU: a few milliseconds on a big server. Call it once.
    ///
    /// # Errors
    /// If nothing in sight names a single CPU.
    pub fn read() -> Result<Self, TopologyReadError> {
        Self::read_watched().map(|(machine, _)| machine)
    }

    /// Reads a machine from a tree of files under `root` (`root/sys/devices/system/cpu/online`,
    /// `root/proc/self/cgroup`, ..), for a thread with this affinity mask. A copy of the files of
    /// another machine is as good as the machine.
    ///
    /// # Errors
    /// If neither the files nor the mask name a single CPU.
    ///
    /// ```
    /// use uwork::topology::Machine;
    ///
    /// // Nothing to read: the mask is all there is to know.
    /// let empty = std::path::Path::new("/nonexistent");
    /// let machine = Machine::read_from(empty, &"0-3".parse().unwrap()).unwrap();
    /// assert_eq!(machine.topology.to_string(), "core:4");
    /// assert!(!machine.notes.is_empty());
    /// ```
    pub fn read_from(root: &Path, affinity: &CpuSet) -> Result<Self, TopologyReadError> {
        Self::read_with(root, Ok(affinity.clone())).map(|(machine, _)| machine)
    }

    /// As [`Machine::read`], with the control groups' files that it depends on.
    pub(crate) fn read_watched() -> Result<(Self, Vec<String>), TopologyReadError> {
        Self::read_with(Path::new("/"), affinity::of_the_process())
    }

    /// The affinity mask of the process, if the system tells.
    pub(crate) fn affinity() -> Option<CpuSet> {
        affinity::of_the_process().ok()
    }

    fn read_with(
        root: &Path,
        affinity: std::io::Result<CpuSet>,
    ) -> Result<(Self, Vec<String>), TopologyReadError> {
        let mut files = Files::under(root);
        let affinity = affinity.unwrap_or_else(|error| {
            files.note(format!("sched_getaffinity: {error}; every online CPU is taken as allowed"));
            CpuSet::new()
        });
        let (cpus, nohz_full) = sysfs::read(&mut files, &affinity);
        let topology = Topology::new(cpus)?;
        let groups = cgroup::read(&mut files);
        let allowed = allowed(&mut files, &topology, &affinity, groups.cpuset.as_ref());
        let machine = Self {
            topology,
            allowed,
            cgroup_cpuset: groups.cpuset,
            nohz_full,
            quota: groups.quota,
            threads_max: threads::max(&files, groups.pids_max),
            notes: files.into_notes(),
        };
        Ok((machine, groups.files))
    }
}

/// The mask within the cpuset within the online CPUs, leaving out a constraint that nothing
/// satisfies: a process that is running has a CPU, whatever the files say.
fn allowed(
    files: &mut Files<'_>,
    topology: &Topology,
    affinity: &CpuSet,
    cpuset: Option<&CpuSet>,
) -> CpuSet {
    let mut allowed = topology.online().clone();
    for (name, mask) in [("affinity mask", Some(affinity)), ("cgroup cpuset", cpuset)] {
        let Some(mask) = mask.filter(|mask| !mask.is_empty()) else {
            continue;
        };
        match allowed.intersects(mask) {
            true => allowed = allowed.and(mask),
            false => files.note(format!("the {name} {mask} has no CPU of {allowed}; ignored")),
        }
    }
    allowed
}

/// Why the machine could not be read. Prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyReadError {
    cause: TopologyError,
}

impl From<TopologyError> for TopologyReadError {
    fn from(cause: TopologyError) -> Self {
        Self { cause }
    }
}

impl fmt::Display for TopologyReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot tell what machine this is from /sys/devices/system/cpu: {}", self.cause)
    }
}

impl std::error::Error for TopologyReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}
