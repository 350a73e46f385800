//! A wait with a bound.

use std::time::{Duration, Instant};

/// Far above the duration of any test.
pub(crate) const IN_VAIN: Duration = Duration::from_secs(60);

/// Waits until a condition holds. A test that waits in vain fails with the words for it.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < IN_VAIN, "waited in vain until {what}");
        std::thread::yield_now();
    }
}
