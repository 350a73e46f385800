//! White space that is invisible to readers but shows in every diff.

use super::Rule;
use crate::finding::Finding;
use crate::tree::{Kind, SourceFile, Tree};

pub(super) const RULE: Rule = Rule {
    name: "white-space",
    about: "no trailing white space, no tabs, no carriage returns, one newline at the end",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let written = tree.files().iter().filter(|file| !matches!(file.kind, Kind::Other));
    written.flat_map(check_file).collect()
}

fn check_file(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line, message: &str| {
        findings.push(Finding::new(&file.path, line, RULE.name, message));
    };
    // C files use tabs, as the kernel's style requires.
    let is_c = [".c", ".h", ".hpp", ".cpp"].iter().any(|ending| file.path.ends_with(ending));
    let tabs_allowed = is_c || matches!(file.kind, Kind::Makefile);
    // `lines` would remove a carriage return.
    for (line, text) in (1..).zip(file.text.split('\n')) {
        if text.ends_with('\r') {
            find(line, "carriage return");
        } else if text.ends_with(char::is_whitespace) {
            find(line, "trailing white space");
        }
        if text.contains('\t') && !tabs_allowed {
            find(line, "tab");
        }
    }
    let last = file.text.lines().count().max(1);
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        find(last, "no newline at the end");
    } else if file.text.ends_with("\n\n") {
        find(last, "blank line at the end");
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::RULE;

    #[test]
    fn invisible_white_space_is_found() {
        assert_eq!(lines_found(&RULE, "a.md", "a\nb \nc\n"), [2]);
        assert_eq!(lines_found(&RULE, "a.rs", "fn a() {\n\tb();\n}\n"), [2]);
        assert_eq!(lines_found(&RULE, "a.sh", "a\r\nb\n"), [1]);
        assert_eq!(lines_found(&RULE, "a.toml", "a = 1"), [1]);
        assert_eq!(lines_found(&RULE, "a.toml", "a = 1\n\n"), [2]);
    }

    #[test]
    fn a_makefile_needs_its_tabs_and_data_its_shape() {
        assert_eq!(lines_found(&RULE, "Makefile", "a:\n\tb\n"), [0; 0]);
        assert_eq!(lines_found(&RULE, "a.c", "int a(void)\n{\n\treturn 0;\n}\n"), [0; 0]);
        assert_eq!(lines_found(&RULE, "tests/data/input.txt", "a\t \n\n"), [0; 0]);
        assert_eq!(lines_found(&RULE, "a.rs", ""), [0; 0]);
    }
}
