//! `uwork-lab bench taskwork`: its records, and its messages for bad input. Sizes are small; no figure
//! is judged.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork-lab"));
    command.args(["bench", "taskwork"]).args(args).output().expect("the command starts")
}

#[test]
fn every_runner_of_every_case_has_its_records() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.json");
    let file = file.to_str().unwrap();
    let output = bench(&["--quick", "--threads=4", "--json", file]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let records: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let text = |record: &Value, field: &str| record[field].as_str().unwrap().to_owned();
    let of = |metric: &str| -> BTreeSet<String> {
        let those = records.iter().filter(|record| record["metric"] == metric);
        those.map(|r| ["case", "runner", "variant"].map(|field| text(r, field)).join(" ")).collect()
    };
    let mut posters: BTreeSet<String> = ["computing", "futex", "epoll", "ring", "read"]
        .iter()
        .flat_map(|case| ["light", "signal"].map(|variant| format!("{case} uwork {variant}")))
        .collect();
    posters
        .extend(["futex bare ", "ring bare ", "futex tokio ", "epoll eventfd "].map(str::to_owned));
    assert_eq!(of("same_cpu_p50_us"), posters);
    let mut all = posters;
    all.extend(["combiner", "mutex"].map(|variant| format!("combiner uwork {variant}")));
    for metric in ["items_per_s", "cpu_s_per_mitem", "latency_p50_us", "latency_p99_us"] {
        assert_eq!(of(metric), all, "{metric}");
    }
    for record in &records {
        assert_eq!(record["bench"], "taskwork");
        assert!(record["value"].as_f64().unwrap() >= 0.0, "{record}");
    }
}

#[test]
fn other_ways_to_post_can_be_left_out() {
    for (option, has_tokio) in [("--no-rivals", false), ("--rivals", true)] {
        let output = bench(&["--quick", "--threads=3", "--case=futex", option]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout).contains("tokio"), has_tokio);
    }
}

#[test]
fn bad_input_is_refused_in_a_line_that_says_what_is_allowed() {
    for (args, words) in [
        (["--threads", "2"], "from 3 to 1024"),
        (["--samples", "0"], "from 1 to 1000"),
        (["--case", "sleep"], "computing, futex, epoll, ring, read, combiner"),
    ] {
        let output = bench(&args);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.contains(words), "{line}");
    }
}
