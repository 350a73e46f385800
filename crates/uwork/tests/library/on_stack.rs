//! Items on the stack: they end with the call, whatever their state.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::support::child::alone;
use crate::support::gate::{Gate, Log};
use crate::support::machine::in_the_wait;
use crate::support::{queue, until, watchdog, within};
use uwork::{Enqueued, Report, current_work, on_stack};

const HOUR: Duration = Duration::from_secs(3_600);

fn count(runs: &AtomicU32) {
    runs.fetch_add(1, Ordering::Relaxed);
}

// Catches: an item that behaves unlike others, or a function that does not see its borrowed data.
#[test]
fn an_item_on_the_stack_runs_as_often_as_it_is_queued() {
    alone("an_item_on_the_stack_runs_as_often_as_it_is_queued", || {
        let _watchdog = watchdog();
        let queue = queue("stack").build().unwrap();
        let runs = AtomicU32::new(0);
        let count = |item: &uwork::StackWork| {
            assert_eq!(current_work(), Some(item.id()));
            assert!(item.busy().running);
            if runs.fetch_add(1, Ordering::Relaxed) == 0 {
                assert!(item.enqueue(&queue).is_queued(), "queued again by its own function");
            }
        };
        let before = uwork::panics();
        let value = on_stack(count, |item| {
            assert!(!item.flush() && !item.cancel() && !item.is_pending(), "never queued");
            assert!(item.enqueue(&queue).is_queued());
            until("it has run twice", || runs.load(Ordering::Relaxed) == 2);
            assert!(item.enqueue_delayed(&queue, HOUR).is_queued());
            assert!(matches!(item.enqueue(&queue), Enqueued::Pending(())));
            assert!(item.flush(), "queued at once");
            assert_eq!(runs.load(Ordering::Relaxed), 3);
            7
        });
        assert_eq!((value, uwork::panics()), (7, before));
    });
}

// Catches: an end that leaves the item in a list or a timer, or in its queue.
#[test]
fn pending_items_are_cancelled_at_the_end() {
    let _watchdog = watchdog();
    let queue = queue("stack").ordered().build().unwrap();
    let (started, may_end) = (Gate::new(), Gate::new());
    let holder = crate::support::items::Job::held(&started, &may_end);
    assert!(queue.enqueue(holder).is_queued());
    started.wait();
    let runs = AtomicU32::new(0);
    on_stack(|_| count(&runs), |item| assert!(item.enqueue(&queue).is_queued()));
    on_stack(|_| count(&runs), |item| assert!(item.enqueue_delayed(&queue, HOUR).is_queued()));
    on_stack(
        |_| count(&runs),
        |item| {
            assert!(item.enqueue(&queue).is_queued());
            assert!(item.cancel() && !item.cancel());
        },
    );
    may_end.open();
    queue.flush().unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

// Catches: an end that does not wait for a run, or a run that can requeue itself for ever.
#[test]
fn the_end_waits_for_a_run_and_refuses_another() {
    let _watchdog = watchdog();
    let queue = queue("stack").build().unwrap();
    let log = Log::new();
    let (started, may_end, answered) = (Gate::new(), Gate::new(), Log::new());
    let call = {
        let (queue, log, answered) = (queue.clone(), log.clone(), answered.clone());
        let (started, may_end) = (started.clone(), may_end.clone());
        move || {
            let borrowed = String::from("borrowed");
            on_stack(
                |item| {
                    started.open();
                    may_end.wait_blocking();
                    answered.push(matches!(item.enqueue(&queue), Enqueued::Disabled(())));
                    log.push(borrowed.as_str().len());
                },
                |item| {
                    assert!(item.enqueue(&queue).is_queued());
                    started.wait();
                },
            );
            log.push(0);
        }
    };
    let ended = in_the_wait(call);
    ended.assert_waits();
    assert_eq!(log.events(), [0; 0]);
    may_end.open();
    ended.result();
    assert_eq!(log.events(), [8, 0], "the run, then the end");
    assert_eq!(answered.events(), [true], "disabled");
}

// Catches: a body that unwinds while its item is in a list.
#[test]
fn a_body_that_panics_ends_the_item_too() {
    let _watchdog = watchdog();
    let queue = queue("stack").build().unwrap();
    let runs = AtomicU32::new(0);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        on_stack(
            |_| count(&runs),
            |item| {
                assert!(item.enqueue_delayed(&queue, HOUR).is_queued());
                panic!("on purpose");
            },
        )
    }));
    assert!(outcome.is_err());
    queue.flush().unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 0);
}

// Catches: a frame that is destroyed while an expiry is about to release its item. (With a wrong
// count, the end would never come, or come too early.)
#[test]
fn timers_that_expire_on_a_closed_queue_race_with_the_end() {
    let _watchdog = watchdog();
    for round in 0..400_u32 {
        let closed = queue("stack").build().unwrap();
        let runs = AtomicU32::new(0);
        on_stack(
            |_| count(&runs),
            |item| {
                let delay = Duration::from_micros(u64::from(round % 20) * 10 + 1);
                assert!(item.enqueue_delayed(&closed, delay).is_queued());
                closed.destroy().unwrap();
                if round % 2 == 0 {
                    until("it is released", || !item.is_pending());
                }
            },
        );
        assert!(runs.load(Ordering::Relaxed) <= 1);
    }
}

static LETTING_GO: OnceLock<Gate> = OnceLock::new();
static MAY_LET_GO: OnceLock<Gate> = OnceLock::new();

/// Holds the worker to which the queue has reported that it accepts no more: its item is idle
/// already, and the worker is about to release it.
fn hold_the_refusal(report: &Report) {
    if let Report::QueuedWhileDraining { queue } = report
        && queue.starts_with("stack-held")
    {
        LETTING_GO.get_or_init(Gate::new).open();
        MAY_LET_GO.get_or_init(Gate::new).wait();
    }
}

/// Whether an item with this delay is refused because its queue is closed; otherwise it has run. If
/// so, its worker is held in the report; then calls `ending`, and ends the frame.
fn is_refused_after(delay: Duration, ending: impl FnOnce()) -> bool {
    let closed = queue("stack-held").build().unwrap();
    let runs = AtomicU32::new(0);
    on_stack(
        |_| count(&runs),
        |item| {
            assert!(item.enqueue_delayed(&closed, delay).is_queued());
            closed.destroy().unwrap();
            // Everything that was queued before has run.
            if runs.load(Ordering::Relaxed) > 0 {
                return false;
            }
            LETTING_GO.get_or_init(Gate::new).wait();
            assert!(!item.is_pending(), "refused");
            ending();
            true
        },
    )
}

// Catches: an end that takes an idle item for one that the engine has released.
#[test]
fn the_end_waits_until_the_engine_has_released_the_item() {
    alone("the_end_waits_until_the_engine_has_released_the_item", || {
        let _watchdog = watchdog();
        uwork::set_reporter(hold_the_refusal).expect("the only reporter here");
        let log = Log::new();
        let ending = log.clone();
        let ended = in_the_wait(move || {
            let mut delay = Duration::from_millis(1);
            // A delay that is over before the queue is closed lets the item run.
            while !is_refused_after(delay, || ending.push(())) {
                delay *= 2;
            }
        });
        log.wait_for_count(1);
        ended.assert_waits();
        MAY_LET_GO.get_or_init(Gate::new).open();
        ended.result();
    });
}

// Catches: an end that waits for itself where the caller is an item.
#[test]
fn an_item_on_the_stack_works_inside_an_item_of_the_same_queue() {
    let _watchdog = watchdog();
    for builder in [queue("stack"), queue("stack").ordered(), queue("stack").per_cpu()] {
        let queue = builder.max_active(1).build().unwrap();
        let inner = queue.clone();
        let job = queue.spawn(move || {
            let runs = AtomicU32::new(0);
            on_stack(|_| count(&runs), |item| assert!(item.enqueue(&inner).is_queued()));
            runs.into_inner()
        });
        let ran = within("a call inside an item", move || job.join()).unwrap();
        assert!(ran <= 1);
    }
}
