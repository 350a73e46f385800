//! Detects changes of the CPUs that the process may use.
//!
//! Four things change them: the affinity mask of the process, the online CPUs, the cpuset of its
//! control group, and the CPU quota of that group or an ancestor. A move of the process to another
//! group changes the last two. The kernel sends no notification. So each check compares these
//! sources with their last contents: the mask, and the text of a few small files. Only if something
//! differs is the machine read again.
//!
//! **The mask of the process is that of its main thread**, as for `taskset -p`: each thread has a
//! mask, and the process has no other. So a main thread that pins itself narrows the CPUs of all
//! queues. A program that wants to pin its work but not the queues must do that work on another
//! thread.
//!
//! Not detected: a change that is undone before the next check, and a cgroup file system that is
//! mounted later. A process that has lost sight of these files, by a `chroot` say, keeps the last
//! quota; its mask is compared as before.

use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering};

use uwork_engine::Cpus;
use uwork_policy::cpuset::CpuSet;

use crate::first_use;
use crate::small_files::contents;
use crate::topology::Machine;

/// The files to compare, in addition to those of the control groups. Not `/proc/self`, which is that of the
/// main thread, and shows the last group of one that has ended.
const FILES: [&str; 2] = ["/sys/devices/system/cpu/online", "/proc/thread-self/cgroup"];
/// How much of a file is read. A change beyond that length is not detected.
const TEXT_MAX: usize = 4096;

/// See the module. The state of the last look, which a look takes and gives back: without a lock, which
/// the child of a fork in the middle of a look would find locked for ever. There the next look is a
/// first one.
pub(super) struct Changes(AtomicPtr<Seen>);

/// The state at the last check.
struct Seen {
    affinity: Option<CpuSet>,
    /// The files and their text; `None` if a file could not be read.
    files: Vec<(String, Option<Vec<u8>>)>,
    cpu_limit: Option<u32>,
}

impl Changes {
    pub(super) fn new() -> Changes {
        Changes(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The CPUs that the process may use, if they may have changed since the last call. Call it with
    /// no lock of the library held, on a single thread at a time.
    pub(super) fn look(&self) -> Option<Cpus> {
        let mut seen = self.replace(None);
        let is_current = seen.as_deref().is_some_and(Seen::is_current);
        let cpus = if is_current { None } else { read(&mut seen) };
        self.replace(seen);
        cpus
    }

    fn replace(&self, seen: Option<Box<Seen>>) -> Option<Box<Seen>> {
        let seen = seen.map_or(std::ptr::null_mut(), Box::into_raw);
        let before = self.0.swap(seen, Ordering::AcqRel);
        // SAFETY: from `Box::into_raw`, and this call alone got it.
        (!before.is_null()).then(|| unsafe { Box::from_raw(before) })
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.replace(None);
    }
}

/// The CPUs that the process may use now, which differ from what was seen, or may.
fn read(seen: &mut Option<Box<Seen>>) -> Option<Cpus> {
    // A fork waits: the files that are open meanwhile would be open in the child.
    let _making = first_use::making();
    let is_in_sight = seen.as_deref().is_none_or(Seen::is_in_sight);
    let (_, watched) = read_all()?;
    let mut now = Seen::record(&watched);
    // Later changes differ from the record at the next check.
    let (machine, watched_now) = read_all()?;
    let mut cpus = cpus_of(machine);
    match seen {
        Some(before) if !is_in_sight => {
            cpus.cpu_limit = before.cpu_limit;
            before.affinity = now.affinity;
        }
        seen => {
            now.cpu_limit = cpus.cpu_limit;
            *seen = (watched == watched_now).then(|| Box::new(now));
        }
    }
    Some(cpus)
}

/// The machine, and the files that it depends on. `None` if it cannot be read, or not all of it: the next
/// check tries again.
fn read_all() -> Option<(Machine, Vec<String>)> {
    let (outcome, lack) = Machine::read_watched();
    outcome.ok().filter(|_| lack.is_none())
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
        let files = paths.map(|path| (path.to_owned(), text(path)));
        Seen { affinity: Machine::affinity(), files: files.collect(), cpu_limit: None }
    }

    fn is_current(&self) -> bool {
        let is_same = |(path, known): &(String, Option<Vec<u8>>)| *known == text(path);
        self.affinity == Machine::affinity()
            && (self.files.iter().all(is_same) || !self.is_in_sight())
    }

    /// Whether a file can be read, or none could.
    fn is_in_sight(&self) -> bool {
        let mut known = self.files.iter().filter(|(_, text)| text.is_some()).peekable();
        known.peek().is_none() || known.any(|(path, _)| text(path).is_some())
    }
}

/// The current text of a file that the kernel generates at each read. `None` for a removed group.
fn text(path: &str) -> Option<Vec<u8>> {
    contents(Path::new(path), TEXT_MAX)
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

    // Catches: a lock that the parent's thread holds, which the child waits for.
    #[test]
    fn a_look_that_a_fork_has_cut_off_is_followed_by_a_first_one() {
        let changes = Changes::new();
        let first = changes.look().expect("the first look is one");
        let of_the_parent = changes.replace(None);
        assert!(of_the_parent.is_some());
        assert_eq!(changes.look(), Some(first));
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
