//! Dead links in the documents.

use super::Rule;
use crate::finding::Finding;
use crate::markdown::Markdown;
use crate::tree::{Kind, Tree};

pub(super) const RULE: Rule =
    Rule { name: "links", about: "relative links and anchors in Markdown lead somewhere", check };

fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, markdown) in tree.markdown() {
        for (line, link) in &markdown.links {
            if let Some(message) = what_is_wrong(tree, &file.path, markdown, link) {
                findings.push(Finding::new(&file.path, *line, RULE.name, message));
            }
        }
    }
    findings
}

fn what_is_wrong(tree: &Tree, from: &str, own: &Markdown, link: &str) -> Option<String> {
    let is_elsewhere = link.contains("://") || link.starts_with("mailto:");
    if is_elsewhere {
        return None;
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    if target.is_empty() {
        let dead = anchor.is_empty() || !own.anchors.contains(anchor);
        return dead.then(|| format!("`{link}`: no such heading in this file"));
    }
    let Some(path) = resolve(from, target).filter(|path| tree.exists(path)) else {
        return Some(format!("`{link}`: no such file in the tree"));
    };
    let Some(Kind::Markdown(there)) = tree.file(&path).map(|file| &file.kind) else {
        return None;
    };
    let dead = !anchor.is_empty() && !there.anchors.contains(anchor);
    dead.then(|| format!("`{link}`: no such heading in {path}"))
}

/// `target` as seen from the file `from`, as a path from the root; `None` if it is outside of the
/// tree.
fn resolve(from: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::lines_found_in;
    use super::RULE;

    const GUIDE: (&str, &str) = ("docs/guide.md", "# Guide\n\n## First steps\n");

    fn lines(path: &str, text: &str) -> Vec<usize> {
        lines_found_in(&RULE, &[(path, text), GUIDE, ("src/lib.rs", "")])
    }

    #[test]
    fn dead_links_are_found() {
        for link in
            ["docs/none.md", "docs/guide.md#last-steps", "../x.md", "/docs/guide.md", "#none"]
        {
            assert_eq!(lines("README.md", &format!("# A\n\n[a]({link})\n")), [3], "{link}");
        }
        assert_eq!(lines("docs/a.md", "[a]: docs/guide.md\n"), [1]);
    }

    #[test]
    fn live_links_are_accepted() {
        for link in ["docs/guide.md", "docs/", "./docs/guide.md#first-steps", "#a", "https://x.y/z"]
        {
            assert_eq!(lines("README.md", &format!("# A\n\n[a]({link})\n")), [0; 0], "{link}");
        }
        assert_eq!(lines("docs/a.md", "[a](../src/lib.rs#L1) [b](guide.md)\n"), [0; 0]);
    }
}
