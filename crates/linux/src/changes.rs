//! Detects changes of the CPUs that the process may use.
//!
//! Four things change them: the affinity mask of the process, the online CPUs, the cpuset of its
//! control group, and the CPU quota of that group or an ancestor. A move of the process to another
//! group changes the last two. The kernel sends no notification. So each check compares these
//! sources with their last contents: the mask, and the text of a few small files that are kept
//! open. Only if something differs is the machine read again.
//!
//! **The mask of the process is that of its main thread**, as for `taskset -p`: each thread has a
//! mask, and the process has no other. So a main thread that pins itself narrows the CPUs of all
//! queues. A program that wants to pin its work but not the queues must do that work on another
//! thread.
//!
//! Not detected: a change that is undone before the next check, and a cgroup file system that is
//! mounted later.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use uwork_engine::Cpus;
use uwork_policy::cpuset::CpuSet;

use crate::topology::Machine;

/// The files to compare, in addition to those of the control groups.
const FILES: [&str; 2] = ["/sys/devices/system/cpu/online", "/proc/self/cgroup"];
/// How much of a file is read. A change beyond that length is not detected.
const TEXT_MAX: usize = 4096;

/// See the module.
pub(super) struct Changes(Mutex<Option<Seen>>);

/// The state at the last check.
struct Seen {
    affinity: Option<CpuSet>,
    /// The open files and their text; None if a file could not be read.
    files: Vec<(File, Option<Vec<u8>>)>,
}

impl Changes {
    pub(super) fn new() -> Changes {
        Changes(Mutex::new(None))
    }

    /// The CPUs that the process may use, if they may have changed since the last call.
    pub(super) fn look(&self) -> Option<Cpus> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.as_ref().is_some_and(Seen::is_current) {
            return None;
        }
        let (_, watched) = Machine::read_watched().ok()?;
        let now = Seen::record(&watched);
        // Later changes differ from the record at the next check.
        let (machine, watched_now) = Machine::read_watched().ok()?;
        *seen = (watched == watched_now).then_some(now);
        Some(cpus_of(machine))
    }
}

/// The CPUs that the process may use on a machine.
pub(super) fn cpus_of(machine: Machine) -> Cpus {
    let limit = |cpus| u32::try_from(cpus).unwrap_or(u32::MAX);
    let limit = machine.quota.map(|quota| limit(quota.cpus_rounded_up()));
    Cpus::new(&machine.topology, machine.allowed, limit)
}

impl Seen {
    fn record(watched: &[String]) -> Seen {
        let paths = FILES.into_iter().chain(watched.iter().map(String::as_str));
        let files = paths.filter_map(|path| {
            let file = File::open(path).ok()?;
            let text = text(&file);
            Some((file, text))
        });
        Seen { affinity: Machine::affinity(), files: files.collect() }
    }

    fn is_current(&self) -> bool {
        self.affinity == Machine::affinity()
            && self.files.iter().all(|(file, known)| *known == text(file))
    }
}

/// The current text of a file that the kernel generates at each read. None for a removed group.
fn text(file: &File) -> Option<Vec<u8>> {
    let mut buffer = [0; TEXT_MAX];
    let length = file.read_at(&mut buffer, 0).ok()?;
    Some(buffer[..length].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_changes_at_rest() {
        let changes = Changes::new();
        let first = changes.look().expect("the first look is one");
        assert_eq!(first, cpus_of(Machine::read().expect("a machine")));
        assert_eq!(changes.look(), None);
    }

    #[test]
    fn a_file_with_different_contents_is_a_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cpu.max");
        std::fs::write(&path, "max 100000").expect("a file");
        let paths = [path.to_str().expect("a plain name").to_owned()];
        let seen = Seen::record(&paths);
        assert!(seen.is_current());
        std::fs::write(&path, "50000 100000").expect("a file");
        assert!(!seen.is_current());
        assert!(Seen::record(&paths).is_current());
    }
}
