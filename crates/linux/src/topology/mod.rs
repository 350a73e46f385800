//! The machine that this process runs on, as Linux describes it, and the part of it that the
//! process may use.
//!
//! Reads sysfs, procfs and the control groups once and returns a plain value. Missing or
//! contradictory information is replaced by the nearest plausible value, with a note. The reader
//! never panics on the contents of a file, and does not watch for changes.

mod affinity;
mod cgroup;
mod files;
mod quota;
mod sysfs;
#[cfg(test)]
mod tests;
mod threads;

pub use quota::Quota;

use std::path::Path;
use std::sync::mpsc;
use std::{fmt, io};

use uwork_policy::cpuset::CpuSet;
use uwork_policy::topology::{Topology, TopologyError};

use crate::descriptor::own_table;
use crate::small_files;
use files::Files;

/// A machine and the part of it that this process may use.
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
    /// The CPUs that the process may run on: the affinity mask of its main thread, within the cpuset of its
    /// control group and the online CPUs. Never empty.
    pub allowed: CpuSet,
    /// The cpuset of the control group; `None` if no cpuset controller is visible.
    pub cgroup_cpuset: Option<CpuSet>,
    /// CPUs without a periodic tick (`nohz_full=`); they count as isolated in the topology too.
    pub nohz_full: CpuSet,
    /// CPUs visible to the process that are isolated: by `isolcpus=`, `nohz_full=` or an isolated
    /// partition of cpusets. Visible are the online CPUs of the cpuset; the affinity mask does not
    /// matter, as threads are often pinned to isolated CPUs later.
    pub isolated: CpuSet,
    /// The CPU time that the control groups grant, if they limit it.
    pub quota: Option<Quota>,
    /// The maximum number of threads, by the tightest of `RLIMIT_NPROC`, the control groups'
    /// `pids.max` and the system's `kernel.threads-max`; `None` if none of them is visible. Other
    /// processes may already use a part of it.
    pub threads_max: Option<u64>,
    /// Information that was missing, unreadable or contradictory, and the assumption made instead,
    /// one line each.
    pub notes: Vec<String>,
}

/// A machine, and the control groups' files that it depends on.
type Outcome = Result<(Machine, Vec<String>), TopologyReadError>;

impl Machine {
    /// Reads the machine that the process runs on.
    ///
    /// Reads a handful of files per CPU: a few milliseconds on a big server. Call it once.
    ///
    /// # Errors
    /// If no visible source names any CPU.
    pub fn read() -> Result<Self, TopologyReadError> {
        Self::read_watched().0.map(|(machine, _)| machine)
    }

    /// Reads a machine from a tree of files under `root` (`root/sys/devices/system/cpu/online`,
    /// `root/proc/self/cgroup`, ..), for a thread with this affinity mask. A copy of the files of
    /// another machine is as good as the machine.
    ///
    /// # Errors
    /// If neither the files nor the mask name any CPU.
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

    /// As [`Machine::read`], with the control groups' files that it depends on. Also the error, if files
    /// that exist were taken for missing, as the system had no descriptor for them.
    pub(crate) fn read_watched() -> (Outcome, Option<io::Error>) {
        let read = || {
            small_files::take_lack();
            let outcome = Self::read_with(Path::new("/"), affinity::of_the_process());
            let lack = small_files::take_lack();
            let outcome = outcome.map(|(mut machine, files)| {
                let note = |error| format!("files that exist could not be read: {error}");
                machine.notes.extend(lack.as_ref().map(note));
                (machine, files)
            });
            (outcome, lack)
        };
        let first = read();
        if first.1.is_none() {
            return first;
        }
        // The process has no descriptor left: a machine without pods and without limits, for its life.
        with_own_table(read).unwrap_or(first)
    }

    /// The affinity mask of the process, if the system call succeeds.
    pub(crate) fn affinity() -> Option<CpuSet> {
        affinity::of_the_process().ok()
    }

    fn read_with(root: &Path, affinity: io::Result<CpuSet>) -> Outcome {
        let mut files = Files::under(root);
        let affinity = affinity.unwrap_or_else(|error| {
            files.note(format!("sched_getaffinity: {error}; every online CPU is taken as allowed"));
            CpuSet::new()
        });
        let (cpus, nohz_full) = sysfs::read(&mut files, &affinity);
        let topology = Topology::new(cpus)?;
        let groups = cgroup::read(&mut files);
        let allowed = allowed(&mut files, &topology, &affinity, groups.cpuset.as_ref());
        let in_view = match &groups.cpuset {
            Some(cpuset) => topology.online().and(cpuset),
            None => topology.online().clone(),
        };
        let isolated = topology.isolated().or(&groups.isolated).and(&in_view);
        let machine = Self {
            topology,
            allowed,
            cgroup_cpuset: groups.cpuset,
            nohz_full,
            isolated,
            quota: groups.quota,
            threads_max: threads::max(&files, groups.pids_max),
            notes: files.into_notes(),
        };
        Ok((machine, groups.files))
    }
}

/// What `read` returns on a thread with an empty table of descriptors. None if there is no such
/// thread.
fn with_own_table<R: Send + 'static>(read: impl FnOnce() -> R + Send + 'static) -> Option<R> {
    let (tell, told) = mpsc::channel();
    let main = move || {
        own_table();
        let _ = tell.send(read());
    };
    crate::thread::start("uw/machine", main).ok()?;
    told.recv().ok()
}

/// The mask within the cpuset within the online CPUs, except for a constraint that would leave no
/// CPU: a running process has a CPU, even if the files contradict that.
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

/// The reason for which the machine could not be read. Prints as one line.
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
