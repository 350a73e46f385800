//! When the watcher scans and rests, and what a scan does for a pool, over the table of facts.

use uwork_policy::progress::NEVER;
use uwork_policy::scan::{
    Backlog, Heard, Leftover, Listening, Pace, Rest, Retry, Scanned, Starved, UNREAD_FIRST_NS,
    UNREAD_MAX_NS, looks_again_at, retry, something_waits, wakes_neighbour,
};

const FLAGS: [bool; 2] = [false, true];
const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const NOW: u64 = 500 * MS;

#[test]
fn a_pool_waits_if_it_has_items_and_the_watcher_can_help() {
    for bits in 0..16_u32 {
        let [ready, scheduled, starved, watcher_helps] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
        let pool = Backlog { ready, scheduled, starved, watcher_helps };
        // No items, or items that no scan can help: a pool with one worker, for example.
        let expected = !matches!(
            (ready, scheduled, starved, watcher_helps),
            (false, false, _, _) | (_, _, false, false)
        );
        assert_eq!(something_waits(pool), expected, "{pool:?}");
    }
}

#[test]
fn a_starved_pool_tries_again_in_time_and_calls_rescuers_until_then() {
    for (again_at, ready, expected) in [
        (0, false, Retry::Nothing),
        (0, true, Retry::Nothing),
        (1, false, Retry::Nothing),
        (1, true, Retry::Settle),
        (NOW - 1, false, Retry::Nothing),
        (NOW - 1, true, Retry::Settle),
        (NOW, false, Retry::Nothing),
        (NOW, true, Retry::Settle),
        (NOW + 1, false, Retry::Nothing),
        (NOW + 1, true, Retry::Mayday),
        (u64::MAX, false, Retry::Nothing),
        (u64::MAX, true, Retry::Mayday),
    ] {
        assert_eq!(retry(Starved { again_at, ready, now: NOW }), expected, "{again_at} {ready}");
    }
}

#[test]
fn a_neighbour_is_woken_for_items_that_no_worker_takes() {
    for shares in FLAGS {
        for (ready, room) in [(false, false), (false, true), (true, false), (true, true)] {
            for (since_progress_ns, stuck) in
                [(0, false), (200 * US - 1, false), (200 * US, true), (u64::MAX, true)]
            {
                let pool = Leftover { shares, room, ready, since_progress_ns };
                assert_eq!(wakes_neighbour(pool), [shares, ready, stuck] == [true; 3], "{pool:?}");
            }
        }
    }
}

#[test]
fn a_pool_is_scanned_again_when_its_items_can_be_stuck_and_a_neighbour_has_room() {
    for since_progress_ns in [0, 1, 200 * US - 1, 200 * US, u64::MAX] {
        let again = |shares, room, ready| {
            looks_again_at(Leftover { shares, room, ready, since_progress_ns }, NOW)
        };
        for (room, ready) in [(false, false), (false, true), (true, false), (true, true)] {
            assert_eq!(again(false, room, ready), NEVER);
            let in_ns = match since_progress_ns {
                0 | 1 => 200 * US - since_progress_ns,
                ns if ns == 200 * US - 1 => 1,
                _ => 200 * US,
            };
            let at = if room && ready { NOW + in_ns } else { NEVER };
            assert_eq!(again(true, room, ready), at, "{room} {ready} {since_progress_ns}");
        }
    }
}

#[test]
fn the_first_scan_comes_when_an_item_can_be_stuck_and_at_once_in_a_suspect_pool() {
    assert_eq!(Pace::woken(NOW).first_scan_at(false), Some(NOW + 200 * US));
    assert_eq!(Pace::woken(NOW).first_scan_at(true), None);
    assert_eq!(Pace::woken(u64::MAX).first_scan_at(false), Some(u64::MAX));
}

#[test]
fn the_watcher_lingers_for_four_milliseconds_and_then_sleeps() {
    let pace = Pace::woken(NOW);
    for lingers in FLAGS {
        for idle_ns in [0, 4 * MS - 1, 4 * MS, u64::MAX - NOW] {
            let rest = |waiting| pace.rest(waiting, lingers, NOW + idle_ns);
            assert_eq!(rest(true), Rest::No, "{lingers} {idle_ns}");
            let expected = match (idle_ns < 4 * MS, lingers) {
                (false, _) => Rest::Sleep,
                (true, false) => Rest::Linger,
                // It has published that already.
                (true, true) => Rest::No,
            };
            assert_eq!(rest(false), expected, "{lingers} {idle_ns}");
        }
    }
}

#[test]
fn the_time_without_waiting_counts_from_the_last_scan_that_found_something() {
    let scan = |waiting| Scanned { waiting, suspect: false, next: NEVER };
    let (pace, _) = Pace::woken(NOW).after(scan(true), NOW + 3 * MS);
    let (pace, _) = pace.after(scan(false), NOW + 5 * MS);
    assert_eq!(pace.rest(false, true, NOW + 7 * MS - 1), Rest::No);
    assert_eq!(pace.rest(false, true, NOW + 7 * MS), Rest::Sleep);
}

/// The intervals of a series of scans that find the same.
fn intervals(scan: Scanned) -> Vec<u64> {
    let (mut pace, mut now, mut intervals) = (Pace::woken(NOW), NOW, Vec::new());
    for _ in 0..8 {
        let next;
        (pace, next) = pace.after(scan, now);
        intervals.push(next - now);
        now = next;
    }
    intervals
}

#[test]
fn intervals_double_up_to_the_maximum() {
    let scan = |waiting, suspect| Scanned { waiting, suspect, next: NEVER };
    let us = |scan| intervals(scan).into_iter().map(|ns| ns / US).collect::<Vec<_>>();
    assert_eq!(us(scan(true, false)), [200, 400, 800, 1_600, 2_000, 2_000, 2_000, 2_000]);
    assert_eq!(us(scan(false, false)), [400, 800, 1_600, 2_000, 2_000, 2_000, 2_000, 2_000]);
    assert_eq!(us(scan(true, true)), [50, 100, 200, 400, 800, 1_000, 1_000, 1_000]);
}

#[test]
fn intervals_begin_anew_when_something_begins_to_wait() {
    let scan = |waiting, suspect| Scanned { waiting, suspect, next: NEVER };
    for (suspect, first) in [(false, 200 * US), (true, 50 * US)] {
        let mut pace = Pace::woken(NOW);
        for round in 0..5 {
            let (waits_on, _) = pace.after(scan(true, false), NOW + round);
            (pace, _) = waits_on.after(scan(false, false), NOW + round);
        }
        let (_, next) = pace.after(scan(true, suspect), NOW + 9);
        assert_eq!(next, NOW + 9 + first, "suspect: {suspect}");
    }
}

#[test]
fn a_scan_that_is_due_soon_is_neither_early_nor_late() {
    for waiting in FLAGS {
        for suspect in FLAGS.into_iter().filter(|&suspect| waiting || !suspect) {
            for next in [0, NOW, NOW + 1, NOW + 50 * US - 1, NOW + 50 * US] {
                let scan = Scanned { waiting, suspect, next };
                let (pace, at) = Pace::woken(NOW).after(scan, NOW);
                assert_eq!(at, next, "{scan:?}");
                // The intervals go on from 50 us.
                let after = Scanned { waiting, suspect, next: NEVER };
                assert_eq!(pace.after(after, NOW).1, NOW + 100 * US, "{scan:?}");
            }
            let later = Scanned { waiting, suspect, next: NOW + 50 * US + 1 };
            let at = Pace::woken(NOW).after(later, NOW).1;
            let first = if suspect { 50 * US } else { 50 * US + 1 };
            assert_eq!(at, NOW + first, "{later:?}");
        }
    }
    let never = Scanned { waiting: true, suspect: false, next: NEVER };
    assert_eq!(Pace::woken(0).after(never, u64::MAX).1, u64::MAX, "no time is later");
}

#[test]
fn records_without_a_sleep_are_left_unread_for_longer_and_longer() {
    let mut listening = Listening::default();
    assert!(listening.from <= NOW, "the first record is read at once");
    for unread_ns in [UNREAD_FIRST_NS, 2 * UNREAD_FIRST_NS, UNREAD_MAX_NS, UNREAD_MAX_NS] {
        listening = listening.after(Heard::Records, false, NOW);
        assert_eq!(listening.from, NOW + unread_ns);
        // Scans in between do not prolong it.
        assert_eq!(listening.after(Heard::Nothing, false, NOW + 1), listening);
    }
    for heard in [Heard::Nothing, Heard::Silence, Heard::Records] {
        assert_eq!(listening.after(heard, true, NOW), Listening::default(), "{heard:?}");
    }
    assert_eq!(listening.after(Heard::Silence, false, NOW), Listening::default());
}
