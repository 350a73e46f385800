//! Adding task work, running it and submitting to a combiner allocate nothing. Counted per thread, by the allocator of
//! this process.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;

use crate::support::counting::counted;
use crate::support::{until, watchdog, within};
use uwork::combine::{Combined, Combiner, Parcel, Parcels};
use uwork::recycle::Pool;
use uwork::task::{self, Delivery, Notify, TaskHandle, TaskItem, TaskWork};

struct Job {
    work: TaskWork<Job>,
    runs: AtomicU64,
}

uwork::has_task_work!(impl HasTaskWork for Job { work });

impl TaskItem for Job {
    type Pointer = Arc<Job>;

    fn run(this: Arc<Job>) {
        this.runs.fetch_add(1, Ordering::Release);
    }
}

const ROUNDS: u64 = 1_000;
/// Warm-up rounds that are not counted: the first use allocates.
const WARM_UP: u64 = 10;

/// Adds items for a thread that sleeps in `wait`; asserts that neither side allocates.
#[track_caller]
fn nothing_is_allocated<W: FnMut()>(delivery: Delivery, make: impl FnOnce() -> W + Send + 'static) {
    let (send, receive) = channel();
    let over = Arc::new(AtomicBool::new(false));
    let ends = over.clone();
    let thread = std::thread::spawn(move || {
        task::set_delivery(delivery).unwrap();
        let mut wait = make();
        send.send(TaskHandle::current()).unwrap();
        let (mut ran, mut before) = (0, 0);
        while !ends.load(Ordering::Relaxed) {
            wait();
            ran += 1;
            if ran == WARM_UP {
                before = counted();
            }
        }
        counted() - before
    });
    let handle = receive.recv().unwrap();
    let jobs: Vec<_> =
        (0..4).map(|_| Arc::new(Job { work: TaskWork::new(), runs: AtomicU64::new(0) })).collect();
    let mut allocated = 0;
    for round in 0..ROUNDS + WARM_UP {
        let before = counted();
        for job in &jobs {
            assert!(handle.add(job.clone(), Notify::Signal).is_added());
        }
        // The guard of a long wait allocates.
        allocated += if round < WARM_UP { 0 } else { counted() - before };
        let ran = || jobs.iter().all(|job| job.runs.load(Ordering::Acquire) == round + 1);
        until("the items have run", ran);
    }
    assert_eq!(allocated, 0, "to add");
    assert!(handle.add_fn(Notify::Signal, move || over.store(true, Ordering::Relaxed)).is_ok());
    assert_eq!(within("the target ends", move || thread.join().unwrap()), 0, "to run");
}

#[test]
fn task_work_in_a_futex_wait_allocates_nothing() {
    let _watchdog = watchdog();
    for delivery in [Delivery::Light, Delivery::Auto, Delivery::Signal] {
        nothing_is_allocated(delivery, || || _ = task::park());
    }
}

#[test]
fn task_work_in_a_poll_allocates_nothing() {
    let _watchdog = watchdog();
    nothing_is_allocated(Delivery::Light, || {
        let notifier = task::notifier().unwrap();
        move || {
            notifier.wait(|| {
                let fd = notifier.as_fd().as_raw_fd();
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one structure, which is live.
                unsafe { libc::poll(&raw mut poll, 1, -1) }
            });
            task::run_once();
        }
    });
}

#[test]
fn task_work_in_a_read_allocates_nothing() {
    let _watchdog = watchdog();
    nothing_is_allocated(Delivery::Auto, || {
        let (reader, writer) = std::io::pipe().unwrap();
        move || {
            let _open = &writer;
            let mut byte = [0_u8; 1];
            let buffer = byte.as_mut_ptr().expose_provenance();
            let arguments = [reader.as_raw_fd() as usize, buffer, 1, 0, 0, 0];
            // SAFETY: the buffer is live and of the length given.
            let _ = unsafe { task::syscall(libc::SYS_read, arguments) };
            task::safe_point();
        }
    });
}

#[test]
fn task_work_in_a_ring_allocates_nothing() {
    let _watchdog = watchdog();
    nothing_is_allocated(Delivery::Light, || {
        let mut reactor = uwork::ring::Reactor::builder().build().unwrap();
        move || {
            reactor.wait(None).unwrap();
            while reactor.next().is_some() {}
        }
    });
}

#[test]
fn submitting_to_a_combiner_with_a_pool_allocates_nothing() {
    let _watchdog = watchdog();
    let (combiner, pool) = (Combiner::new(0_u64), Pool::new(4));
    let add = |sum: &mut u64, parcels: &mut Parcels<'_, u64>| {
        while let Some(parcel) = parcels.pop() {
            *sum += **parcel;
            let _ = pool.put(parcel);
        }
        ControlFlow::Continue(())
    };
    assert_eq!(combiner.submit(Parcel::new(1), add), Combined::Done);
    let before = counted();
    for _ in 0..ROUNDS {
        let parcel = pool.take().unwrap();
        assert_eq!(combiner.submit(parcel, add), Combined::Done);
    }
    assert_eq!(counted() - before, 0);
    assert_eq!(combiner.into_inner(), ROUNDS + 1);
}
