//! The width of lines, because rustfmt wraps neither strings nor comments.

use super::Rule;
use crate::finding::Finding;
use crate::tree::Tree;

const COLUMNS_MAX: usize = 120;

pub(super) const RULE: Rule =
    Rule { name: "line-width", about: "a line of Rust has at most 120 columns", check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, _) in tree.rust() {
        for (line, text) in file.lines() {
            let columns = text.chars().count();
            if columns > COLUMNS_MAX {
                let message = format!("{columns} columns, at most {COLUMNS_MAX}");
                findings.push(Finding::new(&file.path, line, RULE.name, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::{COLUMNS_MAX, RULE};

    #[test]
    fn the_limit_is_in_characters() {
        let at_limit = "\u{b5}".repeat(COLUMNS_MAX - 3);
        assert_eq!(lines_found(&RULE, "a.rs", &format!("// {at_limit}\n")), [0; 0]);
        assert_eq!(lines_found(&RULE, "a.rs", &format!("\n//  {at_limit}\n")), [2]);
    }
}
