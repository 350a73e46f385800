//! The ranks of locks. docs/locking.md lists what each lock guards and the order in which locks are
//! taken; `order.rs` has the order as a table.

/// The rank of a lock in the order in which locks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rank {
    /// A task's list, while a caller's matcher examines its items: that is user code, which may
    /// call everything except this list.
    TaskList,
    /// 0: serializes changes of the CPUs.
    Changing,
    /// 1: freezing.
    Freeze,
    /// 2: a queue's attributes.
    Tunable,
    /// 3: a queue's pool sets.
    QueueSets,
    /// 4: the engine's pool sets.
    EngineSets,
    /// 5: a queue's flush colours.
    Flush,
    /// 6: a queue's list of pwqs.
    Pwqs,
    /// 7: a pwq.
    Pwq,
    /// 8: a slot.
    Slot,
    /// D: items that a shutdown has removed.
    Disposal,
    /// M: the placement of threads.
    Placing,
    /// N: a node's row of waiting pwqs.
    Row,
    /// P: a pool.
    Pool,
    /// F: the right to fire the due timers of a wheel.
    Firing,
    /// T: a pool's timers.
    Timers,
    /// G: items that wait for a grace period.
    Grace,
    /// L: no lock is taken under it.
    Last,
}
