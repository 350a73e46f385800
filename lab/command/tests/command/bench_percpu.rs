//! `uwork-lab bench percpu` and `uwork-lab bench isolation`: their records, and their messages for bad
//! input. Sizes are small; no figure is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use serde_json::Value;

/// The command as an ordinary user starts it, without a mode from the environment.
fn command(bench: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    command.args(["bench", bench]).args(args).env_remove("UWORK_PWLOCKS");
    command
}

/// The metrics of each case, runner and variant. Asserts that each occurs once.
fn measured(bench: &str, args: &[&str]) -> BTreeMap<[String; 3], BTreeMap<String, f64>> {
    let scratch = tempfile::tempdir().expect("the temporary directory is writable");
    let path = scratch.path().join("figures.json");
    let mut command = command(bench, args);
    let output = command.arg("--quick").arg("--json").arg(&path).output().expect("it starts");
    let Output { status, stdout, stderr } = output;
    assert!(status.success(), "{args:?}: {}", String::from_utf8_lossy(&stderr));
    assert!(!stdout.is_empty());
    let text = std::fs::read_to_string(&path).expect("the file is there");
    let mut all: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for record in serde_json::from_str::<Vec<Value>>(&text).expect("a JSON array") {
        let field = |name: &str| record[name].as_str().expect("text").to_owned();
        assert_eq!(field("bench"), bench);
        let value = record["value"].as_f64().expect("a number");
        assert!(value >= 0.0, "{record}");
        let who = ["case", "runner", "variant"].map(field);
        let twice = all.entry(who).or_default().insert(field("metric"), value);
        assert!(twice.is_none(), "twice: {record}");
    }
    all
}

#[track_caller]
fn refused(bench: &str, args: &[&str], words: &[&str]) {
    let output = command(bench, args).output().expect("the command starts");
    let line = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(2), "{args:?}: {line}");
    assert!(output.stdout.is_empty(), "{args:?}");
    for word in words {
        assert!(line.contains(word), "{args:?}: {line}");
    }
}

#[test]
fn every_runner_of_a_case_has_its_cycles() {
    let chosen = "pair,threads4,lock,count,count4,batch,batch4";
    let figures = measured("percpu", &["--case", chosen, "--samples", "1"]);
    let modes = ["mode0", "mode1", "mode2", "mode0+c"].map(|mode| ("uwork", mode));
    let bare = [("bare", ""), ("bare", "locked")];
    let allocators = ["glibc", "mimalloc", "jemalloc"].map(|name| (name, ""));
    let thread_local = [("thread-local", "")];
    let collectors = ["mutex", "segqueue", "channel"].map(|name| (name, ""));
    let atomic = [("atomic", "")];
    let cases = [
        ("pair", [&modes[..], &bare, &thread_local, &allocators].concat()),
        ("threads4", [&modes[..], &allocators].concat()),
        ("lock", [&modes[..], &bare].concat()),
        ("count", [&modes[..], &bare[..1], &thread_local, &atomic].concat()),
        ("count4", [&modes[..], &thread_local, &atomic].concat()),
        ("batch", [&modes[..], &bare[..1], &thread_local, &collectors].concat()),
        ("batch4", [&modes[..], &thread_local, &collectors].concat()),
    ];
    let wanted: BTreeSet<_> = cases
        .iter()
        .flat_map(|(case, who)| who.iter().map(|(runner, variant)| [*case, *runner, *variant]))
        .map(|names| names.map(str::to_owned))
        .collect();
    assert_eq!(figures.keys().cloned().collect::<BTreeSet<_>>(), wanted);
    for (who, metrics) in &figures {
        for metric in ["items_per_s", "cycles_per_op", "ns_per_op"] {
            assert!(metrics.get(metric).is_some_and(|&value| value > 0.0), "{who:?}: {metric}");
        }
    }
}

#[test]
fn isolation_reports_the_disturbances_of_the_thread_and_stuck_drains() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        refused("isolation", &["--seconds", "1"], &["two CPUs"]);
        return;
    }
    for case in ["steady", "cache"] {
        let args = ["--case", case, "--mode", "mode1", "--seconds", "1"];
        let figures = measured("isolation", &args);
        let (who, metrics) = figures.first_key_value().expect("one runner");
        let wanted = [case, "uwork", "mode1"];
        assert_eq!((figures.len(), who.each_ref().map(String::as_str)), (1, wanted));
        has_all_isolation_metrics(metrics);
    }
}

fn has_all_isolation_metrics(metrics: &BTreeMap<String, f64>) {
    // Missing if the system does not let this program record a CPU's context switches.
    let optional = "switches_caused";
    let names: BTreeSet<&str> =
        metrics.keys().map(String::as_str).filter(|&name| name != optional).collect();
    let caused = metrics.get(optional).copied().unwrap_or_default();
    assert!(caused <= metrics["switches"]);
    let wanted = [
        "items_per_s",
        "gap_max_us",
        "gaps_over_50us",
        "switches",
        "switches_voluntary",
        "switches_involuntary",
        "drain_p50_us",
        "drain_p99_us",
        "drain_max_us",
        "drains",
        "drains_stuck",
        "real_time",
    ];
    assert_eq!(names, BTreeSet::from(wanted));
    assert!(metrics["items_per_s"] > 0.0 && metrics["drains"] > 0.0);
}

#[test]
fn without_real_time_permission_the_benchmark_reports_the_consequences() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return;
    }
    // SAFETY: no preconditions.
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        refused("isolation", &["--unprivileged"], &["not root"]);
        return;
    }
    let args = ["--case", "once", "--mode", "mode0", "--seconds", "1", "--unprivileged"];
    let mut command = command("isolation", &args);
    let output = command.env("UWORK_BLOCKING", "nonsense").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for words in ["SCHED_FIFO is refused", "runs at nice", "mode 0 can reach it"] {
        assert!(said.contains(words), "{said}");
    }
    // The child's message is prefixed with one name only.
    assert!(said.contains("nonsense") && !said.contains("said: uwork:"), "{said}");
    let table = String::from_utf8_lossy(&output.stdout);
    for line in ["\nmode0: ", "\nstuck: ", "\nFIFO: 1"] {
        assert!(table.contains(line), "{table}");
    }
    assert!(!table.contains("\nmode1: "), "it was not requested: {table}");
    let titles = ["gap max us", "gaps > 50 us", "voluntary", "involuntary", "p50", "stuck", "FIFO"];
    assert!(titles.iter().all(|title| table.contains(title)), "{table}");
}

#[test]
fn bad_input_is_refused_with_what_is_allowed() {
    refused("percpu", &["--case", "pears"], &["'pears'", "lock, alloc, write, recycled", "batch4"]);
    refused("percpu", &["--runner", "tcmalloc"], &["'tcmalloc'", "mimalloc"]);
    refused("percpu", &["--samples", "0"], &["1 to 1000"]);
    refused("percpu", &["--order", "{"], &["internal use"]);
    refused("isolation", &["--mode", "3"], &["'3'", "undisturbed, mode0, mode1, mode2"]);
    refused("isolation", &["--seconds", "0"], &["1 to 3600"]);
    refused("isolation", &["--case", "twice"], &["'twice'", "once, steady, cache"]);
}
