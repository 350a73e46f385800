//! Closures without a handle, one by one and in batches, and batches of items.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::support::child::alone;
use crate::support::gate::{Gate, Log};
use crate::support::items::Job;
use crate::support::{queue, watchdog};
use uwork::{Enqueued, ErrorKind};

/// Counts its values that exist.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Counted {
        count.fetch_add(1, Ordering::SeqCst);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Panics when it is dropped, after it has counted that.
struct PanicsInDrop(#[allow(dead_code, reason = "dropped with this")] Counted);

impl Drop for PanicsInDrop {
    fn drop(&mut self) {
        panic!("dropped, on purpose");
    }
}

#[repr(align(128))]
struct Aligned([u8; 10_000]);

// Catches: a block that is cut at a page, or that the allocator places by the item's alignment.
#[test]
fn a_closure_larger_than_a_page_with_an_alignment_of_128_runs_intact() {
    let _watchdog = watchdog();
    let queue = queue("execute-large").build().unwrap();
    let intact = Arc::new(AtomicU32::new(0));
    let closure = |seed: u8| {
        let (large, intact) = (Aligned([seed; 10_000]), intact.clone());
        move || {
            let large = large;
            let aligned = (&raw const large).addr() % 128 == 0;
            if aligned && large.0.iter().all(|&byte| byte == seed) {
                intact.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    for seed in 0..50 {
        queue.execute(closure(seed)).unwrap();
    }
    assert_eq!(queue.execute_all((50..100).map(closure)).unwrap(), 50);
    queue.flush().unwrap();
    assert_eq!(intact.load(Ordering::SeqCst), 100);
}

// Catches: a panic that kills the worker, leaks the closure, or is not reported.
#[test]
fn a_panic_in_a_closure_or_in_its_destructor_is_counted_and_the_worker_goes_on() {
    alone("a_panic_in_a_closure_or_in_its_destructor_is_counted_and_the_worker_goes_on", || {
        let _watchdog = watchdog();
        let queue = queue("execute-panics").max_active(1).build().unwrap();
        let live = Arc::<AtomicUsize>::default();
        let before = uwork::panics();
        let counted = Counted::new(&live);
        queue
            .execute(move || {
                let _counted = counted;
                panic!("on purpose");
            })
            .unwrap();
        let bomb = PanicsInDrop(Counted::new(&live));
        queue.execute(move || drop(bomb)).unwrap();
        let bombs = [PanicsInDrop(Counted::new(&live)), PanicsInDrop(Counted::new(&live))];
        let closures = bombs.map(|bomb| move || drop(bomb));
        assert_eq!(queue.execute_all(closures).unwrap(), 2);
        let ran = Arc::<AtomicUsize>::default();
        let last = ran.clone();
        queue.execute(move || assert_eq!(last.fetch_add(1, Ordering::SeqCst), 0)).unwrap();
        queue.flush().unwrap();
        assert_eq!(uwork::panics() - before, 4);
        assert_eq!((live.load(Ordering::SeqCst), ran.load(Ordering::SeqCst)), (0, 1));
    });
}

/// A closure that owns a large, aligned value which panics when it is dropped at its end.
fn large_bomb(live: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static {
    let large = (Aligned([7; 10_000]), PanicsInDrop(Counted::new(live)));
    move || {
        let large = &large;
        assert_eq!((&raw const large.0).addr() % 128, 0);
        assert!(large.0.0.iter().all(|&byte| byte == 7));
    }
}

// Catches: a block of its own that is freed twice, or not, if its closure's end panics.
#[test]
fn a_large_aligned_closure_that_panics_while_it_is_dropped_ends_only_itself() {
    alone("a_large_aligned_closure_that_panics_while_it_is_dropped_ends_only_itself", || {
        let _watchdog = watchdog();
        let queue = queue("execute-large-bomb").max_active(1).build().unwrap();
        let live = Arc::<AtomicUsize>::default();
        let before = uwork::panics();
        queue.execute(large_bomb(&live)).unwrap();
        assert_eq!(queue.execute_all((0..2).map(|_| large_bomb(&live))).unwrap(), 2);
        queue.flush().unwrap();
        assert_eq!((uwork::panics() - before, live.load(Ordering::SeqCst)), (3, 0));
    });
}

// Catches: a panic of a destructor that aborts the process, or leaves the rest of the batch, while
// the panic of the iterator unwinds.
#[test]
fn an_iterator_that_panics_drops_closures_whose_destructors_panic_too() {
    let _watchdog = watchdog();
    let queue = queue("execute-iterator-bomb").build().unwrap();
    let live = Arc::<AtomicUsize>::default();
    let give = |n: usize| {
        assert!(n < 3, "the iterator, on purpose");
        large_bomb(&live)
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| queue.execute_all((0..9).map(give))));
    let payload = outcome.unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"the iterator, on purpose"));
    queue.flush().unwrap();
    assert_eq!(live.load(Ordering::SeqCst), 0);
}

// Catches: a refused closure that is lost, leaked or run.
#[test]
fn a_destroyed_queue_returns_the_closures_in_their_order() {
    let _watchdog = watchdog();
    let queue = queue("execute-refused").build().unwrap();
    queue.destroy().unwrap();
    let live = Arc::<AtomicUsize>::default();
    let closure = |n: usize| {
        let counted = Counted::new(&live);
        move || assert_eq!((n, counted.0.load(Ordering::SeqCst)), (n, 0), "it must not run")
    };
    let refused = queue.execute(closure(0)).unwrap_err();
    assert_eq!(refused.error.kind(), ErrorKind::Refused);
    let all = queue.execute_all((0..3).map(closure)).unwrap_err();
    assert_eq!((all.error.kind(), all.item.len()), (ErrorKind::Refused, 3));
    assert_eq!(live.load(Ordering::SeqCst), 4);
    drop((refused, all));
    assert_eq!(live.load(Ordering::SeqCst), 0);
    assert_eq!(queue.execute_all(std::iter::empty::<fn()>()).unwrap(), 0);
}

// Catches: a chain that is pushed in the wrong order, or cut.
#[test]
fn a_batch_runs_in_its_order_between_the_items_around_it() {
    let _watchdog = watchdog();
    let queue = queue("execute-order").ordered().build().unwrap();
    let (entered, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&entered, &may_end)).is_queued());
    entered.wait();
    let log = Log::new();
    let note = |n: u32| {
        let log = log.clone();
        move || log.push(n)
    };
    queue.execute(note(0)).unwrap();
    assert_eq!(queue.execute_all((1..300).map(note)).unwrap(), 299);
    queue.execute(note(300)).unwrap();
    may_end.open();
    queue.flush().unwrap();
    assert_eq!(log.events(), (0..=300).collect::<Vec<_>>());
}

// Catches: a batch that is queued in part, or leaked, when its iterator panics.
#[test]
fn an_iterator_that_panics_queues_no_closure_and_leaks_none() {
    let _watchdog = watchdog();
    let queue = queue("execute-iterator").build().unwrap();
    let (live, ran) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let closure = |n: usize| {
        assert!(n < 100, "on purpose");
        let (counted, ran) = (Counted::new(&live), ran.clone());
        move || {
            let _counted = counted;
            ran.fetch_add(1, Ordering::SeqCst);
        }
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| queue.execute_all((0..200).map(closure))));
    assert!(outcome.is_err());
    queue.flush().unwrap();
    assert_eq!((live.load(Ordering::SeqCst), ran.load(Ordering::SeqCst)), (0, 0));
}

// Catches: an item that is queued twice, lost, or blocks the rest because it was pending.
#[test]
fn a_batch_with_an_item_that_is_pending_queues_the_others_and_returns_it() {
    let _watchdog = watchdog();
    let queue = queue("enqueue-all").ordered().build().unwrap();
    let (entered, may_end) = (Gate::new(), Gate::new());
    assert!(queue.enqueue(Job::held(&entered, &may_end)).is_queued());
    entered.wait();
    let jobs: Vec<_> = (0..200).map(|_| Job::counting()).collect();
    jobs[3].work.disable().unwrap();
    assert!(queue.enqueue(jobs[70].clone()).is_queued());
    // Number 5 is given twice.
    let given = jobs.iter().chain([&jobs[5]]).cloned();
    let outcome = queue.enqueue_all(given);
    assert_eq!(outcome.queued, 198);
    let [Enqueued::Disabled(third), Enqueued::Pending(pending), Enqueued::Pending(twice)] =
        &outcome.returned[..]
    else {
        panic!("{} items came back", outcome.returned.len());
    };
    let is = |left: &Arc<Job>, right: usize| assert!(Arc::ptr_eq(left, &jobs[right]));
    is(third, 3);
    is(pending, 70);
    is(twice, 5);
    may_end.open();
    queue.flush().unwrap();
    let runs: Vec<u32> = jobs.iter().map(|job| job.tally.finished()).collect();
    assert!(runs.iter().enumerate().all(|(n, &runs)| runs == u32::from(n != 3)), "{runs:?}");
    // They have all run: now each is checked for a run in progress.
    let again = queue.enqueue_all(jobs.iter().cloned());
    assert_eq!((again.queued, again.returned.len()), (199, 1));
    queue.flush().unwrap();
    assert_eq!(jobs[0].tally.finished(), 2);
}

// Catches: items that are lost when the iterator of a batch of items panics.
#[test]
fn an_iterator_of_items_that_panics_releases_those_of_the_last_group() {
    let _watchdog = watchdog();
    let queue = queue("enqueue-iterator").build().unwrap();
    let jobs: Vec<_> = (0..100).map(|_| Job::counting()).collect();
    let give = |n: usize| jobs.get(n).expect("on purpose").clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| queue.enqueue_all((0..200).map(give))));
    assert!(outcome.is_err());
    queue.flush().unwrap();
    let runs: u32 = jobs.iter().map(|job| job.tally.finished()).sum();
    assert_eq!(runs, 64);
    assert!(jobs.iter().all(|job| Arc::strong_count(job) == 1 && !job.work.is_pending()));
}
