//! Which tests are treated in a way of their own, by name.

/// Right or wrong: never repeated. Package, target (`*` stands for any ending), prefix of the test.
const NEVER_REPEATED: [(&str, &str, &str); 8] = [
    ("uwork", "forks", ""),
    ("uwork", "fork_allocation", ""),
    ("uwork", "fork_allocator", ""),
    ("*", "stress*", ""),
    ("uwork-engine", "virtual_time", ""),
    // All of them are in virtual time.
    ("uwork-sim", "*", ""),
    ("uwork-sim-costs", "*", ""),
    // The models that loom explores.
    ("uwork-engine", "lib", "models::"),
];

/// Tests of forked children in programs of other tests: never repeated either. Package, target, test.
pub(super) const FORKS: [(&str, &str, &str); 14] = [
    ("uwork", "signals", "a_child_forked_in_an_item_receives_signals_again"),
    ("uwork", "refused", "fences_hold_when_membarrier_is_refused_later"),
    ("uwork", "library", "blocking_bounds::a_fork_while_workers_are_observed"),
    ("uwork", "library", "blocking_standby::a_fork_while_standbys_exist"),
    ("uwork", "library", "workers_max::a_queue_that_has_ended_lets_no_pool_grow"),
    ("uwork", "library", "percpu::a_process_that_can_have_no_threads_reaches_every_cpu"),
    ("uwork", "library", "percpu::a_forked_child_uses_its_own_per_cpu_data"),
    ("uwork", "control", "clients::only_its_user_may_use_the_socket"),
    ("uwork", "control", "clients::a_client_that_is_killed_is_forgotten"),
    ("uwork", "control", "a_trace_records_the_items_that_are_queued_while_it_is_on"),
    ("uwork", "control", "a_forked_child_has_its_own_socket"),
    ("uwork-bridge", "bridge", "delayed::equal_delayed_jobs_of_forked_children_are_several_jobs"),
    (
        "uwork-bridge",
        "bridge",
        "descriptors::a_child_keeps_its_own_files_under_the_numbers_of_its_parents_connections",
    ),
    (
        "uwork-bridge",
        "bridge",
        "descriptors::the_bridge_connects_anew_when_the_program_has_closed_its_connections",
    ),
];

/// Tests that start hundreds of threads, or whose threads get a CPU only when no other wants it: each runs when all
/// others are over, and alone. Package, target, test.
pub(super) const STORMS: [(&str, &str, &str); 3] = [
    ("uwork", "library", "blocking_standby::a_process_that_lowers_its_own_priority_makes_progress"),
    ("uwork", "library", "blocking_bounds::a_thousand_pools_block_at_once"),
    ("uwork", "library", "blocking_standby::many_pools_share_the_standbys_of_their_cpus"),
];

pub(super) fn may_be_repeated(package: &str, target: &str, test: &str) -> bool {
    let forks = FORKS.contains(&(package, target, test));
    !forks
        && !NEVER_REPEATED.iter().any(|(packages, targets, tests)| {
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
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::{FORKS, is_storm, may_be_repeated};

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
        assert!(!may_be_repeated("uwork-sim", "play", "x"));
        assert!(!may_be_repeated("uwork-sim-costs", "costs", "x"));
        assert!(!may_be_repeated("uwork", "control", "a_forked_child_has_its_own_socket"));
        assert!(may_be_repeated("uwork", "control", "a_forked_child_has_its_own_socket_twice"));
    }

    /// Each file of integration tests: package, target, the beginning of its tests' names, text.
    fn test_files() -> Vec<(String, String, String, String)> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let mut files = Vec::new();
        for package in folder(&crates).into_iter().filter(|path| path.join("tests").exists()) {
            let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a package");
            let name = manifest.split('"').nth(1).expect("its name comes first").to_owned();
            for path in folder(&package.join("tests")) {
                let target = path.file_stem().expect("a name").to_str().expect("text").to_owned();
                let inner = if path.is_dir() { folder(&path) } else { vec![path] };
                for file in inner.into_iter().filter(|file| file.extension() == Some("rs".as_ref()))
                {
                    let stem = file.file_stem().expect("a name").to_str().expect("text").to_owned();
                    let is_root = stem == "main" || stem == target;
                    let module = if is_root { String::new() } else { stem + "::" };
                    let text = fs::read_to_string(&file).expect("text");
                    files.push((name.clone(), target.clone(), module, text));
                }
            }
        }
        files
    }

    fn folder(path: &Path) -> Vec<PathBuf> {
        fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
    }

    #[test]
    fn each_file_with_a_test_that_forks_is_listed() {
        let mut forking = 0;
        for (package, target, module, text) in test_files() {
            let forks = ["in_child(", " fork()", "::fork()"].iter().any(|call| text.contains(call));
            // `support` has no tests, and the children in those of the command use nothing of the library.
            let others = target == "support" || package == "uwork-cli";
            if !forks || others || !may_be_repeated(&package, &target, &module) {
                continue;
            }
            forking += 1;
            let listed = FORKS.iter().any(|&(of, at, test)| {
                (of, at) == (&*package, &*target) && test.starts_with(&module)
            });
            assert!(listed, "{package}/{target}::{module} forks, and FORKS has none of its tests");
        }
        assert!(forking >= 8, "{forking} files");
    }

    #[test]
    fn a_storm_is_known_by_its_whole_name() {
        let test = "blocking_bounds::a_thousand_pools_block_at_once";
        assert!(is_storm("uwork", "library", test));
        assert!(!is_storm("uwork", "forks", test));
        assert!(!is_storm("uwork", "library", &format!("{test}_again")));
    }
}
