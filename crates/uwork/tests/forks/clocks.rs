//! Children in another time namespace.

use std::fs;
use std::time::Duration;

use crate::support::child::alone_each;
use crate::support::forked::in_child;
use crate::support::items::Later;
use crate::support::left_out::not_here;
use crate::support::tiers::{VARIABLE, scene};
use crate::support::{queue, until, watchdog};

const NO_PRIVILEGE: &str = "a time namespace takes a privilege";

/// Children of this process are in a namespace in which half of the time since the system's start has passed.
/// False without the privilege for that.
fn unshare_time() -> bool {
    let uptime = fs::read_to_string("/proc/uptime").expect("it is mounted");
    let seconds: f64 = uptime.split(' ').next().expect("a number").parse().expect("a number");
    // SAFETY: no pointers.
    let is_permitted = unsafe { libc::unshare(libc::CLONE_NEWTIME) } == 0;
    let offset = format!("monotonic -{} 0", (seconds / 2.0) as u64);
    is_permitted && fs::write("/proc/self/timens_offsets", offset).is_ok()
}

// Catches: a clock that stands still until the system's passes the moment of the first queue.
#[test]
fn timers_expire_in_a_child_whose_clock_is_behind() {
    let test = "timers_expire_in_a_child_whose_clock_is_behind";
    let _watchdog = watchdog();
    let queue = queue("timers").build().unwrap();
    assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
    in_child(|| {
        if !unshare_time() {
            return not_here(test, NO_PRIVILEGE);
        }
        in_child(|| {
            let item = Later::counting();
            assert!(queue.enqueue_delayed(item.clone(), Duration::from_millis(1)).is_queued());
            until("the timer has expired", || item.tally.finished() == 1);
        });
    });
}

// Catches: records of switches by the clock of the system, from which the child's differs: a worker that
// has slept since a time to come is never replaced.
#[test]
fn blocks_are_found_in_a_child_whose_clock_is_behind() {
    let test = "blocks_are_found_in_a_child_whose_clock_is_behind";
    alone_each(test, VARIABLE, &["events", "standby"], VARIABLE, |tier| {
        let _watchdog = watchdog();
        scene();
        in_child(|| {
            if !unshare_time() {
                return not_here(&format!("{test}: {tier}"), NO_PRIVILEGE);
            }
            in_child(|| (0..5).for_each(|_| scene()));
            // This process stays in the namespace of its parent.
            (0..5).for_each(|_| scene());
        });
    });
}
