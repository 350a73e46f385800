//! What an item shares with its handle: the outcome, and which thread has a future.
//!
//! **Proves.** A result is delivered once and seen whole; one of the two sides frees the task,
//! after the other has touched it for the last time; a sleeper and the waker that was left last are
//! woken. A future is dropped once, by a thread that sees what the last poll did, and is not polled
//! after that; its task is completed once.
//!
//! **Bounds.** The production words; an item's side, a handle that sleeps, polls twice or is
//! dropped, with any number of preemptions; a worker that polls twice, with a thread that cancels, up
//! to three, and with another that refuses, up to two.
//!
//! **Seen to fail** with each of these:
//!
//! - `complete` only acquires, or sets DONE and takes the waker afterwards, or wakes before it sets DONE;
//! - `abandon` is relaxed;
//! - `wait` does not set SLEEPING, or loads relaxed;
//! - `poll_done` does not take the cell back first, or ignores DONE at its end;
//! - `pending` clears POLLING without a look at the reason, or does not release;
//! - `give_up` takes the future while it is polled, or after it is gone, or does not acquire;
//! - `begin` does not look for GONE.

use std::sync::Mutex;
use std::task::{Context, Wake, Waker};

use loom::sync::Arc;
use loom::thread;

use super::host::{Event, WordSleep};
use super::{Preemptions, explore};
use crate::handle::{Outcome, Polled, Why};
use crate::sync::Cell;

/// A task as the library's: its memory counts how often it was freed.
struct Task {
    outcome: Outcome,
    futex: WordSleep,
    result: Cell<u32>,
    /// By the side that frees the task: after the last touch of the other.
    freed: Cell<u32>,
}

impl Task {
    fn new() -> Arc<Task> {
        let (result, freed) = (Cell::new(0), Cell::new(0));
        Arc::new(Task { outcome: Outcome::new(), futex: WordSleep::default(), result, freed })
    }

    fn free(&self) {
        // SAFETY: the other side is through with the task. That is what is being checked.
        unsafe {
            self.freed.set(self.freed.get() + 1);
            self.result.set(u32::MAX);
        }
        // With the task goes the waker.
        self.outcome.waker.with_mut(|_| ());
    }

    /// The item's side.
    fn deliver(&self) {
        // SAFETY: the handle does not look before it is done; and the task stays.
        unsafe {
            self.result.set(self.result.get() + 7);
            if Outcome::complete(&raw const self.outcome, &self.futex) {
                self.free();
            }
        }
    }

    /// The handle's side, once it is done.
    fn take(&self) {
        // SAFETY: the result is delivered. That is what is being checked.
        assert_eq!(unsafe { self.result.get() }, 7);
        self.drop_handle();
    }

    fn drop_handle(&self) {
        if self.outcome.abandon() {
            self.free();
        }
    }
}

/// A model in which an item delivers and a handle does this.
fn delivered(name: &str, handle: fn(&Task)) {
    explore(name, Preemptions::Any, move || {
        let task = Task::new();
        let theirs = task.clone();
        let item = thread::spawn(move || theirs.deliver());
        handle(&task);
        item.join().unwrap();
        // SAFETY: both sides are through.
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

/// A future's task: polls are counted in the future itself, which is gone once it was dropped.
struct Future {
    polled: Polled,
    /// `None`: dropped.
    polls: Cell<Option<u32>>,
    outcome: Outcome,
    futex: WordSleep,
    /// What the handle is told.
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

    /// As `FutureTask::poll`. The future is finished by poll number `last`.
    fn poll(&self, last: u32) {
        if !self.polled.begin() {
            return;
        }
        // SAFETY: the caller has the future. That is what is being checked.
        let polls = unsafe {
            let polls = self.polls.get().expect("not polled after it was dropped") + 1;
            self.polls.set(Some(polls));
            polls
        };
        if polls < last {
            if let Some(why) = self.polled.pending() {
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
        // SAFETY: the caller has the future for good. That is what is being checked.
        unsafe {
            assert!(self.polls.get().is_some(), "dropped once");
            self.polls.set(None);
        }
        self.told.lock().unwrap().push(why);
        // SAFETY: the model keeps it.
        let _ = unsafe { Outcome::complete(&raw const self.outcome, &self.futex) };
    }
}

/// A worker that polls twice, of which poll `last` finishes the future, beside threads that give it up.
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
        // SAFETY: it is done.
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
