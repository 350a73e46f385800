//! Items that wait for a grace period. The test is the driver: it decides when a period begins and
//! ends.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use uwork_engine::{Action, Graced, Kind, Queued, Work};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScope;

use crate::host::VirtualHost;
use crate::setup::{MS, Setup, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

/// An item that counts its runs, and how often it was released.
#[repr(C)]
struct Item {
    graced: Graced<VirtualHost>,
    runs: AtomicU32,
    released: AtomicU32,
    /// The CPU of the last run, and the time.
    seen: Mutex<Option<(u32, u64)>>,
    host: VirtualHost,
}

/// # Safety
/// The engine's promise: an `Item` that was queued, with the reference that was given up then.
unsafe fn call(work: NonNull<Work>, action: Action) {
    if action == Action::Name {
        return;
    }
    // SAFETY: by this function's contract.
    let item = unsafe { Arc::from_raw(work.cast::<Item>().as_ptr().cast_const()) };
    match action {
        Action::Run => {
            *item.seen.lock().unwrap() = Some((item.host.cpu(), item.host.time()));
            item.runs.fetch_add(1, Ordering::Relaxed)
        }
        _ => item.released.fetch_add(1, Ordering::Relaxed),
    };
}

impl Item {
    fn new(engine: &VirtualEngine) -> Arc<Item> {
        Arc::new(Item {
            graced: Graced::new(call),
            runs: AtomicU32::new(0),
            released: AtomicU32::new(0),
            seen: Mutex::new(None),
            host: engine.host().clone(),
        })
    }

    fn graced(self: &Arc<Self>) -> NonNull<Graced<VirtualHost>> {
        NonNull::new(Arc::as_ptr(self).cast_mut()).expect("not null").cast()
    }

    fn work(self: &Arc<Self>) -> NonNull<Work> {
        self.graced().cast()
    }

    /// Queues the item. The second result says whether the driver was called.
    fn queue(self: &Arc<Self>, queue: &VirtualQueue) -> (Queued, bool) {
        let (raw, mut called) = (Arc::into_raw(self.clone()), false);
        // SAFETY: the reference in `raw` keeps the item alive and in place.
        let outcome = unsafe { queue.queue_after_grace(self.graced(), || called = true) };
        if outcome != Queued::Yes {
            // SAFETY: the engine did not take the reference.
            drop(unsafe { Arc::from_raw(raw) });
        }
        (outcome, called)
    }

    fn cancel(self: &Arc<Self>, engine: &VirtualEngine) -> bool {
        // SAFETY: live, because we have a reference.
        let was_pending = unsafe { engine.cancel(self.work()) };
        if was_pending {
            // SAFETY: the engine returned its reference.
            drop(unsafe { Arc::from_raw(Arc::as_ptr(self)) });
        }
        was_pending
    }

    fn flush(self: &Arc<Self>, engine: &VirtualEngine, may_wait: bool) -> bool {
        // SAFETY: live, because we have a reference.
        unsafe { engine.flush_after_grace(self.graced(), may_wait) }
    }

    fn is_pending(&self) -> bool {
        self.graced.work().is_pending()
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::Relaxed)
    }
}

#[test]
fn an_item_waits_for_the_period_that_begins_after_its_call() {
    with_engine(Setup::exact("core:1"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let (first, second) = (Item::new(engine), Item::new(engine));
        assert_eq!(first.queue(&queue), (Queued::Yes, true));
        assert!(first.is_pending());
        assert_eq!(first.queue(&queue), (Queued::AlreadyPending, false));
        assert!(engine.begin_grace());
        // Too late for the period in progress.
        assert_eq!(second.queue(&queue), (Queued::Yes, false));
        queue.flush().unwrap();
        assert_eq!((first.runs(), second.runs()), (0, 0), "the queue does not know of them yet");
        engine.end_grace();
        queue.flush().unwrap();
        assert_eq!((first.runs(), second.runs()), (1, 0));
        assert!(!first.is_pending() && second.is_pending());
        assert!(engine.begin_grace());
        engine.end_grace();
        queue.flush().unwrap();
        assert_eq!((first.runs(), second.runs()), (1, 1));
        assert!(!engine.begin_grace(), "nothing has arrived: the driver may sleep");
        assert_eq!(first.queue(&queue), (Queued::Yes, true), "and is called again");
        assert!(engine.begin_grace());
        engine.end_grace();
        queue.flush().unwrap();
    });
}

#[test]
fn the_item_runs_on_the_submitters_cpu() {
    with_engine(Setup::exact("core:4"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let item = Item::new(engine);
        let (theirs, on) = (item.clone(), queue.clone());
        let asks = move || assert_eq!(theirs.queue(&on).0, Queued::Yes);
        host.start(&CpuSet::single(2), asks).join(host);
        host.doze(MS);
        assert!(engine.begin_grace());
        host.doze(MS);
        let ended = host.time();
        engine.end_grace();
        queue.flush().unwrap();
        assert_eq!(*item.seen.lock().unwrap(), Some((2, ended)));
    });
}

#[test]
fn a_flush_waits_for_the_period_and_then_for_the_run() {
    with_engine(Setup::exact("core:2"), |engine| {
        let (host, queue) = (engine.host(), make(engine, spec("q", Kind::PerCpu)));
        let item = Item::new(engine);
        assert!(!item.flush(engine, true), "idle");
        assert_eq!(item.queue(&queue).0, Queued::Yes);
        assert!(!item.flush(engine, false), "the caller is in the way of the period");
        let returned = Arc::new(Mutex::new(None));
        let (theirs, its_engine, place) = (item.clone(), engine.clone(), returned.clone());
        let flusher = host.start(&CpuSet::single(1), move || {
            let waited = theirs.flush(&its_engine, true);
            *place.lock().unwrap() = Some((waited, its_engine.host().time(), theirs.runs()));
        });
        host.doze(MS);
        assert!(engine.begin_grace());
        host.doze(MS);
        assert_eq!(*returned.lock().unwrap(), None);
        let ended = host.time();
        engine.end_grace();
        flusher.join(host);
        assert_eq!(*returned.lock().unwrap(), Some((true, ended, 1)));
    });
}

/// It can wait for the period, but not for the run.
#[test]
fn a_flush_inside_the_ordered_queue_reports_that_it_did_not_wait() {
    with_engine(Setup::exact("core:2"), |engine| {
        let host = engine.host();
        let attrs = attrs(engine, AffinityScope::System, false);
        let queue = make(engine, spec("q", Kind::Ordered(attrs)));
        let item = Item::new(engine);
        assert_eq!(item.queue(&queue).0, Queued::Yes);
        let answer = Arc::new(Mutex::new(None));
        let (theirs, its_engine, place) = (item.clone(), Arc::downgrade(engine), answer.clone());
        let inside = crate::item::Item::new(move || {
            let engine = its_engine.upgrade().expect("the engine lives");
            *place.lock().unwrap() = Some((theirs.flush(&engine, true), theirs.runs()));
        });
        assert_eq!(inside.queue(&queue), Queued::Yes);
        host.doze(MS);
        assert_eq!(*answer.lock().unwrap(), None, "it waits for the period");
        assert!(engine.begin_grace());
        engine.end_grace();
        queue.flush().unwrap();
        assert_eq!((*answer.lock().unwrap(), item.runs()), (Some((false, 0)), 1));
    });
}

#[test]
fn items_can_be_cancelled_from_both_lists_and_from_the_middle() {
    with_engine(Setup::exact("core:1"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let items: Vec<_> = (0..8).map(|_| Item::new(engine)).collect();
        for item in &items[..5] {
            assert_eq!(item.queue(&queue).0, Queued::Yes);
        }
        assert!(engine.begin_grace());
        for item in &items[5..] {
            assert_eq!(item.queue(&queue).0, Queued::Yes);
        }
        for index in [0, 2, 4, 6] {
            assert!(items[index].cancel(engine), "item {index}");
            assert!(!items[index].is_pending() && !items[index].cancel(engine));
        }
        // An item that was cancelled in a period and is queued again waits for the next one.
        assert_eq!(items[0].queue(&queue).0, Queued::Yes);
        engine.end_grace();
        queue.flush().unwrap();
        let runs = |items: &[Arc<Item>]| items.iter().map(|item| item.runs()).collect::<Vec<_>>();
        assert_eq!(runs(&items), [0, 1, 0, 1, 0, 0, 0, 0]);
        assert!(engine.begin_grace());
        engine.end_grace();
        queue.flush().unwrap();
        assert_eq!(runs(&items), [1, 1, 0, 1, 0, 1, 0, 1]);
        assert!(!engine.begin_grace());
        assert!(items.iter().all(|item| Arc::strong_count(item) == 1));
    });
}

#[test]
fn a_destroyed_or_closed_queue_releases_the_item() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (gone, closed) =
            (make(engine, spec("gone", Kind::PerCpu)), make(engine, spec("closed", Kind::PerCpu)));
        let (first, second) = (Item::new(engine), Item::new(engine));
        assert_eq!(first.queue(&gone).0, Queued::Yes);
        assert_eq!(second.queue(&closed).0, Queued::Yes);
        drop(gone);
        closed.destroy().unwrap();
        assert!(engine.begin_grace());
        engine.end_grace();
        for item in [&first, &second] {
            assert_eq!((item.runs(), item.released.load(Ordering::Relaxed)), (0, 1));
            assert!(!item.is_pending() && Arc::strong_count(item) == 1);
        }
        assert_eq!(first.queue(&closed), (Queued::Refused, false));
        assert_eq!(Arc::strong_count(&first), 1);
    });
}
