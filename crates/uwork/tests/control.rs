//! The control socket: who may connect, what clients get, and that no client disturbs the process.
//! Each scene is a process of its own, with a folder of its own for the socket.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use support::child::{alone_with, become_nobody, ending_of};
use support::forked::in_child;
use support::{queue, until, watchdog};
use uwork::control;

/// A fresh folder for run-time files.
fn folder_for(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("uwc-{}-{test}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a folder");
    folder
}

/// Runs `scene` in a process of its own, with its own folder.
#[track_caller]
fn scene(test: &str, body: impl FnOnce()) {
    let folder = folder_for(test);
    alone_with(test, |command| _ = command.env("XDG_RUNTIME_DIR", &folder), body);
    let _ = fs::remove_dir_all(&folder);
}

/// This process's socket, as soon as it is open.
fn socket() -> PathBuf {
    let _queue = queue("opens").build().expect("a queue");
    until("the socket is open", || control::socket().is_ok());
    control::socket().expect("open")
}

struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects, and reads the greeting.
    fn connect(path: &Path) -> Client {
        let mut client = Client(BufReader::new(UnixStream::connect(path).expect("a listener")));
        let greeting = format!("uwork-control {} {}\n", control::VERSION, std::process::id());
        assert_eq!(client.line(), greeting);
        client
    }

    fn stream(&mut self) -> &mut UnixStream {
        self.0.get_mut()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        line
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream().write_all(bytes).expect("the server reads");
    }

    /// The text of an answer, or its error line.
    fn ask(&mut self, request: &str) -> Result<String, String> {
        self.send(format!("{request}\n").as_bytes());
        self.answer()
    }

    fn answer(&mut self) -> Result<String, String> {
        let first = self.line();
        let Some(length) = first.strip_prefix("ok ") else { return Err(first) };
        let mut text = vec![0; length.trim_end().parse().expect("a length")];
        self.0.read_exact(&mut text).expect("the whole text");
        Ok(String::from_utf8(text).expect("UTF-8"))
    }

    /// Whether the server has closed the connection.
    fn is_closed(&mut self) -> bool {
        self.0.read_until(b'\0', &mut Vec::new()).is_ok_and(|rest| rest == 0)
    }
}

fn threads_named(name: &str) -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("the threads of this process");
    let names =
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

#[test]
fn attributes_are_read_and_changed_from_outside() {
    let _watchdog = watchdog();
    scene("attributes_are_read_and_changed_from_outside", || {
        let path = socket();
        let queue = queue("outside").sysfs().build().unwrap();
        let at = |name: &str| format!("workqueue/devices/{}/{name}", queue.name());
        let mut client = Client::connect(&path);
        assert_eq!(client.ask(&format!("set {} 7", at("max_active"))), Ok(String::new()));
        assert_eq!(queue.max_active(), 7);
        assert_eq!(client.ask(&format!("get {}", at("max_active"))), Ok("7\n".to_owned()));
        let refused = client.ask(&format!("set {} 0", at("max_active"))).unwrap_err();
        assert!(
            refused.starts_with("err bad-value ") && refused.contains("1 to 2048"),
            "{refused}"
        );
        assert_eq!(queue.max_active(), 7);
        let folder = client.ask(&format!("list {}", at(""))).unwrap();
        assert!(
            folder.contains("rw\tmax_active\n") && folder.contains("ro\tper_cpu\n"),
            "{folder}"
        );
        let known = client.ask(&format!("describe {}", at("nice"))).unwrap();
        assert!(known.ends_with("allowed  -20 to 19\n"), "{known}");
        let missing = client.ask("get no/such").unwrap_err();
        assert!(missing.starts_with("err not-found "), "{missing}");
        assert!(client.ask("dump").unwrap().contains(queue.name()));
        let json = client.ask("dump json").unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert!(json["queues"].as_array().is_some_and(|queues| !queues.is_empty()));
        assert!(client.ask("status").unwrap().contains(&format!("pid\t{}\n", std::process::id())));
    });
}

#[test]
fn a_trace_records_the_items_that_are_queued_while_it_is_on() {
    let _watchdog = watchdog();
    scene("a_trace_records_the_items_that_are_queued_while_it_is_on", || {
        let path = socket();
        let queue = queue("traced").build().unwrap();
        let mut client = Client::connect(&path);
        let mut kinds = |queue: &uwork::Queue| {
            queue.spawn(|| ()).join().unwrap();
            queue.flush().unwrap();
            let read = client.ask("trace read").unwrap();
            let first = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
            read.lines().map(first).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&queue), ["lost", "more"], "off");
        assert_eq!(control::answer("trace on 3600"), "ok 0\n");
        let on = kinds(&queue);
        for kind in ["function", "queue", "queued", "started", "ended"] {
            assert!(on.iter().any(|found| found == kind), "{kind}: {on:?}");
        }
        let again = control::answer("trace on 1");
        assert!(again.starts_with("err refused a trace is on for 3"), "{again}");
        assert!(control::answer("trace on 0").contains("allowed are 1 to 3600 seconds"));
        // The trace was the parent's.
        in_child(|| assert_eq!(control::answer("trace on 1"), "ok 0\n"));
        assert_eq!(control::answer("trace off"), "ok 0\n");
        assert_eq!(kinds(&queue), ["lost", "more"], "off again");
    });
}

#[test]
fn a_signal_writes_a_dump_with_stacks() {
    let _watchdog = watchdog();
    scene("a_signal_writes_a_dump_with_stacks", || {
        // Also without a socket: the signal needs the watcher alone.
        let queue = queue("signalled").build().unwrap();
        let written = std::env::temp_dir().join(format!("uwd-{}", std::process::id()));
        let file = fs::File::create(&written).unwrap();
        // SAFETY: both descriptors are open; standard error is the file from here on.
        assert_eq!(unsafe { libc::dup2(file.as_raw_fd(), 2) }, 2);
        control::dump_on_signal(libc::SIGUSR1).unwrap();
        control::dump_on_signal(libc::SIGUSR1).expect("again changes nothing");
        let stopped = control::dump_on_signal(libc::SIGSTOP).unwrap_err();
        assert!(stopped.contains("cannot be handled"), "{stopped}");
        let (release, held) = std::sync::mpsc::channel::<()>();
        let waits = queue.spawn(move || held.recv().is_err());
        let text = || fs::read_to_string(&written).unwrap();
        until("a dump has the item and its stack", || {
            // SAFETY: no pointers; the handler is installed.
            assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
            text().contains(queue.name()) && text().contains("\nstacks of 1 workers\n")
        });
        assert!(text().contains("a_signal_writes_a_dump_with_stacks"), "{}", text());
        drop(release);
        assert!(waits.join().unwrap());
        fs::remove_file(&written).unwrap();
    });
}

#[test]
fn counters_of_queues_grow_with_the_items_that_run() {
    let _watchdog = watchdog();
    scene("counters_of_queues_grow_with_the_items_that_run", || {
        let path = socket();
        let queue = queue("counted").build().unwrap();
        (0..100).map(|_| queue.spawn(|| ())).collect::<Vec<_>>().into_iter().for_each(|handle| {
            handle.join().expect("it ran");
        });
        let mut client = Client::connect(&path);
        let mut row = || {
            let table = client.ask("queues").unwrap();
            let names: Vec<String> =
                table.lines().next().unwrap().split('\t').map(str::to_owned).collect();
            let row = table.lines().find(|line| line.starts_with(queue.name())).expect("its row");
            names.into_iter().zip(row.split('\t').map(str::to_owned)).collect::<Vec<_>>()
        };
        let value = |row: &[(String, String)], name: &str| {
            row.iter().find(|(known, _)| known == name).expect("a column").1.clone()
        };
        // Also those that a join ran itself. The last batch counts when it has ended.
        until("all items are counted", || value(&row(), "ran") == "100");
        let row = row();
        assert_eq!((value(&row, "in_flight"), value(&row, "pending")), ("0".into(), "0".into()));
        assert_eq!(value(&row, "kind"), "unbound");
        assert_ne!(value(&row, "run_p99_ns"), "0");
        let name = format!("uwork_run_seconds_count{{queue=\"{}\"}} 100\n", queue.name());
        assert!(client.ask("metrics").unwrap().contains(&name));
    });
}

#[test]
fn no_thread_serves_while_no_client_is_connected() {
    let _watchdog = watchdog();
    scene("no_thread_serves_while_no_client_is_connected", || {
        let path = socket();
        assert_eq!(threads_named("uw/control"), 0);
        for _ in 0..3 {
            let mut first = Client::connect(&path);
            let mut second = Client::connect(&path);
            assert_eq!(first.ask("help"), second.ask("help"));
            assert_eq!(threads_named("uw/control"), 1);
            drop((first, second));
            until("the thread has ended", || threads_named("uw/control") == 0);
        }
    });
}

#[test]
fn only_its_user_may_use_the_socket() {
    let _watchdog = watchdog();
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: needs root, to become another user");
        return;
    }
    scene("only_its_user_may_use_the_socket", || {
        let path = socket();
        let found = fs::symlink_metadata(&path).unwrap();
        assert!(found.file_type().is_socket());
        assert_eq!(found.permissions().mode() & 0o777, 0o600);
        let connect = || UnixStream::connect(&path);
        let refused = |outcome: std::io::Result<UnixStream>| {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::PermissionDenied);
        };
        in_child(|| {
            become_nobody();
            refused(connect());
        });
        // Even if the file's rights are given away.
        let folder = path.parent().unwrap();
        for (path, mode) in [(folder.parent().unwrap(), 0o755), (folder, 0o755), (&path, 0o666)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
        in_child(|| {
            become_nobody();
            let mut text = String::new();
            let _ = connect().expect("the rights permit it").read_to_string(&mut text);
            assert_eq!(text, "err refused only this process's user and root may connect\n");
        });
        assert!(Client::connect(&path).ask("help").is_ok());
    });
}

#[test]
fn malformed_input_ends_its_own_connection_only() {
    let _watchdog = watchdog();
    scene("malformed_input_ends_its_own_connection_only", || {
        let path = socket();
        let mut watching = Client::connect(&path);
        let mut half = Client::connect(&path);
        half.send(b"get cpu");
        let mut garbage = Client::connect(&path);
        garbage.send(b"\xff\xfe\x00\n");
        assert_eq!(garbage.line(), "err refused a line is UTF-8\n");
        assert!(garbage.is_closed());
        let mut long = Client::connect(&path);
        // The server closes the connection long before all of it is sent.
        let line = vec![b'x'; 1 << 20];
        let sent = (0..1024).take_while(|_| long.stream().write_all(&line).is_ok()).count();
        assert!(sent < 1024, "a line of a gigabyte was taken");
        let mut exact = Client::connect(&path);
        exact.send(&[b'x'; 4096]);
        assert_eq!(exact.line(), "err refused a line has at most 4096 bytes\n");
        assert!(exact.is_closed());
        let mut several = Client::connect(&path);
        several.send(b"get cpumask\r\nnonsense\nhelp\n");
        assert_eq!(several.answer(), watching.ask("get cpumask"));
        assert!(several.answer().unwrap_err().starts_with("err bad-request "));
        assert_eq!(several.answer(), watching.ask("help"));
        half.send(b"mask\n");
        assert_eq!(half.answer(), watching.ask("get cpumask"));
        // What came before the client's end is answered.
        several.send(b"help\nget");
        several.stream().shutdown(Shutdown::Write).unwrap();
        assert_eq!(several.answer(), watching.ask("help"));
        assert!(several.is_closed());
    });
}

#[test]
fn ten_thousand_connections_leave_the_socket_usable() {
    let _watchdog = watchdog();
    scene("ten_thousand_connections_leave_the_socket_usable", || {
        let path = socket();
        let mut kept: Vec<Client> = (0..32).map(|_| Client::connect(&path)).collect();
        for _ in 0..10_000 {
            let mut text = String::new();
            // The server may close it before the client has read.
            let _ =
                UnixStream::connect(&path).expect("accepted in the end").read_to_string(&mut text);
            let refusal = "err refused 32 clients are connected, which is the most\n";
            assert!(text == refusal || text.is_empty(), "{text}");
        }
        assert!(kept.iter_mut().all(|client| client.ask("help").is_ok()));
        kept.clear();
        until("a place is free", || {
            let mut first = String::new();
            let stream = UnixStream::connect(&path).expect("a listener");
            BufReader::new(stream).read_line(&mut first).is_ok_and(|_| first.starts_with("uwork-c"))
        });
    });
}

#[test]
fn a_client_that_reads_nothing_delays_no_other() {
    let _watchdog = watchdog();
    scene("a_client_that_reads_nothing_delays_no_other", || {
        let path = socket();
        let mut slow = Client::connect(&path);
        slow.stream().set_nonblocking(true).unwrap();
        // Its requests stay in the system's buffers as soon as an answer does not fit.
        let full = (0..1_000_000).any(|_| match slow.stream().write(b"dump\n") {
            Ok(_) => false,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        assert!(full, "the server keeps reading requests whose answers are not read");
        let mut other = Client::connect(&path);
        assert!((0..100).all(|_| other.ask("help").is_ok()));
    });
}

#[test]
fn a_client_that_is_killed_is_forgotten() {
    let _watchdog = watchdog();
    scene("a_client_that_is_killed_is_forgotten", || {
        let path = socket();
        let mut other = Client::connect(&path);
        for _ in 0..5 {
            in_child(|| {
                let mut client = UnixStream::connect(&path).expect("a listener");
                client.write_all(b"dump\ndump\nget cpu").expect("the server reads");
                // Ends like a kill: nothing is closed in order.
            });
            assert!(other.ask("help").is_ok());
        }
        drop(other);
        until("the thread has ended", || threads_named("uw/control") == 0);
    });
}

#[test]
fn a_forked_child_has_its_own_socket() {
    let _watchdog = watchdog();
    scene("a_forked_child_has_its_own_socket", || {
        let parents = socket();
        let mut client = Client::connect(&parents);
        assert!(client.ask("help").is_ok());
        in_child(|| {
            let reason = control::socket().unwrap_err();
            assert!(reason.contains("forked child"), "{reason}");
            let own = socket();
            assert_ne!(own, parents);
            assert!(Client::connect(&own).ask("help").is_ok());
            fs::remove_file(own).unwrap();
        });
        assert!(client.ask("help").is_ok(), "the parent's clients stay connected");
        assert!(Client::connect(&parents).ask("help").is_ok());
    });
}

#[test]
fn the_socket_is_removed_when_the_process_ends() {
    let _watchdog = watchdog();
    let test = "the_socket_is_removed_when_the_process_ends";
    let folder = folder_for(test);
    let name = |ends: &str| folder.join(format!("path-{ends}"));
    for ends in ["in_order", "at_once"] {
        let prepare = |command: &mut std::process::Command| {
            command.env("XDG_RUNTIME_DIR", &folder).env("NOTE", name(ends)).env("ENDS", ends);
        };
        let body = || {
            let path = socket();
            fs::write(std::env::var_os("NOTE").unwrap(), path.to_str().unwrap()).unwrap();
            if std::env::var("ENDS").unwrap() == "at_once" {
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) };
            }
            std::process::exit(0);
        };
        let Some((status, err)) = ending_of(test, prepare, body) else { return };
        assert!(status.success(), "{err}");
        let path = PathBuf::from(fs::read_to_string(name(ends)).unwrap());
        // An abrupt end leaves the file, and a client is refused: it may remove it.
        assert_eq!(path.exists(), ends == "at_once", "{ends}");
        if path.exists() {
            let refused = UnixStream::connect(&path).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        }
    }
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn the_file_of_an_ended_process_with_the_same_number_is_replaced() {
    let _watchdog = watchdog();
    scene("the_file_of_an_ended_process_with_the_same_number_is_replaced", || {
        let folder = PathBuf::from(std::env::var_os("XDG_RUNTIME_DIR").unwrap()).join("uwork");
        fs::create_dir(&folder).unwrap();
        let path = folder.join(format!("{}.sock", std::process::id()));
        drop(UnixListener::bind(&path).unwrap());
        fs::write(folder.join(format!(".{}", std::process::id())), "left").unwrap();
        assert_eq!(socket(), path);
        assert!(Client::connect(&path).ask("help").is_ok());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "one file, the socket's");
    });
}

#[test]
fn the_environment_switches_the_socket_off() {
    let _watchdog = watchdog();
    let test = "the_environment_switches_the_socket_off";
    let folder = folder_for(test);
    let prepare = |command: &mut std::process::Command| {
        command.env("XDG_RUNTIME_DIR", &folder).env("UWORK_CONTROL", "0");
    };
    alone_with(test, prepare, || {
        let queue = queue("off").build().unwrap();
        queue.spawn(|| ()).join().unwrap();
        until("the watcher has looked", || {
            control::socket().is_err_and(|reason| reason.contains("UWORK_CONTROL=0"))
        });
    });
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let _ = fs::remove_dir_all(&folder);
}

/// Whether this is the number of an open socket.
fn is_socket(file: libc::c_int) -> bool {
    fs::read_link(format!("/proc/self/fd/{file}"))
        .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
}

#[test]
fn a_program_that_closes_the_descriptor_loses_the_socket_only() {
    let _watchdog = watchdog();
    scene("a_program_that_closes_the_descriptor_loses_the_socket_only", || {
        let path = socket();
        // Not every descriptor: another thread of the library may be reading a file just now.
        for file in (3..1024).filter(|&file| is_socket(file)) {
            // SAFETY: the control socket's. This process has no other socket.
            unsafe { libc::close(file) };
        }
        assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        // A listener of the program's gets the number.
        let other = path.with_file_name("other");
        let listener = UnixListener::bind(&other).unwrap();
        let client = std::thread::spawn(move || UnixStream::connect(&other).unwrap());
        let (_stream, _) = listener.accept().expect("its own client");
        client.join().unwrap();
        let queue = queue("goes on").build().unwrap();
        assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
    });
}
