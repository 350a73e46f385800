//! Stacks of threads that block, compute, hide from signals and go away.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use uwork_engine::host::Frame;

use super::{exchange, of_thread_within};
use crate::linux::thread::id;

/// For answers that come for certain, however busy the machine is.
const PATIENT: Duration = Duration::from_secs(30);
/// For answers that do not come.
const BRIEF: Duration = Duration::from_millis(1);

/// A thread, and its number.
fn start<R: Send + 'static>(main: impl FnOnce() -> R + Send + 'static) -> (u64, JoinHandle<R>) {
    let (tell, told) = channel();
    let thread = thread::spawn(move || {
        tell.send(id()).unwrap();
        main()
    });
    (told.recv().unwrap(), thread)
}

fn names(frames: &[Frame]) -> Vec<&str> {
    frames.iter().filter_map(|frame| frame.symbol.as_deref()).collect()
}

/// Takes stacks of a thread until it is in this function of this file.
fn stack_in(thread: u64, function: &str) -> Vec<Frame> {
    let deadline = Instant::now() + PATIENT;
    loop {
        let frames = of_thread_within(thread, PATIENT).expect("an answer");
        if names(&frames).iter().any(|name| name.ends_with(function)) {
            return frames;
        }
        assert!(Instant::now() < deadline, "never in {function}: {frames:#?}");
    }
}

/// Whether the system says that the thread sleeps.
fn until_it_sleeps(thread: u64) {
    let deadline = Instant::now() + PATIENT;
    loop {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        // The state follows the name, which is in parentheses.
        if stat.rsplit(')').next().unwrap().trim_start().starts_with('S') {
            return;
        }
        assert!(Instant::now() < deadline, "never sleeps: {stat}");
        thread::yield_now();
    }
}

#[inline(never)]
fn reads_from_a_pipe(pipe: &std::io::PipeReader) -> (isize, u8) {
    let mut byte = 0_u8;
    // SAFETY: the buffer is live and as long as said. Not by the standard library, which hides EINTR.
    let got = unsafe { libc::read(pipe.as_raw_fd(), (&raw mut byte).cast(), 1) };
    (got, std::hint::black_box(byte))
}

#[inline(never)]
fn calls_the_reader(pipe: &std::io::PipeReader) -> (isize, u8) {
    let (got, byte) = reads_from_a_pipe(pipe);
    (got, std::hint::black_box(byte))
}

#[test]
fn a_read_shows_its_callers_and_goes_on() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (number, thread) = start(move || calls_the_reader(&reader));
    stack_in(number, "::reads_from_a_pipe");
    until_it_sleeps(number);
    let frames = of_thread_within(number, PATIENT).unwrap();
    let names = names(&frames);
    let at = |wanted: &str| names.iter().position(|name| name.ends_with(wanted));
    let (inner, outer) = (at("::reads_from_a_pipe").unwrap(), at("::calls_the_reader").unwrap());
    assert!(inner < outer, "innermost first: {names:#?}");
    let this_file = |frame: &Frame| {
        let location = frame.location.as_deref().unwrap_or_default();
        location.contains("stack/tests.rs:")
    };
    assert!(frames.iter().any(this_file), "{frames:#?}");
    // Down to the thread's beginning: what `start` runs is there, and not the last.
    assert!(names.iter().skip(outer).any(|name| name.contains("std::thread")), "{names:#?}");
    writer.write_all(b"x").unwrap();
    assert_eq!(thread.join().unwrap(), (1, b'x'), "the read was restarted");
}

#[inline(never)]
fn spins(stop: &AtomicBool) -> u64 {
    let mut rounds = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        rounds = std::hint::black_box(rounds + 1);
    }
    rounds
}

#[test]
fn a_busy_thread_answers_a_thousand_times() {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let (number, thread) = start(move || spins(&flag));
    stack_in(number, "::spins");
    for _ in 0..1_000 {
        let frames = of_thread_within(number, PATIENT).expect("an answer");
        assert!(names(&frames).iter().any(|name| name.ends_with("::spins")), "{frames:#?}");
    }
    stop.store(true, Ordering::Relaxed);
    assert!(thread.join().unwrap() > 0);
}

#[inline(never)]
fn locks(mutex: &Mutex<u32>) -> u32 {
    *mutex.lock().unwrap()
}

#[test]
fn a_wait_for_a_mutex_is_shown_and_ends() {
    let mutex = Arc::new(Mutex::new(0));
    let theirs = mutex.clone();
    let mut held = mutex.lock().unwrap();
    let (number, thread) = start(move || locks(&theirs));
    stack_in(number, "::locks");
    until_it_sleeps(number);
    stack_in(number, "::locks");
    *held = 7;
    drop(held);
    assert_eq!(thread.join().unwrap(), 7);
}

#[test]
fn ones_own_stack() {
    let frames = of_thread_within(id(), PATIENT).unwrap();
    assert!(names(&frames).iter().any(|name| name.ends_with("::ones_own_stack")), "{frames:#?}");
}

/// Room that cannot be optimized away.
#[inline(never)]
fn deep(depth: u32, body: &dyn Fn()) -> u32 {
    let room = std::hint::black_box([depth; 1024]);
    if depth == 0 {
        body();
    } else {
        deep(depth - 1, body);
    }
    std::hint::black_box(room)[0]
}

#[test]
fn of_a_deep_stack_the_inner_part_is_shown() {
    let (tell, told) = channel::<()>();
    let (number, thread) = start(move || {
        deep(100, &|| told.recv().unwrap_err().to_string().clear());
    });
    let shown = stack_in(number, "::deep");
    until_it_sleeps(number);
    let deepest = of_thread_within(number, PATIENT).unwrap();
    let count =
        |frames: &[Frame]| names(frames).iter().filter(|name| name.ends_with("::deep")).count();
    assert!(count(&shown) > 0);
    // A frame has 4 KiB, and 64 KiB are copied.
    assert!((8..=16).contains(&count(&deepest)), "{deepest:#?}");
    drop(tell);
    thread.join().unwrap();
}

#[test]
fn a_thread_that_has_gone_has_no_stack() {
    let (number, thread) = start(|| ());
    thread.join().unwrap();
    // The system removes it some instants after the join.
    let deadline = Instant::now() + PATIENT;
    while std::fs::exists(format!("/proc/self/task/{number}")).unwrap() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
    assert_eq!(of_thread_within(number, PATIENT), None);
    assert_eq!(of_thread_within(0, PATIENT), None);
    assert_eq!(of_thread_within(u64::MAX, PATIENT), None);
}

fn set_mask(how: libc::c_int) {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the set is live, and filled by the first call.
    let outcome = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(how, all.as_ptr(), std::ptr::null_mut())
    };
    assert_eq!(outcome, 0);
}

#[inline(never)]
fn hides(step: &Receiver<()>, done: &Sender<()>) {
    set_mask(libc::SIG_BLOCK);
    done.send(()).unwrap();
    step.recv().unwrap();
    // All that are pending are handled before this returns.
    set_mask(libc::SIG_UNBLOCK);
    done.send(()).unwrap();
    step.recv().unwrap();
}

#[test]
fn a_thread_that_blocks_signals_does_not_answer_and_late_answers_do_no_harm() {
    let ((tell, step), (done, told)) = (channel(), channel());
    let (number, thread) = start(move || hides(&step, &done));
    told.recv().unwrap();
    // More requests than there are exchanges.
    for _ in 0..10 {
        assert_eq!(of_thread_within(number, BRIEF), None);
    }
    assert!(of_thread_within(id(), PATIENT).is_some(), "others are served");
    tell.send(()).unwrap();
    told.recv().unwrap();
    stack_in(number, "::hides");
    tell.send(()).unwrap();
    thread.join().unwrap();
}

#[test]
fn several_callers_at_once() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let (blocked, first) = start(move || calls_the_reader(&reader));
    let (busy, second) = start(move || spins(&flag));
    stack_in(blocked, "::reads_from_a_pipe");
    stack_in(busy, "::spins");
    thread::scope(|scope| {
        for caller in 0..6 {
            scope.spawn(move || {
                let (number, function) = if caller % 2 == 0 {
                    (blocked, "::reads_from_a_pipe")
                } else {
                    (busy, "::spins")
                };
                for _ in 0..50 {
                    let frames = of_thread_within(number, PATIENT).expect("an answer");
                    assert!(names(&frames).iter().any(|name| name.ends_with(function)));
                }
            });
        }
    });
    writer.write_all(b"y").unwrap();
    stop.store(true, Ordering::Relaxed);
    assert_eq!(first.join().unwrap(), (1, b'y'));
    second.join().unwrap();
}

/// A request that is answered on the spot.
fn ask_oneself<R>(deadline: Instant, read: impl FnOnce() -> R) -> Option<R> {
    let thread = id() as libc::pid_t;
    let send = |value| {
        exchange::answer(value, thread, |_| ());
        true
    };
    exchange::ask(thread, send, deadline, |_| read())
}

#[test]
fn an_answer_after_the_caller_has_left_copies_nothing() {
    let thread = id() as libc::pid_t;
    let mut late = None;
    let keep = |value| late.replace(value).is_none();
    assert!(exchange::ask(thread, keep, Instant::now(), |_| ()).is_none());
    exchange::answer(late.unwrap(), thread, |_| panic!("nobody waits for this"));
    // Nor does the answer of a thread that was not asked.
    let other = |value| {
        exchange::answer(value, thread + 1, |_| panic!("it was not asked"));
        true
    };
    assert!(exchange::ask(thread, other, Instant::now(), |_| ()).is_none());
}

#[test]
fn a_caller_that_leaves_during_the_copy_leaves_the_buffer() {
    let ((ask, asked), (begin, begun)) = (channel(), channel());
    let (leave, left) = channel::<()>();
    let copies = Arc::new(AtomicU32::new(0));
    let count = copies.clone();
    let handler = thread::spawn(move || {
        let (value, thread) = asked.recv().unwrap();
        exchange::answer(value, thread, |_| {
            begin.send(()).unwrap();
            left.recv().unwrap();
            count.fetch_add(1, Ordering::Relaxed);
        });
    });
    let thread = id() as libc::pid_t;
    let send = |value| {
        ask.send((value, thread)).unwrap();
        begun.recv().unwrap();
        true
    };
    assert!(exchange::ask(thread, send, Instant::now(), |_| ()).is_none());
    // The buffer is being written to: others are taken, and of those there is one less.
    let now = Instant::now();
    let all_four = |deadline| {
        ask_oneself(deadline, || {
            let inner = || ask_oneself(deadline, || ask_oneself(deadline, || ()));
            ask_oneself(deadline, inner).flatten().flatten()
        })
        .flatten()
    };
    assert!(all_four(now).is_none());
    leave.send(()).unwrap();
    handler.join().unwrap();
    assert_eq!(copies.load(Ordering::Relaxed), 1);
    assert!(all_four(Instant::now() + PATIENT).is_some(), "it was given back");
}

#[test]
fn a_request_that_is_under_way_at_a_fork_is_none_in_the_child() {
    crate::linux::engine();
    let deadline = Instant::now() + PATIENT;
    let status = ask_oneself(deadline, || {
        // SAFETY: the child takes no lock that another thread may have held, and leaves at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let now = Instant::now();
            // The parent's request is one of four, others' may be more.
            let all = ask_oneself(now, || {
                ask_oneself(now, || ask_oneself(now, || ask_oneself(now, || ())))
            });
            let served = all.flatten().flatten().flatten().is_some();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!served)) };
        }
        let mut status = 0;
        // SAFETY: the status is live.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        status
    });
    assert_eq!(status, Some(0));
}

#[test]
fn errno_is_kept() {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let (number, thread) = start(move || {
        // SAFETY: the thread's own.
        let errno = unsafe { &mut *libc::__errno_location() };
        *errno = libc::EXDEV;
        spins(&flag);
        *errno
    });
    stack_in(number, "::spins");
    assert!(of_thread_within(number, PATIENT).is_some());
    stop.store(true, Ordering::Relaxed);
    assert_eq!(thread.join().unwrap(), libc::EXDEV);
}

#[test]
fn other_uses_of_the_signal_are_ignored() {
    let signal = super::signal::installed().unwrap();
    let (mut reader, writer) = std::io::pipe().unwrap();
    let (number, thread) = start(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    let number = number as libc::pid_t;
    // SAFETY: the signal has our handler.
    let outcome = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number, signal) };
    assert_eq!(outcome, 0);
    for value in [0, 1, usize::MAX] {
        assert!(super::signal::send(signal, number, value));
    }
    drop(writer);
    assert_eq!(thread.join().unwrap(), "");
}
