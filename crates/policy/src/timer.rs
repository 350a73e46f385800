//! Where a timer goes in a hierarchical timing wheel.
//!
//! Source: Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987; with the level
//! taken from the highest bit in which the deadline's tick differs from the wheel's, so that
//! everything in a level expires before anything in the next one.

/// A tick is 2 to this power nanoseconds: 65.5 microseconds.
pub const TICK_SHIFT: u32 = 16;
/// Slots of one level, as a power of two.
pub const SLOT_BITS: u32 = 6;
/// Slots of one level.
pub const SLOTS: usize = 1 << SLOT_BITS;
/// Levels: together they span all 64 bits of nanoseconds.
pub const LEVELS: usize = (64 - TICK_SHIFT).div_ceil(SLOT_BITS) as usize;

/// A place in the wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The level, finest first.
    pub level: usize,
    /// The slot in it.
    pub slot: usize,
}

/// The tick that a time in nanoseconds falls into.
#[inline]
pub fn tick_of(ns: u64) -> u64 {
    ns >> TICK_SHIFT
}

/// Where a timer for `deadline_ns` goes in a wheel that stands at `wheel_tick`. A deadline that
/// has passed goes to the wheel's own tick.
///
/// ```
/// use uwork_policy::timer::{Spot, place, tick_of};
/// assert_eq!(place(0, 5 << 16), Spot { level: 0, slot: 5 });
/// assert_eq!(place(0, 64 << 16), Spot { level: 1, slot: 1 });
/// assert_eq!(place(7, 0), Spot { level: 0, slot: 7 });
/// ```
#[inline]
pub fn place(wheel_tick: u64, deadline_ns: u64) -> Spot {
    let tick = tick_of(deadline_ns).max(wheel_tick);
    let differing = (wheel_tick ^ tick) | (SLOTS as u64 - 1);
    let level = ((63 - differing.leading_zeros()) / SLOT_BITS) as usize;
    let slot = (tick >> (level as u32 * SLOT_BITS)) as usize % SLOTS;
    Spot { level, slot }
}

/// The first tick of a slot of a wheel that stands at `wheel_tick`. The slot is occupied.
#[inline]
pub fn first_tick(wheel_tick: u64, spot: Spot) -> u64 {
    let shift = spot.level as u32 * SLOT_BITS;
    let block = wheel_tick >> shift >> SLOT_BITS << SLOT_BITS;
    (block | spot.slot as u64) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deadline_has_a_spot_and_its_slot_does_not_begin_after_it() {
        for wheel in [0, 1, 63, 64, 4_095, 1 << 30, u64::MAX >> TICK_SHIFT] {
            for bit in 0..64 {
                let deadline = 1_u64 << bit;
                let spot = place(wheel, deadline);
                assert!(spot.level < LEVELS && spot.slot < SLOTS);
                assert!(first_tick(wheel, spot) <= tick_of(deadline).max(wheel));
            }
        }
    }

    #[test]
    fn a_lower_level_expires_first() {
        let wheel = 1_000;
        for near in (1_000..3_000_u64).step_by(7) {
            for far in (near..200_000_u64).step_by(997) {
                let (a, b) = (place(wheel, near << TICK_SHIFT), place(wheel, far << TICK_SHIFT));
                assert!(a.level <= b.level, "{near} {far}");
                if a.level == b.level {
                    assert!(first_tick(wheel, a) <= first_tick(wheel, b));
                }
            }
        }
    }
}
