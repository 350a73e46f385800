//! Tests that need a program that is not installed, rights, or a property of the kernel.

use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;

/// Names a test that is left out, and why: the text contains the name of what is missing. With `CI` set it fails,
/// unless `UWORK_LEFT_OUT` has that name (`ci/deps.sh --left-out`).
pub(crate) fn left_out(test: &str, why: &str) {
    let strict = std::env::var_os("CI").is_some();
    let known = std::env::var("UWORK_LEFT_OUT").unwrap_or_default();
    assert!(!strict || names(&known, why), "{test}: {why}, and CI is set: run ci/deps.sh");
    note(test, &format!("{why} (ci/deps.sh)"));
}

/// Names a test, or a case of one, that this kernel or machine does not permit. Nothing that could be installed is
/// missing, so it passes also with `CI` set.
#[allow(dead_code, reason = "several crates include this file")]
pub(crate) fn not_here(test: &str, why: impl std::fmt::Display) {
    note(test, &why.to_string());
}

/// Whether one of these names, separated by commas, is in the text.
fn names(known: &str, why: &str) -> bool {
    known.split(',').any(|name| !name.is_empty() && why.contains(name))
}

/// In each note.
pub(crate) const MARK: &str = ": left out, ";

fn note(test: &str, why: &str) {
    // Not by `eprintln!`, whose text the runner drops when a test passes; and not by `stderr()`, whose lock a forked
    // child may have inherited from another thread.
    // SAFETY: the value is not dropped, so that the descriptor stays open.
    let mut out = ManuallyDrop::new(unsafe { File::from_raw_fd(2) });
    let _ = out.write_all(format!("{test}{MARK}{why}\n").as_bytes());
}
