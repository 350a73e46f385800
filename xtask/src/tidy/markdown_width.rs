//! One wrap width for the prose of all documents, and cells of tables that can be read.

use super::Rule;
use crate::finding::Finding;
use crate::tree::Tree;

const COLUMNS_MAX: usize = 100;
const CELL_MAX: usize = 200;

pub(super) const RULE: Rule = Rule {
    name: "markdown-width",
    about: "prose is wrapped at 100 columns, and a cell of a table has at most 200 characters",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, markdown) in tree.markdown() {
        let mut report = |line, message| {
            findings.push(Finding::new(&file.path, line, RULE.name, message));
        };
        for row in markdown.tables.iter().flatten() {
            for cell in &row.1 {
                let length = cell.chars().count();
                if length > CELL_MAX {
                    report(row.0, format!("a cell of {length} characters, at most {CELL_MAX}"));
                }
            }
        }
        let is_fenced = |line| {
            markdown
                .fences
                .iter()
                .any(|fence| fence.lines.iter().any(|(fenced, _)| *fenced == line))
        };
        for (line, text) in file.lines() {
            let columns = text.chars().count();
            if columns > COLUMNS_MAX && can_wrap(text) && !is_fenced(line) {
                report(line, format!("{columns} columns, at most {COLUMNS_MAX}"));
            }
        }
    }
    findings
}

/// Tables and headings are one line each, and a link is not broken.
fn can_wrap(text: &str) -> bool {
    let text = text.trim_start();
    !text.starts_with(['|', '#']) && text.trim_start_matches(['-', '*', ' ']).contains(' ')
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::{CELL_MAX, COLUMNS_MAX, RULE};

    #[test]
    fn long_prose_is_found() {
        let words = "word ".repeat(COLUMNS_MAX / 5);
        assert_eq!(lines_found(&RULE, "a.md", &format!("# A\n\n{}\n", words.trim_end())), [0; 0]);
        assert_eq!(lines_found(&RULE, "a.md", &format!("# A\n\n{words}and more\n")), [3]);
    }

    #[test]
    fn tables_code_and_lone_links_are_left_alone() {
        let words = "word ".repeat(COLUMNS_MAX / 4);
        assert_eq!(lines_found(&RULE, "a.md", &format!("# A\n\n```\n{words}\n```\n")), [0; 0]);
        assert_eq!(lines_found(&RULE, "a.md", &format!("# A\n\n| {words}|\n|---|\n")), [0; 0]);
        assert_eq!(
            lines_found(&RULE, "a.md", &format!("# A\n\n- {}\n", "x".repeat(COLUMNS_MAX))),
            [0; 0]
        );
    }

    #[test]
    fn a_cell_that_is_a_paragraph_is_found() {
        let cell = "x".repeat(CELL_MAX + 1);
        assert_eq!(lines_found(&RULE, "a.md", &format!("# A\n\n| {cell} |\n|---|\n")), [3]);
    }
}
