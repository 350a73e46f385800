//! Text that other processes have chosen: it is shown as the name that it is, and adds nothing else to
//! the output.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::Value;
use uwork::{Queue, control};

use crate::answering::{answering, ok};
use crate::bridge::owned::Owned;
use crate::doctor::finding_where;
use crate::observed::{looked_at, observed, until};
use crate::process::{complete, text, uwork};

/// Names of queues that a terminal would obey, or show as others, and how they are printed.
const NAMES: [(&str, &str); 3] = [
    ("bidi\u{202e}b", "bidi\\u202eb"),
    ("zwj\u{200d}", "zwj\\u200d"),
    ("tag\u{e0041}", "tag\\udb40\\udc41"),
];

#[test]
fn queues_with_format_characters_in_their_names_are_found_by_these() {
    observed("untrusted::queues_with_format_characters_in_their_names_are_found_by_these", || {
        let (_queue, pid) = looked_at("plain");
        let queues = NAMES.map(|(name, _)| Queue::builder(name).sysfs().build().unwrap());
        let (tree, in_json) = (text(&["ls", &pid]), text(&["ls", "--json", &pid]));
        let objects = |text: &str| -> Vec<Value> {
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let (attributes, rows) = (objects(&in_json), text(&["monitor", "--json", "-c1", &pid]));
        for (name, printed) in NAMES {
            assert!(tree.contains(&format!("devices/{printed}/max_active ")), "{tree}");
            let path = format!("devices/{name}/max_active");
            assert!(attributes.iter().any(|it| it["path"] == path.as_str()), "{in_json}");
            assert!(objects(&rows).iter().any(|row| row["name"] == name), "{rows}");
            let matched = text(&["monitor", "-c1", &pid, &format!("^{name}$")]);
            assert!(matched.lines().any(|line| line.starts_with(printed)), "{matched}");
        }
        drop(queues);
    });
}

#[test]
fn doctor_has_the_stack_of_a_queue_with_format_characters_in_its_name() {
    observed(
        "untrusted::doctor_has_the_stack_of_a_queue_with_format_characters_in_its_name",
        || {
            let (_queue, pid) = looked_at("plain");
            let (name, printed) = NAMES[0];
            let queue = Queue::builder(name).ordered().build().unwrap();
            let (release, held) = std::sync::mpsc::channel::<()>();
            let stuck = queue.spawn(move || _ = held.recv());
            finding_where(&pid, printed, |below| below.contains("asleep, in "));
            drop(release);
            stuck.join().unwrap();
        },
    );
}

/// Too many attributes are refused, and a long stack is cut.
#[test]
fn a_process_with_too_much_text_is_cut_short() {
    let names = (0..=100_000).map(|n| format!("rw\t{n}\n")).collect::<String>();
    let (_folder, socket) = answering(move |request| match request {
        "list " => ok(&names),
        _ => ok(""),
    });
    let Output { status, stdout, stderr } = uwork(&["ls", "--json", &socket]);
    let said = String::from_utf8(stderr).unwrap();
    assert!(said.contains("has too many attributes: give a PATH"), "{said}");
    assert_eq!((status.code(), stdout.len()), (Some(2), 0));

    let head = "name\tstarted\tran\tin_flight\tpending\trunning\tgate\tkind\n";
    let queues = format!("{head}long\t1\t1\t2\t1\t1\topen\tunbound\n");
    let frames = "      0 0x10\n".repeat(100_000);
    let (_folder, socket) = answering(move |request| match request {
        "queues" => ok(&queues),
        "raw stacks 100 long" => {
            ok(&format!("stacks of 1 workers\n  w, in f of queue \"long\"\n{frames}"))
        }
        _ => ok(""),
    });
    let ask = || String::from_utf8(uwork(&["doctor", &socket]).stdout);
    let found = until(ask, |found| found.contains("of queue \"long\""));
    assert!(found.contains("more was left out: see `uwork dump --stacks`"), "{}", found.len());
    assert!(found.len() < 200_000, "{}", found.len());
}

/// A process that has ended, and whose listener its child has inherited.
#[test]
fn a_process_that_has_ended_has_no_row_and_is_named_so() {
    observed("untrusted::a_process_that_has_ended_has_no_row_and_is_named_so", || {
        let (_queue, _) = looked_at("lives");
        let folder = control::socket().unwrap().parent().unwrap().to_owned();
        let mut command = Command::new("sleep");
        command.arg("60").process_group(0);
        // SAFETY: the child has this thread alone; glibc makes its allocator usable.
        unsafe {
            command.pre_exec(move || {
                let path = folder.join(format!("{}.sock", std::process::id()));
                let listener = OwnedFd::from(UnixListener::bind(path)?);
                rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty())?;
                std::mem::forget(listener);
                match libc::fork() {
                    0 => Ok(()),
                    _ => libc::_exit(0),
                }
            });
        }
        let mut ended = command.spawn().unwrap();
        let pid = ended.id().to_string();
        // A process that closes its files lives.
        let is_zombie = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&ended)), is_zombie).unwrap();
        let look = || {
            let rows = uwork(&["doctor", "--json"]).stdout;
            let rows = String::from_utf8(rows).unwrap();
            let of = |row: &str| serde_json::from_str::<Value>(row).unwrap()["process"].to_string();
            assert!(rows.lines().all(|row| of(row) != pid), "{rows}");
            assert!(!text(&["ls"]).contains(&format!("{pid}.sock")));
            String::from_utf8(uwork(&["dump", &pid]).stderr).unwrap()
        };
        assert!(look().ends_with(&format!("process {pid} has ended\n")));
        ended.wait().unwrap();
        assert!(look().contains(&format!("process {pid}")));
        // SAFETY: no pointers; the group is the child's.
        assert_eq!(unsafe { libc::kill(-pid.parse::<i32>().unwrap(), libc::SIGKILL) }, 0);
    });
}

/// A process names its memory as it likes.
#[test]
fn the_reason_of_a_process_without_a_socket_is_one_line() {
    let mut command = Command::new("sleep");
    command.arg("1000");
    // SAFETY: one system call, with a live string.
    unsafe {
        command.pre_exec(|| {
            let name = c"uwork: x\nuwork: process 1 is fine";
            if libc::memfd_create(name.as_ptr(), 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    let child = Owned::spawn(&mut command);
    let pid = child.id().to_string();
    let Output { status, stderr, .. } = uwork(&["ls", &pid]);
    assert_eq!(status.code(), Some(2));
    let said = complete(&String::from_utf8(stderr).unwrap());
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.ends_with("here: x\\u000auwork: process 1 is fine\n"), "{said}");
}
