//! The order of the engine's locks, as a table that builds with debug assertions check.
//!
//! docs/locking.md gives the reasons for this order.

use crate::words::sync::Rank;

/// How many ranks there are.
pub(super) const RANKS: usize = Rank::Last as usize + 1;

impl Rank {
    /// A set with this rank alone.
    pub(super) const fn bit(self) -> u32 {
        1 << self as u8
    }

    /// All locks of a lower rank.
    const fn below(self) -> u32 {
        self.bit() - 1
    }

    /// The locks that may be held when one of this rank is taken.
    pub(super) const fn may_be_under(self) -> u32 {
        let of_the_engine = match self {
            Rank::TaskList => return 0,
            Rank::Changing => 0,
            Rank::Freeze
            | Rank::Tunable
            | Rank::QueueSets
            | Rank::EngineSets
            | Rank::Flush
            | Rank::Pwqs
            | Rank::Pwq
            | Rank::Slot
            | Rank::Disposal
            | Rank::Last => self.below(),
            Rank::Placing => Rank::Changing.bit(),
            Rank::Row => Rank::Disposal.below(),
            Rank::Pool => Rank::Flush.below() | Rank::Placing.bit(),
            Rank::Timers => Rank::Firing.bit(),
            Rank::Firing | Rank::Grace => 0,
        };
        of_the_engine | Rank::TaskList.bit()
    }
}

/// The locks under which a wake may be sent: those that are held for the whole of a change of the
/// CPUs or of a queue's attributes, which creates and wakes workers. No worker takes any of them on
/// its way to an item.
pub(super) const MAY_WAKE_UNDER: u32 =
    Rank::Changing.bit() | Rank::Tunable.bit() | Rank::TaskList.bit();

/// The locks under which user code may run.
pub(super) const MAY_CALL_UNDER: u32 = Rank::TaskList.bit();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_never_taken_under_one_of_its_own_or_a_later_rank() {
        let ranks = [
            Rank::TaskList,
            Rank::Changing,
            Rank::Freeze,
            Rank::Tunable,
            Rank::QueueSets,
            Rank::EngineSets,
            Rank::Flush,
            Rank::Pwqs,
            Rank::Pwq,
            Rank::Slot,
            Rank::Disposal,
            Rank::Placing,
            Rank::Row,
            Rank::Pool,
            Rank::Firing,
            Rank::Timers,
            Rank::Grace,
            Rank::Last,
        ];
        assert_eq!(ranks.len(), RANKS);
        for (at, rank) in ranks.into_iter().enumerate() {
            assert_eq!(rank as usize, at);
            assert_eq!(rank.may_be_under() & !(rank.bit() - 1), 0, "{rank:?}");
        }
    }
}
