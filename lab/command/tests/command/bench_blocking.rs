//! `uwork-lab bench blocking`: its output, its records, and its messages for bad input. Sizes are
//! small; no figure is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// The command as an ordinary user starts it, without a tier from the environment.
fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    command.args(["bench", "blocking"]).args(args).env_remove("UWORK_BLOCKING");
    command
}

/// Runs the benchmark, and returns its table, its warnings and its records.
fn run(args: &[&str]) -> (String, String, Vec<Value>) {
    let scratch = tempfile::tempdir().expect("the temporary directory is writable");
    let path = scratch.path().join("figures.json");
    let mut command = command(args);
    let output = command.arg("--quick").arg("--json").arg(&path).output().expect("it starts");
    let Output { status, stdout, stderr } = output;
    let stderr = String::from_utf8(stderr).expect("UTF-8");
    assert!(status.success(), "{args:?}: {stderr}");
    (String::from_utf8(stdout).expect("UTF-8"), stderr, records(&path))
}

fn records(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("the file is there");
    serde_json::from_str::<Vec<Value>>(&text).expect("a JSON array")
}

fn text<'a>(record: &'a Value, field: &str) -> &'a str {
    record[field].as_str().expect("text")
}

/// The metrics of each runner and variant.
fn metrics(records: &[Value]) -> BTreeMap<(&str, &str), BTreeSet<&str>> {
    let mut metrics: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for record in records {
        let who = (text(record, "runner"), text(record, "variant"));
        let fresh = metrics.entry(who).or_default().insert(text(record, "metric"));
        assert!(fresh, "twice: {record}");
    }
    metrics
}

#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let output = command(args).output().expect("the command starts");
    let line = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {line}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert_eq!(line.lines().count(), 1, "{args:?}: {line}");
    for word in words {
        assert!(line.contains(word), "{args:?}: {line}");
    }
}

/// The metrics of a case whose items block among short ones.
fn with_latencies() -> BTreeSet<&'static str> {
    BTreeSet::from([
        "items_per_s",
        "cpu_s_per_mitem",
        "wall_s",
        "threads_peak",
        "latency_p50_us",
        "latency_p90_us",
        "latency_p99_us",
        "latencies",
    ])
}

#[test]
fn every_runner_has_each_metric_of_a_case_that_blocks() {
    let (table, _, records) = run(&["--case", "lock", "--rivals", "--tier", "events,declared"]);
    let figure =
        ["bench", "case", "max", "metric", "min", "runner", "samples", "unit", "value", "variant"];
    let origin = ["commit", "cpu_model", "cpus", "kernel", "profile", "rustc", "version"];
    let fields: BTreeSet<_> = figure.into_iter().chain(origin).collect();
    for record in &records {
        let object = record.as_object().expect("a flat object");
        let keys: BTreeSet<_> = object.keys().map(String::as_str).collect();
        assert_eq!(keys, fields);
        assert_eq!((text(record, "bench"), text(record, "case")), ("blocking", "lock"));
        assert!(record["value"].as_f64().is_some_and(|value| value >= 0.0), "{record}");
    }
    let of_each = with_latencies();
    let runners = [
        ("uwork", "declared"),
        ("uwork", "events"),
        ("tokio-blocking", ""),
        ("tokio", "block-in-place"),
        ("tokio", ""),
        ("rayon", ""),
        ("crossbeam", ""),
        ("async-executor", ""),
    ];
    assert_eq!(metrics(&records), runners.map(|who| (who, of_each.clone())).into());
    assert!(table.contains("lock: one item locks a held mutex for 1 ms"), "{table}");
    assert!(table.contains("us: from the beginning of a block of 20 ms to the start"), "{table}");
    assert!(table.contains("the fastest rival"), "{table}");
}

#[test]
fn sleeps_beside_a_busy_process_are_those_of_uwork_and_the_ratio_is_to_sampling() {
    let args = ["--case", "sleep-busy", "--rivals", "--tier", "standby,sampling"];
    let (table, _, records) = run(&args);
    let tiers = ["standby", "sampling"].map(|tier| ("uwork", tier));
    assert_eq!(metrics(&records), tiers.map(|who| (who, with_latencies())).into());
    assert!(records.iter().all(|record| record["case"] == "sleep-busy"));
    assert!(table.contains("while another process keeps all CPUs busy"), "{table}");
    assert!(table.contains("ratio: to uwork sampling (sleep-busy)"), "{table}");
}

#[test]
fn pools_that_do_not_replace_blocked_items_have_no_burst() {
    let (_, _, records) = run(&["--case", "burst", "--runner", "tokio", "rayon"]);
    let of_each =
        BTreeSet::from(["items_per_s", "cpu_s_per_mitem", "wall_s", "over_ideal", "threads_peak"]);
    assert_eq!(metrics(&records), [(("tokio", "block-in-place"), of_each)].into());
}

#[test]
fn without_blocks_there_is_uwork_alone_and_the_ratio_is_to_the_tier_off() {
    let (table, _, records) = run(&["--case", "flood,busy", "--rivals"]);
    let of = |case: &str| -> Vec<Value> {
        records.iter().filter(|record| record["case"] == case).cloned().collect()
    };
    let tiers = ["declared", "standby", "events", "sampling"].map(|tier| ("uwork", tier));
    let plain = BTreeSet::from(["items_per_s", "cpu_s_per_mitem", "wall_s"]);
    assert_eq!(metrics(&of("flood")), tiers.map(|who| (who, plain.clone())).into());
    let mut busy = plain;
    busy.extend(["workers_peak", "workers_over_target"]);
    assert_eq!(metrics(&of("busy")), tiers.map(|who| (who, busy.clone())).into());
    assert!(of("flood").iter().all(|record| record["samples"] == 5), "a flood has more samples");
    assert!(table.contains("ratio: to uwork declared (flood)"), "{table}");
}

#[test]
fn faults_run_if_the_machine_permits_and_a_warning_explains_otherwise() {
    let (table, doubts, records) = run(&["--case", "fault", "mixed", "--runner", "rayon"]);
    let cases: BTreeSet<_> = records.iter().map(|record| text(record, "case")).collect();
    if doubts.contains("warning: userfaultfd: ") {
        assert_eq!(cases, BTreeSet::from(["mixed"]), "{doubts}");
    } else {
        assert_eq!(cases, BTreeSet::from(["fault", "mixed"]), "{doubts}");
        assert!(table.contains("touches a missing page"), "{table}");
    }
}

#[test]
fn bad_options_are_refused_with_what_is_allowed() {
    for text in ["0", "-1", "many", "1001"] {
        refused(&["--samples", text], &["--samples", text, "from 1 to 1000"]);
    }
    refused(
        &["--case", "slep"],
        &["--case 'slep'", "sleep, sleep-busy, pipe, lock, fault, mixed, burst, flood, busy"],
    );
    refused(
        &["--runner", "ryon"],
        &["--runner 'ryon'", "uwork, tokio-blocking, tokio, rayon, crossbeam, async-executor"],
    );
    refused(&["--tier", "off"], &["--tier 'off'", "declared, standby, events, sampling"]);
    refused(&["--runner", "rayon", "--case", "flood"], &["nothing to run"]);
    refused(&["--quick", "--case", "flood", "--json", "/"], &["--json /"]);
}

#[test]
fn a_failing_child_ends_the_benchmark_with_its_message() {
    let program = env!("CARGO_BIN_EXE_uwork-lab");
    // Too few descriptors for the pipes.
    let script = format!("ulimit -n 40; exec {program} bench blocking --quick --case pipe");
    let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
    let line = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(line.starts_with("uwork-lab: uwork declared (pipe): exit status: 2: "), "{line}");
    assert!(line.contains("the obstacles for blocking items cannot be created"), "{line}");
}

#[test]
fn an_invalid_order_is_refused() {
    refused(&["--order", "nonsense"], &["--order 'nonsense'", "internal use"]);
    let order = |case: &str, runner: &str| {
        format!(
            "{{\"case\":\"{case}\",\"runner\":\"{runner}\",\"variant\":\"\",\"quick\":true,\
             \"unprivileged\":false}}"
        )
    };
    refused(&["--order", &order("nap", "rayon")], &["case 'nap' cannot run here"]);
    refused(&["--order", &order("sleep", "ryon")], &["runner 'ryon' '' does not exist"]);
}

#[test]
fn children_drop_privileges_only_as_root() {
    let args = ["--case", "busy", "--runner", "uwork", "--unprivileged"];
    let status = fs::read_to_string("/proc/self/status").expect("readable");
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("a line Uid");
    if uids.split_whitespace().nth(1) == Some("0") {
        let (table, _, records) = run(&args);
        assert!(table.contains("as nobody") && !records.is_empty(), "{table}");
    } else {
        refused(&args, &["--unprivileged", "not root"]);
    }
}
