//! A file holds one concept; a long file usually holds two.

use super::Rule;
use crate::finding::Finding;
use crate::tree::{Tree, numbered};

/// Counts lines that are not blank, comments or tests.
const CODE_LINES_MAX: usize = 400;
/// Counts all lines, including documentation and tests.
const LINES_MAX: usize = 600;

pub(super) const RULE: Rule = Rule {
    name: "file-length",
    about: "a Rust file has at most 400 lines of code, 600 lines in all",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let is_code =
            |&(line, text): &(usize, &str)| !text.trim().is_empty() && !rust.is_test(line);
        let code = numbered(&rust.code).filter(is_code).count();
        let all = file.text.lines().count();
        let mut find = |message| findings.push(Finding::new(&file.path, 1, RULE.name, message));
        if code > CODE_LINES_MAX {
            find(format!(
                "{code} lines of code, at most {CODE_LINES_MAX}: which concept moves out?"
            ));
        } else if all > LINES_MAX {
            find(format!("{all} lines, at most {LINES_MAX}: move tests or a concept out"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::{CODE_LINES_MAX, LINES_MAX, RULE};

    #[test]
    fn too_much_code_is_found() {
        let text = "const A: u8 = 1;\n".repeat(CODE_LINES_MAX + 1);
        assert_eq!(lines_found(&RULE, "a.rs", &text), [1]);
    }

    #[test]
    fn too_many_lines_are_found() {
        assert_eq!(lines_found(&RULE, "a.rs", &"// why\n".repeat(LINES_MAX + 1)), [1]);
    }

    #[test]
    fn comments_and_tests_do_not_count_as_code() {
        let code = "const A: u8 = 1; // why\n".repeat(CODE_LINES_MAX - 1);
        let tests = "#[cfg(test)]\nmod tests {\n    fn a() {}\n}\n";
        let text = format!("{code}{tests}\n// why\n");
        assert_eq!(lines_found(&RULE, "a.rs", &text), [0; 0]);
    }
}
