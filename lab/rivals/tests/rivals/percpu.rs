//! The rivals of per-CPU counters and batches lose no item and count no item twice.

use std::sync::atomic::AtomicI64;
use std::thread;

use uwork_rivals::collect::{self, CAPACITY, Channel, Collect, MutexVec, Segments, Sink};
use uwork_rivals::count::{self, Count, PerThread};

const THREADS: u64 = 4;
/// Not a multiple of the batch size, so that a partial batch is left at the end.
const EACH: u64 = 1_000 * CAPACITY as u64 + 7;

#[test]
fn a_sum_counts_every_addition_of_every_thread_once() {
    fn check(counter: &impl Count, threads: u64) {
        let before = counter.sum();
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..EACH).for_each(|_| counter.add(3)));
            }
        });
        assert_eq!(counter.sum() - before, (threads * EACH * 3) as i64);
    }
    check(&AtomicI64::new(0), THREADS);
    check(&PerThread, THREADS);
    check(&count::Bare::new(), 1);
}

#[test]
fn every_item_reaches_the_sink_once() {
    fn check(sink: &Sink, collector: &impl Collect, threads: u64) {
        thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    (0..EACH).for_each(|item| collector.add(thread * EACH + item));
                    collector.finish();
                });
            }
        });
        collector.finish();
        let items = threads * EACH;
        assert_eq!(sink.taken(), (items, (0..items).sum()));
    }
    let sink = Sink::default();
    check(&sink, &MutexVec::new(&sink), THREADS);
    let sink = Sink::default();
    check(&sink, &Segments::new(&sink), THREADS);
    let sink = Sink::default();
    check(&sink, &Channel::new(&sink), THREADS);
    let sink = Sink::default();
    check(&sink, &collect::PerThread::new(&sink), THREADS);
    let sink = Sink::default();
    check(&sink, &collect::Bare::new(&sink), 1);
}
