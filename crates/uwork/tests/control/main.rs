//! The control socket: permitted clients, their answers, and that no client disturbs the process.
//! Each scene is a process of its own, with a folder of its own for the socket.

mod clients;
mod copies;
mod handlers;
mod requests;
mod signals;
mod strangers;
#[path = "../support/mod.rs"]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use support::child::{alone_with, ending_of, is_started, limit};
use support::descriptors::{CloseAll, Files, is_open, open_descriptors, until_at_rest};
use support::forked::in_child;
use support::{queue, until, watchdog, within};
use uwork::control;

/// The variable that names the folder of run-time files.
const RUNTIME: &str = "XDG_RUNTIME_DIR";
/// The prefix of the names of folders; the number of their process is behind it.
const FOLDERS: &str = "uwc-";

/// The parent of the folders. Not the folder for temporary files: its path may be too long for the
/// address of a socket, and closed to other users.
const PARENT: &str = "/tmp";

/// A folder of run-time files. The process that starts a test's own process creates and removes it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if is_started() {
            return Folder(PathBuf::from(std::env::var_os(RUNTIME).expect("from the starter")));
        }
        remove_folders_of_ended_processes();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{FOLDERS}{}-{number}", std::process::id());
        let folder = Path::new(PARENT).join(name);
        fs::create_dir(&folder).expect("a folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("our own folder");
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !is_started() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// A process that was killed has left its folders.
fn remove_folders_of_ended_processes() {
    for entry in fs::read_dir(PARENT).expect("a folder").flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(FOLDERS)?.split('-').next());
        if process.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Runs `scene` in a process of its own, with its own folder.
#[track_caller]
fn scene(test: &str, body: impl FnOnce()) {
    scene_with(test, |_| {}, body);
}

/// As [`scene`], with more changes to the process's environment.
#[track_caller]
fn scene_with(test: &str, more: impl FnOnce(&mut Command), body: impl FnOnce()) {
    let folder = Folder::new();
    let prepare = |command: &mut Command| {
        command.env_remove("UWORK_CONTROL").env(RUNTIME, &folder.0);
        more(command);
    };
    alone_with(test, prepare, body);
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

// Catches: a fact or a column that the pages for authors of clients and for operators leave out.
#[test]
fn the_pages_of_the_protocol_name_every_fact_and_column() {
    let protocol = include_str!("../../../linux/src/control/README.md");
    let operations = include_str!("../../../../docs/operations.md");
    let text = |request| {
        let answer = control::answer(request);
        answer.split_once('\n').expect("a line").1.to_owned()
    };
    let facts = text("status");
    let facts = facts.lines().filter_map(|line| line.split('\t').next());
    let (queues, pools) = (text("queues"), text("pools"));
    let heads = [&queues, &pools].into_iter().flat_map(|table| table.lines().take(1));
    let workers = pools.split_once("\n\n").expect("two tables").1.lines().take(1);
    let columns = heads.chain(workers).flat_map(|head| head.split('\t'));
    let names: Vec<&str> = facts.chain(columns).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        let name = format!("`{name}`");
        assert!(protocol.contains(&name) || operations.contains(&name), "no page has {name}");
    }
}

/// The control thread sees every queue, the program those with the flag.
#[test]
fn a_queue_without_the_flag_is_seen_and_tuned_from_outside() {
    let _watchdog = watchdog();
    scene("a_queue_without_the_flag_is_seen_and_tuned_from_outside", || {
        let path = socket();
        let queue = uwork::Queue::builder("a/b c").build().unwrap();
        let twin = uwork::Queue::builder("a/b c").numbered().build().unwrap();
        let mut client = Client::connect(&path);
        assert!(client.ask("list devices").unwrap().contains("dir\ta!b!c#2\n"));
        assert_eq!(client.ask("set devices/a!b!c/max_active 7"), Ok(String::new()));
        assert_eq!(client.ask("set devices/a!b!c#2/max_active 9"), Ok(String::new()));
        assert_eq!((queue.max_active(), twin.max_active()), (7, 9));
        for path in ["devices/a!b!c/max_active", "devices/a!b c/max_active"] {
            assert_eq!(client.ask(&format!("get {path}")), Ok("7\n".to_owned()));
        }
        assert!(uwork::sysfs::get("devices/a!b!c/max_active").is_err(), "not in the program's");
    });
}

#[test]
fn tables_and_stacks_of_chosen_queues() {
    let _watchdog = watchdog();
    scene("tables_and_stacks_of_chosen_queues", || {
        let path = socket();
        let (first, second) =
            (queue("chosen-1").build().unwrap(), queue("other-2").build().unwrap());
        let (release, held) = std::sync::mpsc::channel::<()>();
        let held = std::sync::Mutex::new(held);
        let held: &'static std::sync::Mutex<_> = Box::leak(Box::new(held));
        let begun: &'static std::sync::Barrier = Box::leak(Box::new(std::sync::Barrier::new(3)));
        let waits = [&first, &second].map(|queue| {
            queue.spawn(move || {
                begun.wait();
                held.lock().unwrap().recv().is_err()
            })
        });
        begun.wait();
        let mut client = Client::connect(&path);
        let table = client.ask("queues chosen-").unwrap();
        assert_eq!(table.lines().count(), 2, "{table}");
        assert!(table.contains(first.name()), "{table}");
        let stacks = client.ask(&format!("stacks 0 {}", second.name())).unwrap();
        assert!(stacks.starts_with("stacks of 1 workers\n"), "{stacks}");
        assert!(stacks.contains(&format!("of queue {:?}", second.name())), "{stacks}");
        assert!(client.ask("stacks 0 none").unwrap().starts_with("stacks of 0 workers\n"));
        drop(release);
        assert!(waits.into_iter().all(|waits| waits.join().unwrap()), "nothing was sent");
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
    let folder = Folder::new();
    let name = |ends: &str| folder.0.join(format!("path-{ends}"));
    for ends in ["in_order", "at_once"] {
        let prepare = |command: &mut Command| {
            command.env_remove("UWORK_CONTROL");
            command.env(RUNTIME, &folder.0).env("NOTE", name(ends)).env("ENDS", ends);
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
}

#[test]
fn the_file_of_an_ended_process_with_the_same_number_is_replaced() {
    let _watchdog = watchdog();
    scene("the_file_of_an_ended_process_with_the_same_number_is_replaced", || {
        let folder = PathBuf::from(std::env::var_os(RUNTIME).unwrap()).join("uwork");
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let namespace = fs::metadata("/proc/self/ns/pid").unwrap().ino();
        let name = format!("{}-{namespace:x}", std::process::id());
        let path = folder.join(format!("{name}.sock"));
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(socket(), path);
        assert!(Client::connect(&path).ask("help").is_ok());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "one file, the socket's");
    });
}

#[test]
fn the_environment_switches_the_socket_off() {
    let _watchdog = watchdog();
    let test = "the_environment_switches_the_socket_off";
    let folder = Folder::new();
    let prepare = |command: &mut Command| {
        command.env(RUNTIME, &folder.0).env("UWORK_CONTROL", "0");
    };
    alone_with(test, prepare, || {
        let queue = queue("off").build().unwrap();
        queue.spawn(|| ()).join().unwrap();
        until("the watcher has looked", || {
            control::socket().is_err_and(|reason| reason.contains("UWORK_CONTROL=0"))
        });
    });
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
}

// Catches: a watcher that reads the environment, which the program may change at that moment.
#[test]
fn the_environment_of_the_first_queue_is_that_of_later_sockets() {
    let _watchdog = watchdog();
    scene("the_environment_of_the_first_queue_is_that_of_later_sockets", || {
        let path = socket();
        // SAFETY: no other code of this process reads the environment by the C library.
        unsafe { std::env::set_var(RUNTIME, "/nowhere") };
        fs::remove_file(&path).unwrap();
        let queue = queue("goes on").build().unwrap();
        until("the socket is open again", || {
            queue.spawn(|| ()).join().unwrap();
            path.exists()
        });
        assert_eq!(control::socket(), Ok(path));
    });
}

// Catches: a socket of the program's that takes the clients of the library's, or is closed; clients
// that are refused for ever.
#[test]
fn a_program_that_closes_all_descriptors_gets_a_new_socket() {
    let _watchdog = watchdog();
    scene("a_program_that_closes_all_descriptors_gets_a_new_socket", || {
        for round in 0..4 {
            let path = socket();
            let client = (round % 2 == 1).then(|| Client::connect(&path));
            // Of the process itself, so it is closed below.
            std::mem::forget(client);
            until_at_rest();
            let numbers = CloseAll::AtOnce.run();
            let files = Files::open(&numbers, round);
            // A listener of the program's gets the number.
            let listener = UnixListener::bind(path.with_file_name(format!("other{round}")));
            let listener = listener.unwrap();
            let taken: Vec<_> = numbers.iter().filter(|&&number| !is_open(number)).collect();
            assert_eq!(taken, [] as [&i32; 0]);
            let queue = queue("goes on").build().unwrap();
            // A poll of the old socket holds it open until a client comes, which is then refused.
            let greets = |client: UnixStream| {
                let mut line = String::new();
                BufReader::new(client).read_line(&mut line).is_ok_and(|length| length > 0)
            };
            until("the socket is open again", || {
                assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
                UnixStream::connect(&path).is_ok_and(greets)
            });
            drop(Client::connect(&path));
            assert!(listener.set_nonblocking(true).is_ok());
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
            files.are_intact();
        }
    });
}

// Catches: a control thread that waits for clients of a lost socket, while those of the new one get no
// answer; a client of the program's listener, taken by the library or answered.
#[test]
fn a_client_of_the_new_socket_is_served_although_an_earlier_one_is_silent() {
    let _watchdog = watchdog();
    scene("a_client_of_the_new_socket_is_served_although_an_earlier_one_is_silent", || {
        let path = socket();
        let inode = |path: &Path| fs::metadata(path).map(|found| found.ino()).ok();
        for round in 0..4 {
            let (mut silent, before) = (Client::connect(&path), inode(&path));
            until_at_rest();
            // A listener of the program's, which blocks, under each number of the library's.
            let other = path.with_file_name(format!("other{round}"));
            let listener = UnixListener::bind(&other).unwrap();
            let own = [silent.stream().as_raw_fd(), listener.as_raw_fd()];
            let numbers = open_descriptors().into_iter().filter(|number| !own.contains(number));
            let numbers: Vec<RawFd> = numbers.collect();
            let replace = |&number: &RawFd| {
                // SAFETY: both are open.
                assert_eq!(unsafe { libc::dup2(own[1], number) }, number);
            };
            numbers.iter().for_each(replace);
            let clients: Vec<_> = (0..5).map(|_| UnixStream::connect(&other).unwrap()).collect();
            let queue = queue("goes on").build().unwrap();
            until("the socket is open again", || {
                assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
                inode(&path).is_some_and(|now| Some(now) != before)
            });
            let path = path.clone();
            within("the first client is served", move || {
                assert!(Client::connect(&path).ask("help").is_ok());
            });
            assert!(silent.is_closed());
            for _ in &clients {
                listener.accept().unwrap();
            }
            assert!(listener.set_nonblocking(true).is_ok());
            assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
            for mut client in clients {
                client.set_nonblocking(true).unwrap();
                assert_eq!(client.read(&mut [0]).ok(), Some(0), "not a word");
            }
            // SAFETY: the test's own.
            numbers.iter().for_each(|&number| _ = unsafe { libc::close(number) });
        }
    });
}

// Catches: a client that is never accepted; a process that can do nothing else meanwhile.
#[test]
fn a_client_that_finds_no_descriptor_left_is_accepted_later() {
    let _watchdog = watchdog();
    scene("a_client_that_finds_no_descriptor_left_is_accepted_later", || {
        let path = socket();
        // Made before, as the process has no descriptor for it later.
        // SAFETY: no pointers.
        let number = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) };
        limit(libc::RLIMIT_NOFILE, 64);
        let mut taken = Vec::new();
        let mut take_all = || {
            // SAFETY: no pointers.
            taken.extend(
                std::iter::repeat_with(|| unsafe { libc::dup(0) }).take_while(|&new| new >= 0),
            );
        };
        take_all();
        let queue = queue("goes on").build().unwrap();
        connect(number, &path);
        for _ in 0..100 {
            assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
            take_all();
        }
        // SAFETY: the test's own.
        taken.into_iter().for_each(|number| _ = unsafe { libc::close(number) });
        // SAFETY: as above, and owned here from now on.
        let stream = unsafe { UnixStream::from_raw_fd(number) };
        let mut client = Client(BufReader::new(stream));
        assert!(client.line().starts_with("uwork-control"));
    });
}

// Catches: a socket that is given up for good, as no descriptor was free when it was opened again.
#[test]
fn a_socket_that_cannot_be_opened_again_at_once_is_opened_later() {
    let _watchdog = watchdog();
    scene("a_socket_that_cannot_be_opened_again_at_once_is_opened_later", || {
        let path = socket();
        let queue = queue("goes on").build().unwrap();
        until_at_rest();
        // SAFETY: no owner of a descriptor in the test uses it later.
        assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0);
        limit(libc::RLIMIT_NOFILE, 64);
        let mut taken: Vec<RawFd> = Vec::new();
        while control::socket().is_ok() {
            // SAFETY: no pointers.
            let duplicates = std::iter::repeat_with(|| unsafe { libc::dup(0) });
            taken.extend(duplicates.take_while(|&new| new >= 0));
            assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
        }
        // SAFETY: the test's own.
        taken.into_iter().for_each(|number| _ = unsafe { libc::close(number) });
        while control::socket().is_err() {
            assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
        }
        assert!(Client::connect(&path).ask("help").is_ok());
    });
}

/// Connects a socket that exists.
fn connect(number: RawFd, path: &Path) {
    // SAFETY: zeros are a valid address; it is live and of the given length.
    unsafe {
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        for (to, from) in address.sun_path.iter_mut().zip(path.as_os_str().as_bytes()) {
            *to = *from as libc::c_char;
        }
        let length = size_of_val(&address) as libc::socklen_t;
        assert_eq!(libc::connect(number, (&raw const address).cast(), length), 0);
    }
}
