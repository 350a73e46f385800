//! A bounded queue: how many wait, what comes back, what is refused.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{queue, watchdog};
use uwork::{BoundedQueue, ErrorKind};

// Catches: a bound that is exceeded, a place that is lost or freed twice, a producer that sleeps
// beside a free place.
#[test]
fn producers_wait_and_the_bound_holds() {
    const CAPACITY: usize = 3;
    const EACH: usize = 2_000;
    let _watchdog = watchdog();
    let queue = queue("bounded").max_active(2).build().unwrap();
    let bounded = BoundedQueue::new(&queue, CAPACITY).unwrap();
    let waiting = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
    let produce = |timed: bool| {
        let (bounded, waiting) = (bounded.clone(), waiting.clone());
        thread::spawn(move || {
            let handles: Vec<_> = (0..EACH)
                .map(|_| {
                    let place = match timed {
                        true => bounded.reserve_timeout(Duration::from_secs(3_600)).unwrap(),
                        false => bounded.reserve().unwrap(),
                    };
                    let of_item = waiting.clone();
                    let count = waiting.0.fetch_add(1, Ordering::SeqCst) + 1;
                    assert!(count <= CAPACITY, "{count} wait");
                    bounded.queue().spawn(move || {
                        of_item.0.fetch_sub(1, Ordering::SeqCst);
                        of_item.1.fetch_add(1, Ordering::SeqCst);
                        drop(place);
                    })
                })
                .collect();
            handles.into_iter().for_each(|handle| handle.join().unwrap());
        })
    };
    let producers: Vec<_> = [false, true, false].map(produce).into();
    producers.into_iter().for_each(|producer| producer.join().unwrap());
    assert_eq!((bounded.free(), waiting.1.load(Ordering::SeqCst)), (CAPACITY, 3 * EACH));
}

// Catches: a full queue that accepts, a closure that does not come back, a place that a cancelled or
// refused closure keeps.
#[test]
fn a_full_queue_gives_back() {
    let _watchdog = watchdog();
    let queue = queue("full").build().unwrap();
    for capacity in [0, 1 << 40, usize::MAX] {
        assert_eq!(BoundedQueue::new(&queue, capacity).unwrap_err().kind(), ErrorKind::BadCapacity);
    }
    let largest = BoundedQueue::new(&queue, (1 << 40) - 1).unwrap();
    drop(largest.reserve().unwrap());
    assert_eq!((largest.free(), largest.capacity()), ((1 << 40) - 1, (1 << 40) - 1));
    let bounded = BoundedQueue::new(&queue, 1).unwrap();
    queue.pause().unwrap();
    let first = bounded.spawn(|| 1).unwrap();
    let back = bounded.try_spawn(|| 2).err().unwrap();
    assert_eq!((back.error.kind(), (back.item)()), (ErrorKind::Full, 2));
    let back = bounded.spawn_timeout(|| 3, Duration::from_millis(1)).err().unwrap();
    assert_eq!((back.error.kind(), (back.item)()), (ErrorKind::Full, 3));
    assert!(first.cancel());
    drop(first);
    assert_eq!(bounded.free(), 1);
    bounded.try_reserve().unwrap().forget();
    assert_eq!(bounded.try_reserve().unwrap_err().kind(), ErrorKind::Full);
    bounded.release().unwrap();
    assert_eq!(bounded.release().unwrap_err().kind(), ErrorKind::NotReserved);
    queue.destroy().unwrap();
    assert!(bounded.spawn(|| ()).unwrap().join().is_err());
    assert_eq!(bounded.free(), 1);
}

// Catches: a producer that waits for its own queue, a refusal without a word, one of the calls that
// do not wait.
#[test]
fn a_producer_that_is_an_item_of_the_queue_is_refused() {
    let _watchdog = watchdog();
    for kind in [uwork::Builder::unbound, uwork::Builder::ordered, uwork::Builder::per_cpu] {
        let queue = kind(queue("own")).build().unwrap();
        let bounded = BoundedQueue::new(&queue, 1).unwrap();
        let inner = bounded.clone();
        let item = queue.spawn(move || {
            let error = inner.spawn(|| ()).err().unwrap().error;
            assert!(error.would_deadlock() && error.to_string().contains("wait for itself"));
            let limit = Duration::from_secs(3_600);
            assert!(inner.spawn_timeout(|| (), limit).err().unwrap().error.would_deadlock());
            assert!(inner.reserve().unwrap_err().would_deadlock());
            drop(inner.try_spawn(|| ()).unwrap());
        });
        item.join().unwrap();
        queue.flush().unwrap();
        assert_eq!(bounded.free(), 1);
    }
}
