//! A word is changed by its own module: the engine's structs do not show their atomics as fields.
//! Other modules call methods, which name what happens.

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::Rule;
use super::loom_cfg::is_sync;
use crate::finding::Finding;
use crate::tree::Tree;

const FOLDER: &str = "crates/engine/src/";

pub(super) const RULE: Rule =
    Rule { name: "own-words", about: "an atomic field of the engine is private", check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let Ok(syntax) = &rust.syntax else { continue };
        if !file.path.starts_with(FOLDER) || is_sync(&file.path) {
            continue;
        }
        let mut fields = Fields::default();
        fields.visit_file(syntax);
        findings.extend(fields.lines.into_iter().map(|line| {
            let message = "an atomic that other modules see: make it private, with methods";
            Finding::new(&file.path, line, RULE.name, message)
        }));
    }
    findings
}

/// The lines of visible fields whose type has an atomic in it.
#[derive(Default)]
struct Fields {
    lines: Vec<usize>,
}

impl<'ast> Visit<'ast> for Fields {
    fn visit_field(&mut self, field: &'ast syn::Field) {
        let is_visible = !matches!(field.vis, syn::Visibility::Inherited);
        let mut atomics = Atomics::default();
        atomics.visit_type(&field.ty);
        if is_visible && atomics.found {
            let line = field.ident.as_ref().map_or_else(|| field.ty.span(), syn::Ident::span);
            self.lines.push(line.start().line);
        }
    }
}

/// Whether a type has an atomic in it, or a `Hint`, which is one.
#[derive(Default)]
struct Atomics {
    found: bool,
}

impl<'ast> Visit<'ast> for Atomics {
    fn visit_ident(&mut self, ident: &'ast syn::Ident) {
        self.found |= ident == "Hint" || ident.to_string().starts_with("Atomic");
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::RULE;

    fn lines(field: &str) -> Vec<usize> {
        lines_found(&RULE, "crates/engine/src/pool/mod.rs", &format!("struct A {{\n{field},\n}}\n"))
    }

    #[test]
    fn visible_atomics_are_found() {
        for field in [
            "pub(crate) a: AtomicU32",
            "pub(super) a: Line<AtomicBool>",
            "pub a: [crate::sync::AtomicU64; 4]",
            "/// Doc.\npub(crate) a: Hint",
        ] {
            assert_eq!(lines(field).len(), 1, "{field}");
        }
        assert_eq!(lines_found(&RULE, "crates/engine/src/a.rs", "struct A(pub AtomicU8);\n"), [1]);
    }

    #[test]
    fn private_atomics_and_types_around_them_are_fine() {
        assert_eq!(lines("a: AtomicU32"), [0; 0]);
        assert_eq!(lines("pub(crate) state: PoolState"), [0; 0]);
        let text = "struct A(pub AtomicU8);\n";
        assert_eq!(lines_found(&RULE, "crates/engine/src/words/sync/mod.rs", text), [0; 0]);
        assert_eq!(lines_found(&RULE, "crates/uwork/src/lib.rs", text), [0; 0]);
    }
}
