//! What the events of one process of a test binary mean: which tests passed, which failed, and
//! which have to run in another process.

use std::collections::BTreeSet;

use super::event::Event;

/// The exit code of a test binary after a failure of one of its tests.
const SOME_FAILED: i32 = 101;

/// A test that failed, with what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) test: String,
    pub(super) said: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) passed: BTreeSet<String>,
    pub(super) ignored: BTreeSet<String>,
    pub(super) failed: Vec<Failure>,
    /// Begun and not ended.
    pub(super) running: Vec<String>,
    /// All tests have ended; whether none of them failed.
    over: Option<bool>,
}

impl Tally {
    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Began(test) => self.running.push(test.clone()),
            Event::Passed(test) => {
                self.end(test);
                self.passed.insert(test.clone());
            }
            Event::Ignored(test) => {
                self.end(test);
                self.ignored.insert(test.clone());
            }
            Event::Failed(test, said) => {
                self.end(test);
                self.failed.push(Failure { test: test.clone(), said: said.clone() });
            }
            Event::Slow(_) => {}
            Event::Over(ok) => self.over = Some(*ok),
        }
    }

    fn end(&mut self, test: &str) {
        self.running.retain(|running| running != test);
    }

    fn has_ended(&self, test: &str) -> bool {
        let failed = self.failed.iter().any(|failure| failure.test == test);
        failed || self.passed.contains(test) || self.ignored.contains(test)
    }

    /// Call it when the process has ended. `expected` are the tests that it should have run, and
    /// `output` is all that it wrote. Returns the tests to run in another process.
    ///
    /// A process that ended in the middle was ended by a test that was running: by those that the
    /// output names, as a message about a hang does, or else by any of them. The others run again.
    /// If no test was running, `ended_badly` says so.
    pub(super) fn close(&mut self, expected: &[String], ending: &str, output: &str) -> Vec<String> {
        if self.over.is_none() {
            self.blame(ending, output);
        }
        expected.iter().filter(|test| !self.has_ended(test)).cloned().collect()
    }

    fn blame(&mut self, ending: &str, output: &str) {
        let named = |test: &&String| output.lines().any(|line| names(line, test));
        let mut culprits: Vec<String> = self.running.iter().filter(named).cloned().collect();
        if culprits.is_empty() {
            culprits.clone_from(&self.running);
        }
        for test in culprits {
            let said = format!("the process ended while this test was running: {ending}\n{output}");
            self.failed.push(Failure { test, said });
        }
    }

    /// Whether the process crashed, failed or was killed while no test was running, and when.
    /// `code` is its exit code, if it has one.
    pub(super) fn ended_badly(&self, code: Option<i32>) -> Option<&'static str> {
        match self.over {
            None if self.running.is_empty() => Some("before its end, while no test was running"),
            // `close` blames the tests that were running.
            None => None,
            Some(ok) => {
                let expected = if ok { 0 } else { SOME_FAILED };
                (code != Some(expected)).then_some("after its last test")
            }
        }
    }
}

/// Whether the line has the name as a whole path.
fn names(line: &str, test: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(test).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + test.len()..]);
        let joined_before = before.ends_with(is_part) || before.ends_with("::");
        let joined_after = after.starts_with(is_part) || after.starts_with("::");
        !joined_before && !joined_after
    })
}

#[cfg(test)]
mod tests {
    use super::{Event, Tally, names};

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        for line in lines {
            for event in super::super::event::split(line).events {
                tally.note(&event);
            }
        }
        tally
    }

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    const BEGUN: [&str; 5] = [
        r#"{ "type": "suite", "event": "started", "test_count": 5 }"#,
        r#"{ "type": "test", "event": "started", "name": "a::one" }"#,
        r#"{ "type": "test", "event": "started", "name": "a::two" }"#,
        r#"{ "type": "test", "event": "started", "name": "a::three" }"#,
        r#"{ "type": "test", "name": "a::one", "event": "ok" }"#,
    ];

    #[test]
    fn a_process_that_got_to_its_end_leaves_nothing() {
        let mut tally = tally(&[
            BEGUN[1],
            r#"{ "type": "test", "name": "a::one", "event": "failed", "stdout": "why" }"#,
            r#"{ "type": "suite", "event": "failed", "passed": 0, "failed": 1 }"#,
        ]);
        assert_eq!(tally.close(&owned(&["a::one"]), "exit status: 101", ""), [""; 0]);
        assert_eq!(
            (tally.failed[0].test.as_str(), tally.failed[0].said.as_str()),
            ("a::one", "why")
        );
    }

    #[test]
    fn a_process_that_crashes_while_no_test_runs_has_ended_badly() {
        let ok = r#"{ "type": "suite", "event": "ok", "passed": 1, "failed": 0 }"#;
        let failed = r#"{ "type": "suite", "event": "failed", "passed": 0, "failed": 1 }"#;
        let badly = |event: &str, code| tally(&[event]).ended_badly(code).is_some();
        assert!(!badly(ok, Some(0)) && !badly(failed, Some(101)));
        // None: a signal.
        assert!(badly(ok, None) && badly(ok, Some(7)) && badly(ok, Some(101)));
        assert!(badly(failed, None) && badly(failed, Some(0)));
        // It did not get to its end.
        assert!(badly(BEGUN[0], None) && badly(BEGUN[0], Some(0)) && badly(BEGUN[4], None));
        // The running tests are blamed.
        let mut blamed = tally(&BEGUN);
        blamed.close(&owned(&["a::one", "a::two", "a::three"]), "signal: 6 (SIGABRT)", "");
        assert_eq!((blamed.ended_badly(None), blamed.failed.len()), (None, 2));
    }

    #[test]
    fn a_test_without_a_result_runs_again() {
        let mut tally = tally(&[
            r#"{ "type": "test", "name": "a::one", "event": "ok" }"#,
            r#"{ "type": "suite", "event": "ok", "passed": 1, "failed": 0 }"#,
        ]);
        let left = tally.close(&owned(&["a::one", "a::two"]), "exit status: 0", "");
        assert_eq!((left, tally.failed.len()), (owned(&["a::two"]), 0));
    }

    #[test]
    fn the_test_that_the_message_names_has_failed_and_the_others_run_again() {
        let mut tally = tally(&BEGUN);
        let expected = owned(&["a::one", "a::two", "a::three", "a::four"]);
        let said = "uwork: queue \"a::twofold\" is slow\na::two: hangs: not over after 100s\n";
        let left = tally.close(&expected, "signal: 6 (SIGABRT)", said);
        assert_eq!(left, owned(&["a::three", "a::four"]));
        assert_eq!(tally.failed.len(), 1);
        assert_eq!(tally.failed[0].test, "a::two");
        assert!(tally.failed[0].said.contains("SIGABRT") && tally.failed[0].said.contains("hangs"));
    }

    #[test]
    fn without_a_name_each_test_that_was_running_has_failed() {
        let mut tally = tally(&BEGUN);
        let expected = owned(&["a::one", "a::two", "a::three", "a::four"]);
        assert_eq!(tally.close(&expected, "signal: 11 (SIGSEGV)", ""), owned(&["a::four"]));
        let failed: Vec<&str> = tally.failed.iter().map(|failure| failure.test.as_str()).collect();
        assert_eq!(failed, ["a::two", "a::three"]);
    }

    #[test]
    fn a_process_that_exits_early_with_success_has_not_run_its_tests() {
        let mut tally = tally(&BEGUN[..2]);
        let left = tally.close(&owned(&["a::one", "a::two"]), "exit status: 0", "");
        assert_eq!(left, owned(&["a::two"]));
        assert_eq!(tally.failed[0].test, "a::one");
        tally.note(&Event::Slow("a::two".into()));
    }

    #[test]
    fn a_name_is_found_as_a_whole_word() {
        assert!(names("thread 'a::two' panicked at x.rs", "a::two"));
        assert!(names("a::two: hangs", "a::two") && names("in a::two", "a::two"));
        assert!(names("the test a::two:", "a::two"));
        assert!(!names("a::two_more", "a::two") && !names("b::a::two", "a::two"));
        assert!(!names("a::two::more", "a::two"));
    }
}
