//! Items in statics: the compiler makes them, and they run like any other.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use uwork::rcu::RcuWork;
use uwork::task::{Notify, TaskHandle, TaskItem, TaskWork, safe_point};
use uwork::{DelayedWork, Queue, Work, WorkItem, has_task_work, has_work};

/// An item of every kind, told apart by numbers.
struct Service {
    start: Work<Service>,
    poll: DelayedWork<Service, 1>,
    collect: DelayedWork<Service, 2>,
    reclaim: RcuWork<Service, 3>,
    answer: TaskWork<Service>,
    runs: [AtomicU32; 5],
}

has_work!(impl HasWork for Service { start });
has_work!(impl HasDelayedWork<1> for Service { poll });
has_work!(impl HasDelayedWork<2> for Service { collect });
has_work!(impl HasRcuWork<3> for Service { reclaim });
has_task_work!(impl HasTaskWork for Service { answer });

impl Service {
    fn count(&self, item: usize) {
        self.runs[item].fetch_add(1, Ordering::SeqCst);
    }
}

impl WorkItem for Service {
    type Pointer = &'static Service;
    fn run(this: &'static Service) {
        this.count(0);
    }
}

impl WorkItem<1> for Service {
    type Pointer = &'static Service;
    fn run(this: &'static Service) {
        this.count(1);
    }
}

impl WorkItem<2> for Service {
    type Pointer = &'static Service;
    fn run(this: &'static Service) {
        this.count(2);
    }
}

impl WorkItem<3> for Service {
    type Pointer = &'static Service;
    fn run(this: &'static Service) {
        this.count(3);
    }
}

impl TaskItem for Service {
    type Pointer = &'static Service;
    fn run(this: &'static Service) {
        this.count(4);
    }
}

static SERVICE: Service = Service {
    start: Work::new(),
    poll: DelayedWork::new().with_slack(Duration::from_millis(1)),
    collect: DelayedWork::deferrable(),
    reclaim: RcuWork::new(),
    answer: TaskWork::new(),
    runs: [const { AtomicU32::new(0) }; 5],
};

#[test]
fn items_of_every_kind_run_from_a_static() {
    let queue = Queue::builder("statics").build().unwrap();
    let hour = Duration::from_secs(3_600);
    assert!(!SERVICE.start.is_pending() && !SERVICE.poll.is_pending());
    assert!(queue.enqueue::<_, 0>(&SERVICE).is_queued());
    assert!(queue.enqueue_delayed::<_, 1>(&SERVICE, Duration::from_millis(1)).is_queued());
    assert!(queue.enqueue_delayed::<_, 2>(&SERVICE, hour).is_queued());
    assert!(queue.enqueue_rcu::<_, 3>(&SERVICE).is_queued());
    assert!(TaskHandle::current().add::<_, 0>(&SERVICE, Notify::None).is_added());
    SERVICE.start.flush();
    SERVICE.poll.flush();
    SERVICE.collect.flush();
    SERVICE.reclaim.flush();
    uwork::task::run();
    let runs = SERVICE.runs.each_ref().map(|runs| runs.load(Ordering::SeqCst));
    assert_eq!(runs, [1; 5]);
    assert_eq!(safe_point(), 0);
}

#[test]
fn an_item_of_a_static_is_cancelled_and_disabled() {
    struct Idle(DelayedWork<Idle>);
    // A field of a tuple has a number for a name.
    const OFFSET: usize = std::mem::offset_of!(Idle, 0);
    // SAFETY: the offset is that of the field.
    unsafe impl uwork::HasWork for Idle {
        const OFFSET: usize = OFFSET;
    }
    // SAFETY: a delayed work begins with its work.
    unsafe impl uwork::HasDelayedWork for Idle {}
    impl WorkItem for Idle {
        type Pointer = &'static Idle;
        fn run(_this: &'static Idle) {}
    }
    static IDLE: Idle = Idle(DelayedWork::new());

    let queue = Queue::builder("static-cancel").build().unwrap();
    assert!(queue.enqueue_delayed(&IDLE, Duration::from_secs(3_600)).is_queued());
    assert!(IDLE.0.cancel_sync().unwrap().is_some_and(|item| std::ptr::eq(item, &IDLE)));
    assert!(IDLE.0.disable().unwrap().is_none());
    assert!(queue.enqueue(&IDLE).into_refused().is_some());
    assert!(IDLE.0.enable().unwrap());
}
