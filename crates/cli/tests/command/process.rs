//! The commands that look into a running process. The process is the test itself, alone.

use std::fs;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output};

use uwork::{Queue, control};

use crate::answering::{answering, ok};
use crate::json::{documented, objects};
use crate::left_out::left_out;
use crate::observed::{Other, looked_at, observed, until};

/// The reason of a command that has waited for an answer for too long.
pub(crate) const NO_ANSWER: &str = "does not answer: it is stopped, or gets no CPU";

/// The command.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uwork"));
    command.args(args);
    command
}

/// Runs the command.
pub(crate) fn uwork(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Runs a command. Runs it again if the process that it looks into got no CPU for an answer.
pub(crate) fn answered(command: &mut Command) -> Output {
    let ask = || {
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        if errors.contains(NO_ANSWER) { Err(errors.into_owned()) } else { Ok(output) }
    };
    until(ask, |_| true)
}

/// The output of a command that succeeds and is [`answered`]. On a busy machine with many names in the
/// places of sockets it may say that it has not looked at all of them.
pub(crate) fn text_of(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = answered(command);
    let errors = String::from_utf8(stderr).unwrap();
    assert!(status.success() && complete(&errors).is_empty(), "{command:?}: {errors}");
    String::from_utf8(stdout).unwrap()
}

/// What a command says, without the sockets that it has left out: other tests make more folders and
/// files than it looks at.
pub(crate) fn complete(said: &str) -> String {
    const LEFT_OUT: &str = "sockets were left out: ";
    let lines = said.lines().filter(|line| !line.starts_with(&format!("uwork: {LEFT_OUT}")));
    let lines = lines.map(|line| line.split(&format!("; {LEFT_OUT}")).next().unwrap_or_default());
    lines.map(|line| format!("{line}\n")).collect()
}

pub(crate) fn text(args: &[&str]) -> String {
    text_of(&mut command(args))
}

/// The single line of a refusal by a process that answers.
pub(crate) fn refused(args: &[&str]) -> String {
    refusal(args, answered(&mut command(args)))
}

fn refusal(args: &[&str], output: Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    let errors = complete(&String::from_utf8(output.stderr).unwrap());
    assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
    errors.trim_end().to_owned()
}

/// The line of a process in the list of all, once that has an answer of it.
fn listed(pid: &str) -> String {
    let line = || {
        let listed = text(&["ls"]);
        let line = listed.lines().find(|line| line.split_whitespace().next() == Some(pid));
        line.map(str::to_owned).ok_or(listed)
    };
    until(line, |line| !line.contains("does not answer"))
}

#[test]
fn ls_lists_this_process_and_removes_the_files_of_ended_ones() {
    observed("process::ls_lists_this_process_and_removes_the_files_of_ended_ones", || {
        let (_queue, pid) = looked_at("ls");
        let path = control::socket().unwrap();
        // Larger than any process's number.
        let stale = path.with_file_name("99999999.sock");
        drop(UnixListener::bind(&stale).unwrap());
        let line = listed(&pid);
        assert!(line.ends_with(path.to_str().unwrap()), "{line}");
        assert!(!fs::exists(&stale).unwrap() && fs::exists(&path).unwrap());
    });
}

/// The system cuts a name after 15 bytes, in the middle of a character.
#[test]
fn a_process_whose_name_is_no_text_is_listed_and_answers() {
    observed("process::a_process_whose_name_is_no_text_is_listed_and_answers", || {
        let (_queue, pid) = looked_at("named");
        fs::write("/proc/self/comm", b"bad\xc3").unwrap();
        let line = listed(&pid);
        assert!(line.contains(" bad\u{fffd} "), "{line}");
        assert_eq!(text(&["get", &pid, "devices/named/per_cpu"]), "0\n");
        let threads = fs::read_dir("/proc/self/task").unwrap().count();
        let said = answered(&mut command(&["doctor", &pid])).stdout;
        let said = String::from_utf8(said).unwrap();
        let counted = said.split_once("(RLIMIT_NPROC) ").unwrap().1;
        let counted: usize = counted.split(' ').next().unwrap().parse().unwrap();
        assert!(counted >= threads, "{said}");
    });
}

#[test]
fn ls_removes_a_socket_that_never_got_its_name() {
    observed("process::ls_removes_a_socket_that_never_got_its_name", || {
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
    let args = ["dump", path.to_str().unwrap()];
    let said = refusal(&args, uwork(&args));
    assert!(said.ends_with(NO_ANSWER), "{said}");
}

#[test]
fn a_stopped_process_is_named_so_by_each_command() {
    let test = "process::a_stopped_process_is_named_so_by_each_command";
    observed(test, || {
        let other = Other::start(test, "stopped");
        let pid = other.number();
        assert_eq!(text(&["set", &pid, "devices/stopped/max_active", "7"]), "");
        other.stop();
        let listed = text(&["ls"]);
        let row = listed.lines().find(|line| line.trim_start().starts_with(&pid)).unwrap();
        assert!(row.contains(" stopped ") && row.ends_with(&other.socket), "{listed}");
        let listed = text(&["ls", "--json"]);
        let object =
            objects(&listed).into_iter().find(|it| it["pid"].as_u64() == pid.parse().ok()).unwrap();
        assert_eq!(object["error"], "stopped", "{listed}");
        documented(&object, "A process");
        let says = format!("process {pid} is stopped: `kill -CONT {pid}` lets it go on");
        for args in [
            &["ls", &pid][..],
            &["get", &pid, "devices/stopped/max_active"],
            &["dump", &pid],
            &["monitor", &pid],
            &["top", &pid],
        ] {
            let said = refusal(args, uwork(args));
            assert!(said.ends_with(&says), "{said}");
        }
        let output = uwork(&["doctor"]);
        let found = String::from_utf8(output.stdout).unwrap();
        assert!(found.contains(&format!("process {pid}\n  ??")), "{found}");
        let full: Vec<_> = std::iter::repeat_with(|| uwork(&["get", &pid, "nothing"]))
            .take(3)
            .map(|output| refusal(&["get"], output))
            .collect();
        assert!(full.iter().all(|said| said.ends_with(&says)), "{full:?}");
        other.go_on();
        assert_eq!(text(&["get", &pid, "devices/stopped/max_active"]), "7\n");
    });
}

#[test]
fn what_a_process_says_is_escaped() {
    let hostile = "\x1b]0;title\x07\u{202e}gpj\r\u{9b}2J";
    let escaped = "\\u001b]0;title\\u0007\\u202egpj\\u000d\\u009b2J";
    let (_folder, socket) = answering(move |request| match request {
        "queues" => ok(&format!("name\tran\n{hostile}\t1\n")),
        "raw dump json" => ok("{\r\"name\": \n\"\u{202e}\"}\n"),
        "set a b" => format!("err failed {hostile}\n"),
        _ => ok(&format!("{hostile}\n")),
    });
    for args in [&["get", &socket, "a"][..], &["dump", &socket], &["monitor", "-i", "0", &socket]] {
        let said = text(args);
        assert!(said.contains(escaped), "{said:?}");
    }
    assert_eq!(refused(&["set", &socket, "a", "b"]), format!("uwork: {escaped}"));
    assert_eq!(text(&["dump", "--json", &socket]), "{\"name\":\"\\u202e\"}\n");
    for other in ["7\n", "[{}]\n", "{}\n{}\n", "{\"name\":\"\r\"}\n"] {
        let (_folder, socket) = answering(move |_| ok(other));
        assert!(refused(&["dump", "--json", &socket]).ends_with("has sent a malformed dump"));
    }
}

#[test]
fn frames_that_only_call_the_next_are_left_out_of_a_dump() {
    let (_folder, socket) = answering(|request| match request {
        "raw dump" | "dump" => ok("queues\n"),
        "raw stacks" | "stacks" => {
            ok("stacks of 1 workers\n  uw/0 (thread 7, slot 1), asleep\n      \
            0 0x1 a::waits (/a.rs:7)\n      1 0x2 __rust_try\n      2 0x3 b::F::run (/b.rs:1)\n")
        }
        _ => ok(""),
    });
    let text = text(&["dump", "--stacks", &socket]);
    let frames =
        "      0 0x1 a::waits (/a.rs:7)\n      2 0x3 b::F::run (/b.rs:1)\n        (1 frame that ";
    assert!(text.contains(frames), "{text}");
}

// Catches: a dump that is lost, as the threads of the process have not answered.
#[test]
fn a_dump_without_the_stacks_is_printed() {
    for knows_raw in [true, false] {
        let (_folder, socket) = answering(move |request| match request {
            "raw dump" | "raw stacks" if !knows_raw => "err bad-request no\n".to_owned(),
            "raw dump" | "dump" => ok("all queues\n"),
            // No answer.
            _ => String::new(),
        });
        let dump = || {
            let Output { status, stdout, stderr } = uwork(&["dump", "--stacks", &socket]);
            let said = String::from_utf8(stderr).unwrap();
            assert_eq!(status.code(), Some(2), "{said}");
            // Else this process got no CPU for the dump, either.
            if said.contains("no stacks: ") { Ok(stdout) } else { Err(said) }
        };
        assert_eq!(until(dump, |_| true), b"all queues\n");
    }
}

#[test]
fn a_socket_under_the_name_of_another_process_is_refused() {
    observed("process::a_socket_under_the_name_of_another_process_is_refused", || {
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

/// Sets the effective user of this thread alone.
fn become_user(user: libc::uid_t) -> bool {
    // SAFETY: the call has no pointers.
    unsafe { libc::syscall(libc::SYS_setresuid, -1, user, -1) == 0 }
}

/// The credentials of a listener are those of the call of `listen`. A process of another user may
/// have the number by now.
#[test]
fn a_socket_of_another_user_than_the_process_is_refused() {
    const NOBODY: libc::uid_t = 65_534;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("1.sock");
    let listener = UnixListener::bind(&path).unwrap();
    if !rustix::process::geteuid().is_root() || !become_user(NOBODY) {
        return left_out(
            "a_socket_of_another_user_than_the_process_is_refused",
            "this user is not root",
        );
    }
    rustix::net::listen(&listener, 8).unwrap();
    assert!(become_user(0));
    let said = refused(&["dump", path.to_str().unwrap()]);
    let own = std::process::id();
    let says = format!("process {own} is of user 0, and user {NOBODY} listens here");
    assert!(said.ends_with(&says), "{said}");
}

#[test]
fn a_queue_with_a_space_in_its_name_is_tuned() {
    observed("process::a_queue_with_a_space_in_its_name_is_tuned", || {
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
    observed("process::attributes_are_listed_read_described_and_set", || {
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
    observed("process::a_dump_has_the_queues_of_the_process", || {
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
    observed("process::monitor_prints_the_counters_of_the_chosen_queues", || {
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
        let none = refused(&["monitor", "-c", "1", &pid, "^nosuch$"]);
        assert!(none.contains("has no queue whose name matches ^nosuch$"), "{none}");
        assert!(refused(&["monitor", &pid, "("]).contains("is no regular expression"));
        assert!(refused(&["monitor", "-i", "often", &pid]).ends_with("(allowed: 0 to 86400)"));
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
    assert_eq!(refused(&["dump", "/etc/passwd"]), "uwork: /etc/passwd: not a socket");
    assert_eq!(refused(&["dump", "/"]), "uwork: /: not a socket");
}

#[test]
fn a_blank_path_names_no_attribute() {
    let own = std::process::id().to_string();
    for words in [&["get", &own, ""][..], &["get", "--json", &own, " "], &["set", &own, "", "5"]] {
        let output = command(words).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains("it names no attribute; `uwork ls PID` lists them"), "{errors}");
        assert_eq!(output.status.code(), Some(2));
    }
}

#[test]
fn a_missing_path_is_told_with_the_list_of_paths() {
    let told = |args: &[&str]| {
        let output = uwork(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for args in [&["get", "7"][..], &["set", "7"], &["get"]] {
        let error = told(args);
        assert!(error.contains("<PATH>") && error.contains("`uwork ls PID` the paths"), "{error}");
    }
    assert!(!told(&["dump"]).contains("uwork ls"), "no path is missing");
}

#[test]
fn completions_and_man_pages_come_from_the_flags() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&["completions", shell]).contains("monitor"), "{shell}");
    }
    assert!(text(&["man"]).contains(".TH"));
    assert!(text(&["man", "monitor"]).contains("interval"));
    assert!(text(&["man", "bridge", "run"]).contains("heartbeat"));
    assert!(refused(&["man", "unknown"]).contains("(allowed: topology, sum, "));
    assert!(refused(&["man", "bridge", "unknown"]).contains("(allowed: run, push, "));
    assert!(refused(&["man", "ls", "unknown"]).contains("(allowed: none)"));
    let monitor = text(&["man", "monitor"]).replace('\\', "");
    let synopsis = " [--interval <SEC>] [--count <N>] [--json] <PID> [REGEX]...\n";
    assert!(monitor.contains(synopsis), "{monitor}");
}

#[test]
fn all_man_pages_are_written_into_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    assert_eq!(text(&["man", "--all", path]), "");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert_eq!(read("uwork.1"), text(&["man"]));
    assert_eq!(read("uwork-doctor.1"), text(&["man", "doctor"]));
    assert_eq!(read("uwork-bridge-run.1"), text(&["man", "bridge", "run"]));
    let written = || std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    for page in written() {
        let page = std::fs::read_to_string(page).unwrap().replace('\\', "");
        let listed =
            page.lines().filter(|line| line.starts_with("uwork-") && line.ends_with("(1)"));
        for name in listed.map(|line| line.replace("(1)", ".1")) {
            assert!(folder.path().join(&name).exists(), "{name} is listed and not written");
        }
    }
    assert!(written().all(|page| !page.to_str().unwrap().contains("help")));
    assert!(refused(&["man", "--all", "/nowhere"]).starts_with("uwork: /nowhere/uwork.1: "));
}
