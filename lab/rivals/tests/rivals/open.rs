//! Every pool runs each item of an open loop once.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};

use uwork_rivals::open::{Item, RUNNERS, start};

struct Counted {
    runs: AtomicU32,
    ended: Sender<()>,
}

impl Item for Counted {
    fn run(&'static self) {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.ended.send(()).expect("the test waits");
    }
}

#[test]
fn every_pool_runs_each_item_once() {
    const ITEMS: usize = 100;
    for runner in RUNNERS {
        let pool = start::<Counted>(runner, 2, Some(-20)).expect("a listed runner exists");
        let (ended, ends) = channel();
        let item = |_| Counted { runs: AtomicU32::new(0), ended: ended.clone() };
        let items: &'static [Counted] = Vec::leak((0..ITEMS).map(item).collect());
        items.iter().for_each(|item| pool.submit(item));
        ends.iter().take(ITEMS).for_each(drop);
        // Ends the threads, so that a second run of an item would have happened.
        drop(pool);
        for item in items {
            assert_eq!(item.runs.load(Ordering::Relaxed), 1, "{runner}");
        }
    }
}

#[test]
fn a_runner_that_does_not_exist_is_refused() {
    assert!(start::<Counted>("threadpool", 1, None).is_none());
}
