//! `uwork-lab bench bridge`: its records, and its messages for bad input. Runs are short; no figure is
//! judged.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use serde_json::Value;

use crate::left_out::left_out;
use crate::owned::{Folder, output};

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    output(command.args(["bench", "bridge"]).args(args))
}

/// Runs the benchmark, and returns the values of its records by variant and metric. None where no
/// redis-server is installed.
fn run(name: &str, args: &[&str]) -> Option<BTreeMap<(String, String), f64>> {
    if Command::new("redis-server").arg("--version").output().is_err() {
        left_out(name, "redis-server is not installed");
        return None;
    }
    let folder = Folder::new();
    let file = folder.file("records.json");
    let output = bench(&[args, &["--json", &file]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records = std::fs::read_to_string(file).expect("the file is there");
    let records: Vec<Value> = serde_json::from_str(&records).expect("a JSON array");
    let values = records.iter().map(|record| {
        assert_eq!((&record["bench"], &record["runner"]), (&"bridge".into(), &"uwork".into()));
        let text = |field: &str| record[field].as_str().expect("text").to_owned();
        ((text("variant"), text("metric")), record["value"].as_f64().expect("a number"))
    });
    Some(values.collect())
}

fn names(values: &BTreeMap<(String, String), f64>) -> Vec<(&str, &str)> {
    values.keys().map(|(variant, metric)| (variant.as_str(), metric.as_str())).collect()
}

#[test]
fn jobs_that_do_nothing_have_a_rate_and_cpu_times() {
    let args = ["--quick", "--case", "noop", "--runner", "uwork"];
    let Some(values) = run("jobs_that_do_nothing", &args) else { return };
    let metrics = ["cpu_s_per_mjob", "jobs_per_s", "server_cpu_s_per_mjob"];
    assert_eq!(names(&values), metrics.map(|metric| ("", metric)));
}

#[test]
fn a_backlog_has_the_peak_of_each_size() {
    let args = ["--quick", "--case", "backlog", "--jobs", "10000"];
    let Some(values) = run("a_backlog_has_the_peak", &args) else { return };
    let sizes = ["100", "1000", "10000"];
    let expected: Vec<_> =
        sizes.iter().flat_map(|&size| [(size, "done_jobs"), (size, "peak_kib")]).collect();
    assert_eq!(names(&values), expected);
}

#[test]
fn a_takeover_is_timed_beside_an_idle_consumer_and_beside_a_full_one() {
    let Some(values) = run("a_takeover_is_timed", &["--quick", "--case", "takeover"]) else {
        return;
    };
    assert_eq!(names(&values), [("backlog", "takeover_s"), ("idle", "takeover_s")]);
}

#[test]
fn a_failover_is_timed_after_a_kill_and_after_a_stop() {
    let Some(values) = run("a_failover_is_timed", &["--quick", "--case", "failover"]) else {
        return;
    };
    let metrics = ["beyond_failover_s", "failover_s", "job_after_s"];
    let expected: Vec<_> =
        ["killed", "stopped"].iter().flat_map(|&v| metrics.map(|metric| (v, metric))).collect();
    assert_eq!(names(&values), expected);
}

#[test]
fn a_torture_loses_no_job() {
    let args = ["--case", "torture", "--seconds", "2", "--jobs", "1000"];
    let Some(values) = run("a_torture_loses_no_job", &args) else { return };
    let value = |metric: &str| values[&(String::new(), metric.to_owned())];
    assert_eq!((value("lost_jobs"), value("dead_letters")), (0.0, 0.0));
    assert!(value("kills") + value("cuts") > 0.0);
}

#[test]
fn bad_options_are_refused_with_the_allowed_ones() {
    for (args, words) in [
        (&["--case", "nap"][..], "allowed are noop, compute, sleep"),
        (&["--runner", "sidekiq"], "allowed are uwork, celery, rq, bullmq, asynq, sync, async"),
        (&["--runner", "sync"], "--case noop"),
        (&["--case", "torture", "--jobs", "1"], "from 1000 to"),
    ] {
        let output = bench(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{args:?}: {said}");
    }
}
