//! The state that an item shares with its handle: the outcome, and which thread owns a future.
//!
//! **Proves.** A result is delivered once and seen whole. One of the two sides frees the task,
//! after the last access of the other. A sleeping handle, and the waker registered last, are woken.
//! A future is dropped once, by a thread that sees the writes of the last poll, and is not polled
//! after that; its task is completed once. A wake leads to a poll that sees what the waker stored,
//! and a task is not queued twice at once. A queue's handle is released once, before the task is
//! complete, and its memory after the last waker has left the queue.

use std::sync::Mutex;
use std::task::{Context, Wake, Waker};

use loom::sync::Arc;
use loom::thread;

use super::host::{Event, WordSleep};
use super::{Preemptions, explore};
use crate::handle::{Outcome, Pending, Polled, Why};
use crate::words::sync::{AtomicU32, Cell, Ordering};

/// A task like the library's. Instead of freeing memory it counts how often it was freed.
struct Task {
    outcome: Outcome,
    futex: WordSleep,
    result: Cell<u32>,
    /// Written by the side that frees the task, after the last access of the other.
    freed: Cell<u32>,
}

impl Task {
    fn new() -> Arc<Task> {
        let (result, freed) = (Cell::new(0), Cell::new(0));
        Arc::new(Task { outcome: Outcome::new(), futex: WordSleep::default(), result, freed })
    }

    fn free(&self) {
        // SAFETY: the other side no longer touches the task. The model checks exactly that.
        unsafe {
            self.freed.set(self.freed.get() + 1);
            self.result.set(u32::MAX);
        }
        // Freeing the task drops the waker too.
        self.outcome.waker.with_mut(|_| ());
    }

    /// The item's side.
    fn deliver(&self) {
        // SAFETY: the handle does not read the result before it is done, and the task stays alive.
        unsafe {
            self.result.set(self.result.get() + 7);
            if Outcome::complete(&raw const self.outcome, &self.futex) {
                self.free();
            }
        }
    }

    /// The handle's side, once the result is there.
    fn take(&self) {
        // SAFETY: the result is delivered. The model checks exactly that.
        assert_eq!(unsafe { self.result.get() }, 7);
        self.drop_handle();
    }

    fn drop_handle(&self) {
        if self.outcome.abandon() {
            self.free();
        }
    }
}

/// A model in which an item delivers its result while `handle` runs.
fn delivered(name: &str, handle: fn(&Task)) {
    explore(name, Preemptions::Any, move || {
        let task = Task::new();
        let theirs = task.clone();
        let item = thread::spawn(move || theirs.deliver());
        handle(&task);
        item.join().unwrap();
        // SAFETY: both sides have finished.
        assert_eq!(unsafe { task.freed.get() }, 1);
    });
}

#[test]
fn a_sleeping_handle_gets_the_result_once() {
    delivered("handle: a sleeping handle", |task| {
        task.outcome.wait(&task.futex);
        task.take();
    });
}

#[test]
fn a_task_is_freed_once_when_its_handle_is_dropped() {
    delivered("handle: dropped", Task::drop_handle);
}

#[derive(Default)]
struct Wakes(Event);

impl Wake for Wakes {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.wake();
    }
}

/// Polls with a new waker each time; sleeps after the last poll if the result has not come.
fn poll(task: &Task, polls: u32) {
    let relax = |_| thread::yield_now();
    let mut left = polls;
    loop {
        let wakes = std::sync::Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        if task.outcome.poll_done(&Context::from_waker(&waker), relax) {
            break;
        }
        left = left.saturating_sub(1);
        if left == 0 {
            wakes.0.wait();
        }
    }
    task.take();
}

#[test]
fn a_handle_that_polls_is_woken() {
    delivered("handle: polled once", |task| poll(task, 1));
}

#[test]
fn the_waker_that_was_left_last_is_woken() {
    delivered("handle: polled twice", |task| poll(task, 2));
}

#[test]
fn a_handle_that_polls_and_then_sleeps_gets_the_result() {
    delivered("handle: polled, then asleep", |task| {
        let waker = Waker::from(std::sync::Arc::new(Wakes::default()));
        if !task.outcome.poll_done(&Context::from_waker(&waker), |_| thread::yield_now()) {
            task.outcome.wait(&task.futex);
        }
        task.take();
    });
}

/// A future's task. The polls are counted in the future itself, which no longer exists once
/// dropped.
struct Future {
    polled: Polled,
    /// `None`: dropped.
    polls: Cell<Option<u32>>,
    outcome: Outcome,
    futex: WordSleep,
    /// The outcomes reported to the handle.
    told: Mutex<Vec<Option<Why>>>,
}

impl Future {
    fn new() -> Arc<Future> {
        Arc::new(Future {
            polled: Polled::new(),
            polls: Cell::new(Some(0)),
            outcome: Outcome::new(),
            futex: WordSleep::default(),
            told: Mutex::default(),
        })
    }

    /// As `FutureTask::poll`. The future completes at poll number `last`.
    fn poll(&self, last: u32) {
        if !self.polled.begin() {
            return;
        }
        // SAFETY: the caller owns the future. The model checks exactly that.
        let polls = unsafe {
            let polls = self.polls.get().expect("not polled after it was dropped") + 1;
            self.polls.set(Some(polls));
            polls
        };
        if polls < last {
            if let Pending::Drop(why) = self.polled.pending(false) {
                self.finish(Some(why));
            }
            return;
        }
        self.polled.finished();
        self.finish(None);
    }

    fn give_up(&self, why: Why) {
        if self.polled.give_up(why) {
            self.finish(Some(why));
        }
    }

    fn finish(&self, why: Option<Why>) {
        // SAFETY: the caller owns the future for good. The model checks exactly that.
        unsafe {
            assert!(self.polls.get().is_some(), "dropped once");
            self.polls.set(None);
        }
        self.told.lock().unwrap().push(why);
        // SAFETY: the model keeps the outcome alive.
        let _ = unsafe { Outcome::complete(&raw const self.outcome, &self.futex) };
    }
}

/// A worker polls twice, and poll `last` completes the future, while other threads give it up.
fn given_up(name: &str, most: usize, last: u32, reasons: &'static [Why]) {
    explore(name, Preemptions::AtMost(most), move || {
        let future = Future::new();
        let others: Vec<_> = reasons
            .iter()
            .map(|&why| {
                let future = future.clone();
                thread::spawn(move || future.give_up(why))
            })
            .collect();
        let worker = {
            let future = future.clone();
            thread::spawn(move || (0..2).for_each(|_| future.poll(last)))
        };
        future.outcome.wait(&future.futex);
        // SAFETY: the future is done.
        assert_eq!(unsafe { future.polls.get() }, None);
        others.into_iter().for_each(|other| other.join().unwrap());
        worker.join().unwrap();
        assert_eq!(future.told.lock().unwrap().len(), 1, "completed once");
    });
}

#[test]
fn a_future_that_is_given_up_between_its_polls_is_dropped_once() {
    given_up("handle: a future is cancelled", 3, 3, &[Why::Cancelled]);
}

#[test]
fn a_future_that_finishes_while_it_is_given_up_is_dropped_once() {
    given_up("handle: a future finishes", 3, 2, &[Why::Cancelled]);
}

#[test]
fn a_future_that_two_threads_give_up_is_dropped_once() {
    given_up("handle: a future is cancelled and refused", 2, 3, &[Why::Cancelled, Why::Refused]);
}

/// A future that is queued, a worker that polls it once, and wakers.
struct Woken {
    polled: Polled,
    stores: [AtomicU32; 2],
    /// What the last poll has read. Touched by polls only: the model checks that.
    seen: Cell<u32>,
    queued: Mutex<u32>,
}

impl Woken {
    fn poll(&self) {
        assert!(self.polled.begin());
        let seen = self.stores.iter().map(|store| store.load(Ordering::Relaxed)).sum();
        // SAFETY: the caller owns the future. The model checks exactly that.
        unsafe { self.seen.set(seen) };
        if self.polled.pending(false) == Pending::Queue {
            *self.queued.lock().unwrap() += 1;
        }
    }
}

fn woken(name: &str, wakers: usize) {
    explore(name, Preemptions::AtMost(3), move || {
        let task = Arc::new(Woken {
            polled: Polled::new(),
            stores: [AtomicU32::new(0), AtomicU32::new(0)],
            seen: Cell::new(0),
            queued: Mutex::new(0),
        });
        let wakers: Vec<_> = (0..wakers)
            .map(|waker| {
                let task = task.clone();
                thread::spawn(move || {
                    // Relaxed: the wake must order this store before the poll.
                    task.stores[waker].store(1, Ordering::Relaxed);
                    if task.polled.wake() {
                        *task.queued.lock().unwrap() += 1;
                    }
                })
            })
            .collect();
        task.poll();
        let count = wakers.len() as u32;
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        let queued = std::mem::take(&mut *task.queued.lock().unwrap());
        assert!(queued <= 1, "queued twice at once");
        (0..queued).for_each(|_| task.poll());
        // SAFETY: no other thread polls any more.
        assert_eq!(unsafe { task.seen.get() }, count, "the last poll sees every store");
    });
}

#[test]
fn a_wake_during_a_poll_leads_to_a_poll_that_sees_its_stores() {
    woken("handle: a future is woken", 1);
}

#[test]
fn two_wakes_queue_a_future_once() {
    woken("handle: a future is woken twice", 2);
}

/// A future's queue. Its handle or its memory is kept while a thread is inside.
struct Lent {
    polled: Polled,
    /// The handle, until the future's last owner releases it.
    handle: Cell<bool>,
    /// Kept for wakers.
    memory: Cell<bool>,
    /// The queue itself: a thread inside reads it, and its end writes it. The model checks that these
    /// are ordered.
    queue: Cell<u32>,
    queued: AtomicU32,
    outcome: Outcome,
    futex: WordSleep,
}

/// # Safety
/// The caller alone accesses the cell.
unsafe fn replace<T: Copy>(cell: &Cell<T>, new: T) -> T {
    // SAFETY: by this function's contract.
    unsafe {
        let before = cell.get();
        cell.set(new);
        before
    }
}

impl Lent {
    fn new() -> Arc<Lent> {
        let task = Lent {
            polled: Polled::new(),
            handle: Cell::new(true),
            memory: Cell::new(false),
            queue: Cell::new(1),
            queued: AtomicU32::new(0),
            outcome: Outcome::new(),
            futex: WordSleep::default(),
        };
        // Between two polls.
        assert!(task.polled.begin());
        assert_eq!(task.polled.pending(false), Pending::Idle);
        Arc::new(task)
    }

    /// As `FutureTask::wake_task`.
    fn wake(&self) {
        if self.polled.wake() {
            // Release: as the push to the queue.
            self.queued.store(1, Ordering::Release);
            // SAFETY: the queue exists. The model checks exactly that.
            assert_eq!(unsafe { self.queue.get() }, 1, "inside a queue that has ended");
            self.leave();
        }
    }

    fn leave(&self) {
        // SAFETY: no other thread has the memory. The model checks exactly that.
        if self.polled.leave() && unsafe { replace(&self.memory, false) } {
            self.end_queue();
        }
    }

    fn end_queue(&self) {
        // SAFETY: no other thread is inside. The model checks exactly that.
        assert_eq!(unsafe { replace(&self.queue, 0) }, 1, "the queue ends once");
    }

    /// As `FutureTask::finish`.
    fn finish(&self) {
        let has_callers = self.polled.has_callers();
        // SAFETY: the caller owns the future permanently. The model checks exactly that.
        unsafe {
            self.memory.set(has_callers);
            assert!(replace(&self.handle, false), "the handle is released once");
        }
        match has_callers {
            true => self.leave(),
            false => self.end_queue(),
        }
        // SAFETY: the model keeps the outcome alive.
        let _ = unsafe { Outcome::complete(&raw const self.outcome, &self.futex) };
    }

    fn run(&self) {
        // Acquire: as the splice of the queue.
        if self.queued.load(Ordering::Acquire) == 1 && self.polled.begin() {
            self.polled.finished();
            self.finish();
        }
    }

    fn cancel(&self) {
        if self.polled.give_up(Why::Cancelled) {
            self.finish();
        }
    }
}

/// Wakers, and a thread that ends the future.
fn lent(name: &str, wakers: usize, end: fn(&Lent)) {
    explore(name, Preemptions::AtMost(3), move || {
        let task = Lent::new();
        let wakers: Vec<_> = (0..wakers)
            .map(|_| {
                let task = task.clone();
                thread::spawn(move || task.wake())
            })
            .collect();
        end(&task);
        let was_done = task.outcome.is_done();
        // SAFETY: the handle is released before the task is complete. The model checks exactly that.
        assert!(!was_done || !unsafe { task.handle.get() });
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        if !was_done {
            task.run();
        }
        // SAFETY: all threads have ended.
        assert_eq!(unsafe { (task.handle.get(), task.queue.get()) }, (false, 0));
    });
}

#[test]
fn a_queue_outlives_the_waker_that_queues_its_last_poll() {
    lent("handle: a waker is inside the queue of a future that finishes", 1, Lent::run);
    lent("handle: two wakers are inside the queue of a future that finishes", 2, Lent::run);
}

#[test]
fn a_queue_outlives_the_wakers_of_a_cancelled_future() {
    lent("handle: a waker is inside the queue of a cancelled future", 2, Lent::cancel);
}
