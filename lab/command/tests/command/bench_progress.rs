//! `uwork-lab bench progress`: its output, its records, and its messages for bad input. Few samples; no
//! figure is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use serde_json::Value;

/// The command as an ordinary user starts it, without a tier from the environment.
fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    command.args(["bench", "progress"]).args(args).env_remove("UWORK_BLOCKING");
    command.output().expect("the command starts")
}

/// Runs the benchmark, and returns its tables and its records.
fn run(args: &[&str]) -> (String, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.json");
    let file = file.to_str().unwrap();
    let output = bench(&[args, &["--json", file]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    (String::from_utf8(output.stdout).unwrap(), records)
}

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().expect("text")
}

/// The metrics of each case and variant.
fn metrics(records: &[Value]) -> BTreeMap<(&str, &str), BTreeSet<&str>> {
    let mut metrics: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for record in records {
        let place = (text(record, "case"), text(record, "variant"));
        let fresh = metrics.entry(place).or_default().insert(text(record, "metric"));
        assert!(fresh, "twice: {record}");
    }
    metrics
}

fn all_metrics() -> BTreeSet<&'static str> {
    BTreeSet::from(["late_p50_us", "late_p99_us", "late_max_us", "samples", "rescues"])
}

#[test]
fn each_variant_of_each_case_has_its_records_and_each_target_a_verdict() {
    let (tables, records) = run(&["--cpus", "1", "--tier", "events,declared", "--samples", "2"]);
    let mut wanted = BTreeMap::new();
    for tier in ["declared", "events"] {
        let [one, spare] = ["", "+spare"].map(|crew| format!("{tier}+1cpu{crew}"));
        for case in ["timer-sleep", "timer-compute"] {
            wanted.insert((case, spare.clone()), all_metrics());
            wanted.insert((case, one.clone()), all_metrics());
        }
        wanted.insert(("ready-after-wait", one), all_metrics());
    }
    let wanted: BTreeMap<(&str, &str), _> = wanted
        .iter()
        .map(|((case, variant), metrics)| ((*case, &**variant), metrics.clone()))
        .collect();
    assert_eq!(metrics(&records), wanted);
    for record in &records {
        assert_eq!((text(record, "bench"), text(record, "runner")), ("progress", "uwork"));
        assert!(record["value"].as_f64().is_some_and(|value| value >= 0.0), "{record}");
        assert!(record["metric"] != "samples" || record["value"] == 2.0, "{record}");
    }
    let verdicts = |target: &str| {
        let start = format!("target {target}: ");
        tables.lines().filter(|line| line.starts_with(&start)).count()
    };
    assert_eq!(verdicts("late by at most 5 ms"), 1, "{tables}");
    assert_eq!(verdicts("late by at most 15 ms"), 2, "{tables}");
    assert_eq!(verdicts("no rescues"), 3, "{tables}");
}

#[test]
fn two_cpus_are_measured_if_the_process_may_use_them() {
    let args = ["--case", "ready-after-wait", "--tier", "declared", "--samples", "1"];
    let cpus = uwork::topology::Machine::read().unwrap().allowed.len();
    let (_, records) = run(&args);
    let variants: BTreeSet<_> = records.iter().map(|record| text(record, "variant")).collect();
    if cpus == 1 {
        assert_eq!(variants, BTreeSet::from(["declared+1cpu"]));
    } else {
        assert_eq!(variants, BTreeSet::from(["declared+1cpu", "declared+2cpu"]));
    }
}

#[test]
fn bad_input_is_refused_in_a_line_that_says_what_is_allowed() {
    for (args, words) in [
        (["--samples", "0"], "from 1 to 100000"),
        (["--case", "sleep"], "timer-sleep, timer-compute, ready-after-wait"),
        (["--tier", "off"], "declared, standby, events, sampling"),
        (["--cpus", "3"], "--cpus '3' does not exist: allowed are 1, 2"),
        (["--json", "/"], "--json /"),
        (["--order", "{}"], "this option is for internal use"),
    ] {
        let output = bench(&args);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.contains(words), "{line}");
    }
}
