//! Tests that need a program that is not installed, or rights.

use std::io::Write;

/// Names a test that is left out. With `CI` set it fails: ci/all.sh unsets it if a program is missing
/// from the start.
pub(crate) fn left_out(test: &str, why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{test}: {why}, and CI is set: run ci/deps.sh");
    // Not by `eprintln!`, whose text the runner drops when a test passes.
    let _ = writeln!(std::io::stderr(), "{test}: left out, {why} (ci/deps.sh)");
}
