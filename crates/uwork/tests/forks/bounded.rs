//! Bounded queues and fork(2): in the child all places are free, and no producer waits.

use std::thread;

use crate::support::forked::in_child;
use crate::support::{queue, until, watchdog};
use uwork::BoundedQueue;

fn producers(bounded: &BoundedQueue, count: usize) -> Vec<thread::JoinHandle<()>> {
    let produce = |_| {
        let bounded = bounded.clone();
        thread::spawn(move || drop(bounded.reserve().unwrap()))
    };
    let producers = (0..count).map(produce).collect();
    until("the producers wait", || format!("{bounded:?}").contains(&format!("waiting: {count}")));
    producers
}

// Catches: a place that the child cannot take or free because the parent has it, and producers of the
// parent wait for it.
#[test]
fn a_child_takes_and_frees_places_for_which_its_parent_waits() {
    let _watchdog = watchdog();
    let queue = queue("bounded").build().unwrap();
    let bounded = BoundedQueue::new(&queue, 1).unwrap();
    let place = bounded.reserve().unwrap();
    let waiting = producers(&bounded, 2);
    in_child(|| {
        // That of `place` is the parent's.
        assert_eq!(bounded.free(), 1);
        assert!(bounded.release().is_err(), "no place is taken");
        let own = bounded.reserve().unwrap();
        let inner = bounded.clone();
        let waits = thread::spawn(move || drop(inner.reserve().unwrap()));
        drop(own);
        waits.join().unwrap();
        let answers: Vec<_> = (0..100).map(|n| bounded.spawn(move || n).unwrap()).collect();
        let sum: i32 = answers.into_iter().map(|answer| answer.join().unwrap()).sum();
        assert_eq!((sum, bounded.free()), (99 * 100 / 2, 1));
    });
    assert_eq!(bounded.free(), 0);
    drop(place);
    waiting.into_iter().for_each(|producer| producer.join().unwrap());
    assert_eq!(bounded.free(), 1);
}
