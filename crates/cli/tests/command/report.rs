//! `uwork report`: the page, and what it says about files that are none of a benchmark.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::left_out::left_out;

const RECORD: &str = r#"[{"bench":"workqueue","case":"flood","runner":"uwork","variant":"default",
    "metric":"items_per_s","value":5e7,"unit":"items/s","samples":5,"min":4e7,"max":6e7,"cpus":2,
    "cpu_model":"A & B","kernel":"6.1","version":"0.1.0","commit":null,"profile":"release",
    "rustc":null}]"#;

fn report(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
    command.arg("report").args(args).output().expect("the command starts")
}

#[test]
fn a_page_has_a_chart_for_each_case() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (figures, page) = (path("workqueue.json"), path("page.html"));
    fs::write(&figures, RECORD).unwrap();
    let output = report(&[&figures, "-o", &page]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{page}\n"));
    let html = fs::read_to_string(&page).unwrap();
    for part in ["<figure class=\"chart", "A &amp; B", "<dt>uwork default</dt>", "50.0 M"] {
        assert!(html.contains(part), "{part}: {html}");
    }
}

/// A record as `uwork-lab bench NAME --json FILE` writes it.
fn record(bench: &str, case: &str, metric: &str, producers: Option<u64>) -> Value {
    json!({"bench": bench, "case": case, "runner": "uwork", "variant": "default", "metric": metric,
        "value": 5.0, "unit": "u", "samples": 5, "min": 4.0, "max": 6.0, "producers": producers,
        "cpus": 2, "cpu_model": "A", "kernel": "6.1", "version": "0.1.0", "commit": null,
        "profile": "release", "rustc": null})
}

/// The charts of each benchmark by the records alone: bars for each case, a curve for each kind of
/// percentiles, and one for a number of producers that varies.
fn charts_of(records: &[Value]) -> BTreeMap<String, usize> {
    let text = |record: &Value, field: &str| record[field].as_str().unwrap().to_owned();
    let mut percentiles: BTreeMap<(String, String, String), BTreeSet<String>> = BTreeMap::new();
    let mut producers: BTreeMap<(String, String), BTreeSet<u64>> = BTreeMap::new();
    for record in records {
        let key = (text(record, "bench"), text(record, "case"));
        let of_case = producers.entry(key.clone()).or_default();
        of_case.extend(record["producers"].as_u64());
        if let Some((kind, rest)) = text(record, "metric").split_once("_p") {
            let percent = rest.split('_').next().unwrap().to_owned();
            percentiles.entry((key.0, key.1, kind.to_owned())).or_default().insert(percent);
        }
    }
    let mut charts = BTreeMap::new();
    for ((bench, _), counts) in producers {
        *charts.entry(bench).or_default() += 1 + usize::from(counts.len() > 1);
    }
    for ((bench, ..), percents) in percentiles {
        *charts.entry(bench).or_default() += usize::from(percents.len() > 1);
    }
    charts
}

/// Records of benchmarks whose sections have charts of several kinds.
fn various() -> [Value; 6] {
    [
        record("workqueue", "wait", "items_per_s", None),
        record("workqueue", "flood", "items_per_s", Some(1)),
        record("workqueue", "flood", "items_per_s", Some(4)),
        record("open", "poisson", "latency_p50_us", None),
        record("open", "poisson", "latency_p99_us", None),
        record("queues", "create", "ns_per_op", None),
    ]
}

#[test]
fn each_section_has_the_charts_that_its_records_call_for() {
    let records = various();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (figures, page) = (path("all.json"), path("page.html"));
    fs::write(&figures, Value::from(records.to_vec()).to_string()).unwrap();
    assert!(report(&[&figures, "-o", &page]).status.success());
    let html = fs::read_to_string(&page).unwrap();
    let expected = charts_of(&records);
    assert_eq!(expected.values().sum::<usize>(), 6);
    for (bench, charts) in expected {
        let section = html.split("<section").find(|part| part.contains(&format!("id=\"{bench}\"")));
        let shown = section.unwrap_or_default().matches("<figure class=\"chart").count();
        assert_eq!(shown, charts, "{bench}");
    }
}

/// `ci/report.sh` counts the charts of the page that a browser has laid out against the records, and
/// fails on an error of the browser's console.
#[test]
fn the_page_opens_in_a_browser() {
    let needed = ["chromium", "jq"];
    let missing = needed.iter().find(|tool| Command::new(tool).arg("--version").output().is_err());
    if let Some(tool) = missing {
        return left_out("the_page_opens_in_a_browser", &format!("{tool} is not installed"));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (figures, page) = (path("all.json"), path("page.html"));
    fs::write(&figures, Value::from(various().to_vec()).to_string()).unwrap();
    assert!(report(&[&figures, "-o", &page]).status.success());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/report.sh");
    let checked = |page: &str| Command::new(script).args([page, &figures]).output().unwrap();
    let output = checked(&page);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("6 charts of 3 benchmarks"));
    // A chart that is missing is seen.
    let html = fs::read_to_string(&page).unwrap();
    let poorer = path("poorer.html");
    fs::write(&poorer, html.replacen("<figure class=\"chart", "<figure class=\"lost", 1)).unwrap();
    let output = checked(&poorer);
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("charts of"), "{output:?}");
}

#[test]
fn a_file_without_figures_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.json").to_string_lossy().into_owned();
    for (text, reason) in [("{}", "no array of records"), ("[1]", "element 0 is no record")] {
        fs::write(&file, text).unwrap();
        let output = report(&[&file]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with(&format!("uwork: {file}: {reason}")), "{said}");
        assert!(said.contains("uwork-lab bench NAME --json"), "{said}");
    }
}
