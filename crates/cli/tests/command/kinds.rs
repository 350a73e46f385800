//! `uwork doctor` of each kind of program that is stuck: its function is on the stack. The programs are
//! those of the example `stuck`, and the process is the test itself, alone.

use std::sync::atomic::Ordering;

use crate::doctor::finding_where;
use crate::observed::{looked_at, observed, observed_stripped, until};

#[path = "../../../uwork/examples/stuck.rs"]
#[allow(dead_code, reason = "the example has a main function and further kinds")]
mod stuck;

/// Has a program of this kind looked at. What doctor shows below its queue has `function` where the
/// stack begins, in the lines of the stack. With `is_stripped` these have the program's file in place
/// of the function.
fn is_named(kind: &str, function: &str, is_stripped: bool) {
    let (_queue, pid) = looked_at("bystander");
    let expected = stuck::start(kind).unwrap();
    until(|| Ok::<_, ()>(stuck::STUCK.load(Ordering::SeqCst)), |&stuck| stuck == expected);
    let shown = if is_stripped { "stripped+0x" } else { function };
    let is_frame = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|number| number.parse::<u32>().is_ok())
            && words.next().is_some_and(|address| address.starts_with("0x"))
            && line.contains(shown)
    };
    let (line, below) = finding_where(&pid, "stuck", |below| below.lines().any(is_frame));
    assert!(line.starts_with("  LOOK  queue stuck"), "{line}");
    // The item's own name needs no symbols.
    assert!(below.contains(", in ") && below.contains("kinds::stuck::"), "{below}");
    // The frames of the worker are left out, where they have names.
    assert!(is_stripped || !below.contains("uwork_engine::worker"), "{below}");
}

#[test]
fn an_endless_loop_is_named() {
    observed("kinds::an_endless_loop_is_named", || is_named("loop", "spins_for_ever", false));
}

#[test]
fn items_that_hold_each_others_locks_are_named() {
    observed("kinds::items_that_hold_each_others_locks_are_named", || {
        is_named("locks", "takes_both_locks", false);
    });
}

#[test]
fn an_item_that_waits_for_a_flush_of_its_own_queue_is_named() {
    observed("kinds::an_item_that_waits_for_a_flush_of_its_own_queue_is_named", || {
        is_named("own", "waits_for_a_flush_of_its_queue", false);
    });
}

#[test]
fn a_system_call_that_does_not_return_is_named() {
    observed("kinds::a_system_call_that_does_not_return_is_named", || {
        is_named("call", "reads_from_a_pipe", false);
    });
}

#[test]
fn items_that_hold_all_permits_are_named() {
    observed("kinds::items_that_hold_all_permits_are_named", || {
        is_named("limit", "waits_for_a_message", false);
    });
}

#[test]
fn a_stripped_program_has_stacks_with_its_file() {
    observed_stripped("kinds::a_stripped_program_has_stacks_with_its_file", || {
        is_named("locks", "", true);
    });
}

#[test]
fn a_stripped_program_in_an_endless_loop_has_a_stack() {
    observed_stripped("kinds::a_stripped_program_in_an_endless_loop_has_a_stack", || {
        is_named("loop", "", true);
    });
}
