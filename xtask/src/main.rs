//! The house rules as a program: `cargo xtask tidy`, `cargo xtask semantics`; and the runner of the
//! tests: `cargo xtask test`.
//!
//! The rules read the files that git lists and print their findings. They never write and never fix.

mod finding;
mod markdown;
mod rust_text;
mod semantics;
mod test_run;
mod tidy;
mod tree;

use std::process::ExitCode;

use finding::Finding;
use tree::Tree;

/// One subcommand of `cargo xtask`.
struct Command {
    name: &'static str,
    about: &'static str,
    run: fn(&Tree) -> Vec<Finding>,
}

const COMMANDS: &[Command] = &[
    Command { name: "tidy", about: "check the house rules over the whole tree", run: tidy::check },
    Command {
        name: "semantics",
        about: "check that every test named in docs/semantics.md exists",
        run: semantics::check,
    },
];

/// The words that may follow `cargo xtask`.
fn command_names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|command| command.name).chain(["test", "help"])
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["help" | "--help" | "-h"] => {
            print!("{}", help());
            ExitCode::SUCCESS
        }
        ["test", ..] => test(&arguments[1..]),
        [name] => match COMMANDS.iter().find(|command| command.name == name) {
            Some(command) => run(command),
            None => usage_error(&format!("no command `{name}`")),
        },
        [..] => usage_error("one command at a time, without arguments"),
    }
}

fn test(arguments: &[String]) -> ExitCode {
    match tree::root() {
        Ok(root) => test_run::main(&root, arguments),
        Err(error) => usage_error(&error),
    }
}

fn run(command: &Command) -> ExitCode {
    let tree = match Tree::of_this_checkout() {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("xtask {}: {error}", command.name);
            return ExitCode::from(2);
        }
    };
    let findings = (command.run)(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("{}: {} files, nothing to report", command.name, tree.len());
        return ExitCode::SUCCESS;
    }
    eprintln!("{}: {} findings", command.name, findings.len());
    ExitCode::FAILURE
}

fn usage_error(message: &str) -> ExitCode {
    eprint!("xtask: {message}\n\n{}", help());
    ExitCode::from(2)
}

fn help() -> String {
    let mut text = String::from("usage: cargo xtask COMMAND\n\n");
    for command in COMMANDS {
        text += &format!("  {:<10} {}\n", command.name, command.about);
    }
    text += "  test       run tests, and repeat those that failed\n";
    text += "  help       print this\n\n";
    text += test_run::USAGE;
    text += "\nrules of tidy:\n\n";
    for rule in tidy::RULES {
        text += &format!("  {:<16} {}\n", rule.name, rule.about);
    }
    text + "\nOutput is `file:line: rule: message`; exit 1 if anything was found, 2 if nothing could be \
            checked.\nA comment `tidy: allow(RULE): REASON` on the line or the line above lets one \
            line pass.\n"
}

#[cfg(test)]
mod tests {
    use super::{COMMANDS, help, tidy};

    #[test]
    fn help_names_every_command_and_rule() {
        let text = help();
        for command in COMMANDS {
            assert!(text.contains(command.name), "{}", command.name);
        }
        for rule in tidy::RULES {
            assert!(text.contains(rule.name), "{}", rule.name);
        }
    }
}
