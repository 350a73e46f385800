//! Absolute paths of the author's machine are wrong on every other machine.

use super::Rule;
use crate::finding::Finding;
use crate::tree::Tree;

/// Spelled in two halves, so that the rule does not find itself.
const ROOTS: [&str; 3] = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/")];

pub(super) const RULE: Rule = Rule {
    name: "machine-paths",
    about: "no absolute path of the machine that wrote the line",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (line, text) in file.lines() {
            for root in ROOTS.iter().filter(|root| starts_a_path(text, root)) {
                let message = format!("`{root}` exists on one machine only");
                findings.push(Finding::new(&file.path, line, RULE.name, message));
            }
        }
    }
    findings
}

/// Whether `root` occurs in `text` other than inside a longer path.
fn starts_a_path(text: &str, root: &str) -> bool {
    let inside_path = |c: char| c.is_alphanumeric() || "_-.~}*>/)".contains(c);
    text.match_indices(root).any(|(at, _)| !text[..at].ends_with(inside_path))
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::{ROOTS, RULE};

    #[test]
    fn paths_of_one_machine_are_found() {
        for root in ROOTS {
            assert_eq!(lines_found(&RULE, "a.rs", &format!("\nlet a = \"{root}me\";\n")), [2]);
            assert_eq!(lines_found(&RULE, "Makefile", &format!("A = {root}me\n")), [1]);
        }
    }

    #[test]
    fn relative_paths_are_accepted() {
        for root in ROOTS {
            assert_eq!(
                lines_found(&RULE, "a.md", &format!("see src{root}mod.rs, ..{root}x\n")),
                [0; 0]
            );
        }
        assert_eq!(lines_found(&RULE, "a.md", "`/sys/devices/system/cpu`, `/proc/self`\n"), [0; 0]);
    }
}
