//! The command line of `cargo xtask test`.

pub(crate) const USAGE: &str = "\
usage: cargo xtask test [--storms without|only] [--doc-tests without] [ARGUMENTS for cargo test]
                        [-- ARGUMENTS for tests]

Builds and runs tests, as `cargo test --no-fail-fast` does; filters stand behind `--`. A test that
failed runs once more, alone; if it passes, it is reported as flaky. UWORK_NO_REPEAT=1: never.
UWORK_NO_RUN=1: only builds. Storms are tests that start hundreds of threads; they run last, each
alone.
";

/// Which part of the storms to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Storms {
    Last,
    Without,
    Only,
}

pub(super) struct Options {
    pub(super) storms: Storms,
    doc_tests: bool,
    /// Not only builds.
    pub(super) runs: bool,
    /// For cargo.
    pub(super) cargo: Vec<String>,
    /// For the test binaries.
    pub(super) binary: Vec<String>,
    /// A test that failed is repeated.
    pub(super) repeats: bool,
}

/// Arguments that select binaries, so that cargo leaves out the documentation.
const SELECT: [&str; 10] = [
    "--lib",
    "--bin",
    "--bins",
    "--test",
    "--tests",
    "--example",
    "--examples",
    "--bench",
    "--benches",
    "--all-targets",
];

/// libtest's options that select tests, and their values would be taken as names.
const SELECT_TESTS: [&str; 2] = ["--exact", "--skip"];

impl Options {
    pub(super) fn new(arguments: &[String]) -> Result<Self, String> {
        let end = arguments.iter().position(|argument| argument == "--");
        let (mut cargo, binary) = match end {
            Some(end) => (arguments[..end].to_vec(), arguments[end + 1..].to_vec()),
            None => (arguments.to_vec(), Vec::new()),
        };
        let storms = match take(&mut cargo, "--storms").as_deref() {
            None => Storms::Last,
            Some("without") => Storms::Without,
            Some("only") => Storms::Only,
            Some(_) => return Err("--storms takes `without` or `only`".to_owned()),
        };
        let doc_tests = match take(&mut cargo, "--doc-tests").as_deref() {
            None => true,
            Some("without") => false,
            Some(_) => return Err("--doc-tests takes `without`".to_owned()),
        };
        let [repeats, runs] = ["UWORK_NO_REPEAT", "UWORK_NO_RUN"]
            .map(|name| std::env::var_os(name).is_none_or(|value| value != "1"));
        Ok(Self { storms, doc_tests, runs, cargo, binary, repeats })
    }

    /// Whether the tests of binaries are among those that run.
    pub(super) fn has_binaries(&self) -> bool {
        !self.cargo.iter().any(|argument| argument == "--doc")
    }

    /// As cargo decides. A filter is for binaries.
    pub(super) fn has_doc_tests(&self) -> bool {
        let name = |argument: &String| argument.split('=').next().unwrap_or_default().to_owned();
        let selects = self.cargo.iter().any(|argument| SELECT.contains(&&*name(argument)));
        self.doc_tests && self.storms != Storms::Only && self.binary.is_empty() && !selects
    }

    /// The arguments of a binary that runs these tests and no others.
    pub(super) fn exactly(&self, tests: &[String]) -> Vec<String> {
        let kept = |argument: &&String| {
            let selects = SELECT_TESTS.iter().any(|option| argument.starts_with(option));
            argument.starts_with("--") && !selects
        };
        let options = self.binary.iter().filter(kept).cloned();
        options.chain(["--exact".to_owned()]).chain(tests.iter().cloned()).collect()
    }
}

/// Takes an option and its value out of the arguments; the value is empty if it is missing.
fn take(arguments: &mut Vec<String>, option: &str) -> Option<String> {
    let at = arguments.iter().position(|argument| argument == option)?;
    arguments.remove(at);
    Some(if at < arguments.len() { arguments.remove(at) } else { String::new() })
}

#[cfg(test)]
mod tests {
    use super::{Options, Storms};

    fn options(line: &str) -> Options {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::new(&words).expect("a command line")
    }

    #[test]
    fn arguments_go_to_cargo_or_to_the_tests() {
        let options = options("--storms without --package uwork -- --nocapture idle::");
        assert_eq!(options.storms, Storms::Without);
        assert_eq!(options.cargo, ["--package", "uwork"]);
        assert_eq!(options.binary, ["--nocapture", "idle::"]);
        let tests = ["a".to_owned(), "b".to_owned()];
        assert_eq!(options.exactly(&tests), ["--nocapture", "--exact", "a", "b"]);
        assert!(Options::new(&["--storms".to_owned()]).is_err());
    }

    #[test]
    fn examples_in_the_documentation_run_where_cargo_runs_them() {
        let both = |line| (options(line).has_binaries(), options(line).has_doc_tests());
        assert_eq!(both("--workspace"), (true, true));
        assert_eq!(both("--doc --package uwork"), (false, true));
        assert_eq!(both("--test=library"), (true, false));
        assert_eq!(both("--package uwork --lib"), (true, false));
        assert_eq!(both("--storms only --workspace"), (true, false));
        assert_eq!(both("--doc-tests without --workspace"), (true, false));
    }
}
