//! Every operation at once, with exact counts at the end. `ci/stress.sh` runs these optimized, and in rounds.

mod everything;
mod percpu;
#[path = "../support/mod.rs"]
mod support;
mod task;
mod timers;

use std::io::Write;

/// Prints how many pools the engine's backstop had to rescue, and fails if there were any.
#[track_caller]
fn assert_no_rescues() {
    let rescues = uwork::rescues();
    // Written directly, because the harness shows the output of failed tests only.
    let _ = writeln!(std::io::stderr(), "stress: {rescues} rescues");
    assert_eq!(rescues, 0, "pools lacked a worker without a reason");
}
