//! A shutdown's gates against submit and arm.
//!
//! **Proves.** An item that is queued or armed during a shutdown is refused, or it runs, or it is
//! released, exactly once: none is left in a list or in a wheel. A queue that is created during a
//! shutdown gets the marks.
//!
//! **Bounds.** The production worker and queue; one submitter with one item, one shutdown of either
//! kind without a limit; up to two preemptions.
//!
//! **Seen to fail** with each of these:
//!
//! - `arm_owned` does not check the gate under the timers' lock, or a shutdown disarms timers
//!   before it shuts the gates;
//! - `remove_pending_of` does not count the items that it removes;
//! - `shut_late_queue` does nothing.

use loom::thread;

use super::world::{Timed, World};
use super::{Preemptions, explore};
use crate::queue::Kind;
use crate::queue::owner::Queue;
use crate::queue::submit::Queued;
use crate::words::dump::Shutdown;

use super::host::LoomHost;

type Submit = fn(&Timed, &Queue<LoomHost>) -> Queued;

/// Runs `submit` concurrently with a shutdown. Returns its result, and how often the item ran and
/// was released.
fn beside(how: Shutdown, submit: Submit) -> (Queued, (u32, u32)) {
    let world = World::new(1, 2);
    let queue = world.per_cpu(1);
    let item = Timed::new();
    world.settle();
    let queued = world.explored(|| {
        let (target, handle) = (item.clone(), queue.clone());
        let submitter = thread::spawn(move || submit(&target, &handle));
        let report = world.engine.shutdown(how, u64::MAX).unwrap();
        assert!(report.is_complete());
        submitter.join().unwrap()
    });
    drop(queue);
    let _ = world.end();
    (queued, item.ends())
}

fn queued(how: Shutdown) {
    let (queued, (runs, released)) = beside(how, Timed::queue);
    assert_eq!(runs + released, u32::from(queued.is_queued()), "{queued:?}");
    assert!(released == 0 || how == Shutdown::Cancel);
}

#[test]
fn an_item_queued_during_a_cancelling_shutdown_ends_once() {
    explore("shutdown: cancel, queue", Preemptions::Deep(2), || queued(Shutdown::Cancel));
}

#[test]
fn an_item_queued_during_a_draining_shutdown_runs() {
    explore("shutdown: drain, queue", Preemptions::AtMost(2), || queued(Shutdown::Drain));
}

#[test]
fn an_item_armed_during_a_shutdown_is_released() {
    explore("shutdown: cancel, arm", Preemptions::AtMost(2), || {
        let (armed, ends) = beside(Shutdown::Cancel, Timed::arm);
        assert_eq!(ends, (0, u32::from(armed.is_queued())), "{armed:?}");
    });
}

#[test]
fn a_queue_created_during_a_shutdown_takes_no_items() {
    explore("shutdown: a late queue", Preemptions::AtMost(2), || {
        let world = World::new(1, 1);
        let made = world.explored(|| {
            let engine = world.engine.clone();
            let other = thread::spawn(move || {
                engine.shutdown(Shutdown::Cancel, u64::MAX).unwrap();
            });
            let made = world.queue("late", Kind::PerCpu, 1);
            other.join().unwrap();
            made
        });
        let item = Timed::new();
        assert_eq!(item.queue(&made), Queued::Refused);
        drop(made);
        let _ = world.end();
    });
}
