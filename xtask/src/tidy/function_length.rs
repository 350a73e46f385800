//! A function of about 70 lines fits a screen. The limit leaves room for justified exceptions.

use syn::spanned::Spanned;
use syn::visit::Visit;

use super::Rule;
use crate::finding::Finding;
use crate::tree::Tree;

/// The intended maximum; named in the message, not enforced.
const LINES_TARGET: usize = 70;
const LINES_MAX: usize = 100;

pub(super) const RULE: Rule = Rule {
    name: "function-length",
    about: "a function has about 70 lines of code, at most 100",
    check,
};

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let Ok(syntax) = &rust.syntax else { continue };
        let mut functions = Functions::default();
        functions.visit_file(syntax);
        let code: Vec<bool> = rust.code.lines().map(|line| !line.trim().is_empty()).collect();
        for Function { name, first, last } in functions.found {
            let lines = code[first - 1..last].iter().filter(|&&is_code| is_code).count();
            if lines > LINES_MAX {
                let message = format!(
                    "`{name}` has {lines} lines of code, at most {LINES_MAX}, better {LINES_TARGET}"
                );
                findings.push(Finding::new(&file.path, first, RULE.name, message));
            }
        }
    }
    findings
}

struct Function {
    name: String,
    first: usize,
    last: usize,
}

#[derive(Default)]
struct Functions {
    found: Vec<Function>,
}

impl Functions {
    fn add(&mut self, signature: &syn::Signature, body: &syn::Block) {
        self.found.push(Function {
            name: signature.ident.to_string(),
            first: signature.fn_token.span.start().line,
            last: body.span().end().line,
        });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        syn::visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        syn::visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.add(&item.sig, body);
        }
        syn::visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::{LINES_MAX, RULE};

    #[test]
    fn long_functions_are_found_in_every_context() {
        let body = "        f();\n".repeat(LINES_MAX);
        for outer in ["impl A", "trait A", "mod a"] {
            let text = format!("{outer} {{\n    fn a() {{\n{body}    }}\n}}\n");
            assert_eq!(lines_found(&RULE, "a.rs", &text), [2], "{outer}");
        }
    }

    #[test]
    fn comments_do_not_count() {
        let body = "    // why\n\n    f();\n".repeat(LINES_MAX - 2);
        assert_eq!(lines_found(&RULE, "a.rs", &format!("fn a() {{\n{body}}}\n")), [0; 0]);
    }
}
