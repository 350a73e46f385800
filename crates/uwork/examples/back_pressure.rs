//! A pool with back-pressure: a producer that is faster than the workers waits, and one that must
//! not wait sheds load.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uwork::{BoundedQueue, ErrorKind, Queue};

const BACKLOG: usize = 16;

fn main() -> Result<(), uwork::Error> {
    let queue = Queue::builder("pool").numbered().max_active(4).build()?;
    let pool = BoundedQueue::new(&queue, BACKLOG)?;
    let handled = Arc::new(AtomicUsize::new(0));
    let request = || {
        let handled = handled.clone();
        move || {
            handled.fetch_add(1, Ordering::Relaxed);
        }
    };

    // Waits while 16 requests wait. The handles are dropped: the requests run all the same.
    for _ in 0..1_000 {
        drop(pool.spawn(request())?);
    }

    // Does not wait: the surplus comes back, and its client is told to try later.
    queue.pause()?;
    let (mut accepted, mut refused) = (1_000, 0);
    while refused < 5 {
        match pool.try_spawn(request()) {
            Ok(_) => accepted += 1,
            Err(rejected) if rejected.error.kind() == ErrorKind::Full => refused += 1,
            Err(rejected) => return Err(rejected.error),
        }
    }
    queue.resume()?;
    queue.flush()?;
    println!("{} handled, {refused} refused", handled.load(Ordering::Relaxed));
    assert_eq!((handled.load(Ordering::Relaxed), pool.free()), (accepted, BACKLOG));
    Ok(())
}

#[test]
fn the_example_runs() {
    main().unwrap();
}
