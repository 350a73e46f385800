//! Every function of a header is tested as the first call of a forked child, and on a thread that is
//! cancelled.

use std::collections::BTreeMap;

use super::{Rule, words};
use crate::finding::Finding;
use crate::tree::{SourceFile, Tree};

/// A header, and the test with a table of its functions.
const TABLES: [(&str, &str); 2] = [
    ("crates/capi/include/uwork.h", "crates/capi/tests/c/calls.h"),
    ("crates/bridge-capi/include/uwork-bridge.h", "crates/bridge-capi/tests/c/first_calls.c"),
];

pub(super) const RULE: Rule = Rule {
    name: "first-calls",
    about: "first_calls.c, the test of a forked child's first call, has each function of its header, and no other",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    TABLES.iter().flat_map(|&(header, test)| compare(tree, header, test)).collect()
}

fn compare(tree: &Tree, header_path: &str, test_path: &str) -> Vec<Finding> {
    let (header, test) = match (tree.file(header_path), tree.file(test_path)) {
        (Some(header), Some(test)) => (header, test),
        (Some(_), None) => return vec![lost(header_path, test_path)],
        (None, Some(_)) => return vec![lost(test_path, header_path)],
        (None, None) => return Vec::new(),
    };
    let (declared, tested) = (declared_in(header), tested_in(test));
    let missing = declared.iter().filter(|(name, _)| !tested.contains_key(*name));
    let surplus = tested.iter().filter(|(name, _)| !declared.contains_key(*name));
    let missing = missing.map(|(name, &line)| {
        Finding::new(header_path, line, RULE.name, format!("`{name}` has no line in {test_path}"))
    });
    let surplus = surplus.map(|(name, &line)| {
        Finding::new(
            test_path,
            line,
            RULE.name,
            format!("`{name}` is no function of {header_path}"),
        )
    });
    missing.chain(surplus).collect()
}

/// Otherwise a file that was moved would end the check without a word.
fn lost(present: &str, absent: &str) -> Finding {
    let message =
        format!("{absent} does not exist: correct the list in xtask/src/tidy/first_calls.rs");
    Finding::new(present, 1, RULE.name, message)
}

/// The functions that the header declares. A declaration begins in the first column, and neither a
/// comment nor the body of an inline function does.
fn declared_in(header: &SourceFile) -> BTreeMap<&str, usize> {
    let starts = header.lines().filter(|(_, text)| {
        text.starts_with(|c: char| c.is_ascii_lowercase())
            && !text.starts_with("typedef")
            && !text.starts_with("static")
    });
    starts.filter_map(|(line, text)| Some((function(text)?, line))).collect()
}

/// The last word before the first parenthesis, if it is one of the library's names.
fn function(declaration: &str) -> Option<&str> {
    let (head, _) = declaration.split_once('(')?;
    words(head).last().filter(|name| name.starts_with("uw_"))
}

/// The functions in the test's table.
fn tested_in(test: &SourceFile) -> BTreeMap<&str, usize> {
    let rows = test.lines().filter_map(|(line, text)| {
        let (name, _) = text.trim_start().strip_prefix("X(")?.split_once(',')?;
        Some((name, line))
    });
    rows.filter(|(name, _)| name.starts_with("uw_")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::lines_found_in;
    use super::{RULE, TABLES};

    const DECLARED: &str = "/*\n * uw_no(x)\n */\nint uw_a(void);\nstruct uw_s *uw_b(int (*f)(int),\n\t\tint x);\n\
                            typedef void (*uw_fn)(int);\nstatic inline int uw_to(int x)\n{\n}\n";

    fn lines(header: &str, test: &str) -> Vec<usize> {
        let (at, tested_at) = TABLES[0];
        lines_found_in(&RULE, &[(at, header), (tested_at, test)])
    }

    #[test]
    fn a_complete_table_is_accepted() {
        assert_eq!(
            lines(DECLARED, "\tX(uw_a, uw_a(), WORKS) \\\n\tX(uw_b, uw_b(f, 1), WORKS)\n"),
            [0; 0]
        );
    }

    #[test]
    fn a_header_or_a_table_alone_is_found() {
        let (header, test) = TABLES[0];
        assert_eq!(lines_found_in(&RULE, &[(header, DECLARED)]), [1]);
        assert_eq!(lines_found_in(&RULE, &[(test, "X(uw_a, 1, WORKS)\n")]), [1]);
        assert_eq!(lines_found_in(&RULE, &[("README.md", "")]), [0; 0]);
    }

    #[test]
    fn a_function_that_is_missing_is_found() {
        assert_eq!(lines(DECLARED, "X(uw_a, uw_a(), WORKS)\n"), [5]);
    }

    #[test]
    fn a_function_that_does_not_exist_is_found() {
        assert_eq!(lines("int uw_a(void);\n", "X(uw_a, 1, WORKS)\nX(uw_c, 1, WORKS)\n"), [2]);
    }
}
