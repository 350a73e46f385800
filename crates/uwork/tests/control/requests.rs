//! The real-time signal that requests call stacks, in a program that uses real-time signals.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::flag::SetOnDrop;
use crate::support::signals::{
    action_of, blocked_by_threads, change_mask, pending_in_threads, set_of,
};
use crate::support::{queue, until, watchdog};
use crate::{Client, scene, scene_with, socket};

fn real_time() -> Vec<libc::c_int> {
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).collect()
}

/// The real-time signals that threads of the library's take.
fn taken() -> Vec<libc::c_int> {
    let all = blocked_by_threads();
    let is_taken = |signal: &libc::c_int| {
        let own = |((name, _), blocked): (&(String, String), &u64)| {
            name.starts_with("uw/") && blocked & 1 << (signal - 1) == 0
        };
        all.iter().any(own)
    };
    real_time().into_iter().filter(is_taken).collect()
}

/// The process starts with these signals blocked in each thread.
fn blocking(signals: Vec<libc::c_int>) -> impl FnOnce(&mut Command) {
    move |command| {
        let prepare = move || {
            change_mask(libc::SIG_BLOCK, &signals);
            Ok(())
        };
        // SAFETY: between the fork and the execution it changes the mask only.
        unsafe { command.pre_exec(prepare) };
    }
}

/// Sends the process a queued signal with this value, and waits for it, as a program does that blocks it in
/// each thread.
fn is_sent_and_got(signal: libc::c_int, round: usize) {
    let value = libc::sigval { sival_ptr: std::ptr::without_provenance_mut(round) };
    // SAFETY: the value is a number; zeros are a valid value; all structures are live.
    unsafe {
        assert_eq!(libc::sigqueue(libc::getpid(), signal, value), 0);
        let (set, mut got) = (set_of(&[signal]), std::mem::zeroed());
        assert_eq!(libc::sigwaitinfo(&raw const set, &raw mut got), signal);
        assert_eq!((got.si_code, got.si_value().sival_ptr.addr()), (libc::SI_QUEUE, round));
    }
}

/// Whether an answer has the call stack of a worker that is in an item. No request stays queued in a thread
/// of the library.
fn gives_its_stack(path: &Path) -> bool {
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let begun: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let queue = queue("held").build().unwrap();
    let _handle = queue.spawn(|| {
        begun.store(true, Ordering::Relaxed);
        while !stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
    });
    // Before the queue, which waits for the item.
    let _over = SetOnDrop(stop);
    until("it runs", || begun.load(Ordering::Relaxed));
    let stacks = Client::connect(path).ask(&format!("stacks 0 {}", queue.name())).unwrap();
    let waiting = pending_in_threads()
        .into_iter()
        .filter(|((name, _), set)| name.starts_with("uw/") && *set != 0);
    assert_eq!(waiting.collect::<Vec<_>>(), [], "{stacks}");
    have_calls(&stacks)
}

/// Whether call stacks have functions: lines with a number and an address.
fn have_calls(stacks: &str) -> bool {
    let is_call = |line: &str| {
        let (number, rest) = line.trim_start().split_once(' ').unwrap_or_default();
        number.parse::<u32>().is_ok() && rest.starts_with("0x")
    };
    stacks.lines().any(is_call)
}

// Catches: a worker that takes a signal from a thread of the program's that waits for it: its default action
// ends the process.
#[test]
fn the_signal_for_stacks_is_one_that_the_creator_does_not_block() {
    let _watchdog = watchdog();
    let test = "the_signal_for_stacks_is_one_that_the_creator_does_not_block";
    scene_with(test, blocking(vec![libc::SIGRTMAX()]), || {
        let path = socket();
        until("the threads have begun", || taken() == [libc::SIGRTMAX() - 1]);
        assert!(gives_its_stack(&path));
        for round in 0..100 {
            is_sent_and_got(libc::SIGRTMAX(), round);
        }
        assert_eq!(taken(), [libc::SIGRTMAX() - 1]);
    });
}

// Catches: the same, if the program waits for each signal; a signal that loses its value.
#[test]
fn a_program_that_waits_for_every_real_time_signal_gets_each() {
    let _watchdog = watchdog();
    let test = "a_program_that_waits_for_every_real_time_signal_gets_each";
    scene_with(test, blocking(real_time()), || {
        let path = socket();
        let queues = [queue("one").build().unwrap(), queue("other").per_cpu().build().unwrap()];
        until("the threads have begun", || taken() == [libc::SIGRTMAX()]);
        for round in 0..100 {
            for signal in real_time() {
                is_sent_and_got(signal, round);
            }
            queues.iter().for_each(|queue| queue.spawn(|| ()).join().unwrap());
        }
        // A thread that has handed none over still gives its stack.
        let _ = gives_its_stack(&path);
    });
}

extern "C" fn ignores(_: libc::c_int) {}

// Catches: requests by another signal, which threads of the library's block: each stays queued until its
// thread ends.
#[test]
fn no_request_waits_in_a_worker_once_the_program_has_taken_the_signal_over() {
    let _watchdog = watchdog();
    let test = "no_request_waits_in_a_worker_once_the_program_has_taken_the_signal_over";
    scene(test, || {
        let path = socket();
        until("the threads have begun", || taken().len() == 1);
        assert!(gives_its_stack(&path));
        let own = ignores as *const () as libc::sighandler_t;
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(taken()[0], own) };
        assert!(!gives_its_stack(&path));
        assert_eq!(action_of(taken()[0]), own);
    });
}
