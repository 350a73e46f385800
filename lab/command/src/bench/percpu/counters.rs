//! Additions to one counter, generic over the counter.

use std::hint::black_box;

use uwork::percpu::Counter;
use uwork_capi::{
    UwPercpuCounter, uw_percpu_counter_add, uw_percpu_counter_create, uw_percpu_counter_sum,
};
use uwork_rivals::count::Count;

use super::allocators::{Timed, fastest_round};
use super::threads::together;

/// uwork's counter.
pub(super) struct PerCpuCounter(Counter);

impl PerCpuCounter {
    pub(super) fn new() -> Self {
        Self(Counter::new())
    }
}

impl Count for PerCpuCounter {
    #[inline(always)]
    fn add(&self, number: i64) {
        self.0.add(number);
    }

    fn sum(&self) -> i64 {
        self.0.sum()
    }
}

/// uwork's counter through the C interface, called as in a shared library.
pub(super) struct ThroughC {
    counter: *mut UwPercpuCounter,
    add: unsafe extern "C" fn(*mut UwPercpuCounter, i64),
}

// SAFETY: all threads may use a counter (uwork.h).
unsafe impl Sync for ThroughC {}

impl ThroughC {
    pub(super) fn new() -> Self {
        // Hides the function from the compiler, so that it is not inlined.
        let add = black_box(uw_percpu_counter_add as unsafe extern "C" fn(_, _));
        Self { counter: uw_percpu_counter_create(), add }
    }
}

impl Count for ThroughC {
    #[inline(always)]
    fn add(&self, number: i64) {
        // SAFETY: a valid counter.
        unsafe { (self.add)(self.counter, number) };
    }

    fn sum(&self) -> i64 {
        // SAFETY: a valid counter.
        unsafe { uw_percpu_counter_sum(self.counter) }
    }
}

/// One thread adds.
pub(super) fn alone(counter: &impl Count) -> Timed {
    let before = counter.sum();
    let (timed, additions) = fastest_round(|| counter.add(black_box(1)));
    check(counter, before, additions);
    timed
}

/// Four threads add, each `each` times.
pub(super) fn four(counter: &impl Count, each: u64) -> Timed {
    let before = counter.sum();
    let timed = together(|| (0..each).for_each(|_| counter.add(black_box(1))), each);
    check(counter, before, timed.1);
    timed
}

fn check(counter: &impl Count, before: i64, additions: u64) {
    assert_eq!(counter.sum() - before, additions as i64, "a counter has every addition once");
}
