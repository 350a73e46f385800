//! Which tests are treated in a way of their own, by name.

/// Right or wrong: never repeated. Package, target (`*` stands for any ending), prefix of the test.
const NEVER_REPEATED: [(&str, &str, &str); 13] = [
    ("uwork", "forks", ""),
    ("uwork", "fork_allocation", ""),
    ("uwork", "fork_allocator", ""),
    // Beside processes of several users, which are forked children.
    ("uwork", "control", "strangers::"),
    ("uwork-cli", "command", "strangers::"),
    ("uwork-cli", "command", "file_systems::"),
    ("uwork-cli", "command", "hostile::of_a_user::"),
    ("uwork-cli", "command", "crowd::"),
    ("*", "stress*", ""),
    ("uwork-engine", "virtual_time", ""),
    // All of them are in virtual time.
    ("uwork-sim", "*", ""),
    ("uwork-sim-costs", "*", ""),
    // The models that loom explores.
    ("uwork-engine", "lib", "models::"),
];

/// Tests of forked children in programs of other tests: never repeated either. Package, target, test.
pub(super) const FORKS: [(&str, &str, &str); 24] = [
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
    ("uwork-capi", "lib", "quarantine::tests::the_lock_is_free_in_a_forked_child"),
    (
        "uwork-capi",
        "lib",
        "reserve::tests::a_claim_fills_no_page_of_a_process_that_locks_all_memory",
    ),
    ("uwork-linux", "lib", "blocked::kept::tests::a_forked_child_keeps_no_file_of_its_parent"),
    (
        "uwork-linux",
        "lib",
        "stack::snapshot::tests::a_stack_is_copied_after_the_end_of_the_main_thread",
    ),
    (
        "uwork-linux",
        "lib",
        "stack::tests::protocol::a_request_in_progress_at_a_fork_does_not_exist_in_the_child",
    ),
    ("uwork-linux", "lib", "standard_error::tests::a_file_at_its_limit_ends_no_program"),
    ("uwork-linux", "lib", "standard_error::tests::a_pipe_without_a_reader_ends_no_program"),
    (
        "uwork-linux",
        "lib",
        "topology::tests::a_process_whose_main_thread_has_ended_has_the_same_limits",
    ),
    ("uwork-cli", "uwork", "peer::tests::a_process_lives_as_long_as_one_of_its_threads"),
    ("uwork-cli", "command", "untrusted::a_process_that_has_ended_has_no_row_and_is_named_so"),
];

/// Tests that start hundreds of threads, or whose threads get a CPU only when no other wants it: each runs when all
/// others are over, and alone. Package, target, test.
pub(super) const STORMS: [(&str, &str, &str); 3] = [
    ("uwork", "library", "blocking_standby::a_process_that_lowers_its_own_priority_makes_progress"),
    ("uwork", "library", "blocking_bounds::a_thousand_pools_block_at_once"),
    ("uwork", "library", "blocking_standby::many_pools_share_the_standbys_of_their_cpus"),
];

/// Binaries whose tests mostly wait for processes that they have started. Package, target.
const WAIT: [(&str, &str); 2] = [("uwork-bridge", "bridge"), ("uwork-cli", "command")];

pub(super) fn waits(package: &str, target: &str) -> bool {
    WAIT.contains(&(package, target))
}

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

    use super::{FORKS, WAIT, is_storm, may_be_repeated};

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

    /// Children that only compute: these tests may be repeated.
    const BURNERS: [(&str, &str, &str); 1] =
        [("uwork", "library", "blocking_bounds::preempted_workers_are_not_replaced")];

    /// A file of a crate with tests.
    struct File {
        package: String,
        target: String,
        /// The beginning of its tests' names.
        module: String,
        /// Without the part that is no test.
        text: String,
    }

    fn test_files() -> Vec<File> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        let mut files = Vec::new();
        for package in folder(&crates).into_iter().filter(|path| path.join("Cargo.toml").exists()) {
            let manifest = fs::read_to_string(package.join("Cargo.toml")).expect("a package");
            let name = manifest.split('"').nth(1).expect("its name comes first");
            let own = if package.join("src/lib.rs").exists() { "lib" } else { "uwork" };
            for (place, is_program) in [("src", false), ("tests", true)] {
                let place = package.join(place);
                for path in sources(&place) {
                    let inner = path.strip_prefix(&place).expect("it is below").with_extension("");
                    let mut parts: Vec<&str> =
                        inner.iter().map(|part| part.to_str().expect("text")).collect();
                    let target = if is_program { parts.remove(0) } else { own };
                    let is_of_tests = is_program || parts.contains(&"tests");
                    parts.pop_if(|last| ["main", "lib", "mod"].contains(last));
                    let inner = (!is_of_tests).then_some("tests");
                    let module =
                        parts.into_iter().chain(inner).map(|part| format!("{part}::")).collect();
                    let (package, target) = (name.to_owned(), target.to_owned());
                    let text = fs::read_to_string(&path).expect("text");
                    let tests = if is_of_tests { Some(0) } else { text.find("#[cfg(test)]") };
                    let text = text[tests.unwrap_or(text.len())..].to_owned();
                    files.push(File { package, target, module, text });
                }
            }
        }
        files
    }

    #[test]
    fn each_binary_that_waits_exists() {
        let files = test_files();
        for (package, target) in WAIT {
            let exists =
                files.iter().any(|file| (&*file.package, &*file.target) == (package, target));
            assert!(exists, "{package}/{target}");
        }
    }

    /// The source files in a folder and below it. None, if it does not exist.
    fn sources(path: &Path) -> Vec<PathBuf> {
        let inner = if path.is_dir() { folder(path) } else { Vec::new() };
        let (folders, files): (Vec<_>, Vec<_>) = inner.into_iter().partition(|path| path.is_dir());
        let files = files.into_iter().filter(|path| path.extension() == Some("rs".as_ref()));
        files.chain(folders.iter().flat_map(|path| sources(path))).collect()
    }

    fn folder(path: &Path) -> Vec<PathBuf> {
        fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
    }

    struct Function<'a> {
        name: &'a str,
        is_test: bool,
        /// Its lines, without comments.
        body: String,
    }

    /// The functions of a formatted file, those in others left out.
    fn functions(text: &str) -> Vec<Function<'_>> {
        let mut functions: Vec<Function<'_>> = Vec::new();
        let (mut is_test, mut last_line) = (false, None);
        for line in text.lines() {
            let code = line.trim_start();
            if code.starts_with("//") {
                continue;
            }
            if last_line.is_none() {
                is_test |= code == "#[test]";
                let Some(name) = declared(code) else { continue };
                functions.push(Function { name, is_test, body: String::new() });
                is_test = false;
                let is_long = !code.ends_with(['}', ';']);
                last_line = is_long.then(|| format!("{}}}", &line[..line.len() - code.len()]));
            }
            let function = functions.last_mut().expect("a line is in one");
            function.body.extend([code, "\n"]);
            last_line = last_line.filter(|last| last != line);
        }
        functions
    }

    /// The name of the function whose declaration begins with this line.
    fn declared(line: &str) -> Option<&str> {
        let (before, after) = line.split_once("fn ")?;
        let begins = ["pub", "pub(crate)", "pub(super)", "unsafe", "extern", "\"C\"", "const"];
        let is_declaration = before.split_whitespace().all(|word| begins.contains(&word));
        is_declaration.then(|| after.split(['(', '<']).next().unwrap_or(after))
    }

    /// The tests of a file that fork, themselves or by another function of the file.
    fn forking_tests(text: &str) -> Vec<&str> {
        let functions = functions(text);
        let mut found = ["in_child(", "fork()", "Process::start("].map(str::to_owned).to_vec();
        let forks = |function: &Function<'_>, found: &[String]| {
            let (_, inner) = function.body.split_once('{').unwrap_or_default();
            found.iter().any(|call| calls(inner, call))
        };
        let mut before = 0;
        while before < found.len() {
            before = found.len();
            for helper in functions.iter().filter(|function| !function.is_test) {
                let call = format!("{}(", helper.name);
                if !found.contains(&call) && forks(helper, &found) {
                    found.push(call);
                }
            }
        }
        let tests = functions.iter().filter(|function| function.is_test);
        tests.filter(|test| forks(test, &found)).map(|test| test.name).collect()
    }

    /// Whether the function is called by this name, and not by a longer one.
    fn calls(text: &str, call: &str) -> bool {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        text.match_indices(call).any(|(at, _)| !text[..at].ends_with(is_part))
    }

    #[test]
    fn each_test_that_forks_is_listed() {
        let mut listed = 0;
        for File { package, target, module, text } in test_files() {
            for name in forking_tests(&text) {
                let test = format!("{module}{name}");
                let place = (&*package, &*target, &*test);
                listed += usize::from(FORKS.contains(&place));
                let is_right =
                    !may_be_repeated(place.0, place.1, place.2) || BURNERS.contains(&place);
                assert!(is_right, "{package}/{target}::{test} forks, and is not in FORKS");
            }
        }
        assert_eq!(listed, FORKS.len(), "some tests in FORKS do not fork, or do not exist");
    }

    #[test]
    fn a_test_forks_itself_or_by_a_function_of_its_file() {
        let text = "
            #[test]
            fn alone() { other(); }
            #[test]
            fn first() { let child = unsafe { fork() }; }
            /// Not so the next: fork().
            #[test]
            #[ignore = \"slow\"]
            fn beside_it() { no_fork() }
            fn outer<T>(body: T) { inner(body) }
            pub(crate) fn inner<T>(body: T) {
                in_child(body);
            }
            #[test]
            fn by_others() {
                fn not() {
                    alone();
                }
                outer(|| ());
            }
            #[test]
            fn beside_them() {
                not();
            }
        ";
        assert_eq!(forking_tests(text), ["first", "by_others"]);
    }

    #[test]
    fn a_storm_is_known_by_its_whole_name() {
        let test = "blocking_bounds::a_thousand_pools_block_at_once";
        assert!(is_storm("uwork", "library", test));
        assert!(!is_storm("uwork", "forks", test));
        assert!(!is_storm("uwork", "library", &format!("{test}_again")));
    }
}
