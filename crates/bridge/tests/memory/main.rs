//! The memory of a consumer is bounded by bytes, whatever mix of jobs the server delivers. The
//! allocator of this process counts, so its tests run one after the other.

#[path = "../bridge/support/mod.rs"]
#[allow(dead_code, reason = "shared with the other tests of the bridge")]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use support::count::{Count, LONG, config_never_late};
use support::patience::until;
use support::server::Redis;
use uwork_bridge::{Bridge, Config, Handlers, Producer, Push, Reply, Results};

/// Counts the bytes that are allocated, and the most there were.
struct Peak;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn grows(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: it is the system's allocator, which counts and changes nothing.
unsafe impl GlobalAlloc for Peak {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grows(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grows(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grows(size);
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Peak = Peak;

/// What a test has allocated at most since this was made. One test at a time has one.
struct Measure {
    before: usize,
    _alone: MutexGuard<'static, ()>,
}

impl Measure {
    fn start() -> Measure {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // A dump or a stack that another process asks for takes memory: names are looked up for it.
        // SAFETY: all threads of this program use the environment by the standard library, which has a
        // lock for it.
        unsafe { std::env::set_var("UWORK_CONTROL", "0") };
        Measure { before: 0, _alone: alone }
    }

    fn reset(&mut self) {
        self.before = NOW.load(Ordering::Relaxed);
        MOST.store(self.before, Ordering::Relaxed);
    }

    fn most(&self) -> usize {
        MOST.load(Ordering::Relaxed) - self.before
    }
}

const BOUND: usize = 8 << 20;
const PAYLOAD: usize = 512 << 10;
/// The bytes of an exchange.
const EXCHANGE: usize = 4 << 20;
/// What the consumer takes beside payloads: its connections, its tables, its threads.
const REST: usize = 2 << 20;

fn config(redis: &Redis) -> Config {
    let mut config = config_never_late(redis.server(), "jobs");
    (config.max_active, config.payload_bytes_max) = (512, BOUND);
    config
}

/// A number, and what makes it as long as this.
fn payload(number: usize, length: usize) -> String {
    let number = number.to_string();
    let blanks = " ".repeat(length - number.len());
    number + &blanks
}

fn push(redis: &Redis, payloads: impl Iterator<Item = String>) {
    let mut producer = Producer::new(vec![redis.server()], "jobs", 1).unwrap();
    payloads.for_each(|payload| drop(producer.push(Push::new(payload)).unwrap()));
}

/// Counts the runs of each number, which wait until the count is told to go on.
fn handlers(runs: &Count, gate: &Count) -> Handlers {
    let (runs, gate) = (runs.clone(), gate.clone());
    Handlers::new().otherwise(move |job| {
        let number = &job.payload()[..job.payload().len().min(8)];
        runs.add(String::from_utf8_lossy(number).trim_end());
        uwork::blocking(|| gate.wait_for("open", 1));
        Ok(Reply::done())
    })
}

#[test]
fn large_payloads_behind_small_ones_are_held_up_to_the_bound_and_one_more() {
    let Some(redis) = Redis::start("large_payloads_behind_small_ones", &[]) else { return };
    let mut measure = Measure::start();
    let sizes = (0..300).map(|n| if n < 200 { 8 } else { PAYLOAD });
    push(&redis, sizes.enumerate().map(|(n, size)| payload(n, size)));
    let (runs, gate) = (Count::default(), Count::default());
    measure.reset();
    let bridge = Bridge::start(config(&redis), handlers(&runs, &gate), |_| {}).unwrap();
    // The reader's share, and that of the jobs that were handed back.
    runs.wait_distinct(200 + BOUND / PAYLOAD - 1);
    gate.add("open");
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
    assert_eq!(bridge.stop(LONG).counters.done, 300);
    assert_eq!((runs.distinct(), runs.sum()), (300, 300), "each has run once");
    let most = measure.most();
    assert!(most <= BOUND + PAYLOAD + REST, "{most} bytes");
}

#[test]
fn jobs_of_a_dead_consumer_are_held_within_the_same_bound() {
    let Some(redis) = Redis::start("jobs_of_a_dead_consumer_are_held_within", &[]) else { return };
    let mut measure = Measure::start();
    push(&redis, (0..100).map(|n| payload(n, PAYLOAD)));
    redis.ask("XGROUP CREATE jobs uwork 0");
    redis.ask("XREADGROUP GROUP uwork ghost COUNT 50 STREAMS jobs >");
    redis.forget_signs_of_life("jobs", "ghost");
    let (runs, gate) = (Count::default(), Count::default());
    measure.reset();
    let bridge = Bridge::start(config(&redis), handlers(&runs, &gate), |_| {}).unwrap();
    runs.wait_distinct(BOUND / PAYLOAD - 1);
    gate.add("open");
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
    bridge.stop(LONG);
    assert_eq!((runs.distinct(), runs.sum()), (100, 100), "each has run once");
    let most = measure.most();
    assert!(most <= BOUND + PAYLOAD + REST, "{most} bytes");
}

#[test]
fn a_payload_beyond_the_bound_is_held_beside_no_other_large_one() {
    const LARGE: usize = 2 * BOUND;
    let Some(redis) = Redis::start("a_payload_beyond_the_bound", &[]) else { return };
    let mut measure = Measure::start();
    push(&redis, (0..40).map(|n| payload(n, if n % 8 == 5 { LARGE } else { 8 })));
    let (runs, gate) = (Count::default(), Count::default());
    gate.add("open");
    measure.reset();
    let bridge = Bridge::start(config(&redis), handlers(&runs, &gate), |_| {}).unwrap();
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
    bridge.stop(LONG);
    assert_eq!((runs.distinct(), runs.sum()), (40, 40), "each has run once");
    let most = measure.most();
    assert!(most <= LARGE + BOUND + REST, "{most} bytes");
}

#[test]
fn ids_are_counted_as_payloads_are() {
    const ID: usize = 60 << 10;
    let Some(redis) = Redis::start("ids_are_counted_as_payloads_are", &[]) else { return };
    let mut measure = Measure::start();
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    for number in 0..600 {
        let mut add = redis::cmd("XADD");
        let id = payload(number, if number < 200 { 8 } else { ID });
        let _: String = add
            .arg("jobs")
            .arg("*")
            .arg("i")
            .arg(id)
            .arg("p")
            .arg(number)
            .query(&mut connection)
            .unwrap();
    }
    drop(connection);
    let (runs, gate) = (Count::default(), Count::default());
    measure.reset();
    let bridge = Bridge::start(config(&redis), handlers(&runs, &gate), |_| {}).unwrap();
    // Each id is held twice.
    runs.wait_distinct(200 + BOUND / (2 * ID + 1_024));
    gate.add("open");
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
    bridge.stop(LONG);
    assert_eq!((runs.distinct(), runs.sum()), (600, 600), "each has run once");
    let most = measure.most();
    assert!(most <= BOUND + REST, "{most} bytes");
}

#[test]
fn fields_that_no_handler_sees_take_no_memory() {
    let Some(redis) = Redis::start("fields_that_no_handler_sees", &[]) else { return };
    let mut measure = Measure::start();
    let mut connection = redis::Client::open(redis.url()).unwrap().get_connection().unwrap();
    let wide: Vec<String> = (0..6_000).map(|n| format!("f{n}")).collect();
    let large = "x".repeat(PAYLOAD);
    for number in 0..100 {
        let mut add = redis::cmd("XADD");
        add.arg("jobs").arg("*").arg(&wide).arg("p").arg(number).arg("large").arg(&large);
        let _: String = add.query(&mut connection).unwrap();
    }
    drop((connection, wide, large));
    let (runs, gate) = (Count::default(), Count::default());
    gate.add("open");
    measure.reset();
    let bridge = Bridge::start(config(&redis), handlers(&runs, &gate), |_| {}).unwrap();
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
    bridge.stop(LONG);
    assert_eq!((runs.distinct(), runs.sum()), (100, 100), "each has run once");
    let most = measure.most();
    assert!(most <= REST, "{most} bytes");
}

/// A handler with large results.
fn with_results(runs: &Count) -> Handlers {
    let runs = runs.clone();
    Handlers::new().otherwise(move |job| {
        runs.add(String::from_utf8_lossy(job.payload()).trim_end());
        Ok(Reply::result(vec![b'x'; PAYLOAD]))
    })
}

#[test]
fn results_that_the_server_refuses_are_held_within_the_bound() {
    const JOBS: usize = 200;
    let Some(redis) = Redis::start("results_that_the_server_refuses", &[]) else { return };
    let mut measure = Measure::start();
    redis.ask("SET {jobs}:results another");
    // As many as the first read brings.
    let first = 16;
    push(&redis, (0..first).map(|n| payload(n, 8)));
    let (runs, lines) = (Count::default(), Count::default());
    let mut config = config(&redis);
    config.results = Results::Stream(10);
    measure.reset();
    let bridge = Bridge::start(config, with_results(&runs), lines.reports()).unwrap();
    runs.wait_distinct(first);
    lines.wait_line("rename the key of another type");
    push(&redis, (first..JOBS).map(|n| payload(n, 8)));
    // The consumer looks for delayed jobs ten times a second, and in this test no other command does
    // that: it would have run all jobs meanwhile.
    let before = redis.calls("zrangebyscore");
    until("it has had time to fetch them", || redis.calls("zrangebyscore") >= before + 10);
    let ran = runs.distinct();
    assert!(ran <= BOUND / PAYLOAD + 2 * first, "{ran} results are held");
    let most = measure.most();
    redis.ask("DEL {jobs}:results");
    until("all jobs are done", || redis.number("XLEN jobs") == 0);
    bridge.stop(LONG);
    assert_eq!((runs.distinct(), runs.sum()), (JOBS, JOBS as u64), "each has run once");
    // The results of the first read's jobs are beyond the bound: their size was unknown. An exchange has
    // two copies of what it sends, one of them in a buffer that doubles.
    let promised = BOUND + first * PAYLOAD + 3 * EXCHANGE;
    assert!(most <= promised + REST, "{most} bytes");
}
