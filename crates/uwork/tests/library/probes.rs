//! The program has USDT probes with the kernel's names, as tools find them.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::left_out::left_out;

const PROBES: [(&str, usize); 4] = [
    ("workqueue_queue_work", 6),
    ("workqueue_activate_work", 2),
    ("workqueue_execute_start", 2),
    ("workqueue_execute_end", 2),
];

fn this_program() -> String {
    std::env::current_exe().unwrap().into_os_string().into_string().unwrap()
}

#[test]
fn readelf_lists_the_probes_of_the_kernels_tracepoints() {
    let output = Command::new("readelf").args(["-nW", &this_program()]).output().expect("binutils");
    let notes = String::from_utf8_lossy(&output.stdout).into_owned();
    for (name, values) in PROBES {
        let title = format!("Name: {name}");
        let mut lines = notes.lines().map(str::trim).skip_while(|line| *line != title);
        assert!(lines.next().is_some(), "{name}:\n{notes}");
        let arguments = lines.find_map(|line| line.strip_prefix("Arguments: "));
        let arguments = arguments.map(|list| list.split_whitespace().count());
        assert_eq!(arguments, Some(values), "{name}");
    }
}

/// The output of a tool. None if it is not installed or does not run here, which fails in CI.
fn by_tool(tool: &str, args: &[&str]) -> Option<String> {
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let why = match Command::new(tool).args(args).output() {
        Ok(output) if output.status.success() => {
            return Some(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Ok(output) => said(&output),
        Err(error) => error.to_string(),
    };
    left_out("probes", &format!("{tool}: {why}"));
    None
}

#[test]
fn perf_lists_the_probes() {
    // perf knows the probes of the programs in its cache, and this one is none of the user's.
    // Its name is that of an earlier run, which may have been killed.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probes");
    let _ = std::fs::remove_dir_all(&folder);
    let cache = folder.to_str().unwrap();
    let add = ["--buildid-dir", cache, "buildid-cache", "--add", &this_program()];
    let added = by_tool("perf", &add);
    let list = added.and_then(|_| by_tool("perf", &["--buildid-dir", cache, "list", "sdt"]));
    let _ = std::fs::remove_dir_all(&folder);
    let Some(list) = list else { return };
    for (name, _) in PROBES {
        assert!(list.contains(&format!("sdt_uwork:{name} ")), "{name}:\n{list}");
    }
}

#[test]
fn bpftrace_lists_the_probes() {
    let program = this_program();
    let wanted = format!("usdt:{program}:uwork:*");
    let Some(list) = by_tool("bpftrace", &["-l", &wanted]) else { return };
    for (name, _) in PROBES {
        assert!(list.lines().any(|line| line == format!("usdt:{program}:uwork:{name}")), "{list}");
    }
}
