//! Dumps: snapshots of the items that run and wait, and of the objects that they wait in.

use uwork_engine::dump::{Dump, LongRuns, QueueDump};
use uwork_linux::binding::represented_item;
use uwork_linux::symbols::names;
use uwork_linux::{actual_nice, engine};

use crate::queue::Queue;

/// A snapshot of all of uwork in this process: machine, pods, pools with their workers, queues, and
/// the items that run and wait in them. It has the information that the kernel's
/// `show_all_workqueues` and `wq_dump` print. `Display` writes it as text in stable columns, and
/// [`to_json`](crate::dump::Dump::to_json) as JSON.
///
/// Each part of it is correct at some instant, but not all at the same one: nothing is stopped. It
/// may be called at any time and from any thread, also from inside an item or a
/// [reporter](crate::set_reporter), and while a worker is stuck. Costs some microseconds for each pool and
/// queue, and a `membarrier` and a read of `/proc` for each worker that is in an item. A function is shown by the type
/// that it serves: the type with the [`Work`](crate::Work), a closure's, a future's. Lists are cut
/// after [`ITEMS_MAX`](crate::dump::ITEMS_MAX) items and give the number of further ones.
///
/// ```
/// let queue = uwork::Queue::builder("looked-at").build()?;
/// let dump = queue.spawn(uwork::dump).join().unwrap();
/// let seen = dump.queues.iter().find(|queue| queue.name == "looked-at").unwrap();
/// assert_eq!(seen.slots.len(), 1, "the item that took the picture runs");
/// println!("{dump}");
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn dump() -> Dump {
    dump_with(Names::OfFiles)
}

/// The names in a dump.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// Those that functions give themselves. Others, and calls on stacks, are shown by their
    /// addresses: no file is read.
    #[cfg_attr(not(feature = "control"), expect(dead_code, reason = "clients ask for it"))]
    OwnOnly,
    /// Those of the symbols and debug information in the program's files as well.
    OfFiles,
}

/// As [`dump`].
pub(crate) fn dump_with(named: Names) -> Dump {
    let mut dump = engine().dump();
    engine().note_sleepers(&mut dump, uwork_linux::thread_sleeps);
    dump.replace_items(&mut represented_item);
    if named == Names::OfFiles {
        dump.name_functions(names());
    }
    dump.name_niceness(actual_nice);
    dump
}

/// The queues for which `wanted` returns true, given name and flags, as [`Queue::dump`] shows them.
/// With `FREEZABLE`, the kernel's `show_freezable_workqueues`.
///
/// ```
/// use uwork::Flags;
/// let queue = uwork::Queue::builder("freezable-one").freezable().build()?;
/// let freezable = uwork::dump_queues(|_, flags| flags.contains(Flags::FREEZABLE));
/// assert!(freezable.iter().any(|queue| queue.name == "freezable-one"));
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn dump_queues(mut wanted: impl FnMut(&str, crate::Flags) -> bool) -> Vec<QueueDump> {
    let mut queues = engine().dump_queues(|wq| wanted(wq.name(), wq.flags()));
    let mut name = names();
    for queue in &mut queues {
        queue.replace_items(&mut represented_item);
        queue.name_functions(&mut name);
    }
    queues
}

/// The workers that are in one batch for at least `time`, the oldest first, with the stacks of eight
/// of them, and the items among those that wait for each other: what the [`watchdog`](crate::watchdog) reports, at any
/// time. `uwork dump --stacks` prints it.
///
/// A thread is asked for its stack by a signal, whose handler has `SA_RESTART`. Some system calls of
/// the item return `EINTR` nevertheless, such as `poll` and `nanosleep` (signal(7)). A thread that
/// does not answer delays the call by 100 ms, or by 0.6 s if it gets no CPU. Without the feature
/// `symbols` there are no stacks.
///
/// ```
/// use std::time::Duration;
/// let queue = uwork::Queue::builder("long").build()?;
/// let runs = queue.spawn(|| uwork::long_runs(Duration::ZERO)).join().unwrap();
/// assert!(!runs.workers().is_empty(), "at least the item that asks");
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn long_runs(time: std::time::Duration) -> LongRuns {
    let mut runs = long_runs_of(&[(time, None)], Names::OfFiles);
    runs.pop().expect("one for each time")
}

/// As [`long_runs`], for each time: of all workers, or of those in items of the queue with this name. The
/// eight stacks are those of all.
pub(crate) fn long_runs_of(
    of: &[(std::time::Duration, Option<&str>)],
    named: Names,
) -> Vec<LongRuns> {
    let ns = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let of: Vec<_> = of.iter().map(|&(time, queue)| (ns(time), queue)).collect();
    let mut all = engine().long_runs(&of, named == Names::OfFiles);
    for runs in &mut all {
        runs.replace_items(&mut represented_item);
        if named == Names::OfFiles {
            runs.name_functions(&mut names());
        }
    }
    all
}

/// How often the engine's backstop has woken or created a worker in a pool that lacked one without
/// a reason. The count stays 0: any other value is a defect of the engine. For tests and
/// benchmarks.
#[doc(hidden)]
pub fn rescues() -> u64 {
    engine().rescues()
}

impl Queue {
    /// A snapshot of this queue alone (the kernel's `show_one_workqueue`): its attributes, its
    /// pwqs, the items pending there and the slots that run its items. As [`dump`].
    ///
    /// ```
    /// let queue = uwork::Queue::builder("one").max_active(3).build()?;
    /// assert_eq!(queue.dump().max_active, 3);
    /// assert!(queue.dump().to_string().starts_with("  queue one  unbound  flags UNBOUND"));
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn dump(&self) -> QueueDump {
        let mut dump = self.0.dump();
        dump.replace_items(&mut represented_item);
        dump.name_functions(&mut names());
        dump
    }
}
