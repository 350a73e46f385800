//! `uwork-lab bench`: its output, its records, and its messages for bad input. Sizes are small; no
//! figure is judged.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

const SMALL: [&str; 4] = ["--producers=2", "--items=100", "--samples=2", "--rivals"];

fn bench(name: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    command.arg("bench").arg(name).args(args).output().expect("the command starts")
}

/// A directory of one test, removed on drop.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("the temporary directory is writable"))
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("a UTF-8 path").to_owned()
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(&self.0).expect("the directory exists");
        entries
            .map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8"))
            .collect()
    }
}

fn records(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("the file is there");
    serde_json::from_str::<Vec<Value>>(&text).expect("a JSON array")
}

/// Asserts a refusal: one line on standard error that contains all of `words`, nothing on standard
/// output, exit code 2.
#[track_caller]
fn refused(name: &str, args: &[&str], words: &[&str]) {
    let output = bench(name, args);
    let line = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {line}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert_eq!(line.lines().count(), 1, "{args:?}: {line}");
    for word in words {
        assert!(line.contains(word), "{args:?}: {line}");
    }
}

#[test]
fn counts_out_of_range_are_refused_with_the_range() {
    for flag in ["--producers", "--items", "--samples"] {
        for text in ["0", "-1", "many", "1e3", "99999999999999999999999"] {
            refused("workqueue", &[flag, text], &[flag, text, "from 1 to"]);
            refused("scope", &[flag, text], &[flag, text, "from 1 to"]);
        }
    }
}

#[test]
fn a_load_that_would_not_fit_in_memory_is_refused() {
    let huge = ["--producers", "1024", "--items", "10000000"];
    refused("workqueue", &huge, &["10240000000", "at most 20000000"]);
}

#[test]
fn unknown_names_are_refused_with_those_that_exist() {
    refused(
        "workqueue",
        &["--case", "wiat"],
        &["--case 'wiat'", "wait, batch, flood, join, pingpong"],
    );
    refused("workqueue", &["--case", "wait", "flod"], &["--case 'flod'"]);
    refused(
        "workqueue",
        &["--scope", "socket"],
        &["--scope 'socket'", "cluster, cache_shard, cache, numa"],
    );
    refused(
        "workqueue",
        &["--runner", "ryon"],
        &["--runner 'ryon'", "uwork", "rayon", "kernel-deferred"],
    );
    refused("scope", &["--case", "wait"], &["--case 'wait'", "batch, flood"]);
    refused(
        "timers",
        &["--case", "fire"],
        &["--case 'fire'", "arm, put-off, rearm, cancel, expire"],
    );
}

#[test]
fn an_unwritable_json_file_is_refused_before_anything_is_measured() {
    let scratch = Scratch::new();
    fs::write(scratch.file("plain"), "").expect("writable");
    let nowhere = scratch.file("no-such-directory/figures.json");
    let below_a_file = scratch.file("plain/figures.json");
    let directory = scratch.file("");
    let no_name = scratch.file("new/");
    for path in [&nowhere, &below_a_file, &directory, &no_name] {
        let mut args = SMALL.to_vec();
        args.extend(["--json", path.as_str()]);
        refused("workqueue", &args, &["--json", path]);
    }
    assert_eq!(scratch.names(), BTreeSet::from(["plain".to_owned()]));
}

#[test]
fn records_have_exactly_the_fixed_fields_and_sane_values() {
    let scratch = Scratch::new();
    let path = scratch.file("figures.json");
    fs::write(&path, "an old file").expect("writable");
    let mut args = SMALL.to_vec();
    args.extend(["--clock", "--case", "wait", "batch", "flood", "--json", &path]);
    let output = bench("workqueue", &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(
        scratch.names(),
        BTreeSet::from(["figures.json".to_owned()]),
        "only the file is left"
    );

    let records = records(&path);
    assert!(!records.is_empty());
    let fields = [
        "bench",
        "case",
        "commit",
        "cpu_model",
        "cpus",
        "kernel",
        "max",
        "metric",
        "min",
        "producers",
        "profile",
        "runner",
        "rustc",
        "samples",
        "unit",
        "value",
        "variant",
        "version",
    ];
    let mut seen = BTreeSet::new();
    for record in &records {
        let object = record.as_object().expect("a flat object");
        assert_eq!(
            object.keys().map(String::as_str).collect::<BTreeSet<_>>(),
            BTreeSet::from(fields)
        );
        assert_eq!(record["bench"], "workqueue");
        assert_eq!(record["samples"], 2);
        assert_eq!(record["cpus"], std::thread::available_parallelism().unwrap().get());
        assert_eq!(record["version"], env!("CARGO_PKG_VERSION"));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(record["kernel"], kernel.trim());
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        assert_eq!(record["profile"], profile);
        assert!(record["rustc"].as_str().is_some_and(|text| text.starts_with("rustc ")));
        let number = |field: &str| record[field].as_f64().expect("a number");
        assert!(number("min") <= number("value") && number("value") <= number("max"), "{record}");
        let key = ["case", "runner", "variant", "metric"]
            .map(|f| record[f].as_str().expect("text").to_owned());
        assert!(seen.insert(key), "twice: {record}");
    }
}

#[test]
fn every_runner_has_each_metric_of_its_case() {
    let scratch = Scratch::new();
    let path = scratch.file("figures.json");
    let mut args = SMALL.to_vec();
    args.extend(["--clock", "--case", "batch", "--json", &path]);
    assert!(bench("workqueue", &args).status.success());
    let records = records(&path);
    let runners = [
        "bare",
        "kernel-locked",
        "kernel-deferred",
        "rayon",
        "rayon-fifo",
        "tokio",
        "tokio-blocking",
        "crossbeam",
        "async-executor",
        "threadpool",
    ];
    let plain = ["items_per_s", "cpu_s_per_mitem"];
    let percentiles = ["enqueue_p50_ns", "enqueue_p90_ns", "enqueue_p95_ns", "enqueue_p99_ns"];
    for runner in runners {
        let metrics = |clocked: bool| -> BTreeSet<&str> {
            let of_runner = records.iter().filter(|r| r["runner"] == runner);
            let text = |value: &'_ Value| value.as_str().is_some_and(|v| v.ends_with("+clock"));
            of_runner
                .filter(|r| text(&r["variant"]) == clocked)
                .filter_map(|r| r["metric"].as_str())
                .collect()
        };
        assert_eq!(metrics(false), BTreeSet::from(plain), "{runner}");
        assert_eq!(metrics(true), plain.into_iter().chain(percentiles).collect(), "{runner}");
    }
}

#[test]
fn only_the_runners_and_cases_asked_for_run() {
    let scratch = Scratch::new();
    let path = scratch.file("figures.json");
    let args = [
        "--producers=1",
        "--items=50",
        "--samples=1",
        "--runner",
        "tokio,rayon",
        "--case",
        "flood",
    ];
    let output = bench("workqueue", &[&args[..], &["--json", &path]].concat());
    assert!(output.status.success());
    let seen: BTreeSet<_> =
        records(&path).iter().map(|r| (r["runner"].to_string(), r["case"].to_string())).collect();
    let flood = "\"flood\"".to_owned();
    assert_eq!(
        seen,
        BTreeSet::from([("\"rayon\"".to_owned(), flood.clone()), ("\"tokio\"".to_owned(), flood)])
    );

    let table = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        table.contains("flood  (producers 1, items each 50, ") && table.contains('█'),
        "{table}"
    );
    assert!(table.contains("the fastest rival") && table.contains("1.00x"), "{table}");
    let doubts = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(doubts.contains("warning: 1 sample(s) per runner are too few"), "{doubts}");
}

#[test]
fn ordered_compares_with_one_worker() {
    let scratch = Scratch::new();
    let path = scratch.file("figures.json");
    let mut args = SMALL.to_vec();
    args.extend(["--ordered", "--case", "flood", "--json", &path]);
    assert!(bench("workqueue", &args).status.success());
    let ordered: BTreeSet<String> = records(&path)
        .iter()
        .filter(|r| r["variant"] == "ordered")
        .map(|r| r["runner"].to_string())
        .collect();
    assert!(
        ordered.contains("\"crossbeam\"") && ordered.contains("\"kernel-locked\""),
        "{ordered:?}"
    );
}

#[test]
fn scope_compares_one_pool_with_one_per_cpu() {
    let scratch = Scratch::new();
    let path = scratch.file("figures.json");
    let mut args = SMALL.to_vec();
    args.extend(["--json", &path]);
    assert!(bench("scope", &args).status.success());
    let variants: BTreeSet<String> = records(&path)
        .iter()
        .filter(|r| r["bench"] == "scope" && r["runner"] == "kernel-deferred")
        .map(|r| r["variant"].to_string())
        .collect();
    assert_eq!(variants, BTreeSet::from(["\"cpu\"".to_owned(), "\"system\"".to_owned()]));
}

#[test]
fn timers_have_a_figure_for_each_operation_and_are_never_early() {
    let scratch = Scratch::new();
    let path = scratch.file("figures.json");
    for flag in ["--timers", "--samples"] {
        refused("timers", &[flag, "0"], &[flag, "from 1 to"]);
    }
    let args = ["--quick", "--timers=300", "--samples=2", "--json", &path];
    let output = bench("timers", &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let of = |metric: &str| -> BTreeSet<String> {
        let records = records(&path);
        let those = records.iter().filter(|r| r["metric"] == metric && r["runner"] == "uwork");
        those.map(|r| format!("{} {}", r["case"], r["variant"]).replace('"', "")).collect()
    };
    let mut operations = BTreeSet::new();
    for case in ["touch", "arm", "put-off", "rearm", "cancel"] {
        operations.extend(["in-order", "scattered"].map(|variant| format!("{case} {variant}")));
    }
    assert_eq!(of("ns_per_op"), operations);
    let slacks = BTreeSet::from(["slack-0ms", "slack-10ms"].map(|s| format!("expire {s}")));
    for metric in ["late_p50_us", "late_p99_us", "late_max_us", "early", "wakeups_per_s"] {
        assert_eq!(of(metric), slacks, "{metric}");
    }
    for record in records(&path).iter().filter(|r| r["metric"] == "early") {
        assert_eq!(record["max"], 0.0, "{record}");
    }
}

#[test]
fn golden_names_its_variant_by_whether_sleeps_are_declared() {
    let scratch = Scratch::new();
    let path = scratch.file("figures.json");
    for (flag, variant) in [(None, "declared"), (Some("--undeclared"), "undeclared")] {
        let args: Vec<&str> = ["--samples=1", "--json", &path].into_iter().chain(flag).collect();
        let output = bench("golden", &args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let seen: Vec<_> = records(&path).iter().map(|r| r["variant"].clone()).collect();
        assert_eq!(seen, vec![variant; 8], "two figures of each of four scenarios");
        let table = String::from_utf8(output.stdout).expect("a table");
        let by = if flag.is_some() { ", detected by the tier " } else { "; times in ms" };
        assert!(table.starts_with(&format!("golden  (samples 1; sleeps {variant}{by}")), "{table}");
    }
}

#[test]
fn every_bad_count_is_refused_in_the_same_words() {
    for (command, flag, most) in [
        ("golden", "--samples", 10_000),
        ("idle", "--seconds", 3_600),
        ("queues", "--queues", 1_000_000),
        ("workqueue", "--samples", 1_000),
    ] {
        for bad in ["0", "-1", "many"] {
            let output = bench(command, &[flag, bad]);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let wanted = format!("{flag} '{bad}': a number from 1 to {most} is allowed");
            assert!(output.status.code() == Some(2) && said.contains(&wanted), "{said}");
        }
    }
}

#[test]
fn pingpong_measures_each_number_of_submitters_alone_and_beside_a_busy_process() {
    let scratch = Scratch::new();
    let path = scratch.file("figures.json");
    let args = ["--case=pingpong", "--items=20", "--samples=1", "--scope", "cpu,system"];
    let output = bench("workqueue", &[&args[..], &["--json", &path]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let of = |metric: &str| -> BTreeSet<String> {
        let records = records(&path);
        let those = records.iter().filter(|r| r["metric"] == metric && r["runner"] == "uwork");
        those.map(|r| format!("{} {}", r["case"], r["variant"]).replace('"', "")).collect()
    };
    let mut wanted = BTreeSet::new();
    for submitters in [1, 2, 8] {
        for suffix in ["", "-beside"] {
            let case = format!("pingpong-{submitters}{suffix}");
            wanted.extend(["cpu", "system"].map(|scope| format!("{case} {scope}")));
        }
    }
    for metric in ["items_per_s", "enqueue_p50_ns", "enqueue_p90_ns", "enqueue_p99_ns"] {
        assert_eq!(of(metric), wanted, "{metric}");
    }
    let tables = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(tables.matches("ratio: to uwork cpu (pingpong-").count(), 6, "{tables}");
    assert_eq!(tables.matches("busy processes 1").count(), 3, "{tables}");
}

#[test]
fn pingpong_refuses_what_it_does_not_vary() {
    refused("workqueue", &["--case=pingpong", "--producers=4"], &["--producers", "1, 2 and 8"]);
    refused("workqueue", &["--beside=2"], &["--beside", "--case pingpong"]);
    refused("workqueue", &["--case=pingpong", "--beside=-1"], &["--beside '-1'", "from 0 to 1024"]);
}

#[cfg(target_os = "linux")]
#[test]
fn records_can_go_to_a_device() {
    let mut args = SMALL.to_vec();
    args.extend(["--runner", "rayon", "--case", "flood", "--json", "/dev/null"]);
    assert!(bench("workqueue", &args).status.success());
    assert!(
        !fs::metadata("/dev/null").expect("still there").is_file(),
        "the device was not replaced"
    );
}
