//! `uwork-lab bench open`: its output, its records, and its messages for bad input. Runs are short;
//! no figure is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use serde_json::Value;

/// The command as an ordinary user starts it, without a tier from the environment.
fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    command.args(["bench", "open"]).args(args).env_remove("UWORK_BLOCKING");
    command.output().expect("the command starts")
}

/// Runs the benchmark, and returns its tables and its records.
fn run(args: &[&str]) -> (String, Vec<Value>) {
    let folder = tempfile::tempdir().expect("the temporary directory is writable");
    let file = folder.path().join("records.json");
    let file = file.to_str().expect("UTF-8");
    let output = bench(&[args, &["--quick", "--json", file]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records = std::fs::read_to_string(file).expect("the file is there");
    let records = serde_json::from_str(&records).expect("a JSON array");
    (String::from_utf8(output.stdout).expect("UTF-8"), records)
}

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().expect("text")
}

/// The metrics of each runner and variant, with their values.
fn metrics(records: &[Value]) -> BTreeMap<(&str, &str), BTreeMap<&str, f64>> {
    let mut metrics: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for record in records {
        assert_eq!(text(record, "bench"), "open");
        let runner = (text(record, "runner"), text(record, "variant"));
        let value = record["value"].as_f64().expect("a number");
        let earlier = metrics.entry(runner).or_default().insert(text(record, "metric"), value);
        assert_eq!(earlier, None, "twice: {record}");
    }
    metrics
}

const SOJOURN: [&str; 4] =
    ["sojourn_p50_us", "sojourn_p90_us", "sojourn_p99_us", "sojourn_p999_us"];
const CRITICAL: [&str; 4] =
    ["critical_p50_us", "critical_p90_us", "critical_p99_us", "critical_p999_us"];
const REST: [&str; 6] =
    ["cpu_s", "cpu_percent", "over_s", "generators_s", "submit_late_p99_us", "submit_late_max_us"];

#[test]
fn every_runner_has_each_metric_and_the_limit_its_percentiles() {
    let (table, records) = run(&["--case", "uniform-60", "--rivals"]);
    let metrics = metrics(&records);
    let own = ["default", "system", "numa", "cache", "cpu", "spawn", "execute"];
    let own = own.map(|variant| ("uwork", variant));
    let rivals = ["tokio", "tokio-blocking", "rayon", "crossbeam", "async-executor"];
    let rivals = rivals.into_iter().chain(["limit", "limit+gen"]);
    let runners: BTreeSet<_> = own.into_iter().chain(rivals.map(|rival| (rival, ""))).collect();
    assert_eq!(metrics.keys().copied().collect::<BTreeSet<_>>(), runners);
    for ((runner, variant), metrics) in &metrics {
        let rest: &[&str] = if runner.starts_with("limit") { &[] } else { &REST };
        let wanted: BTreeSet<&str> = SOJOURN.into_iter().chain(rest.iter().copied()).collect();
        assert_eq!(metrics.keys().copied().collect::<BTreeSet<_>>(), wanted, "{runner} {variant}");
        let sojourns = SOJOURN.map(|metric| metrics[metric]);
        assert!(sojourns.is_sorted(), "{runner} {variant}: {sojourns:?}");
        // No item ends before its own 100 us of computing; histograms have three digits.
        assert!(sojourns[0] >= 99.0, "{runner} {variant}: {sojourns:?}");
    }
    assert!(table.contains("uniform-60: items compute for 100 us, "), "{table}");
    assert!(table.contains("limit: computed"), "{table}");
    assert!(table.contains("limit+gen: the same"), "{table}");
    let p99 = |runner| metrics[&(runner, "")]["sojourn_p99_us"];
    // Equal where no item of the sample waits for a generator.
    assert!(p99("limit") <= p99("limit+gen"));
}

#[test]
fn the_limit_is_the_same_in_every_call() {
    let limit = |generators| -> Vec<String> {
        let args = ["--case", "bimodal-80,sleep-40", "--variant", "default", "--generators"];
        let (_, records) = run(&[&args[..], &[generators]].concat());
        let limits = records.iter().filter(|record| record["runner"] == "limit");
        limits.map(|record| format!("{} {}", record["metric"], record["value"])).collect()
    };
    assert_eq!(limit("1"), limit("cpus"));
}

#[test]
fn the_latency_critical_queue_has_figures_of_its_own() {
    let (_, records) = run(&["--case", "mixed", "--runner", "uwork,crossbeam"]);
    for ((runner, variant), metrics) in metrics(&records) {
        let critical = CRITICAL.map(|metric| metrics[metric]);
        assert!(critical.is_sorted(), "{runner} {variant}: {critical:?}");
    }
}

#[test]
fn bad_input_is_refused_in_a_line_that_says_what_is_allowed() {
    for (args, words) in [
        (["--case", "bimodal"], "bimodal-30, bimodal-60, bimodal-80, heavy-60, uniform-60, sleep"),
        (["--runner", "bare"], "uwork, tokio, tokio-blocking, rayon, crossbeam, async-executor"),
        (["--variant", "smt"], "default, system, numa, cache, cpu, spawn, execute"),
        (["--generators", "2"], "--generators '2' does not exist: allowed are 1, cpus"),
        (["--seconds", "0"], "from 1 to 3600"),
        (["--samples", "0"], "from 1 to 1000"),
        (["--json", "/"], "--json /"),
        (["--order", "{}"], "this option is for internal use"),
    ] {
        let output = bench(&args);
        let line = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn more_arrivals_than_memory_should_hold_are_refused() {
    let output = bench(&["--case", "bimodal-80", "--seconds", "3600"]);
    let line = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(line.contains("--seconds 3600") && line.contains("at most 20000000"), "{line}");
}
