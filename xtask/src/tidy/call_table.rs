//! Two tables appear in two documents each, for users of Rust and of C: the permitted contexts of each call, and
//! the environment variables. The text of each must be the same in both.

use super::Rule;
use crate::finding::Finding;
use crate::tree::{SourceFile, Tree};

/// A table: the name in its marks, and the files with copies of it. The others are compared with the first.
struct Table {
    name: &'static str,
    copies: &'static [&'static str],
}

const CALLS: Table =
    Table { name: "calls", copies: &["crates/uwork/src/lib.rs", "crates/capi/man/uwork.7"] };
const ENVIRONMENT: Table =
    Table { name: "environment", copies: &["docs/guide.md", "crates/capi/man/uwork.7"] };

pub(super) const RULE: Rule = Rule {
    name: "call-table",
    about: "uwork(7) has the Rust documentation's table of calls, and the guide's of the environment",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    [CALLS, ENVIRONMENT].iter().flat_map(|table| check_table(tree, table)).collect()
}

fn check_table(tree: &Tree, table: &Table) -> Vec<Finding> {
    let mut copies = table.copies.iter().filter_map(|path| tree.file(path));
    let Some(original) = copies.next() else { return Vec::new() };
    let text = block(original, table);
    if text.is_empty() {
        return vec![missing(original, table)];
    }
    copies.filter_map(|copy| difference(copy, original, &text, table)).collect()
}

/// The lines between the marks, without the prefix of a Rust comment, with their numbers.
fn block<'a>(file: &'a SourceFile, table: &Table) -> Vec<(usize, &'a str)> {
    let (begin, end) = (format!("{}: begin", table.name), format!("{}: end", table.name));
    let behind = file.lines().skip_while(|(_, text)| !text.contains(&begin)).skip(1);
    let lines = behind.take_while(|(_, text)| !text.contains(&end));
    let bare = |text: &'_ str| {
        text.strip_prefix("//!").map_or(0, |rest| 3 + usize::from(rest.starts_with(' ')))
    };
    lines.map(|(line, text)| (line, &text[bare(text)..])).collect()
}

fn missing(file: &SourceFile, table: &Table) -> Finding {
    let message = format!("no lines between `{0}: begin` and `{0}: end`", table.name);
    Finding::new(&file.path, 1, RULE.name, message)
}

/// The first line of `copy` that differs from `original`.
fn difference(
    copy: &SourceFile,
    original: &SourceFile,
    text: &[(usize, &str)],
    table: &Table,
) -> Option<Finding> {
    let lines = block(copy, table);
    let Some(&(last, _)) = lines.last() else { return Some(missing(copy, table)) };
    let common = lines.iter().zip(text).take_while(|(here, there)| here.1 == there.1).count();
    if common == lines.len() && common == text.len() {
        return None;
    }
    let line = lines.get(common).map_or(last, |&(line, _)| line);
    let there = text.get(common).or(text.last()).map_or(1, |&(line, _)| line);
    let message = format!("differs from {}, line {there}", original.path);
    Some(Finding::new(&copy.path, line, RULE.name, message))
}

#[cfg(test)]
mod tests {
    use super::super::lines_found_in;
    use super::{CALLS, ENVIRONMENT, RULE};

    const GUIDE: &str = "# A\n<!-- environment: begin -->\n|d|\n<!-- environment: end -->\n";
    const RUST: &str =
        "//! A\n//! <!-- calls: begin -->\n//! |a|b|\n//!\n//! 1. c\n//! <!-- calls: end -->\n";
    const MANUAL: &str = ".\\\" calls: begin\n|a|b|\n\n1. c\n.\\\" calls: end\n";
    const MANUAL_ENVIRONMENT: &str = ".\\\" environment: begin\n|d|\n.\\\" environment: end\n";

    fn lines_of(rust: &str, guide: &str, manual: &str) -> Vec<usize> {
        let ([first, second], [third, _]) = (CALLS.copies, ENVIRONMENT.copies) else {
            unreachable!("two copies")
        };
        lines_found_in(&RULE, &[(first, rust), (second, manual), (third, guide)])
    }

    fn lines(rust: &str, manual: &str) -> Vec<usize> {
        lines_of(rust, GUIDE, &(manual.to_owned() + MANUAL_ENVIRONMENT))
    }

    #[test]
    fn the_environment_is_compared_as_well() {
        let manual = MANUAL.to_owned() + &MANUAL_ENVIRONMENT.replace("|d|", "|e|");
        assert_eq!(lines_of(RUST, GUIDE, &manual), [7]);
    }

    #[test]
    fn equal_copies_are_accepted() {
        assert_eq!(lines(RUST, MANUAL), [0; 0]);
    }

    #[test]
    fn a_changed_line_is_found() {
        assert_eq!(lines(&RUST.replace("|a|b|", "|a|d|"), MANUAL), [2]);
        assert_eq!(lines(RUST, &MANUAL.replace("1. c", "1. d")), [4]);
    }

    #[test]
    fn an_extra_or_missing_line_is_found() {
        assert_eq!(lines(RUST, &MANUAL.replace("1. c", "1. c\n2. d")), [5]);
        assert_eq!(lines(RUST, &MANUAL.replace("1. c\n", "")), [3]);
    }

    #[test]
    fn a_copy_without_the_table_is_found() {
        assert_eq!(lines("//! A\n", MANUAL), [1]);
        assert_eq!(lines(RUST, "A\n"), [1]);
    }
}
