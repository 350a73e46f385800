//! Two tables appear in several documents for several kinds of readers: the permitted contexts of each call,
//! and the environment variables. The text of each must be the same in all of them.

use super::Rule;
use crate::finding::Finding;
use crate::tree::{SourceFile, Tree};

/// A table: the name in its marks, and the files with copies of it. The others are compared with the first.
struct Table {
    name: &'static str,
    copies: &'static [&'static str],
}

const CALLS: Table = Table {
    name: "calls",
    copies: &["docs/guide.md", "crates/uwork/src/lib.rs", "crates/capi/man/uwork.7"],
};
const ENVIRONMENT: Table =
    Table { name: "environment", copies: &["docs/guide.md", "crates/capi/man/uwork.7"] };

pub(super) const RULE: Rule = Rule {
    name: "call-table",
    about: "the tables of calls and of the environment are the same in the guide, the Rust documentation and uwork(7)",
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
    use super::{CALLS, RULE};

    fn lines(guide: &str, rust: &str, manual: &str) -> Vec<usize> {
        let environment = |comment: &str| {
            format!("{comment} environment: begin\n|d|\n{comment} environment: end\n")
        };
        let (guide, manual) =
            (guide.to_owned() + &environment("<!--"), manual.to_owned() + &environment(".\\\""));
        let [first, second, third] = CALLS.copies else { unreachable!("three copies") };
        lines_found_in(&RULE, &[(first, &guide), (second, rust), (third, &manual)])
    }

    #[test]
    fn the_environment_is_compared_as_well() {
        let guide = format!("{GUIDE}<!-- environment: begin -->\n|d|\n<!-- environment: end -->\n");
        let manual = format!("{MANUAL}.\\\" environment: begin\n|e|\n.\\\" environment: end\n");
        let [first, second, third] = CALLS.copies else { unreachable!("three copies") };
        assert_eq!(
            lines_found_in(&RULE, &[(first, &guide), (second, RUST), (third, &manual)]),
            [7]
        );
    }

    const GUIDE: &str = "# A\n<!-- calls: begin -->\n|a|b|\n\n1. c\n<!-- calls: end -->\n";
    const RUST: &str =
        "//! A\n//! <!-- calls: begin -->\n//! |a|b|\n//!\n//! 1. c\n//! <!-- calls: end -->\n";
    const MANUAL: &str = ".\\\" calls: begin\n|a|b|\n\n1. c\n.\\\" calls: end\n";

    #[test]
    fn equal_copies_are_accepted() {
        assert_eq!(lines(GUIDE, RUST, MANUAL), [0; 0]);
    }

    #[test]
    fn a_changed_line_is_found() {
        assert_eq!(lines(GUIDE, &RUST.replace("|a|b|", "|a|d|"), MANUAL), [3]);
        assert_eq!(lines(GUIDE, RUST, &MANUAL.replace("1. c", "1. d")), [4]);
    }

    #[test]
    fn an_extra_or_missing_line_is_found() {
        assert_eq!(lines(GUIDE, RUST, &MANUAL.replace("1. c", "1. c\n2. d")), [5]);
        assert_eq!(lines(GUIDE, &RUST.replace("//! 1. c\n", ""), MANUAL), [4]);
    }

    #[test]
    fn a_copy_without_the_table_is_found() {
        assert_eq!(lines(GUIDE, "//! A\n", MANUAL), [1]);
        assert_eq!(lines("# A\n", RUST, MANUAL), [1]);
    }
}
