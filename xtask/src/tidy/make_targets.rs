//! The make targets that documents name exist in the Makefile.

use std::collections::BTreeSet;

use super::Rule;
use super::doc_commands::commands;
use crate::finding::Finding;
use crate::tree::Tree;

pub(super) const RULE: Rule =
    Rule { name: "make-targets", about: "every make target that a document names exists", check };

fn check(tree: &Tree) -> Vec<Finding> {
    let makefile = tree.file("Makefile").map_or("", |file| file.text.as_str());
    let targets = targets(makefile);
    let mut findings = Vec::new();
    for (file, markdown) in tree.markdown() {
        let spans = markdown.spans.iter().map(|(line, span)| (*line, vec![span.as_str()]));
        let fences = markdown.fences.iter().flat_map(|fence| &fence.lines);
        let fences = fences.map(|(line, text)| (*line, commands(text)));
        for (line, command) in
            spans.chain(fences).flat_map(|(line, all)| all.into_iter().map(move |c| (line, c)))
        {
            let Some(named) = command.strip_prefix("make ") else { continue };
            let is_target = |word: &&str| !word.starts_with('-') && !word.contains(['=', '<', '[']);
            for target in named.split_whitespace().take_while(|&word| word != "#").filter(is_target)
            {
                if !targets.contains(target) && is_name(target) {
                    let message = format!("the Makefile has no target `{target}`");
                    findings.push(Finding::new(&file.path, line, RULE.name, message));
                }
            }
        }
    }
    findings
}

fn is_name(word: &str) -> bool {
    word.chars().all(|c| c.is_alphanumeric() || "-_./".contains(c))
}

fn targets(makefile: &str) -> BTreeSet<&str> {
    let rules = makefile.lines().filter(|line| !line.starts_with(['\t', ' ', '#', '.']));
    let heads = rules.filter_map(|line| {
        let (head, rest) = line.split_once(':')?;
        (!rest.starts_with('=') && !rest.starts_with(":=")).then_some(head)
    });
    heads.flat_map(str::split_whitespace).collect()
}

#[cfg(test)]
mod tests {
    use super::super::lines_found_in;
    use super::RULE;

    const MAKEFILE: (&str, &str) =
        ("Makefile", "VAR := x\n.PHONY: ghost\nrun: build\n\tcargo run\ntest lint:\n");

    fn lines(text: &str) -> Vec<usize> {
        lines_found_in(&RULE, &[MAKEFILE, ("README.md", text)])
    }

    #[test]
    fn targets_that_do_not_exist_are_found() {
        assert_eq!(lines("Type `make walk`.\n"), [1]);
        assert_eq!(lines("```sh\n$ make run && make VAR\n```\n"), [2]);
        assert_eq!(lines("`make ghost`\n"), [1]);
    }

    #[test]
    fn existing_targets_are_accepted() {
        assert_eq!(lines("`make run`, `make -j2 test lint V=1`, `make`, make sense\n"), [0; 0]);
        assert_eq!(lines("```sh\nmake run   # all of it\n```\n"), [0; 0]);
    }
}
