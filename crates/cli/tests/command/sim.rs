//! `uwork sim`: its output, its trace, and its messages for bad input.

use std::fs::{self, File};
use std::io::Read;
use std::process::{Command, Output, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

const SCRIPT: &str = "machine core:2\nqueue q percpu\nitem a q: burn 5us; sleep 1ms; burn 5us\n\
    thread: queue a; flush a\n";

fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uwork")).arg("sim").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn run_prints_the_machine_and_the_items_and_writes_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let (script, trace) = (dir.path().join("script"), dir.path().join("trace.json"));
    fs::write(&script, SCRIPT).unwrap();
    let script = script.to_str().unwrap();
    let run = |more: &[&str]| sim(&[&["run", script], more].concat());
    let output = run(&["--machine", "biglittle", "--trace", trace.to_str().unwrap()]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    assert!(shown.contains("simulated: ") && shown.contains("(8 CPUs), seed 0"), "{shown}");
    assert!(shown.contains("1010.000") && shown.contains("violations: none"), "{shown}");
    let json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&trace).unwrap()).unwrap();
    assert_eq!(json["otherData"]["simulated"], true);
    assert!(json["traceEvents"].as_array().unwrap().len() > 5);
    // The same seed gives the same bytes.
    let first = run(&["--seed", "3", "--verbose"]).stdout;
    assert_eq!(first, run(&["--seed", "3", "--verbose"]).stdout);
}

#[test]
fn bad_input_is_refused_with_the_line_or_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script");
    fs::write(&path, "queue q percpu\nitem a q: burn\n").unwrap();
    let output = sim(&["run", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("script:2: step 'burn'"), "{}", text(&output.stderr));
    fs::write(&path, SCRIPT).unwrap();
    let output = sim(&["run", path.to_str().unwrap(), "--machine", "core:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("core:0"), "{}", text(&output.stderr));
}

#[test]
fn a_history_that_does_not_end_is_a_liveness_failure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script");
    let endless = "bound 100ms\nqueue q percpu\nitem a q: burn 1ms; queue a\nthread: queue a\n";
    fs::write(&path, endless).unwrap();
    let output = sim(&["run", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("violation: liveness"), "{}", text(&output.stdout));
}

#[test]
fn check_resumes_and_reports_no_violation() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let check = |seeds: &str| {
        sim(&["check", "--seeds", seeds, "--first", "5", "--resume", state.to_str().unwrap()])
    };
    let output = check("20");
    assert!(output.status.success(), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("violations: none"));
    assert_eq!(fs::read_to_string(&state).unwrap(), "5 25\n");
    let output = check("30");
    assert!(text(&output.stdout).contains("seeds 25 to 34"), "{}", text(&output.stdout));
    let other = sim(&["check", "--first", "6", "--resume", state.to_str().unwrap()]);
    assert_eq!(other.status.code(), Some(2));
}

#[test]
fn calibrate_writes_costs_that_run_reads_and_names() {
    let dir = tempfile::tempdir().unwrap();
    let (script, costs) = (dir.path().join("script"), dir.path().join("costs"));
    fs::write(&script, SCRIPT).unwrap();
    let (script, costs) = (script.to_str().unwrap(), costs.to_str().unwrap());
    let output = sim(&["calibrate", "-o", costs]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = |costs: &str| sim(&["run", script, "--verbose", "--costs", costs]);
    let shown = text(&run(costs).stdout);
    assert!(shown.contains("simulated: ") && shown.contains(&format!("costs: {costs}")), "{shown}");
    assert!(shown.contains("us of CPU time") && shown.contains("violations: none"), "{shown}");
    assert_eq!(run("typical").stdout, run("typical").stdout);
    fs::write(costs, "cache_ns 50\nremote_ns -3\n").unwrap();
    let output = run(costs);
    assert_eq!(output.status.code(), Some(2));
    let message = text(&output.stderr);
    assert!(message.contains("line 2: remote_ns is -3, and must be from 1"), "{message}");
}

/// The ratios are not asserted: they are the machine's, and it may be busy.
#[test]
fn calibrate_verify_has_a_row_for_each_pattern_and_writes_no_file() {
    let output = sim(&["calibrate", "--verify"]);
    let shown = text(&output.stdout);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let rows: Vec<&str> =
        shown.lines().filter(|row| row.ends_with(" ok") || row.ends_with(" outside")).collect();
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(rows.len(), if cpus > 1 { 9 } else { 1 }, "{shown}");
    let outside = rows.iter().any(|row| row.ends_with(" outside"));
    assert_eq!(output.status.code(), Some(i32::from(outside)), "{shown}");
    let refused = sim(&["calibrate", "--verify", "-o", "costs"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("cannot be used with"), "{}", text(&refused.stderr));
}

#[test]
fn machines_lists_every_name() {
    let shown = text(&sim(&["machines"]).stdout);
    assert!(shown.contains("this ") && shown.contains("numa1024"), "{shown}");
}

#[test]
fn power_prints_both_machines_with_their_sensitivity() {
    let output = sim(&["power", "--draws", "1", "--seconds", "1"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for words in ["on the board: ", "on the socket: ", "LWN, August 2017", "  A15 ", "  package "] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    assert_eq!(shown.matches("x 0.5: ").count(), 6, "{shown}");
    let board =
        text(&sim(&["power", "--draws", "1", "--seconds", "1", "--machine", "board"]).stdout);
    assert!(shown.starts_with(&board) && !board.contains("socket"), "{board}");
    let output = sim(&["power", "--draws", "0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("1..=10000"), "{}", text(&output.stderr));
}

#[test]
fn seeds_have_the_published_figures_beside_simulated_ones() {
    let shown = text(&sim(&["seeds"]).stdout);
    assert!(shown.starts_with("costs: typical\n"), "{shown}");
    assert!(shown.contains("+10.5 %") && shown.contains("published"), "{shown}");
    assert_eq!(shown.matches(" exact\n").count(), 9, "{shown}");
}

#[test]
fn seeds_refuse_a_time_under_the_lock_beyond_the_items_own() {
    let refused = sim(&["seeds", "--held-ns", "1000000000"]);
    assert!(!refused.status.success());
    let said = text(&refused.stderr);
    assert!(said.contains("--held-ns 1000000000: at most "), "{said}");
    let refused = sim(&["seeds", "--batches", "0"]);
    assert!(text(&refused.stderr).contains("1..=1000"), "{}", text(&refused.stderr));
}

/// The words of each row of a table below its title line, which begins with this word.
fn rows<'a>(shown: &'a str, title: &str) -> Vec<Vec<&'a str>> {
    let rows = shown.lines().skip_while(|line| !line.starts_with(title)).skip(1);
    rows.map(|row| row.split_whitespace().collect()).collect()
}

#[test]
fn scale_has_a_row_for_each_size_and_a_picture() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("scale.svg");
    let picture = picture.to_str().unwrap();
    let shown = text(&sim(&["scale", "--cpus", "4", "--batches", "4", "--svg", picture]).stdout);
    assert!(shown.starts_with("simulated: ") && shown.contains("costs: typical"), "{shown}");
    let table = rows(&shown, "scope ");
    for scope in ["default", "cpu", "smt", "cluster", "cache_shard", "cache", "numa", "system"] {
        let rows: Vec<_> = table.iter().filter(|row| row[0] == scope).collect();
        assert_eq!(rows.iter().map(|row| row[1]).collect::<Vec<_>>(), ["1", "2", "4"], "{shown}");
        // One CPU has no other to share lines with.
        assert_eq!((rows[0][5], rows[0].len()), ("1.00", 12), "{shown}");
    }
    let shared = table.iter().find(|row| row[..2] == ["system", "4"]).unwrap();
    assert_eq!(shared.iter().filter(|word| word.starts_with('%')).count(), 3, "{shown}");
    let svg = std::fs::read_to_string(picture).unwrap();
    // Without threads of cores and with one cache there are pods of one CPU, and a single pod.
    assert_eq!(svg.matches("<polyline ").count(), 2, "{svg}");
    for names in [">default, cpu, smt, cluster<", ">cache_shard, cache, numa, system<"] {
        assert!(svg.contains(names), "{names}: {svg}");
    }
    assert!(svg.contains("simulated"), "{svg}");
}

#[test]
fn scale_has_the_sizes_and_the_scopes_that_were_asked_for() {
    let args = ["scale", "--cpus", "4", "--from", "4", "--batches", "4", "--scope", "smt"];
    let shown = text(&sim(&[&args[..], &["--scope", "numa", "--places", "1"]].concat()).stdout);
    let table = rows(&shown, "scope ");
    assert_eq!(
        table.iter().map(|row| &row[..3]).collect::<Vec<_>>(),
        [["smt", "4", "4"], ["numa", "4", "1"]]
    );
    // The ratio to one CPU, which has no row.
    assert!(table.iter().all(|row| row[5].parse::<f64>().unwrap() > 0.0), "{shown}");
    assert_eq!(shown.matches('%').count(), 2, "{shown}");
    for refused in [["--cpus", "1025"], ["--scope", "socket"]] {
        assert!(!sim(&["scale", refused[0], refused[1]]).status.success(), "{refused:?}");
    }
}

/// The ratios are not asserted: the engine's targets are in crates/sim/README.md.
#[test]
fn move_has_a_row_for_each_load_and_mix_and_its_exit_status_is_that_of_the_rows() {
    let output = sim(&["move", "--cpus", "8", "--items", "200"]);
    let shown = text(&output.stdout);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    let mut table = rows(&shown, "load ");
    assert_eq!(table.pop().unwrap()[0], "ok:", "{shown}");
    let mixes = ["1us", "20us", "100us", "bimodal"];
    let wanted = ["one", "half"].map(|load| mixes.map(|mix| [load, "8", mix])).concat();
    assert_eq!(table.iter().map(|row| &row[..3]).collect::<Vec<_>>(), wanted, "{shown}");
    let mut is_above = false;
    for row in &table {
        let ratios = [7, 9, 11].map(|at| row[at].parse::<f64>().unwrap());
        assert!(ratios.iter().all(|&ratio| ratio > 0.0), "{shown}");
        is_above |= *row.last().unwrap() == "above";
        assert!(["ok", "above"].contains(row.last().unwrap()), "{shown}");
    }
    assert_eq!(output.status.code(), Some(i32::from(is_above)), "{shown}");
    // The same seed gives the same figures.
    let again = sim(&["move", "--cpus", "8", "--items", "200"]);
    assert_eq!(shown, text(&again.stdout));
    let refused = sim(&["move", "--from", "1"]);
    assert!(text(&refused.stderr).contains("2..=1024"), "{}", text(&refused.stderr));
}

#[test]
fn a_run_shows_its_progress_on_a_terminal_only() {
    let small: [&[&str]; 4] = [
        &["scale", "--cpus", "2", "--batches", "2", "--scope", "cpu"],
        &["move", "--from", "2", "--cpus", "2", "--items", "100"],
        &["bench", "--machine", "core:1", "--quick", "--scope", "cpu"],
        &["power", "--machine", "socket", "--seconds", "1", "--draws", "1"],
    ];
    for (args, part) in small.into_iter().zip(["0/2 done", "0/8 done", "0/3 done", "the socket"]) {
        assert_eq!(text(&sim(args).stderr), "", "{args:?}");
        let mut ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).map(File::from).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        let theirs = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
        command.arg("sim").args(args).env("TERM", "xterm-256color");
        let mut child = command.stdout(Stdio::null()).stderr(theirs).spawn().unwrap();
        // The command has a copy of the terminal's end, whose last close ends the reads.
        drop(command);
        let mut shown = Vec::new();
        // The end is an error (EIO) on Linux.
        let _ = ours.read_to_end(&mut shown);
        // That of a comparison is 1 if it does not pass.
        assert!(matches!(child.wait().unwrap().code(), Some(0 | 1)), "{args:?}");
        let shown = String::from_utf8_lossy(&shown);
        assert!(shown.contains(part), "{args:?}: {shown:?}");
    }
}
