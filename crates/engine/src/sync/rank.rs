//! What a lock is. docs/locking.md says what each lock guards and in which order they are taken; `order.rs`
//! has that as a table.

/// What a lock is, for the order in which locks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Rank {
    /// A task's list, while a caller's matcher looks at its items: that is user code, which may call everything
    /// but this list.
    TaskList,
    /// 0: one change of the CPUs at a time.
    Changing,
    /// 1: freezing.
    Freeze,
    /// 2: a queue's attributes.
    Tunable,
    /// 3: a queue's pool sets.
    QueueSets,
    /// 4: the engine's pool sets.
    EngineSets,
    /// 5: a queue's colours.
    Flush,
    /// 6: a queue's list of pwqs.
    Pwqs,
    /// 7: a pwq.
    Pwq,
    /// 8: a slot.
    Slot,
    /// D: items that a shutdown has taken off.
    Disposal,
    /// M: where threads are placed.
    Placing,
    /// N: a node's row.
    Row,
    /// P: a pool.
    Pool,
    /// T: a pool's timers.
    Timers,
    /// G: items that wait for a grace period.
    Grace,
    /// L: nothing is taken under it.
    Last,
}
