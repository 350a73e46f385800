//! The program has USDT probes with the kernel's names, as tools find them.

use std::process::Command;

#[test]
fn readelf_lists_the_probes_of_the_kernels_tracepoints() {
    let program = std::env::current_exe().unwrap();
    let output = Command::new("readelf").arg("-nW").arg(program).output().expect("binutils");
    let notes = String::from_utf8_lossy(&output.stdout).into_owned();
    for (name, values) in [
        ("workqueue_queue_work", 6),
        ("workqueue_activate_work", 2),
        ("workqueue_execute_start", 2),
        ("workqueue_execute_end", 2),
    ] {
        let title = format!("Name: {name}");
        let mut lines = notes.lines().map(str::trim).skip_while(|line| *line != title);
        assert!(lines.next().is_some(), "{name}:\n{notes}");
        let arguments = lines.find_map(|line| line.strip_prefix("Arguments: "));
        let arguments = arguments.map(|list| list.split_whitespace().count());
        assert_eq!(arguments, Some(values), "{name}");
    }
}
