//! Unfinished work is recorded in issues, not in the tree.

use super::{Rule, word_positions};
use crate::finding::Finding;
use crate::tree::{Kind, Tree, numbered};

/// Spelled in two halves, so that the rule does not find itself.
const EVERYWHERE: [(&str, &str); 3] = [
    (concat!("TO", "DO"), "do it, or open an issue"),
    (concat!("FIX", "ME"), "fix it, or open an issue"),
    (concat!("XX", "X"), "say what is wrong, or open an issue"),
];

const IN_CODE: [(&str, &str); 4] = [
    ("todo!", "remove the stub"),
    ("unimplemented!", "remove the stub"),
    ("dbg!", "remove it"),
    ("#[ignore", "a test that does not run proves nothing: make it fit or delete it"),
];

pub(super) const RULE: Rule = Rule {
    name: "banned-words",
    about: "no marks of unfinished work, no ignored tests, no debug prints",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        match &file.kind {
            // The content of a string is data.
            Kind::Rust(rust) => {
                search(&file.path, &rust.code, &IN_CODE, &mut findings);
                search(&file.path, &rust.code, &EVERYWHERE, &mut findings);
                search(&file.path, &rust.comments, &EVERYWHERE, &mut findings);
            }
            Kind::Other => {}
            _ => search(&file.path, &file.text, &EVERYWHERE, &mut findings),
        }
    }
    findings
}

fn search(path: &str, text: &str, banned: &[(&str, &str)], findings: &mut Vec<Finding>) {
    for (line, text) in numbered(text) {
        for (word, advice) in banned {
            if word_positions(text, word).next().is_some() {
                let message = format!("`{word}`: {advice}");
                findings.push(Finding::new(path, line, RULE.name, message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::{EVERYWHERE, RULE};

    #[test]
    fn marks_of_unfinished_work_are_found() {
        for (word, _) in EVERYWHERE {
            assert_eq!(lines_found(&RULE, "a.rs", &format!("\n// {word}: later\n")), [2]);
            assert_eq!(lines_found(&RULE, "docs/a.md", &format!("# A\n\n{word}\n")), [3]);
        }
    }

    #[test]
    fn stubs_and_ignored_tests_are_found() {
        assert_eq!(lines_found(&RULE, "a.rs", "fn a() {\n    todo!()\n}\n"), [2]);
        assert_eq!(lines_found(&RULE, "a.rs", "#[ignore = \"slow\"]\nfn a() {}\n"), [1]);
        assert_eq!(lines_found(&RULE, "a.rs", "fn a() { dbg!(1); }\n"), [1]);
    }

    #[test]
    fn longer_words_and_strings_are_fine() {
        let word = EVERYWHERE[0].0;
        assert_eq!(lines_found(&RULE, "a.rs", &format!("const {word}S: u8 = 1;\n")), [0; 0]);
        assert_eq!(lines_found(&RULE, "a.rs", &format!("const A: &str = \"{word}\";\n")), [0; 0]);
        assert_eq!(lines_found(&RULE, "a.rs", "const A: &str = \"todo!\";\n"), [0; 0]);
    }
}
