//! Descriptors and fork(2): a child inherits none of the library's, and keeps its own when it closes
//! all, as daemons do.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::child::alone_each;
use crate::support::descriptors::{
    CloseAll, Files, is_open, open_descriptors, sleep_undeclared, until_at_rest,
};
use crate::support::flag::SetOnDrop;
use crate::support::forked::{end_with_parent, fork, in_child, leave, status_of};
use crate::support::left_out::not_here;
use crate::support::tiers::{
    BLOCKED, VARIABLE, blocks, collect_reports, declare_and_are_replaced, reported, scene,
};
use crate::support::{until, watchdog};

const TIERS: [&str; 4] = ["standby", "events", "sampling", "declared"];

fn use_queues(tier: &str) {
    match tier {
        "declared" => declare_and_are_replaced(&blocks(), BLOCKED),
        _ => scene(),
    }
}

// Catches: a file of the parent's that the child knows nothing of, because it was opened or closed
// during the fork.
#[test]
fn a_child_inherits_no_descriptor_of_the_library() {
    let test = "a_child_inherits_no_descriptor_of_the_library";
    alone_each(test, VARIABLE, &TIERS, VARIABLE, |tier| {
        collect_reports();
        // No watchdog: its thread opens files as well.
        let own = open_descriptors();
        use_queues(tier);
        let is_over = AtomicBool::new(false);
        let highest = open_descriptors().into_iter().max().unwrap_or(0) + 1_000;
        std::thread::scope(|scope| {
            // It opens no file of its own.
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    sleep_undeclared(&blocks());
                }
            });
            let over = SetOnDrop(&is_over);
            let inherited = (0..300).filter(|_| inherits(&own, highest)).count();
            drop(over);
            assert_eq!(inherited, 0, "children with a descriptor of the library's");
        });
    });
}

/// Whether a new child has a descriptor below `highest` that is not one of `own`.
fn inherits(own: &[i32], highest: i32) -> bool {
    let is_foreign = |number| is_open(number) && !own.contains(&number);
    // SAFETY: the child calls nothing of the parent's.
    match unsafe { libc::fork() } {
        0 => leave(!(3..highest).any(is_foreign)),
        child => status_of(child) != 0,
    }
}

// Catches: a descriptor that is known by the number of a process or thread, which is another one there.
#[test]
fn a_child_in_another_namespace_of_processes_inherits_none_either() {
    let test = "a_child_in_another_namespace_of_processes_inherits_none_either";
    alone_each(test, VARIABLE, &TIERS, VARIABLE, |tier| {
        collect_reports();
        let own = open_descriptors();
        let _notifier = uwork::task::notifier().unwrap();
        use_queues(tier);
        let highest = open_descriptors().into_iter().max().unwrap_or(0) + 1_000;
        // SAFETY: numbers only.
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
            return not_here(test, std::io::Error::last_os_error());
        }
        // The first process of a namespace: the namespace ends with it.
        assert!(!inherits(&own, highest));
    });
}

// Catches: a child that closes or uses a number of the library's in its parent, which belongs to the
// child's own file by now; and the same in the parent of a child.
#[test]
fn a_child_that_closes_all_descriptors_keeps_its_own_files() {
    let test = "a_child_that_closes_all_descriptors_keeps_its_own_files";
    alone_each(test, VARIABLE, &TIERS, VARIABLE, |tier| {
        let _watchdog = watchdog();
        collect_reports();
        (0..3).for_each(|_| use_queues(tier));
        for round in 0..4 {
            let close = if round % 2 == 0 { CloseAll::AtOnce } else { CloseAll::OneByOne };
            // A child lists its own descriptors only.
            let of_parent = open_descriptors();
            in_child(|| {
                let mut numbers = close.run();
                numbers.extend(&of_parent);
                let files = Files::open(&numbers, round);
                (0..3).for_each(|_| use_queues(tier));
                files.are_intact();
                // Once more, now that the child's library has its own.
                until_at_rest();
                let files = Files::open(&close.run(), round + 1);
                (0..3).for_each(|_| use_queues(tier));
                // A child of a child.
                in_child(|| {
                    use_queues(tier);
                    until_at_rest();
                    let files = Files::open(&close.run(), round);
                    use_queues(tier);
                    files.are_intact();
                });
                files.are_intact();
            });
            use_queues(tier);
        }
    });
}

// Catches: a child that closes a file of the program's, because its parent has lost the number.
#[test]
fn a_child_of_a_parent_that_has_closed_all_inherits_the_parents_files() {
    let test = "a_child_of_a_parent_that_has_closed_all_inherits_the_parents_files";
    alone_each(test, VARIABLE, &TIERS, VARIABLE, |tier| {
        collect_reports();
        for round in 0..6 {
            use_queues(tier);
            until_at_rest();
            let files = Files::open(&CloseAll::AtOnce.run(), round);
            match fork() {
                None => {
                    use_queues(tier);
                    // Panics otherwise.
                    files.are_intact();
                    leave(true)
                }
                Some(status) => assert_eq!(status, 0),
            }
        }
    });
}

// Catches: states of threads that are looked up by numbers of another namespace, so that a tier detects
// nothing and says otherwise; an item that is lost there.
#[test]
fn a_child_in_another_pid_namespace_goes_to_declared() {
    let test = "a_child_in_another_pid_namespace_goes_to_declared";
    alone_each(test, VARIABLE, &TIERS[..3], VARIABLE, |_| {
        collect_reports();
        scene();
        let before = reported().len();
        // SAFETY: no pointers.
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
            return not_here(test, std::io::Error::last_os_error());
        }
        // Not by `in_child`: the parent of a namespace's first process has the number 0 there.
        // SAFETY: the child uses uwork, which allows it, and this test's own code.
        let child = unsafe { libc::fork() };
        if child == 0 {
            end_with_parent(0);
            let outcome = std::panic::catch_unwind(|| {
                until("the loss is reported", || {
                    declare_and_are_replaced(&blocks(), BLOCKED);
                    reported().len() > before
                });
                assert_eq!(reported().len(), before + 1, "{:?}", reported());
                assert_eq!(uwork::dump().blocking.tier, uwork::BlockingTier::Declared);
            });
            leave(outcome.is_ok());
        }
        assert_eq!(status_of(child), 0, "the child has failed");
    });
}
