//! Per-CPU data: each mode in a process of its own, and data that shows whether its lock excludes.

use std::process::Command;

use uwork::percpu::{Mode, mode, reason};

use super::child::{alone_with, is_started};

/// The variable that selects the mode of a process.
pub(crate) const VARIABLE: &str = "UWORK_PWLOCKS";
/// Its values.
pub(crate) const MODES: &[&str] = &["0", "1", "2"];

/// Whether restartable sections exist here, according to the reason that a process without a
/// requested mode reports.
pub(crate) fn has_sections() -> bool {
    !reason().contains("refused")
}

/// Runs `body` in a process of its own for each mode.
#[track_caller]
pub(crate) fn in_each_mode(test: &str, body: impl Fn()) {
    for wanted in &Mode::ALL[..if is_started() { 1 } else { Mode::ALL.len() }] {
        let prepare = |command: &mut Command| {
            command.env(VARIABLE, wanted.number().to_string());
        };
        alone_with(test, prepare, || {
            let number = std::env::var(VARIABLE).expect("as it was set");
            assert!(mode().number().to_string() == number || !has_sections(), "{}", reason());
            body();
        });
    }
}

/// Two numbers that are equal whenever their lock is free.
pub(crate) type Pair = (u64, u64);

/// Adds one to both. Fails if another thread is between the two additions.
pub(crate) fn add_one(pair: &mut Pair) {
    assert_eq!(pair.0, pair.1, "another thread held the lock");
    pair.0 += 1;
    // Prevents the compiler from merging the two writes.
    std::hint::black_box(&mut *pair);
    pair.1 += 1;
}
