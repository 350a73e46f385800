//! Hostile users, and systems without a folder for sockets: each process has a socket that its user and
//! root can find, or reports why it has none. Each scene has folders of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use uwork::{Report, control};

use crate::support::child::{alone_with, is_started};
use crate::support::users::{
    ALICE, BOB, PLACES, Parent, Process, become_user, folder_of, make_read_only, may_be_others,
    own_places,
};
use crate::support::{queue, until, watchdog};
use crate::{RUNTIME, socket};

/// Runs `body` in a process of its own, as root, beside empty folders of its own.
#[track_caller]
fn strangers(test: &str, body: impl FnOnce()) {
    if !is_started() && !may_be_others() {
        return;
    }
    let prepare = |command: &mut Command| {
        command.env_remove("UWORK_CONTROL").env_remove(RUNTIME);
    };
    alone_with(test, prepare, || {
        own_places();
        body();
    });
}

/// A process of the user's that has a socket, and the path of that.
fn process_of(user: u32) -> (Process, PathBuf) {
    let mut process = Process::start(|parent| {
        become_user(user);
        has_a_socket(parent);
    });
    let path = PathBuf::from(process.hear());
    (process, path)
}

fn has_a_socket(parent: &mut Parent) {
    parent.tell(socket().to_str().expect("text"));
    parent.wait();
}

/// Whether a process of the user's reaches the socket.
fn reaches(user: u32, path: &Path) -> bool {
    let mut tries = Process::start(|parent| {
        become_user(user);
        parent.tell(if UnixStream::connect(path).is_ok() { "yes" } else { "no" });
    });
    tries.hear() == "yes"
}

/// The folder of a socket belongs to this user alone.
fn assert_private(path: &Path, user: u32) {
    let folder = fs::symlink_metadata(path.parent().expect("a folder")).expect("it exists");
    assert!(folder.is_dir());
    assert_eq!((folder.uid(), folder.mode() & 0o777), (user, 0o700), "{}", path.display());
    let file = fs::symlink_metadata(path).expect("it exists");
    assert_eq!((file.uid(), file.mode() & 0o777), (user, 0o600));
}

// Catches: a folder of root's that shuts all others out; a folder that all may write.
#[test]
fn root_and_each_user_have_folders_of_their_own() {
    let _watchdog = watchdog();
    strangers("root_and_each_user_have_folders_of_their_own", || {
        // Of an earlier version's advice. Nothing is made in it.
        let shared = folder_of(0, "/run/uwork", 0o1777);
        // For a user who may make none there.
        folder_of(BOB, format!("/run/uwork-{BOB}"), 0o700);
        let [(_root, roots), (_alice, alices), (_bob, bobs)] = [0, ALICE, BOB].map(process_of);
        let folder = |path: &Path| path.parent().unwrap().to_str().unwrap().to_owned();
        assert_eq!(folder(&roots), "/run/uwork-0");
        assert_eq!(folder(&alices), format!("/dev/shm/uwork-{ALICE}"));
        assert_eq!(folder(&bobs), format!("/run/uwork-{BOB}"));
        for (path, user) in [(&roots, 0), (&alices, ALICE), (&bobs, BOB)] {
            assert_private(path, user);
            let found = [0, ALICE, BOB].map(|other| reaches(other, path));
            assert_eq!(found, [0, ALICE, BOB].map(|other| other == 0 || other == user));
        }
        assert_eq!(fs::read_dir(shared).unwrap().count(), 0);
    });
}

// Catches: a name that another user takes first, and that denies the socket to its user.
#[test]
fn a_name_that_another_user_has_taken_denies_no_socket() {
    let _watchdog = watchdog();
    strangers("a_name_that_another_user_has_taken_denies_no_socket", || {
        let name = PathBuf::from(format!("/dev/shm/uwork-{ALICE}"));
        let elsewhere = folder_of(BOB, "/tmp/elsewhere", 0o777);
        let takes: [&dyn Fn(); 4] = [
            &|| _ = folder_of(BOB, &name, 0o777),
            &|| symlink(&elsewhere, &name).unwrap(),
            &|| fs::write(&name, "a file").unwrap(),
            // Of the user, who lets others write to it.
            &|| _ = folder_of(ALICE, &name, 0o777),
        ];
        for take in takes {
            take();
            let (process, path) = process_of(ALICE);
            let folder = path.parent().unwrap();
            let prefix = format!("{}.", name.display());
            assert!(folder.to_str().unwrap().starts_with(&prefix), "{}", path.display());
            assert_private(&path, ALICE);
            assert!(reaches(0, &path) && !reaches(BOB, &path));
            drop(process);
            assert!(!folder.exists(), "it was of that process alone");
            assert!(fs::remove_dir(&name).is_ok() || fs::remove_file(&name).is_ok());
        }
        assert_eq!(fs::read_dir(elsewhere).unwrap().count(), 0);
    });
}

#[test]
fn a_system_without_a_usable_run_has_sockets_elsewhere() {
    let _watchdog = watchdog();
    strangers("a_system_without_a_usable_run_has_sockets_elsewhere", || {
        make_read_only(PLACES[0]);
        for user in [0, ALICE] {
            let (_process, path) = process_of(user);
            assert_eq!(path.parent(), Some(Path::new(&format!("/dev/shm/uwork-{user}"))));
            assert_private(&path, user);
        }
        make_read_only(PLACES[1]);
        // A variable that leads nowhere is no reason to have none.
        let mut process = Process::start(|parent| {
            // SAFETY: this process has one thread.
            unsafe { std::env::set_var(RUNTIME, "/nowhere/at/all") };
            become_user(ALICE);
            has_a_socket(parent);
        });
        let path = PathBuf::from(process.hear());
        assert_eq!(path.parent(), Some(Path::new(&format!("/tmp/uwork-{ALICE}"))));
    });
}

// Catches: a socket of root's in a folder where a user can replace it.
#[test]
fn no_process_has_its_socket_in_a_folder_of_another_user() {
    let _watchdog = watchdog();
    strangers("no_process_has_its_socket_in_a_folder_of_another_user", || {
        let alices = folder_of(ALICE, "/run/user/alice", 0o755);
        // Others may rename what is in it.
        let open = folder_of(0, "/run/open", 0o777);
        for runtime in [&alices, &open] {
            for user in [0, BOB] {
                let mut process = Process::start(|parent| {
                    // SAFETY: this process has one thread.
                    unsafe { std::env::set_var(RUNTIME, runtime) };
                    become_user(user);
                    has_a_socket(parent);
                });
                let path = PathBuf::from(process.hear());
                assert!(!path.starts_with(runtime), "{}", path.display());
                assert_private(&path, user);
            }
        }
    });
}

// Catches: a variable of the user's that a program with more rights obeys.
#[test]
fn a_program_with_more_rights_than_its_user_has_its_socket_with_its_owner() {
    let _watchdog = watchdog();
    const PROGRAM: &str = "PROGRAM_OF_ANOTHER";
    let test = "a_program_with_more_rights_than_its_user_has_its_socket_with_its_owner";
    if std::env::var_os(PROGRAM).is_some() {
        println!("\nsays: {}", socket().display());
        return;
    }
    strangers(test, || {
        let program = Path::new("/tmp/program");
        // By the file itself, as its path may be in a place that is empty here.
        fs::copy("/proc/self/exe", program).unwrap();
        std::os::unix::fs::chown(program, Some(BOB), Some(BOB)).unwrap();
        fs::set_permissions(program, fs::Permissions::from_mode(0o4755)).unwrap();
        let alices = folder_of(ALICE, "/run/alice", 0o777);
        let mut process = Process::start(|parent| {
            become_user(ALICE);
            let mut command = Command::new(program);
            command.args(["--exact", &format!("strangers::{test}"), "--nocapture"]);
            command.env(RUNTIME, &alices).env(PROGRAM, "1").env_remove("UWORK_CONTROL");
            let output = command.stdin(Stdio::null()).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            let said = text.lines().find_map(|line| line.strip_prefix("says: "));
            parent.tell(said.unwrap_or_else(|| panic!("{text}")));
        });
        let path = PathBuf::from(process.hear());
        assert_eq!(path.parent(), Some(Path::new(&format!("/dev/shm/uwork-{BOB}"))));
        assert_eq!(fs::read_dir(alices).unwrap().count(), 0);
    });
}

// Catches: the second of two processes that removes the socket of the first.
#[test]
fn processes_of_one_number_in_two_namespaces_have_two_sockets() {
    let _watchdog = watchdog();
    strangers("processes_of_one_number_in_two_namespaces_have_two_sockets", || {
        let contained = || {
            let mut outer = Process::start(|parent| {
                // SAFETY: no pointers.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
                let mut first = Process::start(|parent| {
                    assert_eq!(std::process::id(), 1);
                    become_user(ALICE);
                    has_a_socket(parent);
                });
                parent.tell(&first.hear());
                parent.wait();
            });
            let path = PathBuf::from(outer.hear());
            (outer, path)
        };
        let (processes, paths): (Vec<_>, Vec<_>) = (0..3).map(|_| contained()).unzip();
        for path in &paths {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(name.starts_with("1-"), "{name}");
            assert!(UnixStream::connect(path).is_ok(), "{}", path.display());
        }
        assert_eq!(fs::read_dir(paths[0].parent().unwrap()).unwrap().count(), 3);
        drop(processes);
    });
}

// Catches: a daemon that its own user cannot look into, as it began as root.
#[test]
fn the_socket_follows_a_process_that_gives_up_its_rights() {
    let _watchdog = watchdog();
    strangers("the_socket_follows_a_process_that_gives_up_its_rights", || {
        let mut process = Process::start(|parent| {
            parent.tell(socket().to_str().unwrap());
            become_user(ALICE);
            let queue = queue("goes on").build().unwrap();
            until("the socket is another", || {
                assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
                control::socket().is_ok_and(|path| !path.starts_with("/run"))
            });
            has_a_socket(parent);
        });
        assert!(process.hear().starts_with("/run/uwork-0/"));
        let path = PathBuf::from(process.hear());
        assert_private(&path, ALICE);
        assert!(reaches(ALICE, &path) && !reaches(BOB, &path));
    });
}

// Catches: a process that cannot be found any more, as a session's end or a cleaner took its file.
#[test]
fn a_socket_whose_file_was_removed_is_opened_again() {
    let _watchdog = watchdog();
    strangers("a_socket_whose_file_was_removed_is_opened_again", || {
        let path = socket();
        let queue = queue("goes on").build().unwrap();
        for remove_folder in [false, true] {
            fs::remove_file(&path).unwrap();
            if remove_folder {
                fs::remove_dir(path.parent().unwrap()).unwrap();
            }
            until("the socket is open again", || {
                assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
                UnixStream::connect(&path).is_ok()
            });
        }
    });
}

/// The reasons that were reported.
static REASONS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static OTHERS: AtomicUsize = AtomicUsize::new(0);

fn reporter(report: &Report) {
    match report {
        Report::NoControlSocket { reason } => REASONS.lock().unwrap().push(reason.clone()),
        _ => _ = OTHERS.fetch_add(1, Ordering::Relaxed),
    }
}

/// The names of the files in memory of this process.
fn notes() -> Vec<String> {
    let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = files.filter_map(|file| fs::read_link(file.path()).ok());
    let names = links.filter_map(|link| {
        Some(
            link.to_str()?
                .strip_prefix("/memfd:uwork: ")?
                .trim_end_matches(" (deleted)")
                .to_owned(),
        )
    });
    names.collect()
}

// Catches: a process that has no socket, without a word.
#[test]
fn a_process_without_a_socket_says_so_once_and_shows_the_reason() {
    let _watchdog = watchdog();
    strangers("a_process_without_a_socket_says_so_once_and_shows_the_reason", || {
        PLACES.iter().for_each(|place| make_read_only(place));
        let says = || {
            uwork::set_reporter(reporter).unwrap();
            let queue = queue("unseen").build().unwrap();
            until("the report has come", || {
                assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
                !REASONS.lock().unwrap().is_empty()
            });
            let reason = control::socket().unwrap_err();
            for place in PLACES {
                assert!(reason.contains(&format!("{place}/uwork-{ALICE}: ")), "{reason}");
            }
            assert_eq!(REASONS.lock().unwrap().as_slice(), std::slice::from_ref(&reason));
            assert_eq!(notes().len(), 1);
            assert!(reason.starts_with(notes()[0].as_str()), "{:?}", notes());
        };
        let process = Process::start(|_| {
            become_user(ALICE);
            says();
            // A child is a process of its own.
            let child = Process::start(|_| {
                REASONS.lock().unwrap().clear();
                assert_eq!(notes(), [""; 0]);
                let queue = queue("unseen").build().unwrap();
                until("the child's report has come", || {
                    assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
                    !REASONS.lock().unwrap().is_empty()
                });
                assert_eq!((REASONS.lock().unwrap().len(), notes().len()), (1, 1));
            });
            drop(child);
        });
        drop(process);
        // That is what was asked for.
        let process = Process::start(|_| {
            // SAFETY: this process has one thread.
            unsafe { std::env::set_var("UWORK_CONTROL", "0") };
            uwork::set_reporter(reporter).unwrap();
            let queue = queue("off").build().unwrap();
            until("the watcher has looked", || {
                assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
                control::socket().is_err_and(|reason| reason.contains("UWORK_CONTROL=0"))
            });
            assert!(REASONS.lock().unwrap().is_empty() && notes().is_empty());
        });
        drop(process);
    });
}
