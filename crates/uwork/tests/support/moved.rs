//! Threads that another thread moves from CPU to CPU, at any point of their code.
//!
//! A thread that only moves itself never finds itself on another CPU in the middle of an operation.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use super::flag::SetOnDrop;
use super::machine::{set_mask, thread_id};

/// A thread that is moved.
#[derive(Default)]
struct Moved {
    /// 0 until the thread has begun.
    id: AtomicI32,
    is_done: AtomicBool,
}

impl Moved {
    fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }
}

/// Fewer of these CPUs than `threads`, spread over the machine: with a CPU for each, no thread
/// would be preempted.
pub(crate) fn fewer(cpus: &[u32], threads: usize) -> Vec<u32> {
    let step = cpus.len().div_ceil((threads / 2).max(1));
    cpus.iter().copied().step_by(step).collect()
}

/// Runs `run` with the numbers from 0 on `threads` threads, each of which is moved over these CPUs
/// until it has finished.
pub(crate) fn run_moved(threads: usize, cpus: &[u32], run: impl Fn(usize) + Sync) {
    let all: Vec<Moved> = (0..threads).map(|_| Moved::default()).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for (number, moved) in all.iter().enumerate() {
            let (run, is_over) = (&run, &is_over);
            scope.spawn(move || {
                moved.id.store(thread_id(), Ordering::Release);
                let done = SetOnDrop(&moved.is_done);
                run(number);
                drop(done);
                // Until then no other thread may reuse its id, so it stays alive.
                while !is_over.load(Ordering::Acquire) {
                    thread::yield_now();
                }
            });
        }
        scope.spawn(|| {
            let _over = SetOnDrop(&is_over);
            move_around(&all, cpus);
        });
    });
}

fn move_around(all: &[Moved], cpus: &[u32]) {
    for turn in 0.. {
        let mut left = 0;
        for (number, moved) in all.iter().enumerate().filter(|(_, moved)| !moved.is_done()) {
            left += 1;
            let id = moved.id.load(Ordering::Acquire);
            let cpu = cpus[(turn + number) % cpus.len()];
            // The thread may have panicked and ended since, and a CPU may have gone offline.
            _ = id != 0 && set_mask(id, cpu);
        }
        if left == 0 {
            return;
        }
    }
}
