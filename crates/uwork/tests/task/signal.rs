//! The signal of task work. A process chooses it once, so all of it is one test.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;

use crate::support::child::alone;
use crate::support::signals::{action_of, change_mask, set_all_to_default, set_of};
use crate::support::{received, until, watchdog, within};
use uwork::task::{self, Delivery, Notify, SignalError, TaskHandle};

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn handler(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_chosen_signal_goes_on_to_reach_the_programs_handler() {
    alone("a_chosen_signal_goes_on_to_reach_the_programs_handler", || {
        let _watchdog = watchdog();
        let (first, last) = (libc::SIGRTMIN(), libc::SIGRTMAX());
        for number in [0, libc::SIGUSR1, first - 1, last + 1, -1, i32::MAX] {
            let refused = task::set_signal(number, false);
            assert_eq!(refused, Err(SignalError::NotRealTime { number, first, last }));
        }
        let number = first + 3;
        // SAFETY: zeros are a valid value; the handler is async-signal-safe and lives as long as the process.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as libc::sighandler_t;
            assert_eq!(libc::sigaction(number, &raw const action, std::ptr::null_mut()), 0);
        }
        // System calls that the program makes itself restart after the signal.
        task::set_signal(number, true).unwrap();
        assert_eq!(task::set_signal(number + 1, false), Err(SignalError::Chosen { number }));

        // A thread in a read of the program itself, which the signal does not end.
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (send, receive) = channel();
        let plain = std::thread::spawn(move || {
            task::set_delivery(Delivery::Auto).unwrap();
            send.send(TaskHandle::current()).unwrap();
            let mut byte = [0_u8; 1];
            // SAFETY: the buffer is live and has the given length.
            let bytes = unsafe { libc::read(reader.as_raw_fd(), byte.as_mut_ptr().cast(), 1) };
            (bytes, task::safe_point())
        });
        let handle = receive.recv().unwrap();
        for _ in 0..100 {
            handle.add_fn(Notify::Signal, || ()).unwrap();
        }
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        assert_eq!(within("the read ends", move || plain.join().unwrap()), (1, 100));

        // A read through uwork, which the signal does end, even if it would restart the call.
        let (reader, _writer) = std::io::pipe().unwrap();
        let (send, receive) = channel();
        let ended = Arc::new(AtomicU32::new(0));
        let ends = ended.clone();
        let target = move || {
            send.send(TaskHandle::current()).unwrap();
            let mut byte = [0_u8; 1];
            let buffer = byte.as_mut_ptr().expose_provenance();
            let arguments = [reader.as_raw_fd() as usize, buffer, 1, 0, 0, 0];
            while ends.load(Ordering::Relaxed) < 1_000 {
                // SAFETY: the buffer is live and has the given length.
                assert!(unsafe { task::syscall(libc::SYS_read, arguments) }.is_err());
                task::safe_point();
            }
        };
        let target = std::thread::spawn(target);
        let handle = receive.recv().unwrap();
        for round in 1..=1_000 {
            let (send, receive) = channel();
            let ended = ended.clone();
            let end = move || {
                ended.store(round, Ordering::Relaxed);
                send.send(()).unwrap();
            };
            handle.add_fn(Notify::Signal, end).unwrap();
            assert_eq!(received(&receive), Ok(()), "round {round}");
        }
        within("the target ends", move || target.join().unwrap());

        assert_eq!(HANDLED.load(Ordering::Relaxed), 0, "uwork's own are not the program's");
        // SAFETY: no pointers; the signal has a handler.
        unsafe { libc::kill(libc::getpid(), number) };
        until("the program's handler was called", || HANDLED.load(Ordering::Relaxed) == 1);
    });
}

// Catches: a signal that a thread of the program's waits for, taken by a target.
#[test]
fn the_signal_is_one_that_the_first_target_does_not_block() {
    alone("the_signal_is_one_that_the_first_target_does_not_block", || {
        let _watchdog = watchdog();
        // Those that would come first; another one is for call stacks.
        let waited: Vec<i32> = (libc::SIGRTMAX() - 3..=libc::SIGRTMAX()).collect();
        change_mask(libc::SIG_BLOCK, &waited);
        task::set_delivery(Delivery::Auto).unwrap();
        drop(TaskHandle::current());
        // SAFETY: a query; the set is live.
        let mask = unsafe {
            let mut mask = set_of(&[]);
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
            mask
        };
        for signal in waited {
            assert_eq!(action_of(signal), libc::SIG_DFL);
            // SAFETY: the set is live.
            assert_eq!(unsafe { libc::sigismember(&raw const mask, signal) }, 1);
        }
    });
}

// Catches: a signal whose default action ends the process.
#[test]
fn a_program_that_sets_all_signals_to_their_defaults_is_not_ended_by_task_work() {
    let test = "a_program_that_sets_all_signals_to_their_defaults_is_not_ended_by_task_work";
    alone(test, || {
        let _watchdog = watchdog();
        let (reader, _writer) = std::io::pipe().unwrap();
        let (send, receive) = channel();
        let target = std::thread::spawn(move || {
            send.send(TaskHandle::current()).unwrap();
            let mut byte = [0_u8; 1];
            let buffer = byte.as_mut_ptr().expose_provenance();
            let arguments = [reader.as_raw_fd() as usize, buffer, 1, 0, 0, 0];
            // SAFETY: the buffer is live and has the given length.
            let read = unsafe { task::syscall(libc::SYS_read, arguments) };
            (read.is_err(), task::safe_point())
        });
        let handle = receive.recv().unwrap();
        set_all_to_default();
        handle.add_fn(Notify::Signal, || ()).unwrap();
        assert_eq!(within("the read ends", move || target.join().unwrap()), (true, 1));
    });
}
