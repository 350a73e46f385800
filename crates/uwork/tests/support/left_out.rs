//! Tests that need a program that is not installed.

use std::io::Write;

/// Names a test that is left out. In CI it fails: no test may be left out unnoticed.
pub(crate) fn left_out(test: &str, why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{test}: {why}; CI has it (ci/deps.sh)");
    // Not by `eprintln!`, whose text the runner drops when a test passes.
    let _ = writeln!(std::io::stderr(), "{test}: left out, {why} (ci/deps.sh)");
}
