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

fn has_server(name: &str) -> bool {
    let found = Command::new("redis-server").arg("--version").output().is_ok();
    if !found {
        left_out(name, "redis-server is not installed");
    }
    found
}

/// Runs the benchmark, and returns the values of its records by variant and metric. None where no
/// redis-server is installed.
fn run(name: &str, args: &[&str]) -> Option<BTreeMap<(String, String), f64>> {
    if !has_server(name) {
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
fn the_memory_of_each_mix_has_its_peak_and_what_is_beyond_a_payload() {
    let Some(values) = run("the_memory_of_each_mix", &["--quick", "--case", "memory"]) else {
        return;
    };
    let mixes = ["100-of-4-MiB", "2-bytes", "2000-of-256-KiB", "4-of-64-MiB", "results"];
    let metrics = ["beyond_payload_mb", "peak_mb"];
    let expected: Vec<_> =
        mixes.iter().flat_map(|&mix| metrics.map(|metric| (mix, metric))).collect();
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
fn a_torture_loses_no_job_and_buries_only_poisonous_ones() {
    let Some(torture) = torture("a_torture_loses_no_job", &["--quick"]) else { return };
    assert!(torture.is_good, "{}", torture.line);
    assert!(torture.line.starts_with("torture: passed: 20000 jobs, 0 lost"), "{}", torture.line);
    let faults = ["lost_jobs", "innocent_dead_letters", "unburied_poison", "unexplained_runs"];
    for fault in faults.into_iter().chain(["wrong_effects"]) {
        assert_eq!(torture.values[fault], 0.0, "{fault}: {}", torture.line);
    }
    let of_consumers = ["poison_jobs", "kills", "stops", "cuts", "cluster_cuts"];
    for disturbance in of_consumers.into_iter().chain(["restarts", "failovers", "clock_steps"]) {
        assert!(torture.values[disturbance] > 0.0, "{disturbance}");
    }
}

#[test]
fn a_torture_finds_a_dropped_job_doubled_runs_and_effects_and_an_innocent_dead_letter() {
    let args = ["--seconds", "1", "--jobs", "1000", "--seed", "5", "--plant-faults"];
    let Some(torture) = torture("a_torture_finds", &args) else { return };
    assert!(!torture.is_good && torture.line.contains("FAILED"), "{}", torture.line);
    assert!(torture.line.contains("seed 5; see "), "{}", torture.line);
    assert_eq!((torture.values["lost_jobs"], torture.values["innocent_dead_letters"]), (1.0, 1.0));
    assert!(torture.values["unexplained_runs"] >= 1.0, "{}", torture.line);
    // Of the doubled job, of the doubled effect and of the one that was taken away.
    assert_eq!(torture.values["wrong_effects"], 3.0, "{}", torture.line);
    let file = torture.line.split("see ").nth(1).expect("the line names the file");
    let faults = std::fs::read_to_string(file).expect("the file is there");
    let runs = ["lost: job 30 ", "innocent: ", ": job 34 ", "run without a reason", ": job 32 "];
    let effects = ["3 effects in the place of 1: job 32 ", "2 effects in the place of 1: job 40 "];
    for fault in runs.into_iter().chain(effects).chain(["0 effects in the place of 1: job 42 "]) {
        assert!(faults.contains(fault), "{fault}: {faults}");
    }
    let folder = std::path::Path::new(file).parent().expect("a folder");
    std::fs::remove_dir_all(folder).expect("the records are the test's own");
}

struct Torture {
    values: BTreeMap<String, f64>,
    line: String,
    is_good: bool,
}

/// The records of a torture, and its last line. None where no redis-server is installed.
fn torture(name: &str, args: &[&str]) -> Option<Torture> {
    if !has_server(name) {
        return None;
    }
    let folder = Folder::new();
    let file = folder.file("records.json");
    let output = bench(&[&["--case", "torture", "--json", &file], args].concat());
    let records = std::fs::read_to_string(file).unwrap_or_default();
    let records: Vec<Value> = serde_json::from_str(&records)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let value = |record: &Value| {
        let name = record["metric"].as_str().expect("text").to_owned();
        (name, record["value"].as_f64().expect("a number"))
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Some(Torture {
        values: records.iter().map(value).collect(),
        line: said.lines().last().unwrap_or_default().to_owned(),
        is_good: output.status.success(),
    })
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
