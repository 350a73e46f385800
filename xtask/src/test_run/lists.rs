//! Which tests are treated in a way of their own, by name.

/// Right or wrong: never repeated. Package, target (`*` stands for any ending), prefix of the test.
const NEVER_REPEATED: [(&str, &str, &str); 6] = [
    ("uwork", "forks", ""),
    ("uwork", "fork_allocation", ""),
    ("uwork", "fork_allocator", ""),
    ("*", "stress*", ""),
    ("uwork-engine", "virtual_time", ""),
    // The models that loom explores.
    ("uwork-engine", "lib", "models::"),
];

/// Tests that start hundreds of threads, or whose threads get a CPU only when no other wants it: each runs when all
/// others are over, and alone. Package, target, test.
pub(super) const STORMS: [(&str, &str, &str); 3] = [
    ("uwork", "library", "blocking_standby::a_process_that_lowers_its_own_priority_makes_progress"),
    ("uwork", "library", "blocking_bounds::a_thousand_pools_block_at_once"),
    ("uwork", "library", "blocking_standby::many_pools_share_the_standbys_of_their_cpus"),
];

pub(super) fn may_be_repeated(package: &str, target: &str, test: &str) -> bool {
    !NEVER_REPEATED.iter().any(|(packages, targets, tests)| {
        matches(packages, package) && matches(targets, target) && test.starts_with(tests)
    })
}

pub(super) fn is_storm(package: &str, target: &str, test: &str) -> bool {
    STORMS.contains(&(package, target, test))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_storm, may_be_repeated};

    #[test]
    fn what_is_right_or_wrong_is_never_repeated() {
        assert!(may_be_repeated("uwork", "library", "idle::after_the_load"));
        assert!(may_be_repeated("uwork-engine", "lib", "colour::tests::x"));
        assert!(may_be_repeated("uwork-policy", "forks", "x"));
        assert!(!may_be_repeated("uwork", "forks", "hooks::x"));
        assert!(!may_be_repeated("uwork", "fork_allocation", "x"));
        assert!(!may_be_repeated("uwork", "stress", "task::x"));
        assert!(!may_be_repeated("uwork-engine", "virtual_time", "open::x"));
        assert!(!may_be_repeated("uwork-engine", "lib", "models::kick::x"));
    }

    #[test]
    fn a_storm_is_known_by_its_whole_name() {
        let test = "blocking_bounds::a_thousand_pools_block_at_once";
        assert!(is_storm("uwork", "library", test));
        assert!(!is_storm("uwork", "forks", test));
        assert!(!is_storm("uwork", "library", &format!("{test}_again")));
    }
}
