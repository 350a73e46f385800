//! The maximum number of threads.

use super::files::Files;

/// The tightest of the visible limits: the resource limit on the user's threads, those of the
/// control groups (`groups`), and the system's.
///
/// The first does not bind privileged processes. It counts for them as well, as it was set for a
/// reason.
pub(super) fn max(files: &Files<'_>, groups: Option<u64>) -> Option<u64> {
    let system = files.text("/proc/sys/kernel/threads-max").and_then(|text| text.parse().ok());
    let limits = files.text("/proc/self/limits");
    let user = limits.as_deref().and_then(soft_limit_of_processes);
    [user, groups, system].into_iter().flatten().min()
}

/// `Max processes   SOFT   HARD   processes`; None if SOFT is `unlimited`.
fn soft_limit_of_processes(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max processes "))?;
    line.split_whitespace().next()?.parse().ok()
}
