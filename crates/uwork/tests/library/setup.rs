//! Choices of a program before uwork starts. Each test runs in a process of its own.

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
