//! Events from several threads, written by an ordered queue: one at a time, in the order in which
//! they were queued.
//!
//! Each event is a box that the queue owns until its function frees it: queueing an event costs one
//! allocation, that of the event itself. The order alone protects the log's state.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use uwork::{Queue, Work, WorkItem};

struct Event {
    work: Work<Event>,
    source: usize,
    number: u32,
    /// Never contended: the queue runs one item at a time.
    log: Arc<Mutex<String>>,
}
uwork::has_work!(impl HasWork for Event { work });

impl WorkItem for Event {
    type Pointer = Pin<Box<Event>>;

    fn run(this: Pin<Box<Event>>) {
        let mut log = this.log.try_lock().expect("events are written one at a time");
        writeln!(log, "{} {}", this.source, this.number).expect("a string takes everything");
    }
}

fn main() -> Result<(), uwork::Error> {
    const SOURCES: usize = 4;
    const EVENTS: u32 = 10_000;
    let queue = Queue::builder("event-log").ordered().build()?;
    let log = Arc::new(Mutex::new(String::new()));

    std::thread::scope(|threads| {
        for source in 0..SOURCES {
            let (queue, log) = (&queue, &log);
            threads.spawn(move || {
                for number in 0..EVENTS {
                    let log = log.clone();
                    let event = Box::pin(Event { work: Work::new(), source, number, log });
                    assert!(queue.enqueue(event).is_queued());
                }
            });
        }
    });
    queue.flush()?;

    // The events of each thread come in the order in which it queued them.
    let mut next = [0_u32; SOURCES];
    for line in log.lock().unwrap().lines() {
        let (source, number) = line.split_once(' ').expect("two numbers");
        let source: usize = source.parse().expect("a number");
        assert_eq!(number.parse(), Ok(next[source]));
        next[source] += 1;
    }
    assert_eq!(next, [EVENTS; SOURCES]);
    println!("{} events of {SOURCES} threads, each thread's in order", EVENTS * SOURCES as u32);
    Ok(())
}
