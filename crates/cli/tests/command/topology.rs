//! `uwork topology`: its drawings, and its messages for bad input.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// Runs the command with this standard input.
fn topology(args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_uwork"))
        .arg("topology")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that refuses its arguments does not read its input, so a broken pipe is not an
    // error.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// The output for a described machine.
fn drawn(machine: &str, more: &[&str]) -> String {
    let output = topology(&[&["--machine", "-"], more].concat(), machine);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.is_empty(), "{machine}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The single line of a refusal.
fn refused(args: &[&str], input: &str) -> String {
    let output = topology(args, input);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?}: half done");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
    errors.trim_end().to_owned()
}

/// A file with these contents, removed on drop.
fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    file
}

#[test]
fn this_machine_shows_its_cpus_limits_and_scopes() {
    let output = topology(&[], "");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let starts = [
        "machine ",
        "CPUs ",
        "allowed ",
        "CPU quota ",
        "threads ",
        "blocking ",
        "unbound ",
        "system ",
    ];
    for start in starts {
        assert!(text.lines().any(|line| line.starts_with(start)), "{start}: {text}");
    }
    assert!(text.contains("\nA queue that names no scope uses: default (cache"), "{text}");
}

/// Shows what a process would use that is started in the same way.
#[test]
fn the_detection_tier_is_shown_with_its_reason() {
    let shown = |wanted: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
        let output = command.arg("topology").args(args).env("UWORK_BLOCKING", wanted).output();
        let output = output.unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let text = shown("declared", &[]);
    let line = "blocking  declared (UWORK_BLOCKING=declared)";
    assert!(text.lines().any(|found| found == line), "{text}");
    let text = shown("nonsense", &[]);
    let line = text.lines().find(|line| line.starts_with("blocking ")).unwrap();
    assert!(
        line.contains("\"nonsense\" is ignored: allowed are declared, standby, events, sampling"),
        "{line}"
    );
    let json: serde_json::Value = serde_json::from_str(&shown("declared", &["--json"])).unwrap();
    assert_eq!(json["blocking"]["tier"], "declared");
    assert_eq!(json["blocking"]["reason"], "UWORK_BLOCKING=declared");
    assert!(json["threads_max"].is_null() || json["threads_max"].as_u64() > Some(0));
    let described = drawn("core:2", &["--json"]);
    assert!(!described.contains("blocking"), "a described machine has no tier: {described}");
}

#[test]
fn a_board_is_drawn_in_full() {
    let expected = "\
machine   cluster:1 core:4 capacity:446 + cluster:1 core:4 isolated:7
CPUs      8 online
isolated  7
unbound   0-6

machine  0-7
└─ package 0  0-7
   └─ node 0  0-7
      └─ llc 0  0-7
         ├─ cluster 0  0-3  4 cores, capacity 446
         └─ cluster 1  4-7  4 cores

scope         pods  CPUs each pods
cpu              8  1         0 1 2 3 4 5 6 7
smt              8  1         0 1 2 3 4 5 6 7
cluster          2  4         0-3 4-7
cache_shard      1  8         0-7
cache            1  8         0-7
numa             1  8         0-7
system           1  8         0-7

A queue that names no scope uses: default (cache -> cluster)
";
    assert_eq!(drawn("cluster:1 core:4 capacity:446 + cluster:1 core:4 isolated:7", &[]), expected);
}

#[test]
fn a_server_shows_its_nodes_caches_and_threads() {
    let text = drawn("package:2 node:2 core:4 smt:2 numbering:threads-last offline:31", &[]);
    for line in [
        "CPUs      31 online, 1 offline (31)",
        "├─ package 0  0-7,16-23",
        "│     └─ llc 1  4-7,20-23  4 cores of 2 threads: 4,20 5,21 6,22 7,23",
        "numa             4  8         0-3,16-19 4-7,20-23 8-11,24-27 12-15,28-31",
        "A queue that names no scope uses: default (cache)",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn the_drawing_of_a_big_machine_stays_short() {
    for machine in ["core:72", "package:2 node:4 llc:16 core:8", "package:512", "core:1024 smt:2"] {
        let text = drawn(machine, &[]);
        assert!(text.lines().count() < 80, "{machine}: {} lines", text.lines().count());
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest < Some(200), "{machine}: {widest:?} columns");
    }
    assert!(drawn("llc:16 core:8", &[]).contains("├─ .. 13 more like these\n"));
}

#[test]
fn a_cache_across_nodes_shows_in_both() {
    let machine = "cpu:0 core:0 cluster:0 llc:0 node:0 package:0\ncpu:1 core:1 cluster:1 llc:0 node:1 package:0";
    let text = drawn(machine, &[]);
    assert!(text.contains("node 1  1\n") && text.contains("llc 0 (part)  1  1 core\n"), "{text}");
    assert!(text.starts_with("machine   irregular"), "{text}");
}

#[test]
fn a_scope_lists_every_pod_and_its_used_part() {
    let text = drawn("core:12 isolated:0,6-11", &["--scope", "cache_shard"]);
    assert_eq!(text, "cache_shard: 2 pods\n    0  0-5  (used: 1-5)\n    1  6-11  (not used)\n");
    assert_eq!(drawn("core:3", &["--scope", "system"]), "system: 1 pod\n    0  0-2\n");
}

#[test]
fn the_default_scope_says_how_it_fell_back() {
    let first =
        |machine: &str| drawn(machine, &["--scope", "default"]).lines().next().unwrap().to_owned();
    assert_eq!(first("core:12"), "default (cache -> cache_shard): 2 pods");
    assert_eq!(first("llc:2 core:4"), "default (cache): 2 pods");
    // Pods that consist only of isolated CPUs do not count.
    assert_eq!(first("llc:2 core:4 isolated:4-7"), "default (cache -> cluster): 8 pods");
}

#[test]
fn the_shard_size_moves_the_shards() {
    let pods = |size| {
        drawn("core:12", &["--scope", "cache_shard", "--shard-size", size]).lines().count() - 1
    };
    assert_eq!([pods("3"), pods("6"), pods("12"), pods("0")], [4, 2, 1, 12]);
}

#[test]
fn json_contains_the_same_facts() {
    let json: serde_json::Value =
        serde_json::from_str(&drawn("core:12 isolated:11", &["--json"])).unwrap();
    assert_eq!(json["machine"], "core:12 isolated:11");
    assert_eq!(json["unbound"], "0-10");
    assert_eq!(json["scope"]["shown"], "default (cache -> cache_shard)");
    assert_eq!(json["pods"]["cache_shard"], serde_json::json!(["0-5", "6-11"]));
    assert_eq!(json["cpus"][11]["isolated"], true);
    let here = topology(&["--json", "--scope", "cpu"], "");
    let here: serde_json::Value = serde_json::from_slice(&here.stdout).unwrap();
    assert_eq!(here["pods"].as_object().map(|pods| pods.len()), Some(1));
    assert!(here["notes"].is_array());
}

#[test]
fn a_file_that_is_missing_or_not_text_is_refused_by_name() {
    assert_eq!(
        refused(&["--machine", "/nonexistent/machine"], ""),
        "uwork: /nonexistent/machine: No such file or directory"
    );
    let binary = file(&[0xff, 0xfe, 0]);
    let path = binary.path().to_str().unwrap();
    let error = refused(&["--machine", path], "");
    assert!(error.starts_with(&format!("uwork: {path}: ")), "{error}");
    assert!(refused(&["--machine", "/"], "").starts_with("uwork: /: "));
}

#[test]
fn a_file_without_end_is_refused() {
    assert_eq!(
        refused(&["--machine", "/dev/zero"], ""),
        "uwork: /dev/zero: too long (allowed: 16777216 bytes)"
    );
}

#[test]
fn an_impossible_machine_is_refused_with_file_and_line() {
    let file = file(b"# two sockets\npackage:2\n\nllc:2 node:2\n");
    let path = file.path();
    assert_eq!(
        refused(&["--machine", path.to_str().unwrap()], ""),
        format!(
            "uwork: {}:4: 'node:2': levels go from coarse to fine, each once (allowed: package, \
                node, llc, cluster, core, smt)",
            path.display()
        )
    );
    assert_eq!(
        refused(&["--machine", "-"], "core:4 isolated:9"),
        "uwork: standard input:1: 'isolated:9': the machine has no CPU 9 (allowed: 0-3)"
    );
    assert!(refused(&["--machine", "-"], "").starts_with("uwork: standard input:1: "));
}

#[test]
fn an_unknown_scope_or_shard_size_is_refused() {
    let output = topology(&["--scope", "socket"], "");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors.contains("invalid value 'socket' for '--scope <SCOPE>'"), "{errors}");
    assert!(errors.contains(SCOPES), "{errors}");
    assert_eq!(
        refused(&["--shard-size", "many"], ""),
        "uwork: --shard-size: 'many' is not a number of cores (allowed: 0 to 8192)"
    );
    assert!(refused(&["--shard-size=8193"], "").ends_with("(allowed: 0 to 8192)"));
}

const SCOPES: &str = "default, cpu, smt, cluster, cache_shard, cache, numa, system";

#[test]
fn help_and_completions_list_the_scopes() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_uwork")).args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let commands = ["topology", "sum", "sim bench", "sim scale", "sim move"];
    for command in commands {
        let help = run(&command.split(' ').chain(["--help"]).collect::<Vec<_>>());
        assert!(help.contains(&format!("[possible values: {SCOPES}]")), "{command}: {help}");
    }
    let script = run(&["completions", "bash"]);
    let offer = format!("compgen -W \"{}\"", SCOPES.replace(", ", " "));
    assert_eq!(script.matches(&offer).count(), commands.len(), "{script}");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_uwork"))
        .arg("topology")
        .stdout(writer)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
