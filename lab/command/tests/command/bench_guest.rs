//! `uwork-lab bench guest`: its records and its messages for bad input. No figure of a time is judged.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    command.args(["bench", "guest"]).args(args).output().expect("the command starts")
}

#[test]
fn each_runner_of_the_timers_has_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.json");
    let file = file.to_str().unwrap();
    let output = bench(&["--quick", "--case", "timers", "--json", file]);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("too busy to arm in time") {
        return;
    }
    assert!(output.status.success(), "{said}");
    let records: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut found = BTreeSet::new();
    for record in &records {
        let field = |name: &str| record[name].as_str().expect("text");
        assert_eq!((field("bench"), field("case")), ("guest", "timers"));
        assert!(record["value"].as_f64().is_some_and(|value| value >= 0.0), "{record}");
        found.insert((field("runner"), field("metric")));
    }
    for runner in ["uwork", "thread", "tokio"] {
        for metric in ["all_ran_ms", "threads_most"] {
            assert!(found.contains(&(runner, metric)), "{runner} {metric}: {found:?}");
        }
    }
}

#[test]
fn an_unknown_case_is_refused_with_those_that_exist() {
    let output = bench(&["--case", "nothing"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("'nothing' does not exist: allowed are timers"), "{said}");
}
