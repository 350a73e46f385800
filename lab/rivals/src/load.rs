//! The load: producers submit batches of tiny items and wait for each batch, as the kernel's
//! lib/test_workqueue.c does.
//!
//! One driver, generic over [`Pool`], serves every pool. The pool, its threads and the items'
//! memory are created before the clock starts and released after it stops. Every sample ends with a
//! check that each item ran exactly once.

use std::mem;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::progress::{Lease, Progress};

/// A pool under test.
pub trait Pool: Sync {
    /// The state of one producer thread.
    type Producer<'a>: Producer
    where
        Self: 'a;

    /// Called on the producer's own thread before the clock starts. Makes room for `outstanding`
    /// items, each of which calls [`Progress::complete`] on `progress` when it runs.
    fn producer<'a>(
        &'a self,
        progress: &'static Progress,
        outstanding: usize,
    ) -> Self::Producer<'a>;

    /// Calls `call` with each number below `threads`, on that many threads at once: these are the
    /// producers. By default they are no threads of the pool.
    fn on_threads<R: Send>(&self, threads: usize, call: impl Fn(usize) -> R + Sync) -> Vec<R> {
        let call = &call;
        thread::scope(|scope| {
            let threads: Vec<_> =
                (0..threads).map(|number| scope.spawn(move || call(number))).collect();
            threads.into_iter().map(|t| t.join().expect("a producer aborts on panic")).collect()
        })
    }
}

/// A producer's interface to a pool.
pub trait Producer {
    /// Queues the item with this index.
    ///
    /// # Safety
    ///
    /// `index` is below the `outstanding` that the producer was made with. The previous item queued
    /// under this index, if any, has completed. The producer is dropped only after everything that
    /// it queued has completed.
    unsafe fn submit(&mut self, index: usize);

    /// Queues the items with the first `count` indices. By default one after the other; a pool that
    /// takes several items at once does that instead. Not called if every enqueue is timed.
    ///
    /// # Safety
    ///
    /// As of [`submit`](Producer::submit), for each of these indices.
    #[inline]
    unsafe fn submit_all(&mut self, count: usize) {
        for index in 0..count {
            // SAFETY: by this function's contract.
            unsafe { self.submit(index) };
        }
    }

    /// Waits for all submitted items. By default sleeps on the progress; a pool that can join its
    /// items does that instead.
    fn settle(&mut self, progress: &'static Progress) {
        progress.wait();
    }
}

/// The size of a load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Number of submitting threads.
    pub producers: usize,
    /// Items per producer.
    pub items: usize,
    /// Maximum number of items in flight per producer: it submits this many, then waits for them.
    pub outstanding: usize,
    /// Measure the time of every enqueue (two clock reads per item).
    pub clock: bool,
}

/// Enqueue times of one sample, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// The median.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 95th percentile.
    pub p95_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
}

/// The result of one run of the load.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Items that ran, of all producers together.
    pub items: u64,
    /// From the common start until the last producer finished.
    pub wall: Duration,
    /// CPU time of the whole process (user and system) in that period.
    pub cpu: Duration,
    /// Present with [`Load::clock`].
    pub latency: Option<Latency>,
}

/// Creates a pool, runs the load on it, destroys it, and checks the counts.
///
/// # Panics
///
/// If an item was lost or ran twice, or if the load is empty or has more than `u32::MAX` items per
/// producer.
pub fn measure<P: Pool>(create: impl FnOnce() -> P, load: &Load) -> Sample {
    assert!(load.producers > 0 && load.items > 0 && load.outstanding > 0, "an empty load");
    let items = u32::try_from(load.items).expect("items per producer fit 32 bits");
    let leases: Vec<Lease> = (0..load.producers).map(|_| Lease::new()).collect();
    let pool = create();
    let sample = drive(&pool, load, &leases);
    drop(pool);
    for lease in &leases {
        assert_eq!(lease.done(), items, "every item runs exactly once");
    }
    sample
}

/// The result of one producer.
struct Finished {
    at: Instant,
    enqueue_ns: Vec<u32>,
}

fn drive<P: Pool>(pool: &P, load: &Load, leases: &[Lease]) -> Sample {
    // The main thread and the producers meet three times: all ready, start, all finished. Producers
    // keep their memory until after the last meeting.
    let meeting = Barrier::new(load.producers + 1);
    let guard = AbortOnPanic;
    let call = |number: usize| produce(pool, load, leases[number].progress(), &meeting);
    let sample = thread::scope(|scope| {
        let producers = scope.spawn(|| pool.on_threads(leases.len(), call));
        meeting.wait();
        let (start, cpu_before) = (Instant::now(), cpu_time());
        meeting.wait();
        meeting.wait();
        let cpu = cpu_time().saturating_sub(cpu_before);
        let finished = producers.join().expect("a producer aborts on panic");
        let end = finished.iter().map(|f| f.at).max().expect("at least one producer");
        Sample {
            items: (load.producers * load.items) as u64,
            wall: end.duration_since(start),
            cpu,
            latency: load.clock.then(|| latency(&finished)),
        }
    });
    mem::forget(guard);
    sample
}

fn produce<P: Pool>(
    pool: &P,
    load: &Load,
    progress: &'static Progress,
    meeting: &Barrier,
) -> Finished {
    let guard = AbortOnPanic;
    let batch = load.outstanding.min(load.items);
    let mut producer = pool.producer(progress, batch);
    let mut enqueue_ns = Vec::with_capacity(if load.clock { load.items } else { 0 });
    meeting.wait();
    meeting.wait();
    let mut sent = 0;
    while sent < load.items {
        let count = batch.min(load.items - sent);
        sent += count;
        // The conversion cannot truncate: `measure` has checked the total.
        progress.expect(sent as u32);
        // The indices are below `batch`. The previous batch has settled, and the last batch settles
        // before the producer is dropped (on a panic the process aborts first).
        if load.clock {
            for index in 0..count {
                let before = Instant::now();
                // SAFETY: as above.
                unsafe { producer.submit(index) };
                enqueue_ns.push(before.elapsed().as_nanos().min(u128::from(u32::MAX)) as u32);
            }
        } else {
            // SAFETY: as above.
            unsafe { producer.submit_all(count) };
        }
        producer.settle(progress);
        assert_eq!(progress.done() as usize, sent, "a settled batch has run, each item once");
    }
    let at = Instant::now();
    meeting.wait();
    mem::forget(guard);
    Finished { at, enqueue_ns }
}

/// After a panic (for example, if a thread cannot be started) the other threads would wait forever,
/// and an unwinding producer would free items that are still queued.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        std::process::abort();
    }
}

fn latency(finished: &[Finished]) -> Latency {
    let mut histogram: Histogram<u64> = Histogram::new_with_bounds(1, u64::from(u32::MAX), 3)
        .expect("three digits up to four seconds are valid bounds");
    for ns in finished.iter().flat_map(|f| &f.enqueue_ns) {
        histogram.saturating_record(u64::from(*ns).max(1));
    }
    Latency {
        p50_ns: histogram.value_at_quantile(0.50),
        p90_ns: histogram.value_at_quantile(0.90),
        p95_ns: histogram.value_at_quantile(0.95),
        p99_ns: histogram.value_at_quantile(0.99),
    }
}

/// The CPU time (user and system) of this process so far.
pub fn cpu_time() -> Duration {
    used_by(libc::RUSAGE_SELF)
}

/// The CPU time (user and system) of the children that this process has waited for, and of their
/// children.
pub fn children_cpu_time() -> Duration {
    used_by(libc::RUSAGE_CHILDREN)
}

fn used_by(whom: libc::c_int) -> Duration {
    // SAFETY: all-zero bytes are a valid rusage, which is plain integers.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a live rusage; with it and these two the call cannot fail.
    unsafe { libc::getrusage(whom, &mut usage) };
    let of = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}
