//! The commands that look into a running process. The process is the test itself, alone.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uwork::{DelayedWork, Queue, WorkItem, control};

use crate::answering::{answering, ok};
use crate::observed::{looked_at, observed, until};

/// Runs the command.
fn uwork(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_uwork")).args(args).output().unwrap()
}

/// The output of a command that succeeds. Asks again if this process has got no CPU for an answer.
fn text(args: &[&str]) -> String {
    let ask = || {
        let output = uwork(args);
        let errors = String::from_utf8(output.stderr).unwrap();
        if errors.ends_with("does not answer: it is stopped, or gets no CPU\n") {
            return Err(errors);
        }
        assert!(output.status.success() && errors.is_empty(), "{args:?}: {errors}");
        Ok(String::from_utf8(output.stdout).unwrap())
    };
    until(ask, |_| true)
}

/// The single line of a refusal.
fn refused(args: &[&str]) -> String {
    let output = uwork(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
    errors.trim_end().to_owned()
}

#[test]
fn ls_lists_this_process_and_removes_the_files_of_ended_ones() {
    observed("ls_lists_this_process_and_removes_the_files_of_ended_ones", || {
        let (_queue, pid) = looked_at("ls");
        let path = control::socket().unwrap();
        // Larger than any process's number.
        let stale = path.with_file_name("99999999.sock");
        drop(UnixListener::bind(&stale).unwrap());
        let listed = text(&["ls"]);
        let line =
            listed.lines().find(|line| line.trim_start().starts_with(&pid)).expect("this process");
        assert!(line.ends_with(path.to_str().unwrap()), "{line}");
        assert!(!fs::exists(&stale).unwrap() && fs::exists(&path).unwrap());
    });
}

#[test]
fn ls_removes_a_socket_that_never_got_its_name() {
    observed("ls_removes_a_socket_that_never_got_its_name", || {
        let (_queue, _) = looked_at("unnamed");
        let path = control::socket().unwrap();
        let unnamed = path.with_file_name(".99999998");
        drop(UnixListener::bind(&unnamed).unwrap());
        // Of a process that lives: it may be about to name it.
        let own = path.with_file_name(".1");
        drop(UnixListener::bind(&own).unwrap());
        text(&["ls"]);
        assert!(!fs::exists(&unnamed).unwrap() && fs::exists(&own).unwrap());
        fs::remove_file(own).unwrap();
    });
}

/// A process of its own, which listens and never answers.
#[test]
fn a_process_that_does_not_answer_is_named_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _waits = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let said = refused(&["dump", path.to_str().unwrap()]);
    assert!(said.ends_with("does not answer: it is stopped, or gets no CPU"), "{said}");
}

#[test]
fn a_socket_under_the_name_of_another_process_is_refused() {
    observed("a_socket_under_the_name_of_another_process_is_refused", || {
        let (_queue, _) = looked_at("impostor");
        // The parent exists, and does not listen here.
        let parent = std::os::unix::process::parent_id();
        let path = control::socket().unwrap().with_file_name(format!("{parent}.sock"));
        let listener = UnixListener::bind(&path).unwrap();
        let said = refused(&["dump", &parent.to_string()]);
        drop(listener);
        fs::remove_file(path).unwrap();
        let own = format!("process {} listens here, not {parent}", std::process::id());
        assert!(said.ends_with(&own), "{said}");
    });
}

#[test]
fn a_queue_with_a_space_in_its_name_is_tuned() {
    observed("a_queue_with_a_space_in_its_name_is_tuned", || {
        let (queue, pid) = looked_at("a/b c");
        assert_eq!(text(&["set", &pid, "devices/a!b c/max_active", "5"]), "");
        assert_eq!(queue.max_active(), 5);
        assert_eq!(text(&["get", &pid, "devices/a!b!c/max_active"]), "5\n");
        // Without the flag as well.
        let plain = Queue::builder("unflagged").build().unwrap();
        assert_eq!(text(&["set", &pid, "devices/unflagged/max_active", "6"]), "");
        assert_eq!(plain.max_active(), 6);
    });
}

#[test]
fn attributes_are_listed_read_described_and_set() {
    observed("attributes_are_listed_read_described_and_set", || {
        let (queue, pid) = looked_at("tuned");
        let tree = text(&["ls", &pid, "devices/tuned"]);
        assert!(
            tree.contains("rw  devices/tuned/max_active ")
                && tree.contains("ro  devices/tuned/per_cpu "),
            "{tree}"
        );
        assert!(text(&["ls", &pid]).contains("rw  module/parameters/watchdog_thresh "));
        let scope = ["devices/tuned/affinity_scope", "workqueue/devices/tuned/affinity_scope"];
        assert_eq!(text(&["set", &pid, scope[1], "system"]), "");
        assert_eq!(text(&["get", &pid, scope[0]]), "system\n");
        assert_eq!(queue.affinity_scope().unwrap().to_string(), "system");
        assert_eq!(
            text(&["set", &pid, "devices/tuned/nice", "-3"]),
            "",
            "a value may begin with a dash"
        );
        assert!(
            text(&["get", "--describe", &pid, scope[0]]).contains("allowed  default, cpu, smt, ")
        );
        let wrong = refused(&["set", &pid, scope[0], "socket"]);
        assert!(
            wrong.contains("\"socket\" is not a value of it; allowed are default, cpu, smt, "),
            "{wrong}"
        );
        let wrong = refused(&["get", &pid, "devices/tuned/color"]);
        assert!(wrong.contains("there are affinity_scope, affinity_strict, "), "{wrong}");
        assert!(refused(&["ls", &pid, "nowhere"]).contains("no such attribute"));
        for path in ["devices/none", "/devices/none", "devices/none/"] {
            assert!(refused(&["ls", &pid, path]).contains("none"), "{path}");
        }
    });
}

#[test]
fn a_dump_has_the_queues_of_the_process() {
    observed("a_dump_has_the_queues_of_the_process", || {
        let (_queue, pid) = looked_at("dumped");
        let socket = control::socket().unwrap();
        for process in [pid.as_str(), socket.to_str().unwrap()] {
            assert!(text(&["dump", process]).contains("queue dumped "));
        }
        let dump: serde_json::Value =
            serde_json::from_str(&text(&["dump", "--json", &pid])).unwrap();
        let queues = dump["queues"].as_array().expect("a list");
        assert!(queues.iter().any(|queue| queue["name"] == "dumped"), "{dump}");
    });
}

#[test]
fn monitor_prints_the_counters_of_the_chosen_queues() {
    observed("monitor_prints_the_counters_of_the_chosen_queues", || {
        let (queue, pid) = looked_at("monitored");
        (0..50).map(|_| queue.spawn(|| ())).collect::<Vec<_>>().into_iter().for_each(|handle| {
            handle.join().unwrap();
        });
        queue.flush().unwrap();
        let table = text(&["monitor", "-i", "0.01", "-c", "2", &pid, "^monitored$"]);
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .filter(|row: &Vec<_>| !row.is_empty())
            .collect();
        assert_eq!(rows.len(), 4, "{table}");
        let head =
            "total infl pend CPUtime CPUitsv CMW mayday rescued runtime busy items/s full stolen";
        assert_eq!(rows[0].join(" "), format!("{head} wait wait99 run99"));
        assert_eq!((rows[1][0], rows[3][0]), ("monitored", "monitored"));
        assert!(refused(&["monitor", &pid, "("]).contains("is no regular expression"));
        assert!(refused(&["monitor", "-i", "often", &pid]).ends_with("(allowed: 0 to 86400)"));
    });
}

#[test]
fn a_trace_has_the_runs_of_the_items_that_are_queued_meanwhile() {
    observed("a_trace_has_the_runs_of_the_items_that_are_queued_meanwhile", || {
        let (queue, pid) = looked_at("traced");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let file = path.to_str().unwrap().to_owned();
        let trace = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
            let mut running = command.args(["trace", &pid, "-o", &file]).spawn().unwrap();
            while running.try_wait().unwrap().is_none() {
                queue.spawn(std::thread::yield_now).join().unwrap();
            }
            assert!(running.wait().unwrap().success());
            serde_json::from_str::<serde_json::Value>(&fs::read_to_string(&path).unwrap())
        };
        let is_run = |event: &serde_json::Value| {
            event["ph"] == "X"
                && event["name"].as_str().is_some_and(|name| name.ends_with("[traced]"))
        };
        let is_arrow = |event: &serde_json::Value| event["ph"] == "f" && event["name"] == "queued";
        // On a busy machine no item may have run during a trace.
        until(trace, |trace| {
            let events = trace["traceEvents"].as_array().unwrap();
            events.iter().any(is_run) && events.iter().any(is_arrow)
        });
        assert!(refused(&["trace", &pid, "-o", "/nowhere/t.json"]).contains("No such file"));
    });
}

#[test]
fn a_trace_that_is_refused_leaves_the_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    fs::write(&path, "an earlier trace").unwrap();
    let file = path.to_str().unwrap();
    let (_folder, busy) = answering(|_| "err refused a trace is on\n".to_owned());
    for process in ["99999998", &busy] {
        refused(&["trace", process, "-o", file]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "an earlier trace", "{process}");
    }
}

#[test]
fn a_trace_that_is_refused_later_is_ended_and_written() {
    let (asked, requests) = std::sync::mpsc::channel();
    let reads = std::cell::Cell::new(0);
    let (folder, socket) = answering(move |request| {
        asked.send(request.to_owned()).unwrap();
        match request {
            "trace read" => {
                reads.set(reads.get() + 1);
                let record = "lost\t0\nmore\t0\nstarted\t5000\t1\tbeef\t7\t3\ta0\n";
                if reads.get() == 1 { ok(record) } else { "err refused not now\n".to_owned() }
            }
            "queues" => ok("name\tran\n"),
            _ => ok(""),
        }
    });
    let path = folder.path().join("trace.json");
    let output = uwork(&["trace", &socket, "-o", path.to_str().unwrap(), "-s", "3600"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1 runs") && said.contains("not now; the file has what"), "{said}");
    assert!(requests.try_iter().any(|request| request == "trace off"));
    assert!(fs::read_to_string(&path).unwrap().contains("has not ended"));
}

#[test]
fn a_signal_ends_a_trace_and_the_file_is_written() {
    observed("a_signal_ends_a_trace_and_the_file_is_written", || {
        let (queue, pid) = looked_at("cut-short");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let file = path.to_str().unwrap().to_owned();
        let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
        command
            .args(["trace", &pid, "-o", &file, "-s", "3600"])
            .stderr(std::process::Stdio::piped());
        let mut running = command.spawn().unwrap();
        let read = || {
            queue.spawn(std::thread::yield_now).join().unwrap();
            assert!(running.try_wait().unwrap().is_none());
            Ok::<_, ()>(control::answer("trace read"))
        };
        until(read, |records| records.contains("\nqueued\t"));
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&running),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        let status = running.wait().unwrap();
        let mut said = String::new();
        std::io::Read::read_to_string(&mut running.stderr.take().unwrap(), &mut said).unwrap();
        assert!(status.success() && said.contains("ended by a signal"), "{said}");
        let trace: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert!(trace["traceEvents"].is_array());
        assert!(
            control::answer("trace on 1").starts_with("ok "),
            "it was ended in the process, too"
        );
        control::answer("trace off");
    });
}

#[test]
fn doctor_names_the_queue_that_does_not_move() {
    observed("doctor_names_the_queue_that_does_not_move", || {
        let (_queue, pid) = looked_at("patient");
        let queue = Queue::builder("stuck").ordered().build().unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (began, begun) = std::sync::mpsc::channel();
        let stuck = queue.spawn(move || {
            began.send(()).unwrap();
            let _ = held.recv();
        });
        let behind = queue.spawn(|| ());
        begun.recv().unwrap();
        let (line, _) = finding_of(&pid, "stuck", &[]);
        assert!(
            line.starts_with("  LOOK  ") && line.contains("all permits of max_active 1 are taken"),
            "{line}"
        );
        // The function is in the dump.
        assert!(text(&["dump", &pid]).contains("doctor_names_the_queue_that_does_not_move"));
        drop(release);
        stuck.join().unwrap();
        behind.join().unwrap();
    });
}

/// What doctor says about a queue of a process that does not move: the finding, and the lines below.
/// Asks until these have all `parts`. On a busy machine an item may not yet wait in the place where
/// it will, a thread may not answer in time, and neither may the process.
fn finding_of(pid: &str, queue: &str, parts: &[&str]) -> (String, String) {
    let ask = || {
        let output = uwork(&["doctor", pid]);
        let found = String::from_utf8(output.stdout).unwrap();
        let mut lines = found.lines();
        let Some(line) = lines.find(|line| line.contains(&format!("queue {queue}"))) else {
            return Err((found, output.stderr));
        };
        assert_eq!(output.status.code(), Some(1), "{found}");
        let below = lines.take_while(|line| line.starts_with("      "));
        Ok((line.to_owned(), below.map(|line| line.to_owned() + "\n").collect::<String>()))
    };
    until(ask, |(_, below)| parts.iter().all(|part| below.contains(part)))
}

/// The dump with stacks that has all `parts`. Asks again for the reasons of [`finding_of`].
fn dump_with(pid: &str, parts: &[&str]) {
    let ask = || {
        let output = uwork(&["dump", "--stacks", pid]);
        let (dump, said) = (String::from_utf8(output.stdout), String::from_utf8(output.stderr));
        output.status.success().then_some(dump.unwrap()).ok_or(said)
    };
    until(ask, |dump| parts.iter().all(|part| dump.contains(part)));
}

/// Waits for ever, or until the other end is dropped. Its name is in the stack.
#[inline(never)]
fn waits_on_a_channel(held: &std::sync::mpsc::Receiver<()>) {
    std::hint::black_box(held.recv().is_err());
}

#[test]
fn doctor_names_a_frozen_queue() {
    observed("doctor_names_a_frozen_queue", || {
        let (_queue, pid) = looked_at("thawed");
        let queue = Queue::builder("cold").freezable().build().unwrap();
        // It began before the freeze. Its sleep is not why the other item waits.
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (began, begun) = std::sync::mpsc::channel();
        let asleep = queue.spawn(move || {
            began.send(()).unwrap();
            waits_on_a_channel(&held);
        });
        begun.recv().unwrap();
        uwork::freeze::begin().unwrap();
        let waits = queue.spawn(|| ());
        let (line, below) = finding_of(&pid, "cold", &[]);
        release.send(()).unwrap();
        uwork::freeze::thaw().unwrap();
        asleep.join().unwrap();
        waits.join().unwrap();
        // Inactive, if a worker looked at the queue meanwhile.
        let waits =
            |line: &&str| line.contains("pending  item ") || line.contains("inactive  item ");
        let item = below.lines().find(waits);
        assert!(item.is_some_and(|line| line.contains("doctor_names_a_frozen_queue")), "{below}");
        assert_eq!(line, "  LOOK  queue cold is frozen, and 1 items wait");
    });
}

#[test]
fn doctor_names_a_paused_queue() {
    observed("doctor_names_a_paused_queue", || {
        let (_queue, pid) = looked_at("resumed");
        let queue = Queue::builder("halted").build().unwrap();
        queue.pause().unwrap();
        let waits = queue.spawn(|| ());
        let (line, below) = finding_of(&pid, "halted", &[]);
        queue.resume().unwrap();
        waits.join().unwrap();
        assert_eq!(line, "  LOOK  queue halted is paused, and 1 items wait");
        assert!(below.contains("the program has called pause and not resume"), "{below}");
    });
}

#[test]
fn doctor_keeps_its_findings_if_there_are_too_many_queues() {
    let (_folder, socket) = answering(|request| match request {
        "queues" => "err too-long too many queues\n".to_owned(),
        "status" => ok("pid\t1\nblocking_tier\tdeclared\npanics\t3\n"),
        _ => ok(""),
    });
    let output = uwork(&["doctor", &socket]);
    let found = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{found}");
    let remedy = format!("`uwork monitor {} NAME`", std::process::id());
    for part in ["tier declared", "3 items have panicked", "too many queues", &remedy] {
        assert!(found.contains(part), "{part}: {found}");
    }
}

#[test]
fn paused_queues_take_no_place_of_those_that_are_asked() {
    let row = |name: &str, gate: &str| format!("{name}\t1\t1\t2\t1\t1\t1\t0\t{gate}\tunbound\n");
    let paused: String = (0..30).map(|n| row(&format!("a{n:02}"), "paused")).collect();
    let queues = format!(
        "name\tstarted\tran\tin_flight\tpending\trunning\tmax_active\tsaturated\tgate\tkind\n{paused}{}",
        row("last", "open")
    );
    let (_folder, socket) = answering(move |request| match request {
        "queues" => ok(&queues),
        "stacks 100 last" => ok(
            "stacks of 1 workers\n  uw/0 (thread 7, slot 1), asleep, in a::F of queue \"last\"\n",
        ),
        _ => ok(""),
    });
    let found = String::from_utf8(uwork(&["doctor", &socket]).stdout).unwrap();
    assert!(found.contains("in a::F of queue \"last\""), "{found}");
}

#[test]
fn doctor_says_why_it_has_no_stacks() {
    let queues = "name\tstarted\tran\tin_flight\tpending\trunning\tmax_active\tsaturated\tgate\tkind\n\
                  mute\t1\t1\t2\t1\t1\t1\t1\topen\tunbound\n";
    let (_folder, socket) = answering(|request| match request {
        "queues" => ok(queues),
        "dump" => ok("  queue mute  unbound\n    pwq 1\n      pending  item 0x5  c::H\n"),
        "stacks 100 mute" => "no answer of the protocol\n".to_owned(),
        _ => ok(""),
    });
    let found = String::from_utf8(uwork(&["doctor", &socket]).stdout).unwrap();
    for part in ["queue mute", "no stacks: the connection to process ", "pending  item 0x5  c::H"] {
        assert!(found.contains(part), "{part}: {found}");
    }
}

/// More workers are stuck than an answer has stacks.
#[test]
fn doctor_has_the_stack_of_each_stuck_queue() {
    observed("doctor_has_the_stack_of_each_stuck_queue", || {
        let (_queue, pid) = looked_at("crowd");
        let release = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
        let queues: Vec<Queue> = (0..12)
            .map(|n| Queue::builder(format!("crowd-{n}")).ordered().build().unwrap())
            .collect();
        let begun = Arc::new(std::sync::Barrier::new(13));
        let stuck: Vec<_> = queues
            .iter()
            .map(|queue| {
                let (release, begun) = (release.clone(), begun.clone());
                queue.spawn(move || {
                    begun.wait();
                    let mut is_over = release.0.lock().unwrap();
                    while !*is_over {
                        is_over = release.1.wait(is_over).unwrap();
                    }
                })
            })
            .collect();
        begun.wait();
        // On a busy machine the process may not answer in time.
        let ask = || String::from_utf8(uwork(&["doctor", &pid]).stdout);
        until(ask, |output| (0..12).all(|n| output.contains(&format!("of queue \"crowd-{n}\""))));
        *release.0.lock().unwrap() = true;
        release.1.notify_all();
        stuck.into_iter().for_each(|stuck| stuck.join().unwrap());
    });
}

#[test]
fn doctor_and_dump_name_an_item_that_sleeps_in_bottom_half_context() {
    observed("doctor_and_dump_name_an_item_that_sleeps_in_bottom_half_context", || {
        let (_queue, pid) = looked_at("awake");
        let queue = Queue::builder("sleepy").bh().build().unwrap();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (began, begun) = std::sync::mpsc::channel();
        let asleep = queue.spawn(move || {
            began.send(()).unwrap();
            waits_on_a_channel(&held);
        });
        begun.recv().unwrap();
        let stack = ["an_item_that_sleeps_in_bottom_half_context", "waits_on_a_channel"];
        let remedy = "an item sleeps in BH context";
        let (line, _) = finding_of(&pid, "sleepy", &[remedy, stack[0], stack[1]]);
        dump_with(&pid, &stack);
        drop(release);
        asleep.join().unwrap();
        assert_eq!(line, "  LOOK  queue sleepy: 1 items run, none ends, 1 are left");
    });
}

#[test]
fn doctor_and_dump_name_both_queues_of_a_deadlock() {
    observed("doctor_and_dump_name_both_queues_of_a_deadlock", || {
        let (_queue, pid) = looked_at("bystander");
        // For ever: the items of these queues never end.
        let queues = ["embrace-1", "embrace-2"]
            .map(|name| &*Box::leak(Box::new(Queue::builder(name).ordered().build().unwrap())));
        let both_run: &std::sync::Barrier = Box::leak(Box::new(std::sync::Barrier::new(3)));
        for (own, other) in [(0, 1), (1, 0)] {
            std::mem::forget(queues[own].spawn(move || {
                both_run.wait();
                queues[other].flush().unwrap();
            }));
        }
        both_run.wait();
        let function = "doctor_and_dump_name_both_queues_of_a_deadlock";
        let remedy = "        a deadlock, items wait for each other: ";
        let parts = [remedy, "  deadlock: item ", "::flush", ", waiting, in ", function];
        let found = ["embrace-1", "embrace-2"].map(|name| finding_of(&pid, name, &parts));
        let dump = text(&["dump", &pid]);
        for (name, (line, below)) in ["embrace-1", "embrace-2"].into_iter().zip(found) {
            let expected = format!(
                "  LOOK  queue {name}: all permits of max_active 1 are taken, 1 items run, 1 have not ended"
            );
            assert_eq!(line, expected);
            assert!(
                below
                    .lines()
                    .any(|line| line.contains(", waiting, in ") && line.contains(function))
            );
            assert!(
                dump.lines().any(
                    |line| line.contains("waiting") && line.contains(&format!("queue {name} "))
                ),
                "{dump}"
            );
        }
        assert!(dump.contains(function), "{dump}");
    });
}

static LOCK: Mutex<()> = Mutex::new(());
static EXPIRED: AtomicBool = AtomicBool::new(false);

/// An item with a timer, whose function takes a lock.
struct Timed {
    work: DelayedWork<Timed>,
}
uwork::has_work!(impl HasDelayedWork for Timed { work });

impl WorkItem for Timed {
    type Pointer = Arc<Timed>;
    fn run(_this: Arc<Timed>) {
        EXPIRED.store(true, Ordering::Relaxed);
        takes_the_lock();
    }
}

#[inline(never)]
fn takes_the_lock() {
    drop(std::hint::black_box(LOCK.lock().unwrap()));
}

#[test]
fn doctor_names_the_item_that_holds_the_limit_and_a_timer_behind_a_lock() {
    observed("doctor_names_the_item_that_holds_the_limit_and_a_timer_behind_a_lock", || {
        let (_queue, pid) = looked_at("limits");
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (began, begun) = std::sync::mpsc::channel();
        let limited = Queue::builder("starved").ordered().build().unwrap();
        let holder = limited.spawn(move || {
            began.send(()).unwrap();
            waits_on_a_channel(&held);
        });
        let starved = limited.spawn(|| ());
        begun.recv().unwrap();
        let timers = Queue::builder("timers").build().unwrap();
        let lock = LOCK.lock().unwrap();
        let timed = Arc::new(Timed { work: DelayedWork::new() });
        assert!(timers.enqueue_delayed(timed, Duration::from_millis(1)).is_queued());
        until(|| Ok::<_, ()>(EXPIRED.load(Ordering::Relaxed)), |is_expired| *is_expired);
        let (line, _) = finding_of(&pid, "starved", &["waits_on_a_channel"]);
        assert!(line.contains("all permits of max_active 1 are taken"), "{line}");
        let remedy = "an item sleeps where its stack says";
        finding_of(&pid, "timers", &[remedy, "::Timed", "takes_the_lock"]);
        let named =
            ["waits_on_a_channel", "takes_the_lock", "::Timed", "queue starved", "queue timers"];
        dump_with(&pid, &named);
        drop((lock, release));
        holder.join().unwrap();
        starved.join().unwrap();
        timers.flush().unwrap();
    });
}

#[test]
fn processes_without_a_socket_are_explained() {
    assert_eq!(refused(&["dump", "99999998"]), "uwork: there is no process 99999998");
    // The first process uses no uwork, or belongs to another.
    assert!(refused(&["dump", "1"]).contains("process 1 has no control socket here"));
    assert!(
        refused(&["dump", "me"]).contains("'me' is neither a process's number nor a socket's path")
    );
    let gone = refused(&["dump", "/nowhere/1.sock"]);
    assert!(gone.starts_with("uwork: /nowhere/1.sock: "), "{gone}");
}

#[test]
fn completions_and_man_pages_come_from_the_flags() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&["completions", shell]).contains("monitor"), "{shell}");
    }
    assert!(text(&["man"]).contains(".TH"));
    assert!(text(&["man", "monitor"]).contains("interval"));
    assert!(refused(&["man", "unknown"]).contains("(allowed: topology, sum, "));
}

#[test]
fn all_man_pages_are_written_into_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert_eq!(text(&["man", "--all", path]), "");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("uwork.1"), text(&["man"]));
    assert_eq!(read("uwork-doctor.1"), text(&["man", "doctor"]));
    assert!(!folder.path().join("uwork-help.1").exists());
    assert!(refused(&["man", "--all", "/nowhere"]).starts_with("uwork: /nowhere/uwork.1: "));
}
