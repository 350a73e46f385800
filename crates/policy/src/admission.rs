//! How many items of an unbound queue may be active on each NUMA node.
//!
//! A queue's limit is divided in proportion to the CPUs that the queue has on each node. A small
//! share is raised to a minimum, so the shares of all nodes together may exceed the limit.

/// The `min_active` of queues whose owner chose none, capped by their `max_active` (the kernel's
/// `WQ_DFL_MIN_ACTIVE`).
pub const MIN_ACTIVE_DEFAULT: u32 = 8;

/// The `min_active` of a queue whose owner chose none.
/// ```
/// use uwork_policy::admission::default_min_active;
/// assert_eq!(default_min_active(1024), 8);
/// assert_eq!(default_min_active(3), 3);
/// ```
#[must_use]
pub fn default_min_active(max_active: u32) -> u32 {
    max_active.min(MIN_ACTIVE_DEFAULT)
}

/// The limit on a node that has `node_cpus` of the `total_cpus` CPUs that the queue may use: its
/// share of `max_active`, rounded up, but at least `min_active` and at most `max_active`.
///
/// The result is never zero, whatever `min_active` is. A node whose CPUs left the queue's mask may
/// still hold items that were queued before, and these must be able to run.
/// ```
/// use uwork_policy::admission::node_max_active;
/// assert_eq!(node_max_active(1024, 8, 24, 32), 768);
/// assert_eq!(node_max_active(10, 8, 1, 2), 8);
/// assert_eq!(node_max_active(10, 1, 1, 3), 4);
/// ```
#[must_use]
pub fn node_max_active(max_active: u32, min_active: u32, node_cpus: u32, total_cpus: u32) -> u32 {
    let max_active = max_active.max(1);
    let share = u64::from(max_active) * u64::from(node_cpus);
    let share = share.div_ceil(u64::from(total_cpus.max(1))).min(u64::from(max_active)) as u32;
    share.max(min_active.clamp(1, max_active))
}
