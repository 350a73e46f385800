//! Rules that read syntax skip a file that does not parse, so such a file is itself a finding.

use super::Rule;
use crate::finding::Finding;
use crate::tree::Tree;

pub(super) const RULE: Rule =
    Rule { name: "parse", about: "Rust files and manifests parse", check };

fn check(tree: &Tree) -> Vec<Finding> {
    let rust = tree.rust().filter_map(|(file, rust)| {
        let error = rust.syntax.as_ref().err()?;
        Some(Finding::new(&file.path, error.span().start().line, RULE.name, error.to_string()))
    });
    let toml = tree.files().iter().filter(|file| file.path.ends_with(".toml")).filter_map(|file| {
        let error = file.text.parse::<toml::Table>().err()?;
        let start = error.span().map_or(0, |span| span.start);
        let line = 1 + file.text[..start].matches('\n').count();
        Some(Finding::new(&file.path, line, RULE.name, error.message()))
    });
    rust.chain(toml).collect()
}

#[cfg(test)]
mod tests {
    use super::super::lines_found;
    use super::RULE;

    #[test]
    fn broken_files_are_found() {
        assert_eq!(lines_found(&RULE, "a.rs", "fn a() {}\nfn {\n"), [2]);
        assert_eq!(lines_found(&RULE, "a.toml", "a = 1\nb = = 2\n"), [2]);
    }

    #[test]
    fn valid_files_are_accepted() {
        assert_eq!(lines_found(&RULE, "a.rs", "fn a() {}\n"), [0; 0]);
        assert_eq!(lines_found(&RULE, "a.toml", "a = 1\n"), [0; 0]);
    }
}
