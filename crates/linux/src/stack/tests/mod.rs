//! Stacks of threads that wait, compute, block signals or have ended.

mod protocol;
mod refused;
mod several;

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use uwork_engine::host::{Frame, NoStack};

use super::exchange::EXCHANGES;
use super::snapshot::STACK_MAX;
use super::{of_threads, places_of_thread};
use crate::bounded::until;
use crate::futex::Until;
use crate::thread::id;

/// The deadline for answers that do not arrive.
const BRIEF: Duration = Duration::from_millis(1);

fn of_thread(thread: u64) -> Result<Vec<Frame>, NoStack> {
    of_threads(&[thread], true).remove(0)
}

/// The same, until `futex` times out.
fn of_thread_by(thread: u64, futex: &Until) -> Result<Vec<Frame>, NoStack> {
    places_of_thread(thread, futex, || ()).map(crate::symbols::frames)
}

/// The stack of a thread that answers as soon as it has a CPU.
fn stack_of(thread: u64) -> Vec<Frame> {
    until(|| match of_thread(thread) {
        Ok(frames) => Some(frames),
        Err(NoStack::NoAnswer) => None,
        Err(NoStack::Unavailable) => panic!("thread {thread} exists"),
    })
}

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

/// Whether this is the function of this name in this file. Builds with line tables only (`debug`
/// of a profile) name functions without their paths.
fn is(name: &str, function: &str) -> bool {
    name.rsplit("::").next() == Some(function)
}

fn count(frames: &[Frame], function: &str) -> usize {
    names(frames).into_iter().filter(|name| is(name, function)).count()
}

/// Takes stacks of a thread until it is in this function of this file.
fn stack_in(thread: u64, function: &str) -> Vec<Frame> {
    until(|| Some(stack_of(thread)).filter(|frames| count(frames, function) > 0))
}

/// Waits until the system shows that the thread sleeps.
fn until_it_sleeps(thread: u64) {
    until(|| {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        // The state follows the name, which is in parentheses.
        stat.rsplit(')').next().unwrap().trim_start().starts_with('S').then_some(())
    });
}

#[inline(never)]
fn reads_from_a_pipe(pipe: &std::io::PipeReader) -> (isize, u8) {
    let mut byte = 0_u8;
    // SAFETY: the buffer is live and of the given length. Not by the standard library, which hides
    // EINTR.
    let got = unsafe { libc::read(pipe.as_raw_fd(), (&raw mut byte).cast(), 1) };
    (got, std::hint::black_box(byte))
}

#[inline(never)]
fn calls_the_reader(pipe: &std::io::PipeReader) -> (isize, u8) {
    let (got, byte) = reads_from_a_pipe(pipe);
    (got, std::hint::black_box(byte))
}

#[test]
fn a_read_shows_its_callers_and_continues() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let (number, thread) = start(move || calls_the_reader(&reader));
    stack_in(number, "reads_from_a_pipe");
    until_it_sleeps(number);
    let frames = stack_of(number);
    let names = names(&frames);
    let at = |wanted: &str| names.iter().position(|name| is(name, wanted));
    let (inner, outer) = (at("reads_from_a_pipe").unwrap(), at("calls_the_reader").unwrap());
    assert!(inner < outer, "innermost first: {names:#?}");
    let this_file = |frame: &Frame| {
        let location = frame.location.as_deref().unwrap_or_default();
        location.contains("stack/tests/mod.rs:")
    };
    assert!(frames.iter().any(this_file), "{frames:#?}");
    // Down to the thread's first function.
    assert!(names.iter().skip(outer).any(|name| name.contains("thread_start")), "{names:#?}");
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
    stack_in(number, "spins");
    for _ in 0..1_000 {
        let frames = stack_of(number);
        assert!(count(&frames, "spins") > 0, "{frames:#?}");
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
    stack_in(number, "locks");
    until_it_sleeps(number);
    stack_in(number, "locks");
    *held = 7;
    drop(held);
    assert_eq!(thread.join().unwrap(), 7);
}

#[test]
fn the_calling_threads_own_stack() {
    let frames = stack_of(id());
    assert!(count(&frames, "the_calling_threads_own_stack") > 0, "{frames:#?}");
}

/// The size of a frame of [`descend`], which depends on the optimization.
static DEEP_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A large frame that cannot be optimized away. `above` is the address of the caller's array.
#[inline(never)]
fn descend(depth: u32, above: usize, body: &dyn Fn()) -> u32 {
    let room = std::hint::black_box([depth; 1024]);
    let here = room.as_ptr().addr();
    if depth == 0 {
        DEEP_BYTES.store(above - here, Ordering::Relaxed);
        body();
    } else {
        descend(depth - 1, here, body);
    }
    std::hint::black_box(room)[0]
}

#[test]
fn the_inner_part_of_a_deep_stack_is_shown() {
    let (tell, told) = channel::<()>();
    let (number, thread) = start(move || {
        descend(100, 0, &|| told.recv().unwrap_err().to_string().clear());
    });
    let shown = stack_in(number, "descend");
    until_it_sleeps(number);
    let deepest = stack_of(number);
    assert!(count(&shown, "descend") > 0);
    // The innermost frames, and the caller of the outermost of them.
    let copied = STACK_MAX / DEEP_BYTES.load(Ordering::Relaxed);
    assert!((copied / 2..=copied + 1).contains(&count(&deepest, "descend")), "{deepest:#?}");
    drop(tell);
    thread.join().unwrap();
}

#[test]
fn an_ended_thread_has_no_stack() {
    let (number, thread) = start(|| ());
    thread.join().unwrap();
    // The system removes the thread some instants after the join.
    let folder = format!("/proc/self/task/{number}");
    until(|| (!std::fs::exists(&folder).unwrap()).then_some(()));
    for missing in [number, 0, u64::MAX] {
        assert_eq!(of_thread(missing), Err(NoStack::Unavailable));
    }
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
    // All pending signals are handled before this returns.
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
    for _ in 0..EXCHANGES + 2 {
        let brief = Until(Instant::now() + BRIEF);
        assert_eq!(of_thread_by(number, &brief), Err(NoStack::NoAnswer));
    }
    // It sleeps, so it is not waited for as for a thread without a CPU.
    assert_eq!(of_thread(number), Err(NoStack::NoAnswer));
    // Others are served.
    stack_of(id());
    tell.send(()).unwrap();
    told.recv().unwrap();
    stack_in(number, "hides");
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
    stack_in(blocked, "reads_from_a_pipe");
    stack_in(busy, "spins");
    thread::scope(|scope| {
        for caller in 0..6 {
            scope.spawn(move || {
                let (number, function) =
                    if caller % 2 == 0 { (blocked, "reads_from_a_pipe") } else { (busy, "spins") };
                for _ in 0..50 {
                    let frames = stack_of(number);
                    assert!(count(&frames, function) > 0);
                }
            });
        }
    });
    writer.write_all(b"y").unwrap();
    stop.store(true, Ordering::Relaxed);
    assert_eq!(first.join().unwrap(), (1, b'y'));
    second.join().unwrap();
}

#[test]
fn errno_is_preserved() {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = stop.clone();
    let (number, thread) = start(move || {
        // SAFETY: the thread's own data.
        let errno = unsafe { &mut *libc::__errno_location() };
        *errno = libc::EXDEV;
        spins(&flag);
        *errno
    });
    stack_in(number, "spins");
    stack_of(number);
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
    // SAFETY: the signal has this module's handler.
    let outcome = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), number, signal) };
    assert_eq!(outcome, 0);
    for value in [0, 1, usize::MAX] {
        assert!(super::signal::send(signal, number, value));
    }
    drop(writer);
    assert_eq!(thread.join().unwrap(), "");
}
