//! Calls from inside an item that would wait for their own caller return, and the errors that they
//! give.

use std::sync::{Arc, Mutex, OnceLock, Weak};

use uwork_engine::{Attrs, DepthError, FreezeError, Kind, QueueError, Queued};
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

use crate::item::Item;
use crate::setup::{MS, Setup, VirtualEngine, VirtualQueue, attrs, make, spec, with_engine};

/// A queue of each kind: per CPU, unbound, ordered.
fn one_of_each(engine: &Arc<VirtualEngine>) -> Vec<VirtualQueue> {
    let (cpumask, scope) = (engine.config().allowed.clone(), AffinityScopeChoice::Default);
    let ordered = Attrs { nice: 0, cpumask, scope, strict: false };
    let kinds = [
        Kind::PerCpu,
        Kind::Unbound(attrs(engine, AffinityScope::System, false)),
        Kind::Ordered(ordered),
    ];
    let named = kinds.into_iter().enumerate();
    named.map(|(index, kind)| make(engine, spec(&format!("q{index}"), kind))).collect()
}

type Times = Arc<Mutex<Vec<u64>>>;
type Call = fn(&Arc<Item>, &VirtualEngine);

/// An item that makes this call on itself, and records when the call returned.
fn calls_itself(engine: &Arc<VirtualEngine>, call: Call) -> (Arc<Item>, Times) {
    let (this, back) = (Arc::new(OnceLock::<Weak<Item>>::new()), Times::default());
    let (myself, times, inner) = (this.clone(), back.clone(), Arc::downgrade(engine));
    let item = Item::new(move || {
        let engine = inner.upgrade().expect("it runs this");
        let item = myself.get().and_then(Weak::upgrade).expect("the test has it");
        call(&item, &engine);
        times.lock().unwrap().push(engine.host().time());
    });
    this.set(Arc::downgrade(&item)).expect("set once");
    (item, back)
}

// Catches: a wait for the run that the caller is in.
#[test]
fn a_wait_for_the_callers_own_run_returns_at_once() {
    let calls: [Call; 3] = [
        |item, engine| assert_eq!(item.cancel_sync(engine), Ok(false)),
        |item, engine| assert!(!item.flush(engine)),
        |item, engine| {
            assert_eq!(item.disable(engine), Ok(false));
            assert_eq!(item.enable(engine), Ok(true));
        },
    ];
    for call in calls {
        with_engine(Setup::exact("core:2"), move |engine| {
            for queue in one_of_each(engine) {
                let (item, back) = calls_itself(engine, call);
                let begin = engine.host().time();
                assert_eq!(item.queue(&queue), Queued::Yes);
                queue.flush().unwrap();
                assert_eq!(*back.lock().unwrap(), [begin]);
                // The item can be queued again.
                assert_eq!(item.queue(&queue), Queued::Yes);
                queue.flush().unwrap();
                assert_eq!(back.lock().unwrap().len(), 2);
            }
        });
    }
}

// Catches: a wait from inside for a run that has ended; no wait for a run of another item that has
// not ended; the result of one taken for that of the other.
#[test]
fn a_wait_for_another_run_takes_as_long_as_that() {
    with_engine(Setup::exact("core:2"), |engine| {
        let queue = make(engine, spec("q", Kind::PerCpu));
        let clock = engine.host().clone();
        let long = Item::new(move || clock.burn(5 * MS));
        assert_eq!(long.queue_on(&queue, 1), Queued::Yes);
        let (target, inner) = (long.clone(), engine.clone());
        let waits = Item::new(move || {
            assert!(target.flush(&inner), "it ran");
            assert_eq!(inner.host().time(), 5 * MS);
            assert!(!target.flush(&inner), "it was idle");
            assert_eq!(target.cancel_sync(&inner), Ok(false));
            assert_eq!(inner.host().time(), 5 * MS);
        });
        engine.host().doze(MS);
        assert_eq!(waits.queue_on(&queue, 0), Queued::Yes);
        waits.flush(engine);
        assert_eq!(engine.host().time(), 5 * MS);
    });
}

// Catches: a queue that waits for the item that flushes or drains it.
#[test]
fn a_queue_is_not_waited_for_from_inside() {
    with_engine(Setup::exact("core:2"), |engine| {
        for queue in one_of_each(engine) {
            let handle = queue.clone();
            let item = Item::new(move || {
                assert_eq!(handle.flush(), Err(QueueError::WouldDeadlock));
                assert_eq!(handle.drain(), Err(QueueError::WouldDeadlock));
            });
            assert_eq!(item.queue(&queue), Queued::Yes);
            queue.drain().unwrap();
            assert!(queue.is_idle());
            drop(item);
        }
    });
}

// Catches: a disable depth that overflows its bits or drops below zero; an error that does not say
// which.
#[test]
fn the_disable_depth_has_two_bounds_and_the_errors_name_them() {
    with_engine(Setup::exact("core:1"), |engine| {
        let (queue, item) = (make(engine, spec("q", Kind::PerCpu)), Item::new(|| {}));
        assert_eq!(item.enable(engine), Err(DepthError::NotDisabled));
        for _ in 0..2047 {
            assert_eq!(item.disable(engine), Ok(false));
        }
        assert_eq!(item.disable(engine), Err(DepthError::TooDeep));
        assert_eq!(item.cancel_sync(engine), Err(DepthError::TooDeep));
        for left in (0..2047).rev() {
            assert_eq!(item.queue(&queue), Queued::Disabled);
            assert_eq!(item.enable(engine), Ok(left == 0));
        }
        assert_eq!(item.queue(&queue), Queued::Yes);
        queue.flush().unwrap();
    });
    let says = |error: &dyn std::error::Error, what: &str| {
        assert!(error.to_string().contains(what), "{error}");
    };
    says(&DepthError::TooDeep, "2047 times");
    says(&DepthError::NotDisabled, "is enabled");
    says(&FreezeError::AlreadyFrozen, "frozen already");
    says(&FreezeError::NotFrozen, "not frozen");
}
