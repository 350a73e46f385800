//! Calls of functions for one CPU's data that are in progress, in the modes that run such a
//! function where it is queued: so that a flush can wait for calls made by other threads.
//!
//! Such a call is recorded here, and not in its item, as the function may free the item. There is a
//! list for each CPU, up to a limit. A caller takes its list's lock twice, for a few instructions
//! each, and rarely contends with callers for another CPU's data. Each call has a number, so that a
//! flush waits only for calls that began before it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use uwork_engine::percpu::{Sections, Token};
use uwork_linux::engine;

use super::mode::chosen;

/// With more CPUs, some share a list.
const LISTS: usize = 16;

/// A call in progress.
struct Call {
    /// The item's address, for comparison only: never dereferenced.
    item: usize,
    thread: Token,
    number: u64,
}

struct State {
    calls: Vec<Call>,
    /// The number of the next call.
    next: u64,
    /// Threads that wait for a call to end.
    waiting: u32,
}

/// Aligned, so that lists do not share cache lines.
#[repr(align(128))]
struct List {
    state: Mutex<State>,
    ended: Condvar,
}

impl List {
    const fn new() -> List {
        let state = State { calls: Vec::new(), next: 0, waiting: 0 };
        List { state: Mutex::new(state), ended: Condvar::new() }
    }

    fn of(cpu: u32) -> &'static List {
        &ALL[cpu as usize % LISTS]
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No user code runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static ALL: [List; LISTS] = [const { List::new() }; LISTS];

/// A recorded call, until it is dropped.
struct Begun {
    list: &'static List,
    number: u64,
}

impl Drop for Begun {
    fn drop(&mut self) {
        let mut state = self.list.state();
        state.calls.retain(|call| call.number != self.number);
        let waiting = state.waiting;
        drop(state);
        if waiting > 0 {
            self.list.ended.notify_all();
        }
    }
}

/// Calls `f`, the function of the item at `item`, for the data of `cpu`.
pub fn call<R>(cpu: u32, item: usize, f: impl FnOnce() -> R) -> R {
    let (list, thread) = (List::of(cpu), chosen().rseq.token());
    let mut state = list.state();
    let number = state.next;
    state.next += 1;
    state.calls.push(Call { item, thread, number });
    drop(state);
    let _begun = Begun { list, number };
    f()
}

/// Waits until all calls of the item have ended that began before. Returns whether there were any;
/// false at once inside the item's own function, where the caller would wait for itself.
pub fn flush(cpu: u32, item: usize) -> bool {
    engine().assert_may_wait();
    let (list, thread) = (List::of(cpu), chosen().rseq.token());
    let mut state = list.state();
    let mut of_item = state.calls.iter().filter(|call| call.item == item).peekable();
    if of_item.peek().is_none() || of_item.any(|call| call.thread == thread) {
        return false;
    }
    let later = state.next;
    state.waiting += 1;
    drop(state);
    engine().blocking(|| {
        let is_before = |call: &Call| call.item == item && call.number < later;
        let mut state = list.state();
        while state.calls.iter().any(is_before) {
            state = list.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
    });
    true
}

/// All lists, held by the forking thread.
pub(super) struct Held([MutexGuard<'static, State>; LISTS]);

/// Locks all lists.
pub(super) fn hold() -> Held {
    Held(ALL.each_ref().map(List::state))
}

impl Held {
    /// Adapts the lists to the child, which has one thread: drops other threads' calls.
    pub(super) fn child(&mut self) {
        for state in &mut self.0 {
            state.waiting = 0;
            if !state.calls.is_empty() {
                let own = chosen().rseq.token();
                state.calls.retain(|call| call.thread == own);
            }
        }
    }
}
