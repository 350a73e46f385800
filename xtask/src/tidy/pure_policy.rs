//! Policy is pure: counters and ids in, a decision out. Only because it has no side effects can the
//! same code run on threads, under loom and in virtual time.

use super::{Rule, word_positions};
use crate::finding::Finding;
use crate::tree::{Tree, numbered};

const FOLDER: &str = "crates/policy/src/";

const WORLD: [&str; 16] = [
    "unsafe",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::os",
    "std::process",
    "std::sync",
    "std::thread",
    "core::sync",
    "Instant",
    "SystemTime",
    "RandomState",
    "static mut",
    "thread_local!",
    "println!",
];

pub(super) const RULE: Rule = Rule {
    name: "pure-policy",
    about: "policy has no unsafe, clock, threads, atomics or I/O",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust().filter(|(file, _)| file.path.starts_with(FOLDER)) {
        for (line, text) in numbered(&rust.code).filter(|&(line, _)| !rust.is_test(line)) {
            // The lint attribute that forbids unsafe code contains the word.
            let text = if text.trim_start().starts_with("#!") { "" } else { text };
            for thing in WORLD.iter().filter(|thing| word_positions(text, thing).next().is_some()) {
                let message = format!("policy is pure, but this uses `{thing}`");
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
    fn side_effects_are_found_in_policy_only() {
        let text = "use std::time::Instant;\nfn a() {\n    std::thread::spawn(b);\n}\n";
        assert_eq!(lines_found(&RULE, "crates/policy/src/pods.rs", text), [1, 3]);
        assert_eq!(lines_found(&RULE, "crates/uwork/src/pods.rs", text), [0; 0]);
    }

    #[test]
    fn decisions_and_their_tests_are_accepted() {
        let text = "#![forbid(unsafe_code)]\nuse std::time::Duration;\n// Instant\n\
                    #[cfg(test)]\nmod tests {\n    fn a() { std::fs::read(b); }\n}\n";
        assert_eq!(lines_found(&RULE, "crates/policy/src/lib.rs", text), [0; 0]);
    }
}
