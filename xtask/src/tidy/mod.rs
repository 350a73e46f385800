//! `cargo xtask tidy`: the style rules that a machine can check, one file each.
//!
//! A rule gets the whole tree and returns its findings; it does not depend on other rules.
//! `exceptions` then removes the findings that a comment allows, and reports comments that allow
//! nothing.

mod atomics;
mod banned_names;
mod banned_words;
mod call_table;
mod doc_commands;
mod exceptions;
mod file_length;
mod first_calls;
mod function_length;
mod layers;
mod line_width;
mod links;
mod loom_cfg;
mod machine_paths;
mod make_targets;
mod markdown_width;
mod own_words;
mod parse;
mod pure_policy;
mod rooms;
mod safety;
mod subjects;
mod test_sleep;
mod white_space;

use crate::finding::Finding;
use crate::tree::Tree;

/// A rule, with the name used in findings and exceptions.
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

pub(crate) const RULES: &[Rule] = &[
    parse::RULE,
    file_length::RULE,
    function_length::RULE,
    line_width::RULE,
    white_space::RULE,
    banned_words::RULE,
    banned_names::RULE,
    test_sleep::RULE,
    safety::RULE,
    layers::RULE,
    pure_policy::RULE,
    rooms::RULE,
    loom_cfg::RULE,
    atomics::RULE,
    own_words::RULE,
    machine_paths::RULE,
    links::RULE,
    make_targets::RULE,
    doc_commands::RULE,
    call_table::RULE,
    first_calls::RULE,
    subjects::RULE,
    markdown_width::RULE,
];

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let found = RULES.iter().flat_map(|rule| (rule.check)(tree)).collect();
    let mut left = exceptions::strike(tree, found);
    left.sort();
    left.dedup();
    left
}

/// The identifiers and keywords of a line of code.
pub(crate) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Byte offsets at which `needle` occurs in `line` as a whole word.
fn word_positions<'a>(line: &'a str, needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(needle).map(|(at, _)| at).filter(move |&at| {
        let (before, after) = (&line[..at], &line[at + needle.len()..]);
        let joins_before = needle.starts_with(is_word) && before.ends_with(is_word);
        let joins_after = needle.ends_with(is_word) && after.starts_with(is_word);
        !joins_before && !joins_after
    })
}

/// For the tests of rules: the lines of `rule`'s findings in one file.
#[cfg(test)]
fn lines_found(rule: &Rule, path: &str, text: &str) -> Vec<usize> {
    lines_found_in(rule, &[(path, text)])
}

/// For the tests of rules: the lines of `rule`'s findings in several files.
#[cfg(test)]
fn lines_found_in(rule: &Rule, files: &[(&str, &str)]) -> Vec<usize> {
    let findings = (rule.check)(&Tree::of(files));
    assert!(findings.iter().all(|finding| finding.rule == rule.name));
    findings.iter().map(|finding| finding.line).collect()
}
