//! The files that git lists, in memory. Every check reads from here, so a test can define a tree in
//! one line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::markdown::Markdown;
use crate::rust_text::RustText;

/// The kind of a file, as far as the rules distinguish kinds.
pub(crate) enum Kind {
    Rust(RustText),
    Markdown(Markdown),
    /// Other hand-written text: TOML, shell, YAML, C.
    Script,
    /// Tabs are part of the syntax.
    Makefile,
    /// Data, licence texts and other files, in which white space may be significant.
    Other,
}

pub(crate) struct SourceFile {
    /// From the root of the checkout, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) kind: Kind,
}

impl SourceFile {
    fn new(path: &str, text: String) -> Self {
        let name = path.rsplit('/').next().unwrap_or(path);
        let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let kind = match extension {
            "rs" => Kind::Rust(RustText::new(path, &text)),
            "md" => Kind::Markdown(Markdown::new(&text)),
            "toml" | "sh" | "yml" | "yaml" | "c" | "h" => Kind::Script,
            "mk" => Kind::Makefile,
            _ if name == "Makefile" => Kind::Makefile,
            _ if text.starts_with("#!") => Kind::Script,
            _ => Kind::Other,
        };
        Self { path: path.to_owned(), text, kind }
    }

    /// Lines with their numbers from 1.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        numbered(&self.text)
    }
}

/// Lines of `text` with their numbers from 1.
pub(crate) fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

pub(crate) struct Tree {
    files: Vec<SourceFile>,
    /// Every listed path and all folders above it, including binary files: the possible targets of
    /// links.
    paths: BTreeSet<String>,
}

impl Tree {
    /// Reads tracked files, and untracked files that are not ignored.
    pub(crate) fn of_this_checkout() -> Result<Self, String> {
        let root = root()?;
        let listing = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"])
            .current_dir(&root)
            .output()
            .map_err(|error| format!("cannot run git, which lists the files to check: {error}"))?;
        if !listing.status.success() {
            let said = String::from_utf8_lossy(&listing.stderr);
            return Err(format!("git ls-files failed in {}: {}", root.display(), said.trim()));
        }
        let names = String::from_utf8(listing.stdout).map_err(|_| "a path is not UTF-8")?;
        let mut tree = Self { files: Vec::new(), paths: BTreeSet::new() };
        for name in names.split_terminator('\0') {
            // A listed file may have been deleted without `git rm`.
            if let Ok(bytes) = std::fs::read(root.join(name)) {
                tree.add(name, bytes);
            }
        }
        Ok(tree)
    }

    fn add(&mut self, path: &str, bytes: Vec<u8>) {
        self.paths.insert(path.to_owned());
        let folders = path.match_indices('/').map(|(end, _)| path[..end].to_owned());
        self.paths.extend(folders);
        if let Ok(text) = String::from_utf8(bytes) {
            self.files.push(SourceFile::new(path, text));
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn files(&self) -> &[SourceFile] {
        &self.files
    }

    pub(crate) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(crate) fn rust(&self) -> impl Iterator<Item = (&SourceFile, &RustText)> {
        self.files.iter().filter_map(|file| match &file.kind {
            Kind::Rust(rust) => Some((file, rust)),
            _ => None,
        })
    }

    pub(crate) fn markdown(&self) -> impl Iterator<Item = (&SourceFile, &Markdown)> {
        self.files.iter().filter_map(|file| match &file.kind {
            Kind::Markdown(markdown) => Some((file, markdown)),
            _ => None,
        })
    }

    /// Manifests of the workspace's packages (the root's manifest is none), parsed.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = (&SourceFile, toml::Table)> {
        let manifests = self.files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
        manifests.filter_map(|file| Some((file, file.text.parse().ok()?)))
    }

    /// Whether a file or a folder exists at this path.
    pub(crate) fn exists(&self, path: &str) -> bool {
        path.is_empty() || self.paths.contains(path)
    }
}

/// cargo passes the package's folder at run time, so this works in a checkout that was moved after
/// the build.
pub(crate) fn root() -> Result<PathBuf, String> {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").map_err(|_| "run me as `cargo xtask`")?;
    let root = Path::new(&manifest).parent().ok_or("the package stands in no workspace")?;
    Ok(root.to_owned())
}

#[cfg(test)]
impl Tree {
    /// A tree of `(path, text)` pairs.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self { files: Vec::new(), paths: BTreeSet::new() };
        for (path, text) in files {
            tree.add(path, text.as_bytes().to_vec());
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn folders_of_listed_files_exist() {
        let tree = Tree::of(&[("docs/decisions/0001.md", "# One\n")]);
        assert!(tree.exists("docs") && tree.exists("docs/decisions"));
        assert!(!tree.exists("docs/dec"));
    }

    #[test]
    fn binary_files_exist_but_are_not_read() {
        let mut tree = Tree::of(&[]);
        tree.add("docs/picture.png", vec![0xff, 0xfe, 0x00]);
        assert!(tree.exists("docs/picture.png"));
        assert_eq!(tree.len(), 0);
    }
}
