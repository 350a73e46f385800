//! Commands in a document refer to existing subcommands, packages, tests, examples and scripts. The
//! output of commands is not checked.

use std::collections::BTreeSet;

use super::Rule;
use crate::command_names;
use crate::finding::Finding;
use crate::tree::Tree;

pub(super) const RULE: Rule =
    Rule { name: "doc-commands", about: "commands in the documents refer to what exists", check };

const SHELLS: [&str; 4] = ["sh", "bash", "shell", "console"];

/// The programs with subcommands, and the folders of their sources.
const PROGRAMS: [(&str, &str); 2] =
    [("uwork", "crates/cli/src/"), ("uwork-lab", "lab/command/src/")];

fn check(tree: &Tree) -> Vec<Finding> {
    let known = Known::of(tree);
    let mut findings = Vec::new();
    for (file, markdown) in tree.markdown() {
        let fences =
            markdown.fences.iter().filter(|fence| SHELLS.contains(&fence.language.as_str()));
        for (line, text) in fences.flat_map(|fence| &fence.lines) {
            let wrong =
                commands(text).into_iter().filter_map(|command| known.what_is_wrong(command));
            findings
                .extend(wrong.map(|message| Finding::new(&file.path, *line, RULE.name, message)));
        }
    }
    findings
}

/// The commands of a shell line, without prompt, assignments and wrappers such as `time`.
pub(super) fn commands(line: &str) -> Vec<&str> {
    let line = line.trim().trim_start_matches("$ ");
    let parts = line.split(['|', ';', '&']).map(str::trim);
    parts.map(without_prefixes).filter(|part| !part.is_empty()).collect()
}

fn without_prefixes(mut command: &str) -> &str {
    while let Some((first, rest)) = command.split_once(' ') {
        if !first.contains('=') && !["time", "sudo", "exec"].contains(&first) {
            break;
        }
        command = rest.trim_start();
    }
    command
}

/// The names that exist in the tree.
struct Known<'a> {
    tree: &'a Tree,
    packages: BTreeSet<String>,
    /// For each of [`PROGRAMS`], its subcommands; empty if the tree has no readable definition of
    /// them.
    subcommands: [BTreeSet<String>; PROGRAMS.len()],
}

impl<'a> Known<'a> {
    fn of(tree: &'a Tree) -> Self {
        let name = |manifest: toml::Table| {
            Some(manifest.get("package")?.get("name")?.as_str()?.to_owned())
        };
        let packages = tree.manifests().filter_map(|(_, manifest)| name(manifest)).collect();
        let subcommands = PROGRAMS.map(|(_, folder)| subcommands(tree, folder));
        Self { tree, packages, subcommands }
    }

    fn what_is_wrong(&self, command: &str) -> Option<String> {
        let command = command.split(" #").next().unwrap_or(command);
        let words: Vec<&str> = command.split_whitespace().collect();
        match words[..] {
            ["cargo", "xtask", name, ..] if !command_names().any(|known| known == name) => {
                Some(format!("`cargo xtask` has no command `{name}`"))
            }
            ["cargo", ref rest @ ..] => {
                rest.windows(2).find_map(|pair| self.wrong_option(pair[0], pair[1]))
            }
            [program, ..] if is_script(program) => self.wrong_script(program),
            [program, name, ..] => self.wrong_subcommand(program, name),
            _ => None,
        }
    }

    fn wrong_option(&self, option: &str, value: &str) -> Option<String> {
        let value = value.trim_matches(['\'', '"']);
        let folder = match option {
            "-p" | "--package" => {
                let missing = !self.packages.contains(value);
                return missing.then(|| format!("the workspace has no package `{value}`"));
            }
            "--example" => "examples",
            "--test" => "tests",
            _ => return None,
        };
        let stands = |package: &str| {
            let path = format!("{package}/{folder}/{value}");
            self.tree.exists(&format!("{path}.rs")) || self.tree.exists(&path)
        };
        let packages =
            self.tree.manifests().filter_map(|(file, _)| file.path.strip_suffix("/Cargo.toml"));
        let missing = !value.contains('*') && !packages.into_iter().any(stands);
        missing.then(|| format!("no package has {folder}/{value}.rs"))
    }

    fn wrong_script(&self, program: &str) -> Option<String> {
        let missing = !self.tree.exists(program.trim_start_matches("./"));
        missing.then(|| format!("no script `{program}`"))
    }

    fn wrong_subcommand(&self, program: &str, name: &str) -> Option<String> {
        let program = program.rsplit('/').next().unwrap_or(program);
        let at = PROGRAMS.iter().position(|(known, _)| *known == program)?;
        let known = &self.subcommands[at];
        let is_name = name.starts_with(|c: char| c.is_ascii_lowercase()) && name != "help";
        let missing = is_name && !known.is_empty() && !known.contains(name);
        missing.then(|| format!("`{program}` has no command `{name}`"))
    }
}

fn is_script(program: &str) -> bool {
    let relative = program.trim_start_matches("./");
    relative.ends_with(".sh")
        && relative.contains('/')
        && !relative.starts_with(['/', '~', '$', '.'])
}

/// The variants of every enum in this folder that derives `Subcommand`, spelled as typed.
fn subcommands(tree: &Tree, folder: &str) -> BTreeSet<String> {
    let files = tree.rust().filter(|(file, _)| file.path.starts_with(folder));
    let items =
        files.filter_map(|(_, rust)| rust.syntax.as_ref().ok()).flat_map(|file| &file.items);
    let mut names = BTreeSet::new();
    for item in items {
        let syn::Item::Enum(item) = item else { continue };
        if item.attrs.iter().any(derives_subcommand) {
            names.extend(item.variants.iter().map(|variant| kebab(&variant.ident.to_string())));
        }
    }
    names
}

fn derives_subcommand(attribute: &syn::Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else { return false };
    list.path.is_ident("derive") && list.tokens.to_string().contains("Subcommand")
}

fn kebab(name: &str) -> String {
    let mut text = String::new();
    for (at, c) in name.char_indices() {
        if c.is_uppercase() && at > 0 {
            text.push('-');
        }
        text.extend(c.to_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::lines_found_in;
    use super::{RULE, commands};

    const FILES: [(&str, &str); 5] = [
        ("crates/uwork/Cargo.toml", "[package]\nname = \"uwork\"\n"),
        ("crates/uwork/tests/flush.rs", ""),
        ("ci/fmt.sh", "#!/bin/sh\n"),
        ("crates/cli/src/main.rs", "#[derive(Subcommand)]\nenum Command { Sum, SetKnob }\n"),
        ("lab/command/src/main.rs", "#[derive(Subcommand)]\nenum Command { Bench }\n"),
    ];

    fn lines(command: &str) -> Vec<usize> {
        let text = format!("```sh\n{command}\n```\n");
        let mut files = FILES.to_vec();
        files.push(("README.md", &text));
        lines_found_in(&RULE, &files)
    }

    #[test]
    fn commands_that_cannot_work_are_found() {
        for command in [
            "cargo xtask dust",
            "cargo test -p nobody",
            "cargo test -p uwork --test drain",
            "$ uwork frobnicate",
            "A=1 target/release/uwork sums dir | sort",
            "uwork bench",
            "target/release/uwork-lab sum dir",
            "./ci/gone.sh",
        ] {
            assert_eq!(lines(command), [2], "{command}");
        }
    }

    #[test]
    fn working_commands_are_accepted() {
        for command in [
            "cargo xtask tidy",
            "cargo test -p uwork --test flush",
            "cargo test --test 'loom_*'",
            "uwork sum dir > sums && uwork set-knob && uwork --help",
            "target/release/uwork-lab bench",
            "ci/fmt.sh",
            "sha256sum -c sums",
        ] {
            assert_eq!(lines(command), [0; 0], "{command}");
        }
    }

    #[test]
    fn a_line_splits_into_commands() {
        assert_eq!(
            commands("$ A=1 time make run && make test | cat"),
            ["make run", "make test", "cat"]
        );
    }
}
