//! The program's signals are delivered to the program's threads: the library's threads block them
//! from their creation on. Each scene is a process of its own, since a signal that goes to the
//! wrong thread ends it.

mod support;

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use support::blocks::every_kind;
use support::child::{alone, alone_with};
use support::flag::SetOnDrop;
use support::forked::in_child;
use support::gate::Gate;
use support::items::Job;
use support::machine::cpus;
use support::signals::{blocked_by_threads, change_mask, set_of};
use support::tiers::{are_replaced, in_best_tier};
use support::{queue, until, watchdog};
use uwork::Queue;

/// The signals that a thread of the library must not block: an item's instructions raise them.
const FAULTS: [i32; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// The process starts with these blocked, so that the test harness takes none of them.
fn blocking(signals: &'static [i32]) -> impl FnOnce(&mut Command) {
    move |command| {
        in_best_tier(command);
        let prepare = move || {
            change_mask(libc::SIG_BLOCK, signals);
            Ok(())
        };
        // SAFETY: between the fork and the execution it changes the mask only.
        unsafe { command.pre_exec(prepare) };
    }
}

/// Queues of every kind that has threads of its own.
fn queues() -> Vec<Queue> {
    vec![
        queue("unbound").build().unwrap(),
        queue("percpu").per_cpu().build().unwrap(),
        queue("highpri").per_cpu().highpri().build().unwrap(),
        queue("ordered").ordered().build().unwrap(),
        queue("dedicated").dedicated().build().unwrap(),
        queue("reclaim").mem_reclaim().build().unwrap(),
        queue("bh").bh().build().unwrap(),
    ]
}

/// Starts further workers, the watcher and its observations, and a rescuer.
fn exercise(queues: &[Queue]) {
    for (_, obstacle) in every_kind(4) {
        are_replaced(&queues[0], obstacle, 4);
    }
    // Items of a BH queue never wait.
    let (bh, others) = queues.split_last().expect("the BH queue is the last");
    assert_eq!(bh.spawn(|| 1).join().unwrap(), 1);
    for queue in others {
        let (started, may_end) = (Gate::new(), Gate::new());
        let held = Job::held(&started, &may_end);
        assert!(queue.enqueue_on(cpus()[0], held).unwrap().is_queued());
        started.wait();
        may_end.open();
        queue.flush().unwrap();
    }
    let dropped = queue("dropped").build().unwrap();
    queues[0].spawn(move || drop(dropped)).join().unwrap();
}

// Catches: a thread that is created with its creator's mask, whatever creates it and when.
#[test]
fn every_thread_of_the_library_blocks_the_signals_of_the_program() {
    let test = "every_thread_of_the_library_blocks_the_signals_of_the_program";
    alone_with(test, in_best_tier, || {
        let _watchdog = watchdog();
        // All standard signals except the faults and those that cannot be blocked.
        let bit = |signal: i32| 1_u64 << (signal - 1);
        let free = FAULTS.into_iter().chain([libc::SIGKILL, libc::SIGSTOP]).map(bit).sum::<u64>();
        let standard = (1..32).map(bit).sum::<u64>() & !free;
        let real_time: u64 = (libc::SIGRTMIN()..=libc::SIGRTMAX()).map(bit).sum();
        let faults: u64 = FAULTS.map(bit).iter().sum();
        let check = || {
            let mut seen = 0;
            for ((name, thread), blocked) in blocked_by_threads() {
                if name.starts_with("uw/") {
                    assert_eq!(blocked & standard, standard, "{name} {thread}: {blocked:#x}");
                    // At most the signal that requests stacks.
                    let open = (real_time & !blocked).count_ones();
                    assert!(open <= 1, "{name} takes {open} real-time signals: {blocked:#x}");
                    seen += 1;
                }
            }
            seen
        };
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // The check also runs while threads are being created.
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    check();
                    std::thread::yield_now();
                }
            });
            let over = SetOnDrop(&stop);
            let queues = queues();
            exercise(&queues);
            drop(over);
            assert!(check() >= queues.len(), "there are workers");
            // Blocked at first, as every signal is.
            until("the faults of items are open", || {
                let mut all = blocked_by_threads().into_iter();
                all.all(|((name, _), blocked)| !name.starts_with("uw/") || blocked & faults == 0)
            });
        });
        // The creator has its own mask again. A thread of the library that has just started has its
        // creator's name for a moment.
        until("the creators have their own masks", || {
            let mut all = blocked_by_threads().into_iter();
            all.all(|((name, _), blocked)| name.starts_with("uw/") || blocked & standard == 0)
        });
    });
}

// Catches: a worker that takes a signal for which a thread of the program waits: its default action
// ends the process.
#[test]
fn a_program_that_waits_for_sigterm_gets_it() {
    let test = "a_program_that_waits_for_sigterm_gets_it";
    const WAITED: &[i32] = &[libc::SIGTERM, libc::SIGUSR1, libc::SIGALRM];
    alone_with(test, blocking(WAITED), || {
        let _watchdog = watchdog();
        // As a program that has not set up its signals yet.
        change_mask(libc::SIG_UNBLOCK, WAITED);
        let queues = queues();
        exercise(&queues);
        change_mask(libc::SIG_BLOCK, WAITED);
        for _ in 0..100 {
            for &signal in WAITED {
                // SAFETY: no pointers but a live set and a live number.
                unsafe {
                    assert_eq!(libc::kill(libc::getpid(), signal), 0);
                    let (set, mut got) = (set_of(WAITED), 0);
                    assert_eq!(libc::sigwait(&raw const set, &raw mut got), 0);
                    assert_eq!(got, signal);
                }
            }
            let handle = queues[0].spawn(|| 7);
            assert_eq!(handle.join().unwrap(), 7);
        }
    });
}

// Catches: a fault of an item that the program's handler does not see, because the worker blocks
// it.
#[test]
fn a_fault_of_an_item_reaches_the_handler_of_the_program() {
    static CAUGHT: AtomicBool = AtomicBool::new(false);
    extern "C" fn handle(_: i32) {
        CAUGHT.store(true, Ordering::Relaxed);
    }
    alone("a_fault_of_an_item_reaches_the_handler_of_the_program", || {
        let _watchdog = watchdog();
        // The worker does not inherit the mask of a creator that blocks the signal.
        change_mask(libc::SIG_BLOCK, &[libc::SIGTRAP]);
        let queue = queue("faults").build().unwrap();
        // SAFETY: the structure is live; the handler stores a flag.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as libc::sighandler_t;
            assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, std::ptr::null_mut()), 0);
        }
        // SAFETY: sends a signal to the thread itself, which has a handler.
        let raised = queue.spawn(|| unsafe { libc::raise(libc::SIGTRAP) });
        // Not `join`, which may run the item on this thread.
        queue.flush().unwrap();
        assert_eq!(raised.join().unwrap(), 0);
        assert!(CAUGHT.load(Ordering::Relaxed));
    });
}

// Catches: a child forked by a worker that no signal can end; the same by one that a worker has created.
#[test]
fn a_child_forked_in_an_item_receives_signals_again() {
    alone("a_child_forked_in_an_item_receives_signals_again", || {
        let _watchdog = watchdog();
        change_mask(libc::SIG_BLOCK, &[libc::SIGUSR2]);
        let queue = queue("forks").build().unwrap();
        let workers = 4;
        let all_run = std::sync::Barrier::new(workers);
        let all_run: &'static std::sync::Barrier = Box::leak(Box::new(all_run));
        let forks = move || {
            uwork::blocking(|| all_run.wait());
            in_child(|| {
                // SAFETY: zeros are a valid value; the set is live.
                let set = unsafe {
                    let mut set: libc::sigset_t = std::mem::zeroed();
                    libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set);
                    set
                };
                let blocks = |signal| {
                    // SAFETY: the set is live.
                    unsafe { libc::sigismember(&raw const set, signal) == 1 }
                };
                assert!(!blocks(libc::SIGTERM) && !blocks(libc::SIGALRM));
                assert!(blocks(libc::SIGUSR2), "as the thread that has made the queue");
            });
        };
        let forks: Vec<_> = (0..workers).map(|_| queue.spawn(forks)).collect();
        // Not `join`, which may run an item on this thread.
        queue.flush().unwrap();
        forks.into_iter().for_each(|forks| forks.join().unwrap());
    });
}
