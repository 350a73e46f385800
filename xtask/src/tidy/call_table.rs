//! The table of the permitted contexts of each call appears in three documents for three kinds of
//! readers. Its text must be the same in all of them.

use super::Rule;
use crate::finding::Finding;
use crate::tree::{SourceFile, Tree};

/// The others are compared with the first.
const COPIES: [&str; 3] = ["docs/guide.md", "crates/uwork/src/lib.rs", "crates/capi/man/uwork.7"];
const BEGIN: &str = "calls: begin";
const END: &str = "calls: end";

pub(super) const RULE: Rule = Rule {
    name: "call-table",
    about: "the table of calls is the same in the guide, the Rust documentation and uwork(7)",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut copies = COPIES.iter().filter_map(|path| tree.file(path));
    let Some(original) = copies.next() else { return Vec::new() };
    let text = block(original);
    if text.is_empty() {
        return vec![missing(original)];
    }
    copies.filter_map(|copy| difference(copy, original, &text)).collect()
}

/// The lines between the marks, without the prefix of a Rust comment, with their numbers.
fn block(file: &SourceFile) -> Vec<(usize, &str)> {
    let behind = file.lines().skip_while(|(_, text)| !text.contains(BEGIN)).skip(1);
    let lines = behind.take_while(|(_, text)| !text.contains(END));
    let bare = |text: &'_ str| {
        text.strip_prefix("//!").map_or(0, |rest| 3 + usize::from(rest.starts_with(' ')))
    };
    lines.map(|(line, text)| (line, &text[bare(text)..])).collect()
}

fn missing(file: &SourceFile) -> Finding {
    let message = format!("no lines between `{BEGIN}` and `{END}`");
    Finding::new(&file.path, 1, RULE.name, message)
}

/// The first line of `copy` that differs from `original`.
fn difference(copy: &SourceFile, original: &SourceFile, text: &[(usize, &str)]) -> Option<Finding> {
    let lines = block(copy);
    let Some(&(last, _)) = lines.last() else { return Some(missing(copy)) };
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
    use super::{COPIES, RULE};

    fn lines(guide: &str, rust: &str, manual: &str) -> Vec<usize> {
        lines_found_in(&RULE, &[(COPIES[0], guide), (COPIES[1], rust), (COPIES[2], manual)])
    }

    const GUIDE: &str = "# A\n<!-- calls: begin -->\n|a|b|\n\n1. c\n<!-- calls: end -->\n";
    const RUST: &str =
        "//! A\n//! <!-- calls: begin -->\n//! |a|b|\n//!\n//! 1. c\n//! <!-- calls: end -->\n";
    const MANUAL: &str = ".\\\" calls: begin\n|a|b|\n\n1. c\n.\\\" calls: end\n";

    #[test]
    fn equal_copies_are_accepted() {
        assert_eq!(lines(GUIDE, RUST, MANUAL), []);
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
