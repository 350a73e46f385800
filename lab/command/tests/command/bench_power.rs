//! `uwork-lab bench power`: its output, its records, and its messages for bad input. Short runs; no
//! figure of a time is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    command.args(["bench", "power"]).args(args).output().expect("the command starts")
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

/// The metrics of each case, runner and variant.
fn metrics(records: &[Value]) -> BTreeMap<[&str; 3], BTreeMap<&str, f64>> {
    let mut metrics: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for record in records {
        assert_eq!(text(record, "bench"), "power");
        let place = ["case", "runner", "variant"].map(|field| text(record, field));
        let value = record["value"].as_f64().filter(|value| *value >= 0.0);
        let value = value.unwrap_or_else(|| panic!("no figure: {record}"));
        let known = metrics.entry(place).or_default().insert(text(record, "metric"), value);
        assert!(known.is_none(), "twice: {record}");
    }
    metrics
}

/// The figures that every machine gives.
const ALWAYS: [&str; 3] = ["wakeups_per_s", "cpu_s", "over_s"];
/// Those of cases with tasks.
const LATENESS: [&str; 5] =
    ["late_p50_us", "late_p99_us", "late_max_us", "beyond_slack_p99_us", "early"];

/// How many targets of this kind have a verdict.
fn verdicts(tables: &str, target: &str) -> usize {
    let start = format!("target {target}: ");
    tables.lines().filter(|line| line.starts_with(&start)).count()
}

#[test]
fn each_runner_has_its_figures_and_is_never_early() {
    let (tables, records) = run(&["--quick", "--case", "periodic", "--runner", "uwork,timerfd"]);
    let metrics = metrics(&records);
    let uwork = |variant| ["periodic", "uwork", variant];
    let wanted = [uwork("performance"), uwork("efficient"), ["periodic", "timerfd", ""]];
    assert_eq!(metrics.keys().copied().collect::<BTreeSet<_>>(), BTreeSet::from(wanted));
    for (place, figures) in &metrics {
        for metric in ALWAYS.iter().chain(&LATENESS) {
            assert!(figures.contains_key(metric), "{place:?}: {metric}");
        }
        assert_eq!(figures["early"], 0.0, "{place:?}");
        assert!(figures["cpu_s"] > figures["over_s"], "{place:?}: 200 tasks have worked");
        // Either the machine gives the figure, or a line names it.
        for (metric, name) in [("idle_entries_per_s_cpu", "idle entries"), ("joules", "joules")] {
            let left_out = tables.contains(&format!("left out: {name}"));
            assert_eq!(figures.contains_key(metric), !left_out, "{place:?}: {metric}\n{tables}");
        }
    }
    for target in ["wakes/s", "over s", "early", "beyond slack p99"] {
        assert_eq!(verdicts(&tables, target), 1, "{target}: {tables}");
    }
}

#[test]
fn an_idle_case_has_no_lateness() {
    let (tables, records) = run(&["--quick", "--case", "idle", "--runner", "uwork"]);
    let metrics = metrics(&records);
    assert_eq!(metrics.len(), 2);
    for (place, figures) in &metrics {
        assert!(ALWAYS.iter().all(|metric| figures.contains_key(metric)), "{place:?}");
        assert!(LATENESS.iter().all(|metric| !figures.contains_key(metric)), "{place:?}");
    }
    assert_eq!(verdicts(&tables, "wakes/s"), 1, "{tables}");
}

#[test]
fn bad_input_is_refused_in_one_line() {
    for (args, words) in [
        (["--case", "video"], "periodic, audio, idle"),
        (["--runner", "libuv"], "uwork, tokio, async-io, timerfd, threads"),
        (["--seconds", "0"], "1 to 3600"),
        (["--samples", "-1"], "-1"),
    ] {
        let output = bench(&args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(words) && said.trim_end().lines().count() == 1, "{args:?}: {said}");
    }
}
