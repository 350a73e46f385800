//! Exceptions: a comment `tidy: allow(RULE): REASON` on a line, or on the line above it, suppresses
//! the findings of that rule there. An exception without a reason suppresses nothing. An exception
//! that suppresses nothing is itself a finding.
//!
//! For rules that judge a whole file, the line is the file's first.

use super::RULES;
use crate::finding::Finding;
use crate::tree::{Kind, SourceFile, Tree, numbered};

const RULE: &str = "allow";
const MARK: &str = "tidy: allow(";

struct Exception<'a> {
    file: &'a str,
    line: usize,
    rule: &'a str,
    reason: &'a str,
}

impl Exception<'_> {
    fn strikes(&self, finding: &Finding) -> bool {
        let on_line = finding.line == self.line || finding.line == self.line + 1;
        on_line && finding.rule == self.rule && finding.file == self.file && !self.reason.is_empty()
    }

    fn is_known(&self) -> bool {
        RULES.iter().any(|rule| rule.name == self.rule)
    }
}

pub(super) fn strike(tree: &Tree, found: Vec<Finding>) -> Vec<Finding> {
    let exceptions: Vec<Exception<'_>> = tree.files().iter().flat_map(exceptions).collect();
    let mut wrong = Vec::new();
    for exception in &exceptions {
        let message = if !exception.is_known() {
            format!("there is no rule `{}`", exception.rule)
        } else if exception.reason.is_empty() {
            "the reason is missing: `tidy: allow(rule): reason`".to_owned()
        } else if !found.iter().any(|finding| exception.strikes(finding)) {
            format!("nothing here needs an exception from `{}`", exception.rule)
        } else {
            continue;
        };
        wrong.push(Finding::new(exception.file, exception.line, RULE, message));
    }
    let is_struck = |finding: &Finding| exceptions.iter().any(|allow| allow.strikes(finding));
    found.into_iter().filter(|finding| !is_struck(finding)).chain(wrong).collect()
}

fn exceptions(file: &SourceFile) -> Vec<Exception<'_>> {
    let (text, openings): (&str, &[&str]) = match &file.kind {
        Kind::Rust(rust) => (&rust.comments, &["//", "/*"]),
        Kind::Markdown(_) => (&file.text, &["<!--"]),
        _ => (&file.text, &["#"]),
    };
    let lines = numbered(text);
    let exceptions = lines.filter_map(|(line, text)| {
        let (before, after) = text.split_once(MARK)?;
        openings.iter().any(|opening| before.trim_end().ends_with(opening)).then_some(())?;
        let (rule, rest) = after.split_once(')')?;
        let reason = rest.strip_prefix(':').unwrap_or_default();
        let reason = reason.trim().trim_end_matches("-->").trim_end_matches("*/").trim();
        Some(Exception { file: &file.path, line, rule, reason })
    });
    exceptions.collect()
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use crate::tree::Tree;

    fn rules(path: &str, text: &str) -> Vec<(usize, &'static str)> {
        let findings = check(&Tree::of(&[(path, text)]));
        findings.into_iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn an_exception_with_a_reason_suppresses_the_finding() {
        let above =
            "// tidy: allow(test-sleep): blocking is what is tested\nfn a() { sleep(B); }\n";
        assert_eq!(rules("tests/a.rs", above), []);
        let beside =
            "fn a() { sleep(B); } // tidy: allow(test-sleep): blocking is what is tested\n";
        assert_eq!(rules("tests/a.rs", beside), []);
        let markdown = "<!-- tidy: allow(links): made by the build -->\n[a](b.html)\n";
        assert_eq!(rules("a.md", markdown), []);
    }

    #[test]
    fn an_exception_without_a_reason_suppresses_nothing() {
        let text = "// tidy: allow(test-sleep)\nfn a() { sleep(B); }\n";
        assert_eq!(rules("tests/a.rs", text), [(1, "allow"), (2, "test-sleep")]);
    }

    #[test]
    fn an_unnecessary_exception_is_found() {
        assert_eq!(rules("a.rs", "// tidy: allow(safety): why not\nfn a() {}\n"), [(1, "allow")]);
        assert_eq!(
            rules("a.rs", "// tidy: allow(everything): please\nfn a() {}\n"),
            [(1, "allow")]
        );
    }

    #[test]
    fn text_about_exceptions_is_not_an_exception() {
        assert_eq!(rules("a.md", "Write `tidy: allow(rule): reason`.\n"), []);
        assert_eq!(rules("a.rs", "/// a `tidy: allow(rule): reason` here\nfn a() {}\n"), []);
    }
}
