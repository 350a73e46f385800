//! The examples in the documentation. rustdoc runs each in a process of its own, and reports in
//! text.

use std::process::{Command, Stdio};

use super::binary::cargo;

pub(super) struct DocTests {
    pub(super) passed: usize,
    /// As in `crates/uwork/src/lib.rs - queue (line 12)`.
    pub(super) failed: Vec<String>,
    pub(super) output: String,
    /// cargo was successful.
    pub(super) success: bool,
}

/// Runs those that cargo's arguments and a filter select.
pub(super) fn run(arguments: &[String], filter: Option<&str>) -> Result<DocTests, String> {
    let mut command: Command = cargo(&["test", "--doc", "--no-fail-fast"]);
    command.args(arguments.iter().filter(|argument| *argument != "--doc"));
    command.arg("--").args(filter).stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{text}");
    Ok(DocTests {
        passed: text.lines().filter(|line| ended(line, "ok")).count(),
        failed: failed(&text),
        output: text,
        success: output.status.success(),
    })
}

fn ended(line: &str, verdict: &str) -> bool {
    line.strip_prefix("test ").is_some_and(|line| line.ends_with(&format!(" ... {verdict}")))
}

fn failed(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| ended(line, "FAILED"));
    let name = |line: &str| line["test ".len()..line.len() - " ... FAILED".len()].to_owned();
    lines.map(name).collect()
}

/// rustdoc splits a filter at spaces, so that only a name's file can be selected.
pub(super) fn file_of(test: &str) -> &str {
    test.split(' ').next().unwrap_or(test)
}

#[cfg(test)]
mod tests {
    use super::{failed, file_of};

    #[test]
    fn names_of_failed_examples_are_found() {
        let text = "running 2 tests\n\
            test crates/uwork/src/lib.rs - (line 9) ... ok\n\
            test crates/uwork/src/queue.rs - queue::Queue (line 12) ... FAILED\n\nfailures:\n";
        let names = failed(text);
        assert_eq!(names, ["crates/uwork/src/queue.rs - queue::Queue (line 12)"]);
        assert_eq!(file_of(&names[0]), "crates/uwork/src/queue.rs");
    }
}
