//! Forbids names that describe no concept, since such modules collect unrelated code.

use super::{Rule, words};
use crate::finding::Finding;
use crate::tree::{Tree, numbered};

const BANNED: [&str; 8] =
    ["util", "utils", "misc", "helper", "helpers", "common", "commons", "utilities"];

pub(super) const RULE: Rule = Rule {
    name: "banned-names",
    about: "no file or module named util, misc, helpers or common",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for part in file.path.split('/') {
            let stem = part.split('.').next().unwrap_or(part);
            if BANNED.contains(&stem) {
                findings.push(finding(&file.path, 1, stem));
            }
        }
    }
    for (file, rust) in tree.rust() {
        for (line, text) in numbered(&rust.code) {
            let after_mod = words(text).skip_while(|&word| word != "mod").nth(1);
            if let Some(name) = after_mod.filter(|name| BANNED.contains(name)) {
                findings.push(finding(&file.path, line, name));
            }
        }
    }
    findings
}

fn finding(path: &str, line: usize, name: &str) -> Finding {
    Finding::new(path, line, RULE.name, format!("`{name}` says nothing: name the concept"))
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::RULE;

    #[test]
    fn banned_names_are_found() {
        assert_eq!(lines_found(&RULE, "crates/engine/src/util.rs", ""), [1]);
        assert_eq!(lines_found(&RULE, "crates/engine/tests/common/mod.rs", ""), [1]);
        assert_eq!(lines_found(&RULE, "a.rs", "\npub(crate) mod helpers {}\n"), [2]);
    }

    #[test]
    fn longer_names_are_fine() {
        assert_eq!(lines_found(&RULE, "src/commons_law.rs", "mod utility_curve {}\n"), [0; 0]);
        assert_eq!(lines_found(&RULE, "a.rs", "// mod util\nlet util = 1;\n"), [0; 0]);
    }
}
