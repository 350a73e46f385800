//! The engine's code is the same for threads and for loom: only `sync` distinguishes the two. The
//! models are written for loom, and tests may exclude loom.

use super::{Rule, words};
use crate::finding::Finding;
use crate::tree::{Tree, numbered};

/// The only library code that may name loom: `sync.rs`, or any file in the folder `sync`.
pub(super) const SYNC: &str = "crates/engine/src/words/sync";

/// The models: tests of the engine's internals, in a folder of their own.
const MODELS: &str = "crates/engine/src/models/";

pub(super) const RULE: Rule =
    Rule { name: "loom-cfg", about: "only the engine's `sync` module knows of loom", check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let is_library = ["crates/", "lab/"].iter().any(|folder| file.path.starts_with(folder))
            && file.path.contains("/src/");
        if !is_library || is_sync(&file.path) || file.path.starts_with(MODELS) {
            continue;
        }
        for (line, text) in numbered(&rust.code).filter(|&(line, _)| !rust.is_test(line)) {
            if words(text).any(|word| word == "loom") {
                let message = "loom belongs in the engine's `sync` module and in its models";
                findings.push(Finding::new(&file.path, line, RULE.name, message));
            }
        }
    }
    findings
}

pub(super) fn is_sync(path: &str) -> bool {
    let rest = path.strip_prefix(SYNC);
    rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::RULE;

    const TEXT: &str = "#[cfg(not(loom))]\nconst BATCH: usize = 64;\n";

    #[test]
    fn loom_outside_sync_is_found() {
        assert_eq!(lines_found(&RULE, "crates/engine/src/pool.rs", TEXT), [1]);
        assert_eq!(lines_found(&RULE, "crates/engine/src/words/synchrony.rs", TEXT), [1]);
        assert_eq!(lines_found(&RULE, "crates/uwork/src/sync.rs", TEXT), [1]);
    }

    #[test]
    fn loom_in_sync_and_in_models_is_accepted() {
        let sync = ["src/words/sync.rs", "src/words/sync/atomic.rs"];
        for path in sync.into_iter().chain(["src/models/kick.rs", "tests/loom_park.rs"]) {
            assert_eq!(
                lines_found(&RULE, &format!("crates/engine/{path}"), TEXT),
                [0; 0],
                "{path}"
            );
        }
        let text = "#[cfg(all(test, not(loom)))]\nmod tests {}\n";
        assert_eq!(lines_found(&RULE, "crates/engine/src/pool.rs", text), [0; 0]);
        let text = "// loom explores this\nlet looming = 1;\n";
        assert_eq!(lines_found(&RULE, "crates/engine/src/pool.rs", text), [0; 0]);
    }
}
