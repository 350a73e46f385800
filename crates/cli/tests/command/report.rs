//! `uwork report`: the page, and what it says about files that are none of a benchmark.

use std::fs;
use std::process::{Command, Output};

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
