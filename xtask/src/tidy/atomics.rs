//! The engine takes all atomics from its `sync` facade. Loom does not see other atomics, so no
//! model would check them.

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::Rule;
use super::loom_cfg::is_sync;
use crate::finding::Finding;
use crate::tree::Tree;

const FOLDER: &str = "crates/engine/src/";

pub(super) const RULE: Rule =
    Rule { name: "atomics", about: "the engine takes its atomics from its `sync` facade", check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let Ok(syntax) = &rust.syntax else { continue };
        if !file.path.starts_with(FOLDER) || is_sync(&file.path) {
            continue;
        }
        let mut paths = StdAtomics::default();
        paths.visit_file(syntax);
        findings.extend(paths.lines.into_iter().map(|line| {
            Finding::new(
                &file.path,
                line,
                RULE.name,
                "take it from `crate::sync`, which loom can see",
            )
        }));
    }
    findings
}

/// Lines that name `std::sync::atomic` in an import or a path.
#[derive(Default)]
struct StdAtomics {
    lines: Vec<usize>,
}

impl StdAtomics {
    fn add_if_atomic(&mut self, path: &[String], line: usize) {
        let is_std = path.first().is_some_and(|first| first == "std" || first == "core");
        let rest: Vec<&str> = path.iter().skip(1).take(2).map(String::as_str).collect();
        if is_std && rest == ["sync", "atomic"] {
            self.lines.push(line);
        }
    }

    fn add_use(&mut self, tree: &syn::UseTree, path: &[String]) {
        let with = |ident: &syn::Ident| {
            let mut path = path.to_vec();
            path.push(ident.to_string());
            path
        };
        match tree {
            syn::UseTree::Path(inner) => self.add_use(&inner.tree, &with(&inner.ident)),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.add_use(item, path));
            }
            syn::UseTree::Name(name) => {
                self.add_if_atomic(&with(&name.ident), name.ident.span().start().line);
            }
            syn::UseTree::Rename(name) => {
                self.add_if_atomic(&with(&name.ident), name.ident.span().start().line);
            }
            _ => self.add_if_atomic(path, tree.span().start().line),
        }
    }
}

impl<'ast> Visit<'ast> for StdAtomics {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.add_use(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> =
            path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.add_if_atomic(&segments, path.span().start().line);
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::RULE;

    #[test]
    fn every_spelling_is_found() {
        for text in [
            "use std::sync::atomic::AtomicU32;\n",
            "use std::sync::{Arc, atomic::{AtomicU32, Ordering}};\n",
            "use core::sync::atomic::*;\n",
            "use std::sync::atomic as a;\n",
            "fn a() { std::sync::atomic::fence(b); }\n",
            "struct A(std::sync::atomic::AtomicBool);\n",
        ] {
            let lines = lines_found(&RULE, "crates/engine/src/pool.rs", text);
            assert!(!lines.is_empty() && lines.iter().all(|&line| line == 1), "{text}");
        }
    }

    #[test]
    fn the_facade_and_other_crates_are_fine() {
        let std = "use std::sync::atomic::AtomicU32;\n";
        assert_eq!(lines_found(&RULE, "crates/engine/src/words/sync.rs", std), [0; 0]);
        assert_eq!(lines_found(&RULE, "crates/engine/src/words/sync/mod.rs", std), [0; 0]);
        assert_eq!(lines_found(&RULE, "crates/engine/tests/flush.rs", std), [0; 0]);
        assert_eq!(lines_found(&RULE, "crates/uwork/src/lib.rs", std), [0; 0]);
        let facade = "use crate::sync::atomic::AtomicU32;\nuse std::sync::Arc;\n";
        assert_eq!(lines_found(&RULE, "crates/engine/src/pool.rs", facade), [0; 0]);
    }
}
