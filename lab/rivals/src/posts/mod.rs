//! Threads that post to each other. Each token goes to a randomly chosen thread at every hop, and
//! each thread waits, in its own way, for the next token. One driver serves every [`Way`].
//!
//! With many tokens, this measures the posts per second. With one token and two threads, it
//! measures the time from a post until a sleeping thread runs it.

mod bare;
mod eventfd;
mod tokio;

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::cpus;
use crate::load::cpu_time;

pub use bare::Bare;
pub use eventfd::Eventfd;
pub use tokio::Tokio;

/// A token that threads pass on.
#[derive(Debug)]
pub struct Token {
    /// Remaining posts.
    left: u32,
    /// The thread that it is at, or on its way to.
    at: usize,
    /// The state of the random generator.
    random: u64,
    posted: Instant,
}

/// One way for threads to post to each other.
pub trait Way: Send + Sync + Sized + 'static {
    /// A token as it is posted.
    type Parcel: Send;

    /// Wraps a token, once.
    fn parcel(self: &Arc<Self>, token: Token, course: &Arc<Course>) -> Self::Parcel;

    /// Called on thread `at`, before anything is posted.
    fn enter(&self, at: usize);

    /// Posts a parcel to thread `to`.
    fn post(&self, to: usize, parcel: Self::Parcel);

    /// Runs on thread `at`: waits for parcels, passes each received token to [`Course::arrive`],
    /// and posts it onwards. May return early.
    fn turn(&self, at: usize, course: &Course);

    /// Ends the wait of thread `to`, because the course is over.
    fn call(&self, to: usize);

    /// Called on thread `at`, after the course.
    fn leave(&self, _at: usize) {}
}

/// The size of a load.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of threads.
    pub threads: usize,
    /// Number of tokens.
    pub tokens: usize,
    /// Posts of each token.
    pub hops: u32,
    /// How the threads are placed.
    pub placement: Placement,
}

/// Where the threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Placed by the kernel.
    Free,
    /// All on one CPU.
    Same,
    /// Each thread on the CPU after that of the previous thread.
    Across,
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Posts {
    /// Posts that ran, of all tokens together.
    pub posts: u64,
    /// From the first post to the last run.
    pub wall: Duration,
    /// CPU time of the process in that period.
    pub cpu: Duration,
    /// The median time from a post to its run, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
}

/// The state of a run.
#[derive(Debug)]
pub struct Course {
    threads: usize,
    /// Number of tokens that have posts left.
    tokens: AtomicUsize,
    over: AtomicBool,
    times: Mutex<Histogram<u64>>,
}

/// An upper bound for all measured times.
const TIME_MAX_NS: u64 = 60_000_000_000;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, TIME_MAX_NS, 3).expect("valid bounds")
}

thread_local! {
    /// This thread's times, until they are merged into the course's.
    static TIMES: RefCell<Option<Histogram<u64>>> = const { RefCell::new(None) };
}

impl Course {
    fn new(size: &Size) -> Course {
        Course {
            threads: size.threads,
            tokens: AtomicUsize::new(size.tokens),
            over: AtomicBool::new(false),
            times: Mutex::new(histogram()),
        }
    }

    /// Records that a token has arrived. Returns the next thread, or `None` if the token has no
    /// posts left.
    pub fn arrive(&self, token: &mut Token) -> Option<usize> {
        let now = Instant::now();
        let nanos = now.duration_since(token.posted).as_nanos() as u64;
        TIMES.with_borrow_mut(|times| {
            times.as_mut().expect("on a thread of the course").saturating_record(nanos.max(1));
        });
        token.left -= 1;
        if token.left == 0 {
            if self.tokens.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.over.store(true, Ordering::Release);
            }
            return None;
        }
        token.random ^= token.random << 13;
        token.random ^= token.random >> 7;
        token.random ^= token.random << 17;
        token.posted = Instant::now();
        if self.threads == 2 {
            // With two threads the token alternates.
            token.at = 1 - token.at;
        } else {
            token.at = (token.random >> 16) as usize % self.threads;
        }
        Some(token.at)
    }

    /// Whether no token has posts left.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn times(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the load. A token never goes to the thread that it is at, so two threads pass a single
/// token back and forth.
pub fn measure<W: Way>(way: W, size: &Size) -> Posts {
    let (way, course) = (Arc::new(way), Arc::new(Course::new(size)));
    let ready = Arc::new(Barrier::new(size.threads + 1));
    let allowed = cpus::allowed();
    let threads: Vec<_> = (0..size.threads)
        .map(|at| {
            let (way, course, ready) = (way.clone(), course.clone(), ready.clone());
            let cpu = match size.placement {
                Placement::Free => None,
                Placement::Same => Some(allowed[0]),
                Placement::Across => Some(allowed[at % allowed.len()]),
            };
            thread::spawn(move || {
                if let Some(cpu) = cpu {
                    cpus::pin(cpu);
                }
                TIMES.set(Some(histogram()));
                way.enter(at);
                ready.wait();
                while !course.is_over() {
                    way.turn(at, &course);
                }
                // The thread that ends the course is among the first that see its end.
                (0..course.threads).for_each(|to| way.call(to));
                way.leave(at);
                if let Some(times) = TIMES.take() {
                    course.times().add(times).expect("of the same bounds");
                }
            })
        })
        .collect();
    ready.wait();
    let (begin, cpu) = (Instant::now(), cpu_time());
    for token in 0..size.tokens {
        let random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(token as u64 + 1);
        let at = token % size.threads;
        let token = Token { left: size.hops, at, random, posted: Instant::now() };
        way.post(at, way.parcel(token, &course));
    }
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    let (wall, cpu) = (begin.elapsed(), cpu_time().saturating_sub(cpu));
    let times = course.times();
    let posts = size.tokens as u64 * u64::from(size.hops);
    assert_eq!(times.len(), posts, "each post was run once");
    let at = |part| times.value_at_quantile(part);
    Posts { posts, wall, cpu, p50_ns: at(0.5), p99_ns: at(0.99) }
}
