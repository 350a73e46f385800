//! Two copies of the library in one process, such as a program's and a plugin's.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use uwork::{Report, control};

use crate::support::{queue, until, watchdog};
use crate::{RUNTIME, scene, socket};

static REPORTS: AtomicUsize = AtomicUsize::new(0);

fn count_reports() {
    let count = |report: &Report| {
        if let Report::NoControlSocket { reason } = report {
            assert!(reason.ends_with("another copy of uwork in this process has it"), "{reason}");
            REPORTS.fetch_add(1, Ordering::Relaxed);
        }
    };
    uwork::set_reporter(count).unwrap();
}

/// The path of this process's socket.
fn expected_path() -> PathBuf {
    let runtime = std::env::var_os(RUNTIME).unwrap();
    let namespace = fs::metadata("/proc/self/ns/pid").unwrap().ino();
    Path::new(&runtime).join(format!("uwork/{}-{namespace:x}.sock", std::process::id()))
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

// Catches: a copy that takes the name from one that has it.
#[test]
fn a_second_copy_of_the_library_has_no_socket() {
    let _watchdog = watchdog();
    scene("a_second_copy_of_the_library_has_no_socket", || {
        count_reports();
        let path = expected_path();
        fs::DirBuilder::new().mode(0o700).create(path.parent().unwrap()).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        let before = inode(&path);
        let _queue = queue("copy").build().unwrap();
        until("it is reported", || REPORTS.load(Ordering::Relaxed) == 1);
        assert!(control::socket().unwrap_err().contains("another copy"));
        assert_eq!(inode(&path), before, "the other copy's");
    });
}

// Catches: copies that take the name from each other for ever. An older version takes it.
#[test]
fn a_copy_whose_name_another_one_has_taken_does_not_take_it_back() {
    let _watchdog = watchdog();
    scene("a_copy_whose_name_another_one_has_taken_does_not_take_it_back", || {
        count_reports();
        let path = socket();
        assert_eq!(path, expected_path());
        let new = path.with_extension("new");
        let _other = UnixListener::bind(&new).unwrap();
        fs::rename(&new, &path).unwrap();
        let before = inode(&path);
        // The watcher looks while items run.
        let queue = queue("copy").build().unwrap();
        until("it is reported", || {
            queue.spawn(|| ()).join().unwrap();
            REPORTS.load(Ordering::Relaxed) == 1
        });
        assert_eq!(inode(&path), before, "the other copy's");
    });
}
