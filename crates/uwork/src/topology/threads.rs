//! How many threads there may be.

use super::files::Files;

/// The tightest of the limits in sight: the resource limit of the user's threads, those of the control
/// groups (`groups`), and the system's.
///
/// The first does not bind the privileged. It counts for them as well: whoever set it had a reason.
pub(super) fn max(files: &Files<'_>, groups: Option<u64>) -> Option<u64> {
    let system = files.text("/proc/sys/kernel/threads-max").and_then(|text| text.parse().ok());
    let limits = files.text("/proc/self/limits");
    let user = limits.as_deref().and_then(soft_limit_of_processes);
    [user, groups, system].into_iter().flatten().min()
}

/// `Max processes   SOFT   HARD   processes`; nothing where SOFT is `unlimited`.
fn soft_limit_of_processes(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max processes "))?;
    line.split_whitespace().next()?.parse().ok()
}
