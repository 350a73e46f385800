//! Calls that wait, from async code.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use uwork::{Report, report_waits, unblock};

use crate::support::child::alone;
use crate::support::executor::block_on;
use crate::support::gate::Gate;
use crate::support::items::Job;
use crate::support::tiers::{collect_reports, reports};
use crate::support::{queue, watchdog};

#[test]
fn flush_drain_and_cancel_can_be_awaited() {
    let _watchdog = watchdog();
    let queue = queue("unblock").max_active(1).build().unwrap();
    block_on(async {
        let (may_end, started) = (Gate::new(), Gate::new());
        let (gate, begun) = (may_end.clone(), started.clone());
        let running = Job::new(move |_| {
            begun.open();
            gate.wait();
        });
        assert!(queue.enqueue(running.clone()).is_queued());
        started.wait();
        let behind = Job::counting();
        assert!(queue.enqueue(behind.clone()).is_queued());
        let flushed = queue.clone();
        let mut flush = unblock(move || flushed.flush());
        let polled = std::future::poll_fn(|context| Poll::Ready(pin!(&mut flush).poll(context)));
        assert!(polled.await.is_pending(), "the first item still runs");
        may_end.open();
        flush.await.unwrap().unwrap();
        assert_eq!((running.tally.finished(), behind.tally.finished()), (1, 1));

        let cancelled = running.clone();
        let was_pending = unblock(move || cancelled.work.cancel_sync().map(|item| item.is_some()));
        assert!(!was_pending.await.unwrap().unwrap());
        let drained = queue.clone();
        unblock(move || drained.drain()).await.unwrap().unwrap();
    });
}

// Between two polls a future is no item, so it may await a flush that its own poll may not make.
#[test]
fn a_future_can_await_the_flush_of_its_own_queue() {
    let _watchdog = watchdog();
    let queue = queue("own").max_active(1).build().unwrap();
    let own = queue.clone();
    let future = queue.spawn_future(async move {
        assert!(own.flush().is_err(), "this poll is an item of the queue");
        let items: Vec<_> = (0..10).map(|_| Job::counting()).collect();
        items.iter().for_each(|item| assert!(own.enqueue(item.clone()).is_queued()));
        let flushed = own.clone();
        unblock(move || flushed.flush()).await.unwrap().unwrap();
        items.iter().map(|item| item.tally.finished()).sum::<u32>()
    });
    assert_eq!(block_on(future).unwrap(), 10);
}

#[test]
fn a_wait_in_a_future_is_reported_once_for_each_foreign_thread() {
    alone("a_wait_in_a_future_is_reported_once_for_each_foreign_thread", || {
        let _watchdog = watchdog();
        collect_reports();
        let waits = || {
            reports(|report| match report {
                Report::WaitInFuture { thread } => Some(thread.clone()),
                _ => None,
            })
        };
        let on_a_thread = |name: &str, work: fn()| {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
            thread.unwrap().join().unwrap();
        };
        let queue = queue("reported").build().unwrap();
        let polled_by_a_worker = queue.spawn_future(report_waits(async { uwork::blocking(|| 1) }));
        assert_eq!(block_on(polled_by_a_worker).unwrap(), 1);
        on_a_thread("outside", || {
            block_on(report_waits(async {}));
            uwork::blocking(|| {});
        });
        on_a_thread("awaits", || {
            block_on(report_waits(async { unblock(|| uwork::blocking(|| 2)).await.unwrap() }));
        });
        assert_eq!(waits(), Vec::<String>::new());
        on_a_thread("executor", || {
            for _ in 0..3 {
                assert_eq!(block_on(report_waits(async { uwork::blocking(|| 3) })), 3);
            }
        });
        assert_eq!(waits(), ["executor"]);
    });
}
