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

/// The metrics of each runner in the records of one case.
fn metrics_of(case: &str) -> BTreeSet<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.json");
    let file = file.to_str().unwrap();
    let output = bench(&["--quick", "--case", case, "--json", file]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let of = |record: &Value, name: &str| record[name].as_str().expect("text").to_owned();
    assert!(records.iter().all(|record| of(record, "case") == case));
    records.iter().map(|record| (of(record, "runner"), of(record, "metric"))).collect()
}

const RUNNERS: [&str; 4] = ["uwork", "threads", "tokio", "rayon"];

#[test]
fn each_runner_has_the_times_of_its_process() {
    let found = metrics_of("beside-2");
    let kinds = ["exit", "exec", "stop", "setuid"];
    let metrics = kinds.iter().flat_map(|kind| ["p50", "most"].map(|of| format!("{kind}_{of}_ms")));
    let all = metrics.flat_map(|metric| RUNNERS.map(|runner| (runner.to_owned(), metric.clone())));
    assert_eq!(found, all.collect());
}

#[test]
fn each_runner_runs_items_that_sleep() {
    for case in ["sleep-20us", "sleep-10000us"] {
        let all = RUNNERS.map(|runner| (runner.to_owned(), "all_ran_ms".to_owned()));
        assert_eq!(metrics_of(case), all.into());
    }
}

#[test]
fn an_unknown_case_is_refused_with_those_that_exist() {
    let output = bench(&["--case", "nothing"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("'nothing' does not exist: allowed are timers, beside-2"), "{said}");
}
