//! When a timer with slack expires, and its position in a hierarchical timing wheel.
//!
//! Source: Varghese and Lauck, "Hashed and hierarchical timing wheels", SOSP 1987. The level comes
//! from the highest bit in which the deadline differs from the wheel's time, so every timer in a level
//! expires before any timer in the next level.

/// Buckets of one level, as a power of two.
pub const BUCKET_BITS: u32 = 6;
/// Buckets of one level.
pub const BUCKETS: usize = 1 << BUCKET_BITS;
/// Levels: together they span all 64 bits of nanoseconds. A bucket of the finest level is one
/// nanosecond, so its timers need no order by time.
pub const LEVELS: usize = 64_usize.div_ceil(BUCKET_BITS as usize);

/// The position of a bucket in the wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The level, finest first.
    pub level: usize,
    /// The bucket in that level.
    pub bucket: usize,
}

/// The position of a timer for `deadline_ns` in a wheel that has reached `wheel_ns`. A deadline that
/// has passed goes to the present nanosecond.
/// ```
/// use uwork_policy::timer::{Position, position};
/// assert_eq!(position(0, 5), Position { level: 0, bucket: 5 });
/// assert_eq!(position(0, 64), Position { level: 1, bucket: 1 });
/// assert_eq!(position(7, 0), Position { level: 0, bucket: 7 });
/// ```
#[inline]
pub fn position(wheel_ns: u64, deadline_ns: u64) -> Position {
    let at = deadline_ns.max(wheel_ns);
    let differing = (wheel_ns ^ at) | (BUCKETS as u64 - 1);
    let level = ((63 - differing.leading_zeros()) / BUCKET_BITS) as usize;
    let bucket = (at >> (level as u32 * BUCKET_BITS)) as usize % BUCKETS;
    Position { level, bucket }
}

/// The first nanosecond of a bucket of a wheel that has reached `wheel_ns`. The bucket must be
/// occupied.
#[inline]
pub fn begin_of(wheel_ns: u64, position: Position) -> u64 {
    let shift = position.level as u32 * BUCKET_BITS;
    let block = wheel_ns >> shift >> BUCKET_BITS << BUCKET_BITS;
    (block | position.bucket as u64) << shift
}

/// The expiry of a timer that may expire at any time from `deadline_ns` to `slack_ns` later: the
/// time in that window with the most trailing zero bits, which is unique.
///
/// Independent timers coincide. With a slack of 2^k - 1 or more, all expire at multiples of 2^k. If
/// each of two timers could expire at the other's time, both expire at the same time. The function
/// has no state, so it leaves the wheel unchanged.
/// ```
/// use uwork_policy::timer::expiry;
/// assert_eq!(expiry(1_000, 0), 1_000);
/// assert_eq!(expiry(1_000, 23), 1_008);
/// assert_eq!(expiry(1_000, 24), 1_024);
/// assert_eq!(expiry(900, 200), 1_024);
/// ```
#[inline]
pub fn expiry(deadline_ns: u64, slack_ns: u64) -> u64 {
    let latest = deadline_ns.saturating_add(slack_ns);
    let Some(too_early) = deadline_ns.checked_sub(1) else { return 0 };
    // Take the highest bit in which the latest time differs from the time just before the window.
    // Below that bit the result is all zeros; above it all times of the window are equal.
    let low = 63 - (too_early ^ latest).leading_zeros();
    latest >> low << low
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Times and slacks of every magnitude.
    fn any_magnitude() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0..64_u32).prop_map(|(value, shift)| value >> shift)
    }

    proptest! {
        #[test]
        fn an_expiry_is_in_its_window(deadline in any_magnitude(), slack in any_magnitude()) {
            let at = expiry(deadline, slack);
            prop_assert!(deadline <= at && at <= deadline.saturating_add(slack));
            prop_assert_eq!(at, expiry(deadline, slack));
        }

        #[test]
        fn without_slack_the_expiry_is_the_deadline(deadline in any_magnitude()) {
            prop_assert_eq!(expiry(deadline, 0), deadline);
        }

        #[test]
        fn no_time_in_the_window_has_more_trailing_zeros(
            deadline in any_magnitude(), slack in 0..2_000_u64, offset in 0..2_000_u64,
        ) {
            let (at, other) = (expiry(deadline, slack), deadline.saturating_add(offset % (slack + 1)));
            prop_assert!(other == at || other.trailing_zeros() < at.trailing_zeros());
        }

        /// Many timers, few wake-ups.
        #[test]
        fn slack_rounds_expiries_to_a_grid(deadline in any_magnitude(), bits in 0..40_u32, more in 0..9_u64) {
            let deadline = deadline >> 1;
            prop_assert_eq!(expiry(deadline, (1 << bits) - 1 + more) % (1 << bits), 0);
        }

        #[test]
        fn windows_that_hold_each_others_expiry_share_it(
            first in 0..1_u64 << 40, apart in 0..1_000_000_u64,
            slack in 1_000_000..1_u64 << 30, other_slack in 1_000_000..1_u64 << 30,
        ) {
            let second = first + apart;
            let (a, b) = (expiry(first, slack), expiry(second, other_slack));
            if (second..=second + other_slack).contains(&a) && (first..=first + slack).contains(&b) {
                prop_assert_eq!(a, b);
            }
        }

        /// Deadlines that follow each other closely, each with the same large slack, share two
        /// expiries, or three where a rounder time lies between.
        #[test]
        fn a_burst_shares_its_expiries(start in 0..1_u64 << 50, bits in 10..30_u32) {
            let (slack, step) = ((1_u64 << bits) - 1, (1_u64 << bits) / 100);
            let mut expiries: Vec<u64> = (0..100).map(|i| expiry(start + i * step, slack)).collect();
            expiries.dedup();
            prop_assert!(expiries.len() <= 3, "{:?}", expiries);
        }
    }

    #[test]
    fn a_bucket_begins_no_later_than_its_deadline() {
        for wheel in [0, 1, 63, 64, 4_095, 1 << 30, u64::MAX] {
            for bit in 0..64 {
                let deadline = 1_u64 << bit;
                let at = position(wheel, deadline);
                assert!(at.level < LEVELS && at.bucket < BUCKETS);
                assert!(begin_of(wheel, at) <= deadline.max(wheel));
            }
        }
    }

    #[test]
    fn a_lower_level_expires_first() {
        let wheel = 1_000;
        for near in (1_000..3_000_u64).step_by(7) {
            for far in (near..200_000_u64).step_by(997) {
                let (a, b) = (position(wheel, near), position(wheel, far));
                assert!(a.level <= b.level, "{near} {far}");
                if a.level == b.level {
                    assert!(begin_of(wheel, a) <= begin_of(wheel, b));
                }
            }
        }
    }

    #[test]
    fn a_bucket_of_the_finest_level_is_one_nanosecond() {
        for wheel in [0, 63, 64, 1_000_000_007] {
            for later in 0..1_000 {
                let at = position(wheel, wheel + later);
                assert!(at.level > 0 || begin_of(wheel, at) == wheel + later);
            }
        }
    }
}
