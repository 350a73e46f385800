//! The library's descriptors, in programs that close all, that have none left, and whose files are
//! counted. Each scene is a process of its own. Forked children are in `forks/descriptors.rs`, the
//! control socket in `control/main.rs`, task work in `task/descriptors.rs`.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::blocks::gates;
use crate::support::child::{alone, alone_each, limit};
use crate::support::descriptors::{
    CloseAll, Files, open_descriptors, sleep_undeclared, until_at_rest,
};
use crate::support::flag::SetOnDrop;
use crate::support::items::Job;
use crate::support::machine::cpus;
use crate::support::tiers::{
    BLOCKED, Blocked, VARIABLE, blocks, collect_reports, declare_and_are_replaced, reported, scene,
};
use crate::support::until;

const TIERS: [&str; 4] = ["standby", "events", "sampling", "declared"];

/// Workers block, and are replaced: undeclared, in the tiers that detect it.
fn use_queues(tier: &str) {
    match tier {
        "declared" => declare_and_are_replaced(&blocks(), BLOCKED),
        _ => (0..3).for_each(|_| scene()),
    }
    assert!(!uwork::dump().to_string().is_empty());
}

/// Closes all descriptors and opens files under their numbers, again and again.
fn close_again_and_again(mut between: impl FnMut()) {
    for round in 0..8 {
        let close = if round % 2 == 0 { CloseAll::AtOnce } else { CloseAll::OneByOne };
        until_at_rest();
        let files = Files::open(&close.run(), round);
        between();
        files.are_intact();
    }
}

/// A tier that the system refuses is reported once, at the start. Nothing else is.
#[track_caller]
fn assert_no_more_reports(before: usize) {
    assert_eq!(reported().len(), before, "{:?}", reported());
}

// Catches: a descriptor that is closed although it belongs to the program by now; a file of the
// program's that is read or written; workers that are not replaced any more.
#[test]
fn a_program_that_closes_all_descriptors_keeps_its_own_files() {
    let test = "a_program_that_closes_all_descriptors_keeps_its_own_files";
    alone_each(test, VARIABLE, &TIERS, VARIABLE, |tier| {
        collect_reports();
        // Before the first queue.
        let files = Files::open(&CloseAll::AtOnce.run(), 0);
        use_queues(tier);
        files.are_intact();
        let before = reported().len();
        close_again_and_again(|| use_queues(tier));
        assert_no_more_reports(before);
    });
}

// Catches: the same while workers block, and are observed.
#[test]
fn workers_that_block_while_all_descriptors_are_closed_are_replaced() {
    let test = "workers_that_block_while_all_descriptors_are_closed_are_replaced";
    alone_each(test, VARIABLE, &TIERS[..3], VARIABLE, |_| {
        collect_reports();
        scene();
        let before = reported().len();
        for round in 0..6 {
            let queue = blocks();
            let blocked = Blocked::queue(&queue, Arc::new(gates(BLOCKED)), BLOCKED);
            blocked.until_inside(1 + round % BLOCKED);
            until_at_rest();
            let files = Files::open(&CloseAll::AtOnce.run(), round);
            blocked.until_inside(BLOCKED);
            let behind = Job::counting();
            assert!(queue.enqueue_on(cpus()[0], behind.clone()).unwrap().is_queued());
            until("the item behind them has run", || behind.tally.finished() == 1);
            blocked.release();
            files.are_intact();
        }
        assert_no_more_reports(before);
    });
}

/// How often a thread of this process has lost its CPU.
fn preemptions() -> usize {
    let statuses = fs::read_dir("/proc/self/task").expect("it is mounted").flatten();
    let statuses = statuses.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let count = |status: String| {
        let count =
            status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
        count.and_then(|count| count.trim().parse::<usize>().ok())
    };
    statuses.filter_map(count).sum()
}

// Catches: a close that hits a file of the program's, as the program has closed the library's and
// has opened its own meanwhile.
#[test]
fn descriptors_may_be_closed_at_any_time() {
    let test = "descriptors_may_be_closed_at_any_time";
    alone_each(test, VARIABLE, &TIERS[..3], VARIABLE, |_| {
        collect_reports();
        let before = preemptions();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _over = SetOnDrop(&is_over);
                let queue = blocks();
                (0..200).for_each(|_| sleep_undeclared(&queue));
            });
            let (mut rounds, mut damaged) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                let damage = Files::open(&CloseAll::AtOnce.run(), rounds).close();
                (rounds, damaged) = (rounds + 1, damaged + usize::from(!damage.is_empty()));
            }
            // A thread may be preempted between a check and a close (see `until_at_rest`).
            let preempted = preemptions().saturating_sub(before);
            let allowed = 2 + rounds / 100 + (preempted / 10).min(rounds / 20);
            assert!(damaged <= allowed, "{damaged} of {rounds} rounds, {preempted} preemptions");
        });
    });
}

// Catches: files with names of functions that are opened in the program's table, where a program that
// closes all would close them, and the library a file of the program's.
#[test]
fn names_of_functions_need_no_descriptor_of_the_program() {
    alone("names_of_functions_need_no_descriptor_of_the_program", || {
        until_at_rest();
        let files = Files::open(&CloseAll::AtOnce.run(), 0);
        limit(libc::RLIMIT_NOFILE, 64);
        // SAFETY: no pointers.
        let taken: Vec<_> = std::iter::repeat_with(|| unsafe { libc::dup(0) })
            .take_while(|&number| number >= 0)
            .collect();
        let name = uwork::foreign::function_name(open_descriptors as *const () as usize);
        // SAFETY: the test's own.
        taken.into_iter().for_each(|number| _ = unsafe { libc::close(number) });
        assert!(name.as_ref().is_some_and(|name| name.contains("open_descriptors")), "{name:?}");
        files.are_intact();
    });
}

// Catches: low numbers, which select(2) needs, and which the program's next files would get after it
// has closed all.
#[test]
fn descriptors_that_stay_open_have_high_numbers() {
    let test = "descriptors_that_stay_open_have_high_numbers";
    alone_each(test, VARIABLE, &TIERS, VARIABLE, |tier| {
        for (most, floor) in [(4096, 1024), (1024, 512)] {
            let _ = CloseAll::AtOnce.run();
            limit(libc::RLIMIT_NOFILE, most);
            use_queues(tier);
            // A file that is read and closed at once has a low number.
            until("the others have high numbers", || {
                open_descriptors().iter().all(|&number| number >= floor)
            });
        }
    });
}
