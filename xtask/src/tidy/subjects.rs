//! The subject of a sentence is a role or a thing: submitter, worker, waiter, the pool (STYLE.md, "Language").
//!
//! The rule counts the pronouns that take a role's place, over all comments and documents, and allows a few: a
//! quoted word, the Unix user of that name. Beyond the allowance it reports each of them.

use super::{Rule, word_positions};
use crate::finding::Finding;
use crate::tree::{Kind, Tree, numbered};

/// Spelled in two halves, so that the rule does not find itself.
const PRONOUNS: [&str; 6] = [
    concat!("wh", "o"),
    concat!("who", "ever"),
    concat!("no", "body"),
    concat!("some", "body"),
    concat!("some", "one"),
    concat!("any", "body"),
];

/// Pronouns in 1,000 lines of comments and documents.
const ALLOWED_PER_1000: usize = 5;

pub(super) const RULE: Rule = Rule {
    name: "subjects",
    about: "comments and documents name the role or the thing that acts",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let (mut lines, mut findings) = (0, Vec::new());
    for file in tree.files() {
        let text = match &file.kind {
            Kind::Rust(rust) => &rust.comments,
            Kind::Markdown(_) => &file.text,
            _ => continue,
        };
        for (line, text) in numbered(text).filter(|(_, text)| !text.trim().is_empty()) {
            lines += 1;
            let text = text.to_lowercase();
            for pronoun in PRONOUNS {
                for _ in word_positions(&text, pronoun) {
                    let message = format!("`{pronoun}`: name the role or the thing that acts");
                    findings.push(Finding::new(&file.path, line, RULE.name, message));
                }
            }
        }
    }
    let allowed = (lines * ALLOWED_PER_1000).div_ceil(1000);
    if findings.len() <= allowed { Vec::new() } else { findings }
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::{PRONOUNS, RULE};

    #[test]
    fn a_few_are_allowed_and_more_are_found() {
        let [first, second, ..] = PRONOUNS;
        let one = format!("// The worker {first} runs.\n");
        assert_eq!(lines_found(&RULE, "a.rs", &one), [0; 0]);
        let two = format!("{one}\n// {second} looks.\n");
        assert_eq!(lines_found(&RULE, "a.rs", &two), [1, 3]);
        let many = two.clone() + &"// A line of the file.\n".repeat(400);
        assert_eq!(lines_found(&RULE, "a.rs", &many), [0; 0]);
    }

    #[test]
    fn code_and_longer_words_do_not_count() {
        let word = PRONOUNS[0];
        let text = format!(
            "let {word} = 1;\nlet s = \"{word} {word}\";\n// The {word}le pool, a {word}le batch.\n"
        );
        assert_eq!(lines_found(&RULE, "a.rs", &text), [0; 0]);
    }
}
