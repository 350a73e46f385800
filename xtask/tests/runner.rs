//! `cargo xtask test` with a test program of this folder: what makes a run red.

use std::fs;
use std::path::Path;
use std::process::Command;

struct Run {
    is_green: bool,
    /// The lines that begin with FAILED or flaky.
    named: Vec<String>,
    logs: std::path::PathBuf,
}

/// Runs the stub's tests. `what` says what happens there.
fn run(what: &str) -> Run {
    let logs = Path::new(env!("CARGO_TARGET_TMPDIR")).join(what);
    let _ = fs::remove_dir_all(&logs);
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["test", "--test", "x"]).env("STUB", what);
    command.env("CARGO", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stub/cargo"));
    command.env("CARGO_MANIFEST_DIR", env!("CARGO_MANIFEST_DIR"));
    command.env("UWORK_STEP_LOGS", &logs);
    for variable in ["UWORK_NO_REPEAT", "UWORK_NO_RUN", "UWORK_FLAKY_FILE", "UWORK_RUNNING_FILE"] {
        command.env_remove(variable);
    }
    let output = command.output().expect("it starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let is_name = |line: &&str| line.starts_with("FAILED: ") || line.starts_with("flaky: ");
    let named = text.lines().filter(is_name).map(str::to_owned).collect();
    Run { is_green: output.status.success(), named, logs }
}

#[test]
fn a_run_whose_tests_pass_is_green() {
    let run = run("ok");
    assert!(run.is_green && run.named.is_empty(), "{:?}", run.named);
}

#[test]
fn a_process_that_crashes_after_its_last_test_makes_the_run_red() {
    let crashed = run("signal");
    assert!(!crashed.is_green);
    let [name] = &crashed.named[..] else { panic!("{:?}", crashed.named) };
    assert!(name.starts_with("FAILED: uwork/x: after its last test: signal: 11"), "{name}");
    let said =
        fs::read_to_string(crashed.logs.join("uwork-x.end.log")).expect("the output is kept");
    assert!(said.contains("said at the end") && said.contains("signal: 11"), "{said}");

    let failed = run("code");
    assert!(!failed.is_green);
    assert_eq!(failed.named, ["FAILED: uwork/x: after its last test: exit status: 7"]);
}

#[test]
fn a_process_that_crashes_between_two_tests_makes_the_run_red() {
    let beginning = "FAILED: uwork/x: before its end, while no test was running: signal: 11";
    for when in ["between", "unended", "early"] {
        let crashed = run(when);
        let [name] = &crashed.named[..] else { panic!("{when}: {:?}", crashed.named) };
        assert!(!crashed.is_green && name.starts_with(beginning), "{when}: {name}");
    }
}

#[test]
fn a_failed_test_does_not_hide_that_its_process_crashed_later() {
    assert_eq!(run("failed").named, ["FAILED: uwork/x::a::two"]);
    let crashed = run("crashed");
    assert!(!crashed.is_green);
    let [end, test] = &crashed.named[..] else { panic!("{:?}", crashed.named) };
    assert!(end.starts_with("FAILED: uwork/x: after its last test: signal: 11"), "{end}");
    assert_eq!(test, "FAILED: uwork/x::a::two");
}

#[test]
fn a_repetition_passes_only_if_its_process_ends_well() {
    let flaky = run("flaky");
    assert!(flaky.is_green);
    assert_eq!(flaky.named, ["flaky: uwork/x::a::two"]);
    for when in ["end", "repeated"] {
        let crashed = run(when);
        assert!(!crashed.is_green, "{when}");
        assert_eq!(crashed.named, ["FAILED: uwork/x::a::two"], "{when}");
    }
}
