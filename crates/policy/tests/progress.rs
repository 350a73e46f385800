//! What a pool owes, over the whole table of its inputs.

use uwork_policy::concurrency::PoolCounts;
use uwork_policy::progress::{NEVER, Obligation, PoolView, is_stranded, obligation};

const FLAGS: [bool; 2] = [false, true];
/// A timer; the tests also use a time before it and one after it.
const TIMER: u64 = 1_000;
const SLACK: u64 = 200;

/// Every view of a pool with up to three workers of each kind.
fn views() -> Vec<PoolView> {
    let mut views = Vec::new();
    for running in 0..4 {
        for idle in 0..3 {
            for blocked in 0..2 {
                for flags in 0..64_u32 {
                    let flag = |bit: u32| FLAGS[(flags >> bit & 1) as usize];
                    for target in 1..4 {
                        for (timer, keeper_until) in [
                            (NEVER, NEVER),
                            (TIMER, NEVER),
                            (TIMER, TIMER - 1),
                            (TIMER, TIMER),
                            (TIMER, TIMER + 1),
                        ] {
                            let workers = running + idle + blocked;
                            let (waking, kept) = (flag(0), flag(1) && idle > 0);
                            views.push(PoolView {
                                counts: PoolCounts { running, idle, workers, waking, kept },
                                target,
                                ready: flag(2),
                                scheduled: flag(3),
                                watcher_helps: flag(4),
                                timer,
                                keeper_until,
                                timer_slack: if flag(5) { SLACK } else { 0 },
                            });
                        }
                    }
                }
            }
        }
    }
    views
}

#[test]
fn a_ready_item_has_a_worker_coming_or_a_bounded_scan() {
    for view in views().into_iter().filter(|view| view.ready) {
        let owed = obligation(view);
        let enough = view.counts.running >= view.target;
        let covered = view.counts.waking || (enough && (owed.scan_by == 0 || !view.watcher_helps));
        assert!(covered || owed.worker, "{view:?}: {owed:?}");
    }
}

#[test]
fn items_behind_a_running_item_are_scanned() {
    for view in views().into_iter().filter(|view| view.scheduled && view.watcher_helps) {
        let owed = obligation(view);
        assert!(view.counts.waking || owed.worker || owed.scan_by == 0, "{view:?}: {owed:?}");
    }
}

#[test]
fn an_armed_timer_is_covered_by_a_thread_that_wakes_in_time() {
    for view in views().into_iter().filter(|view| view.timer != NEVER) {
        let owed = obligation(view);
        let keeper = view.counts.kept && (view.keeper_until <= view.timer || owed.keeper);
        let watch = owed.scan_by <= view.timer + view.timer_slack;
        assert!(view.counts.waking || owed.worker || keeper || watch, "{view:?}: {owed:?}");
    }
}

#[test]
fn no_wake_is_owed_without_a_reason() {
    for view in views() {
        let owed = obligation(view);
        if view.counts.waking {
            assert_eq!(owed, Obligation::NOTHING, "{view:?}");
        }
        let lacks = view.ready && view.counts.running < view.target && !view.counts.waking;
        assert_eq!(owed.worker, lacks, "{view:?}");
        assert_eq!(is_stranded(view.counts, view.target, view.ready), lacks, "{view:?}");
        if owed.keeper {
            assert!(view.counts.kept && view.timer < view.keeper_until, "{view:?}");
        }
        let waits = (view.ready || view.scheduled) && view.watcher_helps;
        let uncovered = view.timer != NEVER && !view.counts.kept;
        if owed.scan_by != NEVER {
            assert!(waits || uncovered, "{view:?}: {owed:?}");
        }
    }
}
