//! `uwork doctor`, and `uwork dump` of the same states. The process is the test itself, alone.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uwork::{DelayedWork, Queue, WorkItem};

use crate::answering::{answering, ok};
use crate::bridge::owned::Owned;
use crate::observed::{looked_at, observed, until};
use crate::process::{text, uwork};

#[test]
fn doctor_names_the_queue_that_does_not_move() {
    observed("doctor::doctor_names_the_queue_that_does_not_move", || {
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
    finding_where(pid, queue, |below| parts.iter().all(|part| below.contains(part)))
}

/// As [`finding_of`], until the lines below are as wanted.
pub(crate) fn finding_where(
    pid: &str,
    queue: &str,
    is_wanted: impl Fn(&str) -> bool,
) -> (String, String) {
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
    until(ask, |(_, below)| is_wanted(below))
}

/// All that doctor says about a process, with the exit code, if it has all `parts`. Asks again for
/// the reasons of [`finding_of`].
fn doctor_with(process: &str, parts: &[&str]) -> (String, Option<i32>) {
    let ask = || {
        let output = uwork(&["doctor", process]);
        String::from_utf8(output.stdout).map(|found| (found, output.status.code()))
    };
    until(ask, |(found, _)| parts.iter().all(|part| found.contains(part)))
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
    observed("doctor::doctor_names_a_frozen_queue", || {
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
        // Inactive, if a worker looked at the queue meanwhile.
        let is_named = |line: &str| {
            (line.contains("pending  item ") || line.contains("inactive  item "))
                && line.contains("doctor_names_a_frozen_queue")
        };
        let (line, _) = finding_where(&pid, "cold", |below| below.lines().any(is_named));
        release.send(()).unwrap();
        uwork::freeze::thaw().unwrap();
        asleep.join().unwrap();
        waits.join().unwrap();
        assert_eq!(line, "  LOOK  queue cold is frozen, and 1 item waits");
    });
}

#[test]
fn doctor_names_a_paused_queue() {
    observed("doctor::doctor_names_a_paused_queue", || {
        let (_queue, pid) = looked_at("resumed");
        let queue = Queue::builder("halted").build().unwrap();
        queue.pause().unwrap();
        let waits = queue.spawn(|| ());
        let (line, below) = finding_of(&pid, "halted", &[]);
        queue.resume().unwrap();
        waits.join().unwrap();
        assert_eq!(line, "  LOOK  queue halted is paused, and 1 item waits");
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
    let remedy = format!("`uwork monitor {} NAME`", std::process::id());
    let parts = ["tier declared", "3 items have panicked", "too many queues", &remedy];
    let (found, code) = doctor_with(&socket, &parts);
    assert_eq!(code, Some(1), "{found}");
}

/// Columns of `queues`.
const NAMES: &str =
    "name\tstarted\tran\tin_flight\tpending\trunning\tmax_active\tsaturated\tgate\tkind";

#[test]
fn paused_queues_take_no_place_of_those_that_are_asked() {
    let row = |name: &str, gate: &str| format!("{name}\t1\t1\t2\t1\t1\t1\t0\t{gate}\tunbound\n");
    let paused: String = (0..30).map(|n| row(&format!("a{n:02}"), "paused")).collect();
    let queues = format!("{NAMES}\n{paused}{}", row("last", "open"));
    let (_folder, socket) = answering(move |request| match request {
        "queues" => ok(&queues),
        "raw stacks 100 last" => ok(
            "stacks of 1 workers\n  uw/0 (thread 7, slot 1), asleep, in a::F of queue \"last\"\n",
        ),
        _ => ok(""),
    });
    doctor_with(&socket, &["in a::F of queue \"last\""]);
}

#[test]
fn doctor_leaves_out_frames_that_only_call_the_next() {
    let queues = format!("{NAMES}\nheld\t1\t1\t2\t1\t1\t1\t1\topen\tunbound\n");
    let (_folder, socket) = answering(move |request| match request {
        "queues" => ok(&queues),
        "raw stacks 100 held" => {
            ok("stacks of 1 workers\n  uw/0 (thread 7, slot 1), asleep, in a::F \
            of queue \"held\"\n      0 0x1 a::waits (/a.rs:7)\n      1 0x2 __rust_try\n      \
            2 0x3 b::F::run (/b.rs:1)\n")
        }
        _ => ok(""),
    });
    let parts =
        ["0 0x1 a::waits", "2 0x3 b::F::run", "(1 frame that only calls the next is left out)"];
    let (found, _) = doctor_with(&socket, &parts);
    assert!(!found.contains("__rust_try"), "{found}");
    let json = uwork(&["doctor", "--json", &socket]);
    let json = String::from_utf8_lossy(&json.stdout);
    assert!(json.contains("1 0x2 __rust_try") && !json.contains("left out"), "{json}");
}

#[test]
fn doctor_asks_for_the_stacks_of_several_queues_at_once() {
    let row = |name: &str| format!("{name}\t1\t1\t2\t1\t1\t1\t0\topen\tunbound\n");
    let queues = format!("{NAMES}\n{}{}{}", row("one"), row("none"), row("two"));
    let worker = |n: u32, queue: &str| {
        format!(
            "stacks of 1 workers\n  uw/{n} (thread {n}, slot 1), asleep, in a::F of queue {queue:?}\n"
        )
    };
    let (_folder, socket) = answering(move |request| match request {
        "queues" => ok(&queues),
        "raw stacks 100 one\t100 none\t100 two" => {
            ok(&format!("{}stacks of 0 workers\n{}", worker(1, "one"), worker(2, "two")))
        }
        _ => ok(""),
    });
    let none = "no stacks: the process lists no worker that has been in an item of it for 100 ms";
    let parts = ["uw/1 (thread 1, slot 1)", none, "uw/2 (thread 2, slot 1)"];
    doctor_with(&socket, &parts);
}

#[test]
fn doctor_says_why_it_has_no_stacks() {
    let queues = format!("{NAMES}\nmute\t1\t1\t2\t1\t1\t1\t1\topen\tunbound\n");
    let (_folder, socket) = answering(move |request| match request {
        "queues" => ok(&queues),
        "raw dump" => ok("  queue mute  unbound\n    pwq 1\n      pending  item 0x5  c::H\n"),
        "raw stacks 100 mute" => "no answer of the protocol\n".to_owned(),
        _ => ok(""),
    });
    let parts = ["queue mute", "sent a malformed answer, 'no answer of", "pending  item 0x5  c::H"];
    doctor_with(&socket, &parts);
}

/// The queue moves between the two looks. One of its workers is in an item for 41 s.
#[test]
fn doctor_names_an_item_that_runs_on_in_a_queue_that_moves() {
    let ran = AtomicU32::new(0);
    let (_folder, socket) = answering(move |request| match request {
        "queues" => {
            let ran = ran.fetch_add(1, Ordering::Relaxed);
            ok(&format!(
                "{NAMES}\trun_p99_ns\nlively\t1\t{ran}\t2\t1\t2\t8\t0\topen\tunbound\t98304\n"
            ))
        }
        "raw pools" => {
            ok("id\tcpus\n1\t0-3\n\npool\tslot\tqueue\tfor_us\n1\t0\tlively\t41000000\n\
                           1\t1\tlively\t20\n")
        }
        "raw stacks 10000 lively" => {
            ok("stacks of 1 workers\n  uw/u0 (thread 7, slot 0), asleep, in \
                                         a::F of queue \"lively\"\n      0 0x10 a::waits (a.rs:7)\n")
        }
        _ => ok(""),
    });
    let line = "  LOOK  queue lively: 1 item runs on, for at most 41s, and 99 % of the runs end within 98us";
    let (found, code) = doctor_with(&socket, &[line, "0 0x10 a::waits (a.rs:7)"]);
    assert_eq!(code, Some(1), "{found}");
    assert!(!found.contains("no stacks") && !found.contains("do not move"), "{found}");
}

/// The answer to `queues` with a queue that does not move.
fn stuck() -> String {
    ok(&format!("{NAMES}\nold\t1\t1\t2\t1\t1\t1\t1\topen\tunbound\n"))
}

#[test]
fn doctor_takes_the_names_of_a_process_of_an_earlier_version() {
    let (_folder, socket) = answering(|request| match request {
        "queues" => stuck(),
        "dump" => ok("  queue old  unbound\n"),
        "stacks 100 old" => ok("stacks of 1 workers\n  uw/0 (thread 7), asleep, in a::F of queue \
                               \"old\"\n      0 0x10 a::waits (a.rs:7)\n"),
        "status" => ok("pid\t1\nblocking_tier\tstandby\nblocking_reason\tbest\n"),
        _ => "err bad-request no such request\n".to_owned(),
    });
    let (found, code) =
        doctor_with(&socket, &["in a::F of queue \"old\"", "0 0x10 a::waits (a.rs:7)"]);
    assert_eq!(code, Some(1), "{found}");
    // Nothing is said to be well that the process does not know.
    for unseen in
        ["whether membarrier is permitted", "whether rseq", "how many items have panicked"]
    {
        let line = found.lines().find(|line| line.contains(unseen)).unwrap_or_default();
        assert!(line.starts_with("  ??    "), "{unseen}: {found}");
    }
    assert!(!found.contains("ok    membarrier"), "{found}");
}

#[test]
fn a_process_of_which_nothing_was_seen_is_not_well() {
    for refusal in ["err failed no\n", "no answer of the protocol\n"] {
        let (_folder, socket) = answering(move |_| refusal.to_owned());
        let (found, code) =
            doctor_with(&socket, &["  ??    the facts about the process", "the queues"]);
        assert!(code != Some(0), "{found}");
        let process = &found[found.find("\nprocess ").unwrap()..];
        let good: Vec<_> = process.lines().filter(|line| line.starts_with("  ok  ")).collect();
        assert!(good.iter().all(|line| line.contains("RLIMIT")), "{good:?}");
    }
    doctor_with("99999998", &["  ??    there is no process 99999998"]);
    let missing = uwork(&["doctor", "/nonexistent/1.sock"]);
    assert!(missing.status.code().is_some_and(|code| code != 0));
    assert!(String::from_utf8(missing.stdout).unwrap().contains("  ??    /nonexistent/1.sock"));
}

/// The process has no socket, and would not answer. Its state is known all the same, at once.
#[test]
fn doctor_says_that_a_process_is_stopped() {
    let child = Owned::spawn(Command::new("sleep").arg("1000"));
    let pid = child.id();
    // SAFETY: no pointers; the child is not waited for before its drop.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGSTOP) }, 0);
    let pid = pid.to_string();
    let (found, code) =
        doctor_with(&pid, &["  ??    the process cannot answer; its state is T (stopped)"]);
    // The machine may have findings of its own.
    let expected = if found.contains("  LOOK  ") { 1 } else { 2 };
    assert_eq!(code, Some(expected), "{found}");
    assert!(found.contains("        `kill -CONT` lets a stopped process go on"), "{found}");
}

/// Refused stacks and a refused dump are said.
#[test]
fn doctor_says_which_part_of_the_evidence_is_missing() {
    let (_folder, socket) = answering(|request| match request {
        "queues" => stuck(),
        "raw dump" => "err failed no memory\n".to_owned(),
        "raw stacks 100 old" => "err refused no signal is left\n".to_owned(),
        _ => ok("pid\t1\n"),
    });
    doctor_with(&socket, &["no stacks: no signal is left", "no items that wait: no memory"]);
}

/// More workers are stuck than an answer has stacks.
#[test]
fn doctor_has_the_stack_of_each_stuck_queue() {
    observed("doctor::doctor_has_the_stack_of_each_stuck_queue", || {
        let (_queue, pid) = looked_at("crowd");
        let release = Arc::new((Mutex::new(false), std::sync::Condvar::new()));
        let queues: Vec<Queue> = (0..12)
            .map(|n| Queue::builder(format!("crowd-{n}")).ordered().build().unwrap())
            .collect();
        // A test that fails must not wait for its items.
        std::mem::forget(queues.clone());
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
        let parts: Vec<String> = (0..12).map(|n| format!("of queue \"crowd-{n}\"")).collect();
        doctor_with(&pid, &parts.iter().map(String::as_str).collect::<Vec<_>>());
        *release.0.lock().unwrap() = true;
        release.1.notify_all();
        stuck.into_iter().for_each(|stuck| stuck.join().unwrap());
    });
}

#[test]
fn doctor_and_dump_name_an_item_that_sleeps_in_bottom_half_context() {
    observed("doctor::doctor_and_dump_name_an_item_that_sleeps_in_bottom_half_context", || {
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
        assert_eq!(
            line,
            "  LOOK  queue sleepy: 1 item runs and none has ended between the two looks; 1 item in the queue"
        );
    });
}

#[test]
fn doctor_and_dump_name_both_queues_of_a_deadlock() {
    observed("doctor::doctor_and_dump_name_both_queues_of_a_deadlock", || {
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
        let parts = [remedy, "  deadlock: ", "::flush", ", waiting, in ", function];
        let found = ["embrace-1", "embrace-2"].map(|name| finding_of(&pid, name, &parts));
        // Both lines at the first queue, and none at the second.
        let lines = found.each_ref().map(|(_, below)| below.matches("  deadlock: item ").count());
        assert_eq!(lines, [2, 0], "{found:#?}");
        assert!(
            found[1].1.contains("deadlock: the one of queue \"embrace-1\", above"),
            "{found:?}"
        );
        let dump = text(&["dump", &pid]);
        for (name, (line, below)) in ["embrace-1", "embrace-2"].into_iter().zip(found) {
            let expected = format!(
                "  LOOK  queue {name}: all permits of max_active 1 are taken, 1 item runs, 1 has not ended"
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
    observed(
        "doctor::doctor_names_the_item_that_holds_the_limit_and_a_timer_behind_a_lock",
        || {
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
            let remedy = "an item sleeps (see its stack)";
            finding_of(&pid, "timers", &[remedy, "::Timed", "takes_the_lock"]);
            let named = [
                "waits_on_a_channel",
                "takes_the_lock",
                "::Timed",
                "queue starved",
                "queue timers",
            ];
            dump_with(&pid, &named);
            drop((lock, release));
            holder.join().unwrap();
            starved.join().unwrap();
            timers.flush().unwrap();
        },
    );
}

/// The functions in which a text shows workers of a queue.
fn functions_of(text: &str, queue: &str) -> BTreeSet<String> {
    let of = format!(" of queue {queue:?}");
    let function = |line: &str| Some(line.split_once(&of)?.0.split_once(", in ")?.1.to_owned());
    text.lines().filter_map(function).collect()
}

// Catches: two closures of a function that have one name.
#[test]
fn closures_of_one_function_have_different_names() {
    observed("doctor::closures_of_one_function_have_different_names", || {
        let (_queue, pid) = looked_at("patient");
        let queue = Queue::builder("twins").build().unwrap();
        let ((release, held), (other, also_held)) =
            (std::sync::mpsc::channel::<()>(), std::sync::mpsc::channel::<()>());
        let twins = [
            queue.spawn(move || waits_on_a_channel(&held)),
            queue.spawn(move || waits_on_a_channel(&also_held)),
        ];
        let are_two = |text: &str| {
            let functions = functions_of(text, "twins");
            let path = "closures_of_one_function_have_different_names::{{closure}}";
            functions.len() == 2 && functions.iter().all(|function| function.contains(path))
        };
        finding_where(&pid, "twins", are_two);
        let dump = || {
            let output = uwork(&["dump", "--stacks", &pid]);
            String::from_utf8(output.stdout)
        };
        until(dump, |dump| are_two(dump));
        drop((release, other));
        twins.into_iter().for_each(|twin| twin.join().unwrap());
    });
}
