//! Lists beside many processes that do not answer.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::observed::{looked_at, observed};
use crate::process::text;
use crate::users::Process;

/// Processes that listen, and accept no client.
const SILENT: usize = 100;

// Catches: processes that are asked in series, so that the time is over before the last ones are.
#[test]
fn ls_has_a_row_for_each_of_a_hundred_silent_processes() {
    observed("crowd::ls_has_a_row_for_each_of_a_hundred_silent_processes", || {
        let folder = std::env::var_os("XDG_RUNTIME_DIR").unwrap();
        let folder = Path::new(&folder).join("uwork");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let start = || {
            Process::start(|parent| {
                let path = folder.join(format!("{}.sock", std::process::id()));
                let listener = UnixListener::bind(path).unwrap();
                parent.tell("listens");
                parent.wait();
                drop(listener);
            })
        };
        let mut silent: Vec<Process> = (0..SILENT).map(|_| start()).collect();
        silent.iter_mut().for_each(|process| _ = process.hear());
        let (_queue, own) = looked_at("among-them");
        let (list, as_json) = (text(&["ls"]), text(&["ls", "--json"]));
        let rows = |number: &str| {
            let is_of = |line: &&str| line.split_whitespace().next() == Some(number);
            list.lines().filter(is_of).count()
        };
        let objects: Vec<serde_json::Value> =
            as_json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for number in silent.iter().map(|process| process.pid) {
            assert_eq!(rows(&number.to_string()), 1, "{list}");
            let object = objects.iter().find(|object| object["pid"] == number);
            assert!(object.is_some_and(|object| object["error"].is_string()), "{as_json}");
        }
        assert_eq!(rows(&own), 1, "{list}");
    });
}
