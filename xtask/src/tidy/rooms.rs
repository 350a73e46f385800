//! The rooms of the engine: `words`, and all other folders. A file of a room imports no later one, so a
//! reader of `words` needs nothing of the scheduler.

use super::Rule;
use crate::finding::Finding;
use crate::tree::{Tree, numbered};

/// The first room, and the only path from its files into the crate.
const WORDS: &str = "crates/engine/src/words/";
const PATH: &str = "crate::words";

pub(super) const RULE: Rule = Rule {
    name: "rooms",
    about: "the engine's room `words` imports nothing of the scheduler",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust().filter(|(file, _)| file.path.starts_with(WORDS)) {
        for (line, text) in numbered(&rust.code).filter(|&(line, _)| !rust.is_test(line)) {
            for (at, _) in text.match_indices("crate::") {
                // A macro names the crate of its caller's use by `$crate`.
                let is_macro = text[..at].ends_with('$');
                let is_words =
                    text[at..].strip_prefix(PATH).is_some_and(|rest| rest.starts_with("::"));
                if !is_macro && !is_words {
                    let message = "`words` imports no scheduler: take it from `crate::words`, or move this file";
                    findings.push(Finding::new(&file.path, line, RULE.name, message));
                }
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::RULE;

    #[test]
    fn an_import_of_the_scheduler_is_found_in_words_only() {
        let text = "use crate::words::sync::Cell;\nuse crate::pool::Pool;\nfn a() {\n    crate::wordsmith::b();\n}\n";
        assert_eq!(lines_found(&RULE, "crates/engine/src/words/slab.rs", text), [2, 4]);
        assert_eq!(lines_found(&RULE, "crates/engine/src/pool/mod.rs", text), [0; 0]);
    }

    #[test]
    fn macros_comments_and_tests_are_accepted() {
        let text = "/// As [`Engine`](crate::Engine).\nmacro_rules! a { () => { $crate::b!() } }\n\
                    #[cfg(test)]\nmod tests {\n    use crate::engine::Engine;\n}\n";
        assert_eq!(lines_found(&RULE, "crates/engine/src/words/slab.rs", text), [0; 0]);
    }
}
