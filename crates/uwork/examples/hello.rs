//! The README's example: an item in a user's type, and a closure.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counter {
    work: uwork::Work<Counter>,
    runs: AtomicU64,
}
uwork::has_work!(impl HasWork for Counter { work });

impl uwork::WorkItem for Counter {
    type Pointer = Arc<Counter>;
    fn run(this: Arc<Counter>) {
        this.runs.fetch_add(1, Ordering::Relaxed);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = uwork::Queue::builder("hello").build()?;
    let counter = Arc::new(Counter { work: uwork::Work::new(), runs: AtomicU64::new(0) });
    assert!(queue.enqueue(counter.clone()).is_queued());
    counter.work.flush();
    let runs = counter.runs.load(Ordering::Relaxed);
    let doubled = queue.spawn(move || runs * 2).join()?;
    println!("{runs} run, doubled on a worker: {doubled}");
    Ok(())
}
