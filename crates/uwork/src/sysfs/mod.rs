//! The attribute tree: the attributes that the kernel has below `/sys/devices/virtual/workqueue`
//! and `/sys/module/workqueue`, with the same names and formats, inside the process.
//!
//! | path | read | write |
//! |---|---|---|
//! | `cpumask` | the CPUs that unbound queues use, hexadecimal | a mask with a CPU in it |
//! | `cpumask_requested` | the mask that was written; until then as `cpumask` | no |
//! | `cpumask_isolated` | the CPUs that are isolated | no |
//! | `module/parameters/default_affinity_scope` | the scope of queues that chose none | a scope's name |
//! | `module/parameters/cache_shard_size` | cores in a `cache_shard` pod | 0 to 4294967295; 0 counts as 1 |
//! | `module/parameters/power_efficient` | `Y` if power is saved, else `N` | also 1, y, on, 0, n, off |
//! | `module/parameters/cpu_intensive_thresh_us` | see below | 0 to 4294967295 |
//! | `module/parameters/cpu_intensive_warning_thresh` | see below | 0 to 4294967295 |
//! | `module/parameters/pool_workers_max` | see below | 0 to 65534 |
//! | `module/parameters/watchdog_thresh` | see [`crate::watchdog`] | seconds: 0, and 0.001 to 4294967295 |
//! | `devices/NAME/per_cpu` | 1 for a per-CPU queue, else 0 | no |
//! | `devices/NAME/max_active` | the limit | 1 to 2048; not for ordered and BH queues |
//! | `devices/NAME/nice` | the workers' niceness, at first the process's | -20 to 19 |
//! | `devices/NAME/cpumask` | the CPUs that were asked for, hexadecimal | a mask with a CPU in it |
//! | `devices/NAME/affinity_scope` | `numa`, `default (cache -> cpu)` | a scope's name, or `default` |
//! | `devices/NAME/affinity_strict` | 1 if pods run only their own items, else 0 | 0 or 1 |
//!
//! `cpumask`, `default_affinity_scope`, `cache_shard_size` and `power_efficient` are those of
//! [`housekeeping`](crate::housekeeping), for all queues at once; the kernel reads its parameters at
//! boot.
//!
//! `cpu_intensive_thresh_us`: a run on a per-CPU queue that has used its CPU for so many
//! microseconds while other items wait no longer counts as running, so that another worker takes
//! them; 0 switches this off. `cpu_intensive_warning_thresh`: from this number of such runs on, a
//! function is reported; 0: never.
//!
//! `pool_workers_max` is the maximum number of workers of a pool, together with the pools that it
//! shares its items with; the kernel has no such limit. 0 derives it from the queues: the sum of
//! their `max_active` plus one for each CPU, at most half of the threads that the process may have
//! ([`Machine::threads_max`](crate::topology::Machine::threads_max)). If items wait for others, a
//! lower limit can cause a deadlock: [`Report::WorkersMax`](crate::Report::WorkersMax) is issued
//! when all workers block.
//!
//! `devices` has the queues with the flag [`SYSFS`](crate::Flags::SYSFS); the last four attributes
//! exist for unbound and ordered queues only. A `/` or a space in a queue's name is shown as `!`.
//! From outside, by the control socket, all queues are seen. Values are read without a final newline,
//! and may be written with one. Several slashes in a path count as
//! one, and a path may begin with `workqueue/`, as the kernel's do. [`describe`] has each attribute's
//! type, unit and permitted values. This module does not check permissions: a program that offers
//! the tree to others must do that.
//!
//! ```
//! use uwork::{Queue, sysfs};
//! let queue = Queue::builder("tunable").sysfs().build()?;
//! sysfs::set("devices/tunable/max_active", "16")?;
//! assert_eq!(queue.max_active(), 16);
//! sysfs::set("devices/tunable/affinity_scope", "system\n")?;
//! assert_eq!(sysfs::get("devices/tunable/affinity_scope")?, "system");
//! let names: Vec<_> = sysfs::list("devices/tunable")?.into_iter().map(|e| e.name).collect();
//! let all = ["affinity_scope", "affinity_strict", "cpumask", "max_active", "nice", "per_cpu"];
//! assert_eq!(names, all);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod definition;
mod error;
mod global;
mod mask;
mod queue;
mod seconds;

pub use definition::ValueType;
pub use error::Error;

use uwork_linux::engine;
use uwork_policy::cpuset::CpuSet;

use definition::{Definition, Written};
use global::{GLOBALS, PARAMETERS, Process};
use queue::ATTRIBUTES;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its name in the directory.
    pub name: String,
    /// Its kind.
    pub kind: EntryKind,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// Has entries of its own.
    Directory,
    /// A value that can be read.
    ReadOnly,
    /// A value that can be read and written.
    ReadWrite,
}

impl Entry {
    fn new(name: impl Into<String>, kind: EntryKind) -> Entry {
        Entry { name: name.into(), kind }
    }
}

/// What is known of an attribute, apart from its value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// The type of its values.
    pub value_type: ValueType,
    /// The unit of its values; empty if they have none.
    pub unit: &'static str,
    /// The permitted values; None if it can only be read.
    pub allowed: Option<String>,
    /// What it does, in one sentence.
    pub doc: &'static str,
}

/// One fact a line, each with its name.
impl std::fmt::Display for Description {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\ntype     {}", self.doc, self.value_type.name())?;
        if !self.unit.is_empty() {
            write!(f, "\nunit     {}", self.unit)?;
        }
        match &self.allowed {
            Some(allowed) => write!(f, "\nallowed  {allowed}"),
            None => write!(f, "\nallowed  can only be read"),
        }
    }
}

/// The object that a path names.
enum Node {
    Directory(Vec<Entry>),
    Global(&'static Definition<Process>),
    /// An attribute of the queue with this name in the tree.
    Device(String, &'static Definition<queue::Wq>),
}

/// The entries of a directory, sorted by name. `""` is the root.
///
/// # Errors
/// The path does not exist, or is an attribute.
pub fn list(path: &str) -> Result<Vec<Entry>, Error> {
    OWN.list(path)
}

/// The value of an attribute.
///
/// # Errors
/// The path does not exist, or is a directory.
pub fn get(path: &str) -> Result<String, Error> {
    OWN.get(path)
}

/// Changes an attribute, at once and for everything queued from then on. One newline at the end of
/// the value is ignored.
///
/// # Errors
/// The path does not exist or is not writable, or the value is malformed or refused; then nothing
/// changes.
pub fn set(path: &str, value: &str) -> Result<(), Error> {
    OWN.set(path, value)
}

/// The type, unit and permitted values of an attribute, and what it does.
///
/// ```
/// let known = uwork::sysfs::describe("module/parameters/watchdog_thresh")?;
/// assert_eq!(known.unit, "seconds");
/// assert!(known.allowed.unwrap().starts_with("0, and 0.001 to 4294967295"));
/// # Ok::<(), uwork::sysfs::Error>(())
/// ```
///
/// # Errors
/// The path does not exist, or is a directory.
pub fn describe(path: &str) -> Result<Description, Error> {
    OWN.describe(path)
}

/// The tree of the program itself.
const OWN: Tree = Tree { has_every_queue: false };

/// The tree, with the queues that a reader of it may see.
#[derive(Clone, Copy)]
pub(crate) struct Tree {
    /// Whether `devices` has the queues without the flag SYSFS as well.
    pub(crate) has_every_queue: bool,
}

impl Tree {
    pub(crate) fn list(self, path: &str) -> Result<Vec<Entry>, Error> {
        match self.find(path)? {
            Node::Directory(entries) => Ok(entries),
            _ => Err(Error::WrongKind { path: path.to_owned(), is_directory: false }),
        }
    }

    pub(crate) fn get(self, path: &str) -> Result<String, Error> {
        match self.find(path)? {
            Node::Directory(_) => Err(directory_has_no_value(path)),
            Node::Global(global) => Ok((global.get)(&Process).unwrap_or_default()),
            Node::Device(device, attribute) => {
                let value =
                    queue::with(self, &device, |wq| (attribute.get)(wq).unwrap_or_default());
                value.ok_or_else(|| self.no_queue(path, &device))
            }
        }
    }

    pub(crate) fn set(self, path: &str, value: &str) -> Result<(), Error> {
        let value = value.strip_suffix('\n').unwrap_or(value);
        match self.find(path)? {
            Node::Directory(_) => Err(directory_has_no_value(path)),
            Node::Global(global) => write(global, &Process, global.kind(), path, value),
            Node::Device(device, attribute) => {
                let outcome = queue::with(self, &device, |wq| {
                    write(attribute, wq, queue::kind(attribute, wq), path, value)
                });
                outcome.unwrap_or_else(|| Err(self.no_queue(path, &device)))
            }
        }
    }

    pub(crate) fn describe(self, path: &str) -> Result<Description, Error> {
        match self.find(path)? {
            Node::Directory(_) => Err(directory_has_no_value(path)),
            Node::Global(global) => Ok(global.describe(global.kind())),
            Node::Device(device, attribute) => {
                let kind = queue::with(self, &device, |wq| queue::kind(attribute, wq));
                kind.map(|kind| attribute.describe(kind))
                    .ok_or_else(|| self.no_queue(path, &device))
            }
        }
    }

    fn find(self, path: &str) -> Result<Node, Error> {
        // As in a file system: several slashes count as one, and those at the ends are ignored.
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        // The name of the whole tree, as in the kernel's paths.
        if parts.first() == Some(&ROOT) {
            parts.remove(0);
        }
        let path = parts.join("/");
        let path = path.as_str();
        if let Some(device) = path.strip_prefix("devices/") {
            let (name, attribute) = match device.split_once('/') {
                Some((name, attribute)) => (name, Some(attribute)),
                None => (device, None),
            };
            let entries =
                queue::with(self, name, queue::entries).ok_or_else(|| self.no_queue(path, name))?;
            let Some(attribute) = attribute else { return Ok(Node::Directory(entries)) };
            return match ATTRIBUTES.iter().find(|known| known.name == attribute) {
                Some(known) if entries.iter().any(|entry| entry.name == attribute) => {
                    Ok(Node::Device(name.to_owned(), known))
                }
                _ => Err(self.nowhere(path, &format!("devices/{name}"))),
            };
        }
        if let Some(entries) = self.directory(path) {
            return Ok(Node::Directory(entries));
        }
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let global = GLOBALS.iter().find(|known| (known.folder, known.name) == (folder, name));
        global.map(Node::Global).ok_or_else(|| self.nowhere(path, folder))
    }

    /// The entries of a directory that is not a queue's.
    fn directory(self, path: &str) -> Option<Vec<Entry>> {
        let directories: &[&str] = match path {
            "" => &["devices", "module"],
            "module" => &["parameters"],
            PARAMETERS => &[],
            "devices" => return Some(queue::devices(self)),
            _ => return None,
        };
        let directories = directories.iter().map(|name| Entry::new(*name, EntryKind::Directory));
        let values = GLOBALS.iter().filter(|global| global.folder == path);
        let values = values.map(|global| Entry::new(global.name, global.kind()));
        let mut entries: Vec<Entry> = directories.chain(values).collect();
        entries.sort();
        Some(entries)
    }

    fn no_queue(self, path: &str, queue: &str) -> Error {
        if queue::with(Tree { has_every_queue: true }, queue, |_| ()).is_some() {
            return Error::WithoutSysfs { path: path.to_owned(), queue: queue.to_owned() };
        }
        let allowed = queue::devices(self).into_iter().map(|entry| entry.name).collect();
        Error::NoSuchQueue { path: path.to_owned(), queue: queue.to_owned(), allowed }
    }

    fn nowhere(self, path: &str, beside: &str) -> Error {
        let entries = match beside.strip_prefix("devices/") {
            Some(device) => queue::with(self, device, queue::entries),
            None => self.directory(beside),
        };
        let allowed = entries.unwrap_or_default().into_iter().map(|entry| entry.name).collect();
        Error::NoSuchPath { path: path.to_owned(), allowed }
    }
}

impl<T> Definition<T> {
    fn kind(&self) -> EntryKind {
        if self.set.is_some() { EntryKind::ReadWrite } else { EntryKind::ReadOnly }
    }

    fn describe(&self, kind: EntryKind) -> Description {
        let Definition { value_type, unit, doc, .. } = *self;
        let allowed = (kind == EntryKind::ReadWrite).then(self.allowed);
        Description { value_type, unit, allowed, doc }
    }
}

/// Writes an attribute of `of`, if it can be written.
fn write<T>(
    attribute: &Definition<T>,
    of: &T,
    kind: EntryKind,
    path: &str,
    value: &str,
) -> Result<(), Error> {
    let path = path.to_owned();
    let Some(set) = attribute.set.filter(|_| kind == EntryKind::ReadWrite) else {
        return Err(Error::ReadOnly { path });
    };
    let outcome: Written = set(of, value);
    outcome.map_err(|error| match error {
        Some(error) => Error::Refused { path, error: error.into() },
        None => Error::BadValue { path, value: value.to_owned(), allowed: (attribute.allowed)() },
    })
}

fn directory_has_no_value(path: &str) -> Error {
    Error::WrongKind { path: path.to_owned(), is_directory: true }
}

/// A first component of a path that may be left out.
const ROOT: &str = "workqueue";

/// Possible CPUs, counted as the kernel does: up to the last one.
fn nr_cpus() -> u32 {
    engine().config().topology.possible().last().map_or(1, |last| last + 1)
}

fn format_mask(mask: &CpuSet) -> String {
    mask::format(mask, nr_cpus())
}
