//! Every unsafe block and implementation names the invariant that makes it sound. clippy checks
//! this too, but reads macro bodies only where the macros are used; this rule reads their
//! definitions.

use super::{Rule, word_positions};
use crate::finding::Finding;
use crate::rust_text::RustText;
use crate::tree::{Tree, numbered};

pub(super) const RULE: Rule = Rule {
    name: "safety",
    about: "an unsafe block or impl stands below a `SAFETY:` comment",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for (line, text) in numbered(&rust.code) {
            if opens_unsafe(text) && !has_safety(rust, line) {
                let message = "no `SAFETY:` comment that names the invariant";
                findings.push(Finding::new(&file.path, line, RULE.name, message));
            }
        }
    }
    findings
}

fn opens_unsafe(line: &str) -> bool {
    word_positions(line, "unsafe").any(|at| {
        let after = line[at + "unsafe".len()..].trim_start();
        after.starts_with('{') || after.starts_with("impl")
    })
}

/// Checks the line itself, then searches upwards through comments, attributes and the head of the
/// statement.
fn has_safety(rust: &RustText, line: usize) -> bool {
    let comments: Vec<&str> = rust.comments.lines().collect();
    let code: Vec<&str> = rust.code.lines().collect();
    if comments[line - 1].contains("SAFETY:") {
        return true;
    }
    for above in (0..line - 1).rev() {
        if comments[above].contains("SAFETY:") {
            return true;
        }
        let code = code[above].trim();
        let is_blank = code.is_empty() && comments[above].trim().is_empty();
        let is_other_statement = code.ends_with([';', '{', '}']);
        if is_blank || is_other_statement {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::RULE;

    #[test]
    fn an_unsafe_block_without_reason_is_found() {
        let text = "fn a() {\n    // SAFETY: other\n    b();\n    unsafe { c() };\n}\n";
        assert_eq!(lines_found(&RULE, "a.rs", text), [4]);
        assert_eq!(lines_found(&RULE, "a.rs", "unsafe impl Send for A {}\n"), [1]);
    }

    #[test]
    fn a_reason_above_the_statement_is_accepted() {
        for text in [
            "// SAFETY: no other owner.\nunsafe impl Send for A {}\n",
            "// SAFETY: a long\n// reason.\n#[inline]\nunsafe impl Send for A {}\n",
            "fn a() {\n    // SAFETY: pinned.\n    let b =\n        unsafe { c() };\n}\n",
            "unsafe fn a() {}\n",
            "// unsafe { }\nconst A: &str = \"unsafe {\";\n",
        ] {
            assert_eq!(lines_found(&RULE, "a.rs", text), [0; 0], "{text}");
        }
    }
}
