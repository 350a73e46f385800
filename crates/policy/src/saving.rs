//! How a pool saves wakes at the price of latency: when more than one worker runs, when the watcher
//! is called, and on which CPU a worker sleeps that will wake by itself, or wakes.
//!
//! The pool of power-efficient queues has unpinned workers. Its items are many and short, and its
//! timers have slack. One worker that is awake anyway runs such items in less time than a second
//! wake costs.

/// How long one worker of a saving pool works alone while items wait. After that the pool has as
/// many running workers as any other.
pub const ALONE_NS: u64 = 1_000_000;
/// Items that take this long are not short: they are handled as in any other pool. The time is that
/// of the clock, so it includes the time slices of other work on the same CPU.
pub const LONG_ITEM_NS: u64 = 10_000_000;
/// The least slack of a timer that is served on a CPU with other work. The scheduler may let that
/// work run on for a part of this time.
pub const SHARED_CPU_SLACK_NS: u64 = 1_000_000;

/// Whether a worker is woken on the CPU of the thread that wakes it: that thread waits next, or the
/// item may wait for that long beside what the thread computes, and is short.
/// ```
/// use uwork_policy::saving::joins_waker;
/// assert!(joins_waker(true, 0, 50_000_000));
/// assert!(joins_waker(false, 2_000_000, 20_000));
/// assert!(!joins_waker(false, 0, 20_000));
/// assert!(!joins_waker(false, 2_000_000, 50_000_000));
/// ```
#[must_use]
pub fn joins_waker(waits: bool, slack_ns: u64, item_ns: u64) -> bool {
    waits || permits_other_work(slack_ns, item_ns)
}

/// Whether an item may share its CPU with other work.
fn permits_other_work(slack_ns: u64, item_ns: u64) -> bool {
    slack_ns >= SHARED_CPU_SLACK_NS && item_ns < LONG_ITEM_NS
}

/// When a worker wakes for a window of this length on a CPU with other work, which may run on for a
/// while: before the end, so that the item begins within the window.
/// ```
/// use uwork_policy::saving::wake_beside_other_work;
/// assert_eq!(wake_beside_other_work(12_500_000, 2_500_000), 11_500_000);
/// assert_eq!(wake_beside_other_work(12_500_000, 0), 12_500_000);
/// ```
#[must_use]
pub fn wake_beside_other_work(end_ns: u64, slack_ns: u64) -> u64 {
    end_ns - slack_ns.min(SHARED_CPU_SLACK_NS).min(end_ns)
}

/// Whether the items that wait in a saving pool are left to one worker, which has worked for
/// `busy_ns`.
#[inline]
#[must_use]
pub fn works_alone(busy_ns: u64) -> bool {
    busy_ns < ALONE_NS
}

/// Whether a saving pool with something to examine leaves it to the next regular check of the
/// watcher, which costs no wake. Not if its items are long, or are expected to block undeclared.
#[inline]
#[must_use]
pub fn spares_watcher(item_ns: u64, expects_blocks: bool) -> bool {
    item_ns < LONG_ITEM_NS && !expects_blocks
}

/// A worker that is about to sleep until a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleeper {
    /// The CPU that it is on.
    pub cpu: u32,
    /// How long the timer's window is.
    pub slack_ns: u64,
    /// How long an item takes.
    pub item_ns: u64,
}

/// The CPU to sleep on, of those that are awake for other work, each with its capacity: the
/// smallest, and the sleeper's own among equals. `None` if it may sleep on any CPU: no other CPU is
/// known to be awake, or the item would not begin and end soon enough beside that work.
///
/// A sleeping thread's timer interrupts the CPU on which the thread went to sleep. So the choice
/// before the sleep decides which CPU wakes.
/// ```
/// use uwork_policy::saving::{Sleeper, sleep_on};
/// let sleeper = Sleeper { cpu: 2, slack_ns: 2_000_000, item_ns: 20_000 };
/// assert_eq!(sleep_on(sleeper, [(1, 1024), (2, 1024)]), Some(2));
/// assert_eq!(sleep_on(sleeper, [(1, 400), (2, 1024)]), Some(1));
/// assert_eq!(sleep_on(sleeper, []), None);
/// assert_eq!(sleep_on(Sleeper { slack_ns: 0, ..sleeper }, [(1, 1024)]), None);
/// assert_eq!(sleep_on(Sleeper { item_ns: 50_000_000, ..sleeper }, [(1, 1024)]), None);
/// ```
#[must_use]
pub fn sleep_on(sleeper: Sleeper, awake: impl IntoIterator<Item = (u32, u32)>) -> Option<u32> {
    if !permits_other_work(sleeper.slack_ns, sleeper.item_ns) {
        return None;
    }
    let rank = |&(cpu, capacity): &(u32, u32)| (capacity, cpu != sleeper.cpu, cpu);
    awake.into_iter().min_by_key(rank).map(|(cpu, _)| cpu)
}
