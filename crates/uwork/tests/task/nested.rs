//! A handler of the program interrupts the stub between its check and the system call, and uwork's
//! signal arrives while that handler runs: the call must end all the same.

#[cfg_attr(target_arch = "x86_64", path = "nested/x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "nested/aarch64.rs")]
mod stop;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc::channel;

use crate::support::child::{alone, limit};
use crate::support::flag::SetOnDrop;
use crate::support::{WAIT_CAP, until, watchdog};
use uwork::task::{self, Notify, TaskHandle};

static REACHED: AtomicBool = AtomicBool::new(false);
static SENT: AtomicBool = AtomicBool::new(false);
/// How many further handlers run on top of the one for the steps.
static LEVELS: AtomicU32 = AtomicU32::new(0);
/// Whether the handler for the steps blocks uwork's signal until it was sent.
static BLOCKS: AtomicBool = AtomicBool::new(false);

/// Waits until uwork's signal has been delivered to the handler that runs on top.
extern "C" fn wait_for_signal(_: libc::c_int) {
    if LEVELS.load(SeqCst) > 0 {
        LEVELS.fetch_sub(1, SeqCst);
        // SAFETY: no pointers; the signal has this handler, which may interrupt itself.
        unsafe { libc::raise(libc::SIGUSR1) };
        return;
    }
    if BLOCKS.load(SeqCst) {
        change_mask(libc::SIG_BLOCK);
    }
    REACHED.store(true, SeqCst);
    while !SENT.load(SeqCst) {
        std::hint::spin_loop();
    }
    // The pending signal is delivered on return from the system call.
    change_mask(libc::SIG_UNBLOCK);
}

/// Changes the mask of the calling thread, for all signals.
fn change_mask(how: libc::c_int) {
    // SAFETY: zeros are a valid value; the set is live, and filled before it is used.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut());
    }
}

fn handles(signal: libc::c_int, handler: usize, flags: libc::c_int) {
    // SAFETY: zeros are a valid value; the handlers are async-signal-safe, and of the type that the flags say.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// One call that is interrupted just before it begins, by a handler during which an item is added.
/// `sent` is called when uwork's signal was sent, and before it is delivered.
fn interrupted_call(handle: &TaskHandle, levels: u32, sent: fn()) {
    REACHED.store(false, SeqCst);
    SENT.store(false, SeqCst);
    LEVELS.store(levels, SeqCst);
    let to = handle.clone();
    let adder = std::thread::spawn(move || {
        while !REACHED.load(SeqCst) {
            std::thread::yield_now();
        }
        let _sent = SetOnDrop(&SENT);
        let added = to.add_fn(Notify::Signal, || ()).is_ok();
        sent();
        added
    });
    let time = libc::timespec { tv_sec: WAIT_CAP.as_secs() as libc::time_t, tv_nsec: 0 };
    let arguments = [0, 0, (&raw const time).expose_provenance(), 0, stop::MARK, 0];
    stop::stop_there();
    // SAFETY: the time is live; no descriptors are passed.
    let result = unsafe { task::syscall(libc::SYS_ppoll, arguments) };
    let interrupted = result.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EINTR));
    assert!(interrupted, "{levels} handlers on top: the call went on to its end, {result:?}");
    assert!(adder.join().unwrap());
    assert_eq!(task::safe_point(), 1);
}

extern "C" fn make_a_call(_: libc::c_int) {
    // SAFETY: no arguments. The pending signal is delivered on return from the system call.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

// Catches: faults that no single step finds, and handlers that are nested.
#[test]
fn no_item_is_late_among_the_programs_signals() {
    const ROUNDS: u32 = 20_000;
    let test = "no_item_is_late_among_the_programs_signals";
    alone(test, || {
        let _watchdog = watchdog();
        for signal in [libc::SIGUSR1, libc::SIGUSR2] {
            handles(signal, make_a_call as *const () as usize, libc::SA_RESTART | libc::SA_NODEFER);
        }
        let (reader, _writer) = std::io::pipe().unwrap();
        let (send, receive) = channel();
        let target = std::thread::spawn(move || {
            // SAFETY: no arguments.
            send.send((TaskHandle::current(), unsafe { libc::pthread_self() })).unwrap();
            let mut byte = [0_u8; 1];
            let buffer = byte.as_mut_ptr().expose_provenance();
            let arguments = [reader.as_raw_fd() as usize, buffer, 1, 0, 0, 0];
            let mut ran = 0;
            while ran < ROUNDS as usize {
                // SAFETY: the buffer is live and has the given length.
                assert!(unsafe { task::syscall(libc::SYS_read, arguments) }.is_err());
                ran += task::safe_point();
            }
        });
        let (handle, number) = receive.recv().unwrap();
        let ran = Arc::new(AtomicU32::new(0));
        // SAFETY: the thread has not been joined.
        let kill = |signal| unsafe { libc::pthread_kill(number, signal) };
        for round in 1..=ROUNDS {
            let runs = ran.clone();
            // All three are pending before the target has woken up for the first one.
            kill(libc::SIGUSR1);
            handle.add_fn(Notify::Signal, move || runs.store(round, SeqCst)).unwrap();
            kill(libc::SIGUSR2);
            until("the item has run", || ran.load(SeqCst) == round);
        }
        target.join().unwrap();
    });
}

fn install_handlers() {
    stop::prepare();
    handles(
        libc::SIGUSR1,
        wait_for_signal as *const () as usize,
        libc::SA_NODEFER | libc::SA_RESTART,
    );
}

#[test]
fn a_signal_in_another_handler_ends_the_call_that_the_handler_interrupted() {
    let test = "a_signal_in_another_handler_ends_the_call_that_the_handler_interrupted";
    alone(test, || {
        let _watchdog = watchdog();
        install_handlers();
        let handle = TaskHandle::current();
        // After each round the signal must be unblocked again: the next one needs it.
        for levels in [0, 0, 1, 3, 0] {
            interrupted_call(&handle, levels, || ());
        }
    });
}

// Catches: a pending signal that is lost in the other handler.
#[test]
fn a_signal_in_another_handler_is_kept_though_the_signal_queue_is_full() {
    let test = "a_signal_in_another_handler_is_kept_though_the_signal_queue_is_full";
    alone(test, || {
        let _watchdog = watchdog();
        install_handlers();
        BLOCKS.store(true, SeqCst);
        let handle = TaskHandle::current();
        for levels in [0, 0, 1, 3, 0] {
            interrupted_call(&handle, levels, || limit(libc::RLIMIT_SIGPENDING, 0));
            limit(libc::RLIMIT_SIGPENDING, u64::MAX);
        }
    });
}
