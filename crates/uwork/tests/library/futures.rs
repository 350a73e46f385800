//! Futures as work items, and handles as futures.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::support::executor::block_on;
use crate::support::gate::Gate;
use crate::support::items::Job;
use crate::support::{keep, queue, until, watchdog, within};
use uwork::{JoinError, Queue};

/// What a test observes of its future.
#[derive(Default)]
struct Seen {
    polls: AtomicU32,
    polling: AtomicBool,
    overlapped: AtomicBool,
    dropped: AtomicU32,
    dropped_during_poll: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Seen {
    fn polls(&self) -> u32 {
        self.polls.load(Ordering::SeqCst)
    }

    fn dropped(&self) -> u32 {
        self.dropped.load(Ordering::SeqCst)
    }

    fn waker(&self) -> Waker {
        self.waker.lock().unwrap().clone().expect("it was polled")
    }
}

type OnPoll = Box<dyn FnMut(u32, &mut Context<'_>) -> Poll<u32> + Send>;

/// A future whose behaviour the test controls, and which records how it is treated.
struct Probe {
    seen: Arc<Seen>,
    on_poll: OnPoll,
}

fn probe(
    on_poll: impl FnMut(u32, &mut Context<'_>) -> Poll<u32> + Send + 'static,
) -> (Arc<Seen>, Probe) {
    let seen = Arc::<Seen>::default();
    (seen.clone(), Probe { seen, on_poll: Box::new(on_poll) })
}

impl Future for Probe {
    type Output = u32;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<u32> {
        let seen = self.seen.clone();
        if seen.polling.swap(true, Ordering::SeqCst) {
            seen.overlapped.store(true, Ordering::SeqCst);
        }
        *seen.waker.lock().unwrap() = Some(context.waker().clone());
        let poll = seen.polls.fetch_add(1, Ordering::SeqCst) + 1;
        let outcome = (self.on_poll)(poll, context);
        seen.polling.store(false, Ordering::SeqCst);
        outcome
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.seen.dropped.fetch_add(1, Ordering::SeqCst);
        let polling = self.seen.polling.load(Ordering::SeqCst);
        self.seen.dropped_during_poll.fetch_or(polling, Ordering::SeqCst);
    }
}

// Catches: a wake that polls at once, on the waking thread, while a poll is in progress.
#[test]
fn a_future_is_never_polled_twice_at_once() {
    let _watchdog = watchdog();
    let queue = queue("futures").build().unwrap();
    let (seen, future) =
        probe(|poll, _| if poll < 400 { Poll::Pending } else { Poll::Ready(poll) });
    let handle = queue.spawn_future(future);
    until("it was polled", || seen.polls() > 0);
    let waker = seen.waker();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                until("it is done", || {
                    waker.wake_by_ref();
                    handle.is_finished()
                });
            });
        }
    });
    assert_eq!(handle.join().unwrap(), 400);
    assert!(!seen.overlapped.load(Ordering::SeqCst));
    assert_eq!((seen.polls(), seen.dropped()), (400, 1));
}

// Catches: a wake during a poll that is lost, or that polls more than once; a poll without a wake.
#[test]
fn a_wake_during_a_poll_polls_exactly_once_more() {
    let _watchdog = watchdog();
    let queue = queue("futures").build().unwrap();
    let (seen, future) = probe(|poll, context| {
        if poll == 1 {
            context.waker().wake_by_ref();
            let owned = context.waker().clone();
            owned.wake();
            context.waker().wake_by_ref();
        }
        if poll < 4 { Poll::Pending } else { Poll::Ready(poll) }
    });
    let handle = queue.spawn_future(future);
    until("it was polled again", || seen.polls() >= 2);
    for polls in [2, 3] {
        queue.flush().unwrap();
        assert_eq!((seen.polls(), handle.is_finished()), (polls, false));
        seen.waker().wake();
        until("a wake polls it", || seen.polls() > polls);
    }
    assert_eq!(handle.join().unwrap(), 4);
    assert_eq!(seen.polls(), 4);
}

// Catches: a future that lives as long as its wakers, and a late wake that polls it, or crashes.
#[test]
fn wakers_may_outlive_the_future_and_its_queue() {
    let _watchdog = watchdog();
    let queue = queue("futures").build().unwrap();
    let (seen, future) = probe(|poll, _| Poll::Ready(poll));
    assert_eq!(queue.spawn_future(future).join().unwrap(), 1);
    assert_eq!(seen.dropped(), 1, "dropped when it was done");
    let waker = seen.waker();
    for _ in 0..10 {
        waker.wake_by_ref();
        queue.flush().unwrap();
    }
    drop(queue);
    // The waker holds the last handle to the queue.
    let another = waker.clone();
    waker.wake();
    another.wake();
    *seen.waker.lock().unwrap() = None;
    assert_eq!((seen.polls(), seen.dropped()), (1, 1));
}

// Catches: a queue that is destroyed by the thread whose wake was the last to hold the task.
#[test]
fn the_last_wake_may_destroy_the_queue() {
    let _watchdog = watchdog();
    for round in 0..300 {
        let queue = queue("futures-last").build().unwrap();
        let name = queue.name().to_owned();
        let (seen, future) = probe(|poll, _| match poll {
            1 => Poll::Pending,
            _ => Poll::Ready(poll),
        });
        drop(queue.spawn_future(future));
        until("it was polled", || seen.polls() == 1);
        drop(queue);
        let waker = seen.waker.lock().unwrap().take().expect("it was polled");
        let waking = std::thread::spawn(move || waker.wake());
        until("it is done", || seen.dropped() == 1);
        seen.waker.lock().unwrap().take();
        waking.join().unwrap();
        if round % 16 == 0 {
            until("the queue is destroyed", || Queue::builder(name.as_str()).build().is_ok());
        }
    }
}

// Catches: a panic that is lost, a future that is polled again after it, a handle that hangs.
#[test]
fn a_panic_in_a_future_reaches_its_handle() {
    let _watchdog = watchdog();
    let queue = queue("futures").build().unwrap();
    let (seen, future) = probe(|poll, context| {
        context.waker().wake_by_ref();
        assert!(poll < 3, "on purpose");
        Poll::Pending
    });
    let error = queue.spawn_future(future).join().unwrap_err();
    assert_eq!(error.to_string(), "the item panicked: on purpose");
    queue.flush().unwrap();
    seen.waker().wake();
    queue.flush().unwrap();
    assert_eq!((seen.polls(), seen.dropped()), (3, 1));
}

/// Never ready, with a waker that is kept; panics when it is dropped.
struct PendingAndPanics(Arc<Mutex<Option<Waker>>>);

impl Future for PendingAndPanics {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        *self.0.lock().unwrap() = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for PendingAndPanics {
    fn drop(&mut self) {
        panic!("on purpose, while the future is dropped");
    }
}

// Catches: a drop of the last waker that waits for a queue because the future's destructor panicked.
#[test]
fn the_drop_of_a_waker_does_not_wait_although_the_future_panics() {
    let _watchdog = watchdog();
    let mine = queue("futures-last-panic").build().unwrap();
    let (name, kept) = (mine.name().to_owned(), Arc::new(Mutex::new(None)));
    let handle = mine.spawn_future(PendingAndPanics(kept.clone()));
    until("it was polled", || kept.lock().unwrap().is_some());
    until("the poll has ended", || mine.is_idle());
    let (gate, ended) = held_item(&mine);
    // From here on, only the task keeps the queue.
    drop((mine, handle));
    let waker = kept.lock().unwrap().take();
    let outcome = catch_unwind(AssertUnwindSafe(|| drop(waker)));
    assert!(outcome.is_err(), "the future has panicked");
    assert!(!ended.load(Ordering::SeqCst), "it has waited for the item");
    gate.open();
    until("the queue has ended", || Queue::builder(&name).build().is_ok());
}

/// Ready at once; panics when it is dropped.
struct PanicsWhenDropped;

impl Future for PanicsWhenDropped {
    type Output = u32;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
        Poll::Ready(1)
    }
}

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("on purpose, while the future is dropped");
    }
}

// Catches: a handle that waits for ever because the future's destructor panicked.
#[test]
fn a_future_that_panics_when_dropped_can_be_joined() {
    let _watchdog = watchdog();
    let queue = queue("futures").build().unwrap();
    keep(&queue);
    let handle = queue.spawn_future(PanicsWhenDropped);
    let outcome = within("join", move || handle.join());
    assert!(matches!(outcome, Ok(1) | Err(JoinError::Panicked(_))), "{outcome:?}");
}

// Catches: a cancel that drops a future while a worker polls it.
#[test]
fn cancel_does_not_drop_a_future_that_is_being_polled() {
    let _watchdog = watchdog();
    let queue = queue("futures").build().unwrap();
    keep(&queue);
    let (entered, may_return) = (Gate::new(), Gate::new());
    let (started, gate) = (entered.clone(), may_return.clone());
    let (seen, future) = probe(move |poll, context| {
        context.waker().wake_by_ref();
        if poll == 1 {
            started.open();
            gate.wait_blocking();
        }
        if poll < 3 { Poll::Pending } else { Poll::Ready(poll) }
    });
    let handle = queue.spawn_future(future);
    entered.wait();
    // It runs, and is pending, because it has woken itself.
    let cancelled = handle.cancel();
    assert_eq!(seen.dropped(), 0, "a worker is in it");
    may_return.open();
    let outcome = within("join after a cancel", move || handle.join());
    assert!(!seen.dropped_during_poll.load(Ordering::SeqCst));
    match outcome {
        Ok(polls) => assert_eq!((cancelled, polls), (false, 3)),
        Err(error) => assert!(cancelled && matches!(error, JoinError::Cancelled)),
    }
    until("it is dropped", || seen.dropped() == 1);
}

// Catches: a cancel that takes a late wake for the future and discards its result.
#[test]
fn cancel_after_the_end_keeps_the_result() {
    let _watchdog = watchdog();
    let queue = queue("futures").max_active(1).ordered().build().unwrap();
    let (seen, future) = probe(|poll, _| Poll::Ready(poll));
    let handle = queue.spawn_future(future);
    until("it is done", || handle.is_finished());
    let (started, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();
    seen.waker().wake();
    assert!(!handle.cancel(), "it has run");
    may_end.open();
    assert_eq!(handle.join().unwrap(), 1);
}

// Catches: a handle that waits for a future that is never polled again.
#[test]
fn a_future_on_a_destroyed_queue_is_refused() {
    let _watchdog = watchdog();
    let queue = queue("futures").build().unwrap();
    let (seen, future) = probe(|_, _| Poll::Pending);
    let handle = queue.spawn_future(future);
    until("it was polled", || seen.polls() == 1);
    let destroyed = queue.clone();
    within("destroy does not wait for it", move || destroyed.destroy()).unwrap();
    seen.waker().wake();
    let outcome = within("join of a future whose queue was destroyed", move || handle.join());
    assert!(matches!(outcome, Err(JoinError::Refused)), "{outcome:?}");
    assert_eq!((seen.polls(), seen.dropped()), (1, 1));
}

// Catches: a wake that a draining queue discards.
#[test]
fn a_wake_during_a_drain_is_not_lost() {
    let _watchdog = watchdog();
    let queue = queue("futures").build().unwrap();
    let (seen, future) = probe(|poll, _| if poll == 1 { Poll::Pending } else { Poll::Ready(poll) });
    let handle = queue.spawn_future(future);
    until("it was polled", || seen.polls() == 1);
    let (started, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&started, &may_end)).is_queued());
    started.wait();
    let drained = queue.clone();
    let drain = std::thread::spawn(move || drained.drain());
    until("the drain has begun", || !queue.enqueue(Job::counting()).is_queued());
    seen.waker().wake();
    may_end.open();
    within("the drain", move || drain.join()).unwrap().unwrap();
    let outcome = within("join of a future that was woken in a drain", move || handle.join());
    assert!(matches!(outcome, Ok(2) | Err(JoinError::Refused)), "{outcome:?}");
}

// Catches: a handle that does not wake its awaiting task, or wakes only the first one.
#[test]
fn a_handle_is_a_future() {
    let _watchdog = watchdog();
    let queue = queue("futures").build().unwrap();
    for round in 0..200 {
        let one = queue.spawn(move || round);
        let inner = queue.clone();
        let two = queue.spawn_future(async move { inner.spawn(move || round + 1).await.unwrap() });
        assert_eq!(block_on(two).unwrap(), round + 1);
        assert_eq!(block_on(one).unwrap(), round);
    }
    let (started, may_end) = (Gate::new(), Gate::new());
    let (entered, gate) = (started.clone(), may_end.clone());
    let mut handle = queue.spawn(move || {
        entered.open();
        gate.wait_blocking();
        7
    });
    started.wait();
    let mut once = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut handle).poll(&mut once).is_pending());
    may_end.open();
    assert_eq!(block_on(handle).unwrap(), 7, "the last waker counts");
    let panicked = queue.spawn(|| panic!("on purpose"));
    assert!(matches!(block_on(panicked), Err(JoinError::Panicked(_))));
}

// Catches: a task that keeps its queue until its last waker and its handle are gone.
#[test]
fn a_finished_future_keeps_no_queue() {
    let _watchdog = watchdog();
    for _ in 0..300 {
        let mine = queue("futures-let-go").build().unwrap();
        let name = mine.name().to_owned();
        let (seen, future) =
            probe(|poll, _| if poll == 1 { Poll::Pending } else { Poll::Ready(poll) });
        let handle = mine.spawn_future(future);
        until("it was polled", || seen.polls() == 1);
        let waker = seen.waker();
        // This thread may still be inside the queue when the future has finished.
        let waking = std::thread::spawn(move || {
            waker.wake_by_ref();
            waker
        });
        until("it has finished", || handle.is_finished());
        drop(mine);
        let again = Queue::builder(&name).build();
        assert!(again.is_ok(), "{name}: {again:?}");
        drop((waking.join().unwrap(), again));
        assert_eq!(handle.join().unwrap(), 2);
    }
}

/// An item that is held until its gate opens, and whether it has ended.
fn held_item(queue: &Queue) -> (Gate, Arc<AtomicBool>) {
    struct Ends(Arc<AtomicBool>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (begun, gate, ended) = (Gate::new(), Gate::new(), Arc::new(AtomicBool::new(false)));
    let (began, held, ends) = (begun.clone(), gate.clone(), Ends(ended.clone()));
    let item = move || {
        let _ends = ends;
        began.open();
        held.wait();
    };
    queue.execute(item).unwrap();
    begun.wait();
    (gate, ended)
}

// Catches: a waker whose drop waits for the items of a queue, under a lock that they may take.
#[test]
fn the_drop_of_a_waker_or_a_cancel_does_not_wait_for_a_queue() {
    let _watchdog = watchdog();
    for cancelled in [false, true] {
        let mine = queue("futures-last-waker").build().unwrap();
        let name = mine.name().to_owned();
        // The future has a handle as well.
        let own = mine.clone();
        let (seen, future) = probe(move |_, _| {
            let _own = &own;
            Poll::Pending
        });
        let handle = mine.spawn_future(future);
        until("it was polled", || seen.polls() == 1);
        until("the poll has ended", || mine.is_idle());
        let (gate, ended) = held_item(&mine);
        drop(mine);
        // From here on, only the task keeps the queue.
        let waker = seen.waker.lock().unwrap().take();
        if cancelled {
            assert!(handle.cancel());
        } else {
            drop(handle);
            drop(waker);
        }
        assert_eq!(seen.dropped(), 1);
        assert!(!ended.load(Ordering::SeqCst), "it has waited for the item");
        gate.open();
        until("the queue has ended", || Queue::builder(&name).build().is_ok());
    }
}

// Catches: an output without a handle that lives as long as a waker, whose drop then waits for the
// output's queue; and an end of the future that waits for it.
#[test]
fn an_output_without_a_handle_does_not_live_as_long_as_the_wakers() {
    let _watchdog = watchdog();
    for dropped_before in [false, true] {
        let (mine, other) = (queue("futures").build().unwrap(), queue("futures-output").build());
        let other = other.unwrap();
        let name = other.name().to_owned();
        let (gate, ended) = held_item(&other);
        let (polled, may_end) = (Gate::new(), Gate::new());
        let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
        let (waker, inside, until_then) = (kept.clone(), polled.clone(), may_end.clone());
        // The output is the last handle of its queue.
        let mut output = Some(other);
        let handle = mine.spawn_future(std::future::poll_fn(move |context| {
            *waker.lock().unwrap() = Some(context.waker().clone());
            inside.open();
            until_then.wait();
            Poll::Ready(output.take().expect("polled once"))
        }));
        polled.wait();
        if dropped_before {
            drop(handle);
            may_end.open();
            within("the end of the future", move || mine.flush().unwrap());
            assert!(!ended.load(Ordering::SeqCst), "it has waited for the item");
            gate.open();
        } else {
            may_end.open();
            mine.flush().unwrap();
            gate.open();
            // Like any handle's.
            drop(handle);
            assert!(ended.load(Ordering::SeqCst), "it has not waited for the item");
        }
        until("the queue has ended", || Queue::builder(&name).build().is_ok());
        drop(kept.lock().unwrap().take().expect("it was polled"));
    }
}
