//! The example that the guide names.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::left_out::left_out;
use crate::support::owned::output;
use crate::support::patience::within;

/// The example's program, which `cargo test` builds unless it is told to build one test alone.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples").join(name);
    if !path.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "uwork-bridge", "--example", name]);
        assert!(build.status().unwrap().success());
    }
    path
}

#[test]
fn the_example_of_an_effect_that_happens_once_has_the_right_sum() {
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
        return left_out("the_example_of_an_effect", "redis-server is not installed");
    }
    let run = || output(&mut Command::new(program("exactly_once")));
    let output = within("the example", run);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("balance 500500"), "{said}{errors}");
}
