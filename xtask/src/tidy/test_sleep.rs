//! A test that sleeps is slow if it passes, and fails on a busy machine. Tests wait for the event
//! instead, or run in virtual time.

use super::{Rule, word_positions};
use crate::finding::Finding;
use crate::tree::{Tree, numbered};

pub(super) const RULE: Rule = Rule { name: "test-sleep", about: "no sleep in tests", check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for (line, text) in numbered(&rust.code) {
            let sleeps = ["sleep(", "thread::sleep"]
                .iter()
                .any(|needle| word_positions(text, needle).any(|at| !text[..at].ends_with("fn ")));
            if sleeps && rust.is_test(line) {
                let message = "a test sleeps: wait for the event, or use virtual time";
                findings.push(Finding::new(&file.path, line, RULE.name, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::RULE;

    #[test]
    fn a_sleep_in_a_test_is_found() {
        let text = "fn a() {\n    std::thread::sleep(TICK);\n}\n";
        assert_eq!(lines_found(&RULE, "crates/uwork/tests/flush.rs", text), [2]);
        let text = "#[cfg(test)]\nmod tests {\n    fn a() { sleep(TICK); }\n}\n";
        assert_eq!(lines_found(&RULE, "crates/uwork/src/a.rs", text), [3]);
    }

    #[test]
    fn a_sleep_elsewhere_is_accepted() {
        let text = "fn a() {\n    std::thread::sleep(TICK);\n}\n";
        assert_eq!(lines_found(&RULE, "crates/cli/src/top.rs", text), [0; 0]);
        let text = "fn sleep() {}\nfn a() { may_not_sleep(1); }\n";
        assert_eq!(lines_found(&RULE, "crates/uwork/tests/flush.rs", text), [0; 0]);
    }
}
