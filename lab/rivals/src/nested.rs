//! Tasks that make tasks: nested fork and join, and futures that yield. What `uwork-lab bench nested`
//! compares uwork with.

use std::future::{self, Future};
use std::hint::black_box;
use std::task::Poll;
use std::time::Instant;

use crate::load::{Sample, cpu_time};
use crate::rayon::Rayon;
use crate::tokio::Tokio;

/// A Fibonacci number, computed by nested fork and join.
#[derive(Clone, Copy, Debug)]
pub struct Fib {
    /// Which number.
    pub n: u32,
    /// Up to this number there is no fork.
    pub cutoff: u32,
}

impl Fib {
    /// How many forks the computation has.
    pub fn forks(&self) -> u64 {
        if self.n <= self.cutoff {
            return 0;
        }
        let less = |by| Fib { n: self.n - by, ..*self }.forks();
        1 + less(1) + less(2)
    }

    /// The number, computed on the calling thread.
    pub fn alone(n: u32) -> u64 {
        if n < 2 { u64::from(n) } else { Fib::alone(n - 1) + Fib::alone(n - 2) }
    }

    fn rayon(n: u32, cutoff: u32) -> u64 {
        if n <= cutoff {
            return Fib::alone(black_box(n));
        }
        let (a, b) = rayon::join(|| Fib::rayon(n - 1, cutoff), || Fib::rayon(n - 2, cutoff));
        a + b
    }
}

/// Futures that yield again and again.
#[derive(Clone, Copy, Debug)]
pub struct Yields {
    /// How many futures.
    pub futures: usize,
    /// How often each yields.
    pub yields: usize,
}

impl Yields {
    /// Polls of all futures together.
    pub fn polls(&self) -> u64 {
        self.futures as u64 * (self.yields as u64 + 1)
    }
}

/// Yields once, by the means that every executor has: the future wakes itself.
pub fn yield_now() -> impl Future<Output = ()> + Send {
    let mut has_yielded = false;
    future::poll_fn(move |context| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Times `run`, which processes that many items.
pub fn timed(items: u64, run: impl FnOnce()) -> Sample {
    let (start, before) = (Instant::now(), cpu_time());
    run();
    let (wall, cpu) = (start.elapsed(), cpu_time().saturating_sub(before));
    Sample { items, wall, cpu, latency: None }
}

/// `rayon::join`, called in a pool of `workers` threads. Items are forks.
///
/// # Panics
/// If a thread cannot be started, or the result is wrong.
pub fn rayon(workers: usize, fib: Fib) -> Sample {
    let expected = Fib::alone(fib.n);
    let pool = Rayon::<false>::new(workers);
    timed(fib.forks(), || {
        let result = pool.pool().install(|| Fib::rayon(fib.n, fib.cutoff));
        assert_eq!(result, expected);
    })
}

/// Tasks of tokio that yield; `own` by `tokio::task::yield_now`. Items are polls.
///
/// # Panics
/// If a thread cannot be started.
pub fn tokio(workers: usize, load: Yields, own: bool) -> Sample {
    let pool = Tokio::<false>::new(workers);
    timed(load.polls(), || {
        let task = move || async move {
            for _ in 0..load.yields {
                if own {
                    tokio::task::yield_now().await;
                } else {
                    yield_now().await;
                }
            }
        };
        let tasks: Vec<_> = (0..load.futures).map(|_| pool.handle().spawn(task())).collect();
        for task in tasks {
            pool.handle().block_on(task).expect("a task that yields does not panic");
        }
    })
}
