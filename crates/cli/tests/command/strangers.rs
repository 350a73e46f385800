//! The command beside hostile users: what it believes, follows and removes. Each scene has folders of
//! its own.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use uwork::{Queue, control};

use crate::filter::refuse_here;
use crate::observed::{is_observed, observed, until};
use crate::process::NO_ANSWER;
use crate::users::{
    ALICE, BOB, PLACES, Process, become_user, folder_of, make_read_only, may_be_others, own_places,
};

/// A copy of the command that every user may run, wherever the original is.
pub(crate) const COMMAND: &str = "/run/command";

/// Runs `body` in a process of its own, as root, beside empty folders of its own.
#[track_caller]
fn strangers(test: &str, body: impl FnOnce()) {
    scene(&format!("strangers::{test}"), body);
}

/// The same for the test of this path.
#[track_caller]
pub(crate) fn scene(path: &str, body: impl FnOnce()) {
    if !is_observed(path) && !may_be_others() {
        return;
    }
    observed(path, || {
        let mut original = File::open(env!("CARGO_BIN_EXE_uwork")).unwrap();
        // SAFETY: no other thread reads the environment.
        unsafe { std::env::remove_var("XDG_RUNTIME_DIR") };
        own_places();
        io::copy(&mut original, &mut File::create(COMMAND).unwrap()).unwrap();
        fs::set_permissions(COMMAND, fs::Permissions::from_mode(0o755)).unwrap();
        body();
    });
}

/// A process of the user's that has a socket, and the path of that.
pub(crate) fn process_of(user: u32) -> (Process, PathBuf) {
    let mut process = Process::start(|parent| {
        become_user(user);
        let queue = Queue::builder(format!("of-{user}")).build().unwrap();
        parent.tell(until(control::socket, |_| true).to_str().unwrap());
        parent.wait();
        drop(queue);
    });
    let path = PathBuf::from(process.hear());
    (process, path)
}

/// What the command writes if the user runs it: to both outputs. Again, if a process got no CPU for an
/// answer.
pub(crate) fn said(user: u32, args: &[&str]) -> String {
    let run = || {
        let Output { stdout, stderr, .. } = {
            let mut command = Command::new(COMMAND);
            command.args(args);
            if user != 0 {
                use std::os::unix::process::CommandExt as _;
                command.uid(user).gid(user);
            }
            command.output().unwrap()
        };
        let text = String::from_utf8([stdout, stderr].concat()).unwrap();
        if text.contains(NO_ANSWER) { Err(text) } else { Ok(text) }
    };
    until(run, |_| true)
}

/// The line of `uwork ls` of a process.
pub(crate) fn row(list: &str, pid: u32) -> Option<&str> {
    let pid = pid.to_string();
    list.lines().find(|line| line.split_whitespace().next() == Some(&pid))
}

/// The name of a socket of a process in the namespace of this one.
pub(crate) fn name(pid: u32) -> String {
    format!("{pid}-{:x}.sock", fs::metadata("/proc/self/ns/pid").unwrap().ino())
}

#[test]
fn users_see_their_own_processes_and_root_sees_all() {
    strangers("users_see_their_own_processes_and_root_sees_all", || {
        let [(root, _), (alice, _), (bob, _)] = [0, ALICE, BOB].map(process_of);
        for (user, sees) in [(0, [true; 3]), (ALICE, [false, true, false])] {
            let list = said(user, &["ls"]);
            let found = [&root, &alice, &bob].map(|process| row(&list, process.pid).is_some());
            assert_eq!(found, sees, "{list}");
        }
        let pid = bob.pid.to_string();
        assert!(said(0, &["dump", &pid]).contains(&format!("queue of-{BOB} ")));
        assert!(said(BOB, &["dump", &pid]).contains(&format!("queue of-{BOB} ")));
        let refused = said(ALICE, &["dump", &pid]);
        assert!(refused.contains(&format!("belongs to user {BOB}")), "{refused}");
    });
}

// Catches: root's client that believes what a stranger says in the name of another process.
#[test]
fn a_stranger_who_listens_under_the_name_of_another_process_is_not_asked() {
    strangers("a_stranger_who_listens_under_the_name_of_another_process_is_not_asked", || {
        let (alice, path) = process_of(ALICE);
        let pid = alice.pid.to_string();
        // In a folder of his own, in one with her name, and in her session's.
        let folders = [format!("/dev/shm/uwork-{BOB}"), format!("/tmp/uwork-{ALICE}")];
        let mut folders: Vec<_> = folders.iter().map(|path| folder_of(BOB, path, 0o700)).collect();
        folder_of(BOB, format!("/run/user/{ALICE}"), 0o755);
        folders.push(folder_of(BOB, format!("/run/user/{ALICE}/uwork"), 0o755));
        let mut imitates = Process::start(|parent| {
            become_user(BOB);
            let bind = |folder: &PathBuf| UnixListener::bind(folder.join(name(alice.pid))).unwrap();
            let listeners: Vec<_> = folders.iter().map(bind).collect();
            parent.tell("listens");
            parent.wait();
            for listener in listeners {
                listener.set_nonblocking(true).unwrap();
                // The clients that connected have sent no request.
                while let Ok((mut client, _)) = listener.accept() {
                    let mut text = String::new();
                    let read = io::Read::read_to_string(&mut client, &mut text);
                    assert!(read.is_err() || text.is_empty(), "{text}");
                }
            }
        });
        imitates.hear();
        for user in [0, ALICE] {
            assert!(said(user, &["dump", &pid]).contains(&format!("queue of-{ALICE} ")));
            let list = said(user, &["ls"]);
            assert!(row(&list, alice.pid).is_some(), "{list}");
            assert!(list.contains(path.to_str().unwrap()), "{list}");
        }
        let direct = said(0, &["dump", folders[0].join(name(alice.pid)).to_str().unwrap()]);
        assert!(direct.contains(&format!("listens here, not {pid}")), "{direct}");
        drop(imitates);
    });
}

// Catches: root's client, which waits for a place in a stranger's queue until its time is over.
#[test]
fn a_full_queue_under_the_number_of_another_process_takes_no_time_of_it() {
    strangers("a_full_queue_under_the_number_of_another_process_takes_no_time_of_it", || {
        let (alice, path) = process_of(ALICE);
        // Before hers, by its name.
        let folder = folder_of(BOB, "/dev/shm/uwork-1", 0o700);
        assert!(folder < path);
        let mut full = Process::start(|parent| {
            become_user(BOB);
            let path = folder.join(name(alice.pid));
            let listener = UnixListener::bind(&path).unwrap();
            rustix::net::listen(&listener, 0).unwrap();
            let client = UnixStream::connect(&path).unwrap();
            parent.tell("full");
            parent.wait();
            drop((listener, client));
        });
        full.hear();
        let pid = alice.pid.to_string();
        assert!(said(0, &["dump", &pid]).contains(&format!("queue of-{ALICE} ")));
        assert!(said(0, &["doctor", &pid]).contains("queues that move or have no items"));
    });
}

/// The socket of a process that has ended.
fn stale(path: &Path) -> PathBuf {
    drop(UnixListener::bind(path).unwrap());
    path.to_owned()
}

// Catches: root's client that connects to, or removes, what a stranger's link leads to.
#[test]
fn root_follows_no_link_of_a_user_and_removes_nothing_behind_one() {
    strangers("root_follows_no_link_of_a_user_and_removes_nothing_behind_one", || {
        let secret = folder_of(0, "/run/secret", 0o700);
        let ended = stale(&secret.join("99999998.sock"));
        let listener = UnixListener::bind(secret.join("1.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        // The folder is a link, or what it is in, or a name in it.
        folder_of(ALICE, format!("/run/user/{ALICE}"), 0o700);
        let link = |to: &Path, at: String| {
            symlink(to, &at).unwrap();
            std::os::unix::fs::lchown(&at, Some(ALICE), Some(ALICE)).unwrap();
        };
        link(&secret, format!("/run/user/{ALICE}/uwork"));
        link(&secret, format!("/dev/shm/uwork-{ALICE}"));
        folder_of(BOB, "/tmp/home", 0o755);
        fs::create_dir("/run/root").unwrap();
        symlink(&secret, "/run/root/uwork").unwrap();
        let own = folder_of(ALICE, format!("/tmp/uwork-{ALICE}"), 0o700);
        for (at, target) in [(1, "1.sock"), (99_999_998, "99999998.sock")] {
            link(&secret.join(target), format!("{}/{at}.sock", own.display()));
        }
        // A socket of root's, by a second name.
        stale(Path::new("/tmp/of-root"));
        fs::hard_link("/tmp/of-root", own.join("99999997.sock")).unwrap();
        let theirs = stale(&own.join("99999996.sock"));
        std::os::unix::fs::chown(&theirs, Some(ALICE), Some(ALICE)).unwrap();

        let list = said(0, &["ls"]);
        assert_eq!(list.lines().count(), 1, "{list}");
        assert!(!theirs.exists(), "a file of the folder's user, whose process has ended");
        assert!(ended.exists() && own.join("99999997.sock").exists());
        assert!(fs::symlink_metadata(own.join("99999998.sock")).is_ok());
        for at in [own.join("1.sock"), PathBuf::from(format!("/dev/shm/uwork-{ALICE}/1.sock"))] {
            let refused = said(0, &["dump", at.to_str().unwrap()]);
            assert!(refused.starts_with("uwork: "), "{refused}");
        }
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
        // By the environment, through a link that another user can change.
        link(Path::new("/run/root"), "/tmp/home/run".to_owned());
        let output = Command::new(COMMAND)
            .arg("ls")
            .env("XDG_RUNTIME_DIR", "/tmp/home/run")
            .output()
            .unwrap();
        assert!(output.status.success());
        assert!(ended.exists());
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    });
}

#[test]
fn a_user_removes_files_of_her_own_ended_processes_only() {
    strangers("a_user_removes_files_of_her_own_ended_processes_only", || {
        let files = [ALICE, BOB].map(|user| {
            let folder = folder_of(user, format!("/dev/shm/uwork-{user}"), 0o755);
            let file = stale(&folder.join("99999998.sock"));
            std::os::unix::fs::chown(&file, Some(user), Some(user)).unwrap();
            file
        });
        // As her process makes one where the name is taken.
        let another = folder_of(ALICE, format!("/dev/shm/uwork-{ALICE}.0000001f"), 0o700);
        let file = stale(&another.join("99999998.sock"));
        std::os::unix::fs::chown(file, Some(ALICE), Some(ALICE)).unwrap();
        said(ALICE, &["ls"]);
        assert!(!another.exists(), "it was of one process");
        assert_eq!(files.each_ref().map(|file| file.exists()), [false, true]);
        said(0, &["ls"]);
        assert!(!files[1].exists());
    });
}

// Catches: a folder that all may write, and whose files root's client believes.
#[test]
fn folders_that_others_can_write_are_left_out() {
    strangers("folders_that_others_can_write_are_left_out", || {
        for path in ["/run/uwork".to_owned(), format!("/dev/shm/uwork-{ALICE}")] {
            let folder = folder_of(ALICE, path, 0o1777);
            let file = stale(&folder.join("99999998.sock"));
            std::os::unix::fs::chown(&file, Some(ALICE), Some(ALICE)).unwrap();
            for user in [0, ALICE] {
                assert_eq!(said(user, &["ls"]).lines().count(), 1);
            }
            assert!(file.exists());
        }
    });
}

// Catches: rows that the name of a folder adds to the list of root.
#[test]
fn the_name_of_a_folder_adds_no_row() {
    strangers("the_name_of_a_folder_adds_no_row", || {
        let rows = "/dev/shm/uwork-1234.\n       1 systemd 2 3 standby   ";
        let folders = [rows, "/dev/shm/uwork-7.1f"].map(|name| folder_of(ALICE, name, 0o700));
        let mut silent = Process::start(|parent| {
            become_user(ALICE);
            let bind = |folder: &PathBuf| UnixListener::bind(folder.join(name(std::process::id())));
            let listeners = folders.each_ref().map(|folder| bind(folder).unwrap());
            parent.tell("listens");
            parent.wait();
            drop(listeners);
        });
        silent.hear();
        let (list, found) = (said(0, &["ls"]), said(0, &["doctor"]));
        assert_eq!(list.lines().count(), 1, "{list}");
        assert!(!found.contains("systemd") && !found.contains("/uwork-7.1f"), "{found}");
    });
}

// Catches: the number of a process in its namespace, taken for that of another process here.
#[test]
fn a_process_of_another_namespace_is_found_by_its_number_here() {
    strangers("a_process_of_another_namespace_is_found_by_its_number_here", || {
        let contained = || {
            let mut outer = Process::start(|parent| {
                // SAFETY: no pointers.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
                let (inner, path) = process_of(ALICE);
                parent.tell(&inner.pid.to_string());
                parent.tell(path.to_str().unwrap());
                parent.wait();
            });
            let pid: u32 = outer.hear().parse().unwrap();
            let path = outer.hear();
            (outer, pid, path)
        };
        let both = [contained(), contained()];
        for user in [0, ALICE] {
            let list = said(user, &["ls"]);
            for (_, pid, path) in &both {
                let line = row(&list, *pid).unwrap_or_else(|| panic!("{list}"));
                assert!(line.ends_with(path), "{line}");
                let dump = said(user, &["dump", &pid.to_string()]);
                assert!(dump.contains(&format!("queue of-{ALICE} ")), "{dump}");
            }
            assert!(row(&list, 1).is_none(), "{list}");
        }
        // From inside, the processes of the other namespace have no number.
        let inside = Process::start(|_| {
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
            let inner = Process::start(|_| {
                let list = said(ALICE, &["ls"]);
                let line = row(&list, 0).unwrap_or_else(|| panic!("{list}"));
                assert!(line.contains("another PID namespace"), "{list}");
                assert!(row(&list, 1).is_none(), "{list}");
                // In /proc, which is that of the outer namespace, other processes have these numbers.
                let (own, _) = process_of(ALICE);
                let needs = "/proc of this PID namespace is needed";
                let list = said(ALICE, &["ls"]);
                let line = row(&list, own.pid).unwrap_or_else(|| panic!("{list}"));
                assert!(line.contains(" - ") && line.contains(needs), "{list}");
                for command in ["dump", "doctor"] {
                    let found = said(0, &[command, &own.pid.to_string()]);
                    assert!(found.contains(needs) && !found.contains("RLIMIT"), "{found}");
                }
            });
            drop(inner);
        });
        drop(inside);
        drop(both);
    });
}

// Catches: a look that holds all folders open, and is silent about those that it could not open.
#[test]
fn folders_of_many_users_need_few_descriptors() {
    strangers("folders_of_many_users_need_few_descriptors", || {
        for user in 0..100 {
            folder_of(80_000 + user, format!("/dev/shm/uwork-{}", 80_000 + user), 0o700);
        }
        let (alice, _) = process_of(ALICE);
        let listed = |descriptors| {
            let mut command = Command::new(COMMAND);
            command.arg("ls");
            let limit = libc::rlimit { rlim_cur: descriptors, rlim_max: descriptors };
            // SAFETY: one system call, with a live structure.
            unsafe {
                use std::os::unix::process::CommandExt as _;
                command.pre_exec(move || {
                    match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) {
                        0 => Ok(()),
                        _ => Err(io::Error::last_os_error()),
                    }
                });
            }
            let output = command.output().unwrap();
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
        };
        let list = listed(32);
        assert!(row(&list, alice.pid).is_some() && !list.contains("left out"), "{list}");
        let list = listed(4);
        assert!(list.contains("sockets were left out: this command may open no more"), "{list}");
    });
}

// Catches: names that take the time in which the folders of other users are looked for.
#[test]
fn names_of_a_stranger_hide_no_process_of_others() {
    strangers("names_of_a_stranger_hide_no_process_of_others", || {
        let (alice, path) = process_of(ALICE);
        let place = path.parent().and_then(Path::parent).unwrap();
        // The newest names are listed first.
        for number in 0..150_000 {
            File::create(place.join(format!("uwork-{BOB}-{number}"))).unwrap();
        }
        // Within folders of his, too.
        for (number, place) in PLACES.iter().enumerate() {
            let folder = folder_of(BOB, format!("{place}/uwork-{BOB}.{number:08x}"), 0o700);
            let path = folder.join("first");
            File::create(&path).unwrap();
            (0..5_000).for_each(|number| {
                fs::hard_link(&path, folder.join(format!("{number}.other"))).unwrap();
            });
        }
        let list = said(0, &["ls"]);
        assert!(row(&list, alice.pid).is_some(), "{list}");
        assert!(list.contains("sockets were left out: "), "{list}");
        let dump = said(0, &["dump", &alice.pid.to_string()]);
        assert!(dump.contains(&format!("of-{ALICE}")), "{dump}");
    });
}

// Catches: links by which a process takes the time of all others, and has a row for each.
#[test]
fn a_socket_with_several_names_is_not_listed() {
    strangers("a_socket_with_several_names_is_not_listed", || {
        let ((alice, _), (bob, path)) = (process_of(ALICE), process_of(BOB));
        for number in 0..8 {
            let folder = folder_of(BOB, format!("/dev/shm/uwork-{BOB}.{number:08x}"), 0o700);
            fs::hard_link(&path, folder.join(name(bob.pid))).unwrap();
        }
        let list = said(0, &["ls"]);
        assert!(row(&list, alice.pid).is_some() && row(&list, bob.pid).is_none(), "{list}");
    });
}

// Catches: stacks without names, of a process whose files its user cannot read.
#[test]
fn a_daemon_that_gave_up_its_rights_names_its_functions_itself() {
    strangers("a_daemon_that_gave_up_its_rights_names_its_functions_itself", || {
        let mut daemon = Process::start(|parent| {
            become_user(ALICE);
            let queue = Queue::builder("stuck").ordered().build().unwrap();
            let (release, held) = std::sync::mpsc::channel::<()>();
            let stuck = queue.spawn(move || _ = held.recv());
            until(control::socket, |_| true);
            parent.tell("stuck");
            parent.wait();
            drop(release);
            stuck.join().unwrap();
        });
        daemon.hear();
        let ask = || Ok::<_, ()>(said(ALICE, &["doctor", &daemon.pid.to_string()]));
        // Its user may not be able to read this program, but the system's library.
        let is_named = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.len() > 2 && words[0].parse::<u32>().is_ok() && words[1].starts_with("0x")
        };
        until(ask, |found| found.lines().any(is_named));
    });
}

#[test]
fn a_process_without_a_socket_is_asked_for_the_reason() {
    strangers("a_process_without_a_socket_is_asked_for_the_reason", || {
        PLACES[1..].iter().for_each(|place| make_read_only(place));
        let unseen = |dumpable: libc::c_int| {
            let mut unseen = Process::start(|parent| {
                become_user(ALICE);
                // SAFETY: numbers only.
                unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable) };
                let _queue = Queue::builder("unseen").build().unwrap();
                let known = |reason: &Result<PathBuf, String>| {
                    reason.as_ref().is_err_and(|reason| reason.contains("/tmp"))
                };
                let _reason = until(|| Ok::<_, String>(control::socket()), known);
                parent.tell("unseen");
                parent.wait();
            });
            unseen.hear();
            unseen
        };
        // As a program that the user has started, and as a daemon that was root's.
        let (own, daemon) = (unseen(1), unseen(0));
        let asked = |user, process: &Process| said(user, &["ls", &process.pid.to_string()]);
        for (user, process) in [(0, &own), (ALICE, &own), (0, &daemon)] {
            let reason = asked(user, process);
            assert!(reason.contains(&format!("/run/uwork-{ALICE}: Permission denied")), "{reason}");
        }
        let reason = asked(ALICE, &daemon);
        assert!(reason.contains("it has changed its user; root can see the reason"), "{reason}");
        let reason = asked(BOB, &own);
        assert!(reason.contains(&format!("belongs to user {ALICE}")), "{reason}");
        let mut without = Process::start(|parent| {
            parent.tell("no queue");
            parent.wait();
        });
        without.hear();
        let reason = said(0, &["ls", &without.pid.to_string()]);
        assert!(reason.contains("has made no queue"), "{reason}");
    });
}

// Catches: healthy processes that are called silent, as each has a part of the time alone.
#[test]
fn doctor_looks_at_each_process_where_threads_are_refused() {
    use std::os::unix::process::CommandExt as _;
    strangers("doctor_looks_at_each_process_where_threads_are_refused", || {
        let processes = [(); 5].map(|()| process_of(ALICE));
        let named = processes.each_ref().map(|(process, _)| process.pid.to_string());
        let all = [&["doctor"][..], &named.each_ref().map(String::as_str)[..]].concat();
        for args in [&all[..1], &all] {
            let seen = || {
                let mut command = Command::new(COMMAND);
                command.args(args).uid(ALICE).gid(ALICE);
                // SAFETY: the function makes one system call.
                unsafe { command.pre_exec(refuse_threads) };
                let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
                if said.matches("seen twice: ").count() == processes.len() {
                    Ok(())
                } else {
                    Err(said)
                }
            };
            // Again, if a process got no CPU in its share of the time.
            until(seen, |()| true);
        }
    });
}

/// Has the system refuse threads to the calling process, whose user has some.
fn refuse_threads() -> io::Result<()> {
    let none = rustix::process::Rlimit { current: Some(1), maximum: Some(1) };
    Ok(rustix::process::setrlimit(rustix::process::Resource::Nproc, none)?)
}

// Catches: a process that fills root's lists, as it listens in a thousand folders of its user.
#[test]
fn a_process_in_many_folders_has_one_row() {
    strangers("a_process_in_many_folders_has_one_row", || {
        let mut alice = Process::start(|parent| {
            become_user(ALICE);
            let queue = Queue::builder("of-many").build().unwrap();
            let path = until(control::socket, |_| true);
            let listen = |number: u32| {
                let folder = folder_of(ALICE, format!("/tmp/uwork-{ALICE}.{number:08x}"), 0o700);
                UnixListener::bind(folder.join(path.file_name().unwrap())).unwrap()
            };
            let listeners: Vec<_> = (0..20).map(listen).collect();
            parent.tell(path.to_str().unwrap());
            parent.wait();
            drop((queue, listeners));
        });
        let path = alice.hear();
        let list = said(0, &["ls"]);
        assert_eq!(list.matches(&format!("{} ", alice.pid)).count(), 1, "{list}");
        assert!(row(&list, alice.pid).is_some_and(|row| row.ends_with(&path)), "{list}");
        let found = said(0, &["doctor"]);
        assert_eq!(found.matches(&format!("process {}\n", alice.pid)).count(), 1, "{found}");
        assert!(found.contains("seen twice: "), "{found}");
    });
}

// Catches: root's client that leaves a container by a link there, and changes another process.
#[test]
fn a_path_in_a_container_leads_to_its_processes_only() {
    strangers("a_path_in_a_container_leads_to_its_processes_only", || {
        let (outside, path) = process_of(0);
        let folder = path.parent().unwrap().to_owned();
        let mut container = Process::start(|parent| {
            own_places();
            let (inside, own) = process_of(ALICE);
            // As root's folder, and as a file in one of hers.
            symlink(&folder, format!("/tmp/uwork-{ALICE}.0000001f")).unwrap();
            let links = folder_of(ALICE, format!("/tmp/uwork-{ALICE}"), 0o700);
            symlink(&path, links.join(path.file_name().unwrap())).unwrap();
            parent.tell(&inside.pid.to_string());
            parent.tell(own.to_str().unwrap());
            parent.wait();
        });
        let (pid, own) = (container.hear(), container.hear());
        let check = || {
            let found = said(0, &["dump", &format!("/proc/{pid}/root{own}")]);
            assert!(found.contains(&format!("queue of-{ALICE} ")), "{found}");
            let socket = path.file_name().unwrap().to_str().unwrap();
            for folder in [format!("uwork-{ALICE}.0000001f"), format!("uwork-{ALICE}")] {
                let link = format!("/proc/{pid}/root/tmp/{folder}/{socket}");
                let found = said(0, &["dump", &link]);
                assert!(found.starts_with("uwork: ") && !found.contains("queue of-0"), "{found}");
            }
            // By the root of a process outside, its socket leads to none of the container.
            let other = format!("/proc/{}/root{own}", outside.pid);
            assert!(said(0, &["dump", &other]).starts_with("uwork: "));
        };
        check();
        // As before Linux 5.6.
        let refused = || {
            refuse_here(libc::SYS_openat2, libc::ENOSYS);
            check();
        };
        std::thread::scope(|scope| scope.spawn(refused).join().unwrap());
    });
}
