//! The signal that tells of a client, in a program that has handlers, removes them or uses the signal.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::support::signals::{
    action_of, blocked_by_threads, change_mask, set_all_to_default, set_of,
};
use crate::support::{queue, until, watchdog};
use crate::{Client, scene, scene_with, socket, threads_named};

/// A client connects and is served, at the latest when the watcher looks, which it does while items run.
fn is_served_while_items_run(path: &Path) {
    let mut client = UnixStream::connect(path).unwrap();
    client.set_nonblocking(true).unwrap();
    let queue = queue("running").build().unwrap();
    until("the client is served", || {
        queue.spawn(|| ()).join().unwrap();
        let read = client.read(&mut [0; 64]);
        read.map_or_else(|error| error.kind() != ErrorKind::WouldBlock, |bytes| bytes > 0)
    });
}

/// Whether each of the library's threads but the watcher blocks the signal; and whether the watcher does.
fn is_blocked(signal: libc::c_int) -> (bool, bool) {
    let (mut by_others, mut by_watcher) = (true, true);
    for ((name, _), blocked) in blocked_by_threads() {
        let is_blocked = blocked & 1 << (signal - 1) != 0;
        match name.as_str() {
            "uw/watch" => by_watcher &= is_blocked,
            name if name.starts_with("uw/") => by_others &= is_blocked,
            _ => {}
        }
    }
    (by_others, by_watcher)
}

// Catches: a signal whose default action ends the process; a handler that is not installed again.
#[test]
fn a_program_that_sets_all_signals_to_their_defaults_is_not_ended_by_a_client() {
    let _watchdog = watchdog();
    let test = "a_program_that_sets_all_signals_to_their_defaults_is_not_ended_by_a_client";
    scene(test, || {
        let path = socket();
        set_all_to_default();
        is_served_while_items_run(&path);
        until("the thread has ended", || threads_named("uw/control") == 0);
        // Without an item: the handler is there again.
        drop(Client::connect(&path));
    });
}

// Catches: a worker, or the thread that serves clients, that takes a signal of the program's.
#[test]
fn the_signal_of_clients_is_open_on_the_watcher_alone() {
    let _watchdog = watchdog();
    scene("the_signal_of_clients_is_open_on_the_watcher_alone", || {
        let path = socket();
        let queues = [queue("one").build().unwrap(), queue("other").per_cpu().build().unwrap()];
        queues.iter().for_each(|queue| queue.spawn(|| ()).join().unwrap());
        let client = Client::connect(&path);
        assert_eq!(threads_named("uw/control"), 1);
        // It blocks all signals while it creates a thread.
        until("the watcher takes it", || is_blocked(libc::SIGURG) == (true, false));
        drop(client);
    });
}

static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: libc::c_int) {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

fn calls() -> u32 {
    CALLS.load(Ordering::Relaxed)
}

fn set_own_handler() -> libc::sighandler_t {
    let own = handler as *const () as libc::sighandler_t;
    // SAFETY: the handler counts.
    unsafe { libc::signal(libc::SIGURG, own) }
}

/// Clients are served without an item, and the program's handler is called for the program's signals
/// only.
fn are_served_without_the_signal(path: &Path) {
    let before = calls();
    for _ in 0..3 {
        drop(Client::connect(path));
    }
    assert_eq!(calls(), before, "for a client");
    assert_eq!(is_blocked(libc::SIGURG), (true, true));
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGURG) }, 0);
    until("the program's signal is handled", || calls() == before + 1);
    assert_eq!(threads_named("uw/control"), 1, "it waits for clients");
}

// Catches: a program's handler that is replaced, or called for clients; no socket for want of the signal.
#[test]
fn a_program_keeps_its_handler_for_urgent_data() {
    let _watchdog = watchdog();
    scene("a_program_keeps_its_handler_for_urgent_data", || {
        set_own_handler();
        are_served_without_the_signal(&socket());
        let own = handler as *const () as libc::sighandler_t;
        assert_eq!(set_own_handler(), own);
    });
}

/// How often the watcher has slept.
fn sleeps_of_watcher() -> Option<String> {
    let threads = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let statuses = threads.map(|thread| thread.unwrap().path().join("status"));
    let mut texts = statuses.filter_map(|path| std::fs::read_to_string(path).ok());
    let text = texts.find(|text| text.starts_with("Name:\tuw/watch\n"))?;
    text.lines().find(|line| line.starts_with("voluntary_ctxt_switches:")).map(str::to_owned)
}

/// Longer than the time between two checks of the CPUs: the watcher wakes for each that is planned.
const IDLE: Duration = Duration::from_secs(2);

/// Waits until the watcher sleeps until it is called.
fn until_idle() {
    let (mut sleeps, mut since) = (sleeps_of_watcher(), Instant::now());
    until("the process is idle", || {
        let now = sleeps_of_watcher();
        if now != sleeps {
            (sleeps, since) = (now, Instant::now());
        }
        since.elapsed() > IDLE
    });
}

// Catches: a client that nobody serves in an idle process; a handler that is called for each client.
#[test]
fn a_handler_that_the_program_installs_later_is_called_for_one_client_at_most() {
    let _watchdog = watchdog();
    let test = "a_handler_that_the_program_installs_later_is_called_for_one_client_at_most";
    scene(test, || {
        let path = socket();
        drop(Client::connect(&path));
        until("the thread has ended", || threads_named("uw/control") == 0);
        until_idle();
        set_own_handler();
        drop(Client::connect(&path));
        assert!(calls() <= 1);
        are_served_without_the_signal(&path);
    });
}

// Catches: clients that wait for items of a process whose signal nothing handles.
#[test]
fn a_program_that_ignores_urgent_data_serves_clients() {
    let _watchdog = watchdog();
    scene("a_program_that_ignores_urgent_data_serves_clients", || {
        let path = socket();
        // SAFETY: no handler.
        unsafe { libc::signal(libc::SIGURG, libc::SIG_IGN) };
        is_served_while_items_run(&path);
        for _ in 0..3 {
            drop(Client::connect(&path));
        }
        assert_eq!(threads_named("uw/control"), 1, "it waits for clients");
        // SAFETY: no handler.
        assert_eq!(unsafe { libc::signal(libc::SIGURG, libc::SIG_IGN) }, libc::SIG_IGN);
    });
}

// Catches: a handler of the library's that ends the program's poll(2) for each urgent byte.
#[test]
fn a_program_that_leaves_urgent_data_at_its_default_gets_that_back() {
    let _watchdog = watchdog();
    scene("a_program_that_leaves_urgent_data_at_its_default_gets_that_back", || {
        let path = socket();
        drop(Client::connect(&path));
        assert_ne!(action_of(libc::SIGURG), libc::SIG_DFL);
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGURG) }, 0);
        until("the default is restored", || action_of(libc::SIGURG) == libc::SIG_DFL);
        for _ in 0..3 {
            drop(Client::connect(&path));
        }
        assert_eq!(is_blocked(libc::SIGURG), (true, true));
        assert_eq!(threads_named("uw/control"), 1, "it waits for clients");
        assert_eq!(action_of(libc::SIGURG), libc::SIG_DFL);
    });
}

/// The program blocks the signal in all threads, and waits for it. `send` sends it to the process, and is
/// called with the number of the round; the signal that arrives has this `code`.
fn gets_each_signal(test: &str, code: libc::c_int, send: impl Fn(usize)) {
    let _watchdog = watchdog();
    let block = |command: &mut Command| {
        let prepare = || {
            change_mask(libc::SIG_BLOCK, &[libc::SIGURG]);
            Ok(())
        };
        // SAFETY: between the fork and the execution it changes the mask only.
        unsafe { command.pre_exec(prepare) };
    };
    scene_with(test, block, || {
        let path = socket();
        for round in 0..100 {
            send(round);
            until("the watcher has left it", || is_blocked(libc::SIGURG) == (true, true));
            // SAFETY: zeros are a valid value; both are live.
            let got = unsafe {
                let (set, mut got) = (set_of(&[libc::SIGURG]), std::mem::zeroed());
                assert_eq!(libc::sigwaitinfo(&raw const set, &raw mut got), libc::SIGURG);
                got
            };
            assert_eq!(got.si_code, code);
            // SAFETY: a queued signal has a value.
            let value = || unsafe { got.si_value().sival_ptr.addr() };
            assert!(code != libc::SI_QUEUE || value() == round);
        }
        drop(Client::connect(&path));
    });
}

// Catches: a watcher that takes the signal from a thread of the program's that waits for it.
#[test]
fn a_program_that_waits_for_queued_signals_gets_each_with_its_value() {
    let test = "a_program_that_waits_for_queued_signals_gets_each_with_its_value";
    gets_each_signal(test, libc::SI_QUEUE, |round| {
        let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(round) };
        // SAFETY: the value is a number.
        assert_eq!(unsafe { libc::sigqueue(libc::getpid(), libc::SIGURG, value) }, 0);
    });
}

// Catches: a signal that the system lets no thread but the main one send with its information.
#[test]
fn a_program_that_waits_for_signals_of_kill_gets_each() {
    let test = "a_program_that_waits_for_signals_of_kill_gets_each";
    gets_each_signal(test, libc::SI_USER, |_| {
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGURG) }, 0);
    });
}

// Catches: as above, for the signals of the system.
#[test]
fn a_program_that_waits_for_urgent_data_gets_each_signal() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (receiver, _) = listener.accept().unwrap();
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::fcntl(receiver.as_raw_fd(), libc::F_SETOWN, libc::getpid()) }, 0);
    let test = "a_program_that_waits_for_urgent_data_gets_each_signal";
    gets_each_signal(test, libc::SI_KERNEL, |_| {
        let flags = libc::MSG_OOB;
        // SAFETY: the byte is live.
        assert_eq!(unsafe { libc::send(sender.as_raw_fd(), b"!".as_ptr().cast(), 1, flags) }, 1);
        // Without a reader, the next byte would take the place of this one.
        let mut byte = 0_u8;
        until("the byte has arrived", || {
            // SAFETY: the byte is live.
            unsafe {
                libc::recv(
                    receiver.as_raw_fd(),
                    (&raw mut byte).cast(),
                    1,
                    flags | libc::MSG_DONTWAIT,
                ) == 1
            }
        });
    });
}
