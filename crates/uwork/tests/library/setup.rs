//! Choices of a program before uwork starts. Each test runs in a process of its own.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Barrier, Mutex};
use std::thread;

use crate::support::child::{alone, alone_each, alone_with};
use crate::support::{queue, until};
use uwork::{BlockingTier, Setup, SetupError};

const VARIABLE: &str = "UWORK_BLOCKING";

fn without_variable(command: &mut Command) {
    command.env_remove(VARIABLE);
}

// Catches: a choice that is not passed on, or whose source is not named.
#[test]
fn the_program_chooses_the_tier() {
    let test = "the_program_chooses_the_tier";
    alone_with(test, without_variable, || {
        Setup::new().blocking_tier(BlockingTier::Declared).install().unwrap();
        let blocking = uwork::dump().blocking;
        assert_eq!(blocking.tier, BlockingTier::Declared);
        assert_eq!(blocking.reason, "the program asked for it");
    });
}

// Catches: a program's choice that overrides the environment's.
#[test]
fn the_environment_overrides_the_program() {
    let test = "the_environment_overrides_the_program";
    let declared = |command: &mut Command| {
        command.env(VARIABLE, "declared");
    };
    alone_with(test, declared, || {
        Setup::new().blocking_tier(BlockingTier::Sampling).install().unwrap();
        let dump = uwork::dump();
        assert_eq!(dump.blocking.tier, BlockingTier::Declared);
        assert_eq!(dump.blocking.reason, "UWORK_BLOCKING=declared");
        let text = dump.to_string();
        assert!(text.contains("\nblocking declared: UWORK_BLOCKING=declared\n"), "{text}");
    });
}

const WORKERS: &str = "UWORK_WORKERS";

fn workers_max() -> String {
    uwork::sysfs::get("module/parameters/pool_workers_max").unwrap()
}

// Catches: a bound of workers that is not passed on, or has the wrong precedence.
#[test]
fn the_bound_of_workers_is_the_environments_then_the_programs() {
    let test = "the_bound_of_workers_is_the_environments_then_the_programs";
    alone_each(test, WORKERS, &["5", "0", ""], VARIABLE, |value| {
        Setup::new().pool_workers_max(3).install().unwrap();
        assert_eq!(workers_max(), if value.is_empty() { "3" } else { value });
    });
}

// Catches: a bound beyond the limit that wraps or is refused.
#[test]
fn a_bound_of_workers_beyond_the_limit_counts_as_the_limit() {
    let without = |command: &mut Command| _ = command.env_remove(WORKERS);
    alone_with("a_bound_of_workers_beyond_the_limit_counts_as_the_limit", without, || {
        Setup::new().pool_workers_max(u32::MAX).install().unwrap();
        assert_eq!(workers_max(), "65534");
    });
}

// Catches: a value that is not permitted and is ignored without a word, or replaces the program's.
#[test]
fn a_variable_that_is_not_permitted_is_ignored_with_a_report() {
    let test = "a_variable_that_is_not_permitted_is_ignored_with_a_report";
    alone_each(test, WORKERS, &["-1", "65535", "many", " 5"], VARIABLE, |value| {
        static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
        uwork::set_reporter(|report| REPORTS.lock().unwrap().push(report.to_string())).unwrap();
        Setup::new().pool_workers_max(3).install().unwrap();
        assert_eq!(workers_max(), "3");
        let line = format!("UWORK_WORKERS={value:?} is ignored: allowed are 0 to 65534");
        until("the report", || REPORTS.lock().unwrap().contains(&line));
    });
}

const STACK: &str = "UWORK_STACK";

/// The size of the calling thread's stack, without its guard.
fn stack_size() -> usize {
    let (mut size, mut attributes) = (0, std::mem::MaybeUninit::uninit());
    // SAFETY: written by the first call, and destroyed by the last.
    unsafe {
        assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()), 0);
        assert_eq!(libc::pthread_attr_getstacksize(attributes.as_ptr(), &raw mut size), 0);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    size
}

/// The stacks of a thread of each kind that runs items.
fn stacks() -> Vec<usize> {
    let builders = [queue("pool"), queue("bh").bh(), queue("dedicated").dedicated()];
    let queues = builders.map(|builder| builder.build().unwrap());
    let handles = queues.each_ref().map(|queue| queue.spawn(stack_size));
    // A waiter that helps would run it on its own stack.
    until("the items", || handles.iter().all(uwork::JoinHandle::is_finished));
    handles.map(|handle| handle.join().unwrap()).to_vec()
}

fn are_about(stacks: &[usize], size: usize) {
    // Guard pages and the thread's static data come on top, in some versions of the C library.
    assert!(stacks.iter().all(|&has| (size..size + (1 << 20)).contains(&has)), "{stacks:?}");
}

// Catches: stacks of a fixed size, a choice that is not passed on, or has the wrong precedence.
#[test]
fn the_size_of_stacks_is_the_environments_then_the_programs() {
    let test = "the_size_of_stacks_is_the_environments_then_the_programs";
    alone_each(test, STACK, &["128K", "48M", "3145728", ""], VARIABLE, |value| {
        Setup::new().stack_size(20 << 20).install().unwrap();
        let wanted = match value {
            "128K" => 128 << 10,
            "48M" => 48 << 20,
            "" => 20 << 20,
            _ => 3 << 20,
        };
        are_about(&stacks(), wanted);
    });
}

// Catches: another size than that of plain threads, which have `ulimit -s`.
#[test]
fn stacks_are_as_large_as_those_of_plain_threads() {
    let plain = |command: &mut Command, limit: libc::rlim_t| {
        command.env_remove(STACK).env_remove("RUST_MIN_STACK");
        // SAFETY: a system call without pointers into the parent.
        unsafe {
            command.pre_exec(move || {
                let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::getrlimit(libc::RLIMIT_STACK, &raw mut limits);
                limits.rlim_cur = limit.min(limits.rlim_max);
                libc::setrlimit(libc::RLIMIT_STACK, &raw const limits);
                Ok(())
            })
        };
    };
    let limits: [libc::rlim_t; 3] = [512 << 10, 24 << 20, libc::RLIM_INFINITY];
    for limit in limits {
        let test = "stacks_are_as_large_as_those_of_plain_threads";
        alone_with(
            test,
            |command| plain(command, limit),
            || {
                let mut thread = 0;
                let mut found = 0_usize;
                extern "C" fn ask(found: *mut libc::c_void) -> *mut libc::c_void {
                    // SAFETY: the creator's variable, which lives until the thread was joined.
                    unsafe { *found.cast::<usize>() = stack_size() };
                    found
                }
                // SAFETY: the result lives until the thread has been joined.
                unsafe {
                    let result = (&raw mut found).cast();
                    assert_eq!(
                        libc::pthread_create(&raw mut thread, std::ptr::null(), ask, result),
                        0
                    );
                    assert_eq!(libc::pthread_join(thread, std::ptr::null_mut()), 0);
                }
                are_about(&stacks(), found);
            },
        );
    }
}

#[test]
fn a_bad_size_of_stacks_is_refused_with_the_permitted_ones() {
    for bytes in [0, 4096, (128 << 10) - 1, (1 << 40) + 1, usize::MAX] {
        let error = Setup::new().stack_size(bytes).install().unwrap_err();
        assert_eq!(error, SetupError::BadStackSize(bytes));
        assert!(error.to_string().contains("allowed are 131072 (128K) to 1099511627776"));
    }
    let test = "a_bad_size_of_stacks_is_refused_with_the_permitted_ones";
    alone_each(test, STACK, &["0", "-1", "8M ", "127K", "2000G", "much"], VARIABLE, |value| {
        static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
        uwork::set_reporter(|report| REPORTS.lock().unwrap().push(report.to_string())).unwrap();
        Setup::new().stack_size(3 << 20).install().unwrap();
        are_about(&stacks(), 3 << 20);
        let line = format!("UWORK_STACK={value:?} is ignored: allowed are 131072 (128K) to ");
        until("the report", || REPORTS.lock().unwrap().iter().any(|text| text.starts_with(&line)));
    });
}

const POWER: &str = "UWORK_POWER_EFFICIENT";

fn saves_power() -> String {
    uwork::sysfs::get("module/parameters/power_efficient").unwrap()
}

// Catches: a program's choice that overrides the environment's, or is lost without one.
#[test]
fn the_switch_of_power_is_the_environments_then_the_programs() {
    let test = "the_switch_of_power_is_the_environments_then_the_programs";
    alone_each(test, POWER, &["1", "0", "on", "off", ""], VARIABLE, |value| {
        let saves = matches!(value, "1" | "on");
        Setup::new()
            .power_efficient(if value.is_empty() { true } else { !saves })
            .install()
            .unwrap();
        assert_eq!(saves_power(), if saves || value.is_empty() { "Y" } else { "N" });
    });
}

// Catches: a value that is not permitted and switches power saving, or is ignored without a word.
#[test]
fn a_switch_of_power_that_is_not_permitted_is_ignored_with_a_report() {
    let test = "a_switch_of_power_that_is_not_permitted_is_ignored_with_a_report";
    alone_each(test, POWER, &["2", "yes please", " 1", "-1"], VARIABLE, |value| {
        static REPORTS: Mutex<Vec<String>> = Mutex::new(Vec::new());
        uwork::set_reporter(|report| REPORTS.lock().unwrap().push(report.to_string())).unwrap();
        Setup::new().power_efficient(true).install().unwrap();
        assert_eq!(saves_power(), "Y", "the program's choice");
        let allowed = "1, y, Y, on, 0, n, N, off";
        let line = format!("UWORK_POWER_EFFICIENT={value:?} is ignored: allowed are {allowed}");
        until("the report", || REPORTS.lock().unwrap().contains(&line));
    });
}

// Catches: calls that start uwork although they need not.
#[test]
fn calls_that_need_no_pools_do_not_start_uwork() {
    alone("calls_that_need_no_pools_do_not_start_uwork", || {
        uwork::set_reporter(|_| {}).unwrap();
        assert!(uwork::topology::Machine::read().is_ok());
        assert_eq!(uwork::blocking(|| 42), 42);
        uwork::watchdog::touch();
        assert!(!uwork::current_is_rescuer());
        Setup::new().install().unwrap();
        assert_eq!(queue("after").build().unwrap().spawn(|| 42).join().unwrap(), 42);
        let error = Setup::new().install().unwrap_err();
        assert_eq!(error, SetupError::InstalledAlready);
        assert!(error.to_string().ends_with("one is allowed in a process"));
    });
}

// Catches: a setup that is accepted and has no effect.
#[test]
fn a_setup_after_the_first_queue_is_refused() {
    alone("a_setup_after_the_first_queue_is_refused", || {
        let queue = queue("before").build().unwrap();
        let late = Setup::new().blocking_tier(BlockingTier::Declared);
        for _ in 0..2 {
            let error = late.clone().install().unwrap_err();
            assert_eq!(error, SetupError::StartedAlready);
            assert!(error.to_string().ends_with("allowed before its first use only"));
        }
        assert_ne!(uwork::dump().blocking.reason, "the program asked for it");
        drop(queue);
    });
}

// Catches: two callers that both get the result that their setup was installed.
#[test]
fn one_of_several_setups_is_installed() {
    alone_with("one_of_several_setups_is_installed", without_variable, || {
        let barrier = Barrier::new(8);
        let tiers = BlockingTier::ALL.into_iter().cycle().take(8);
        let install = |tier| {
            barrier.wait();
            Setup::new().blocking_tier(tier).install().map(|()| tier)
        };
        let install = &install;
        let installed: Vec<BlockingTier> = thread::scope(|scope| {
            let threads: Vec<_> = tiers.map(|tier| scope.spawn(move || install(tier))).collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().ok()).collect()
        });
        assert_eq!(installed.len(), 1);
        let dump = uwork::dump();
        assert!(dump.blocking.reason.starts_with("the program asked for it"));
        if installed[0] == BlockingTier::Declared {
            assert_eq!(dump.blocking.tier, BlockingTier::Declared);
        }
    });
}
