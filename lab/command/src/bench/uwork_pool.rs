//! uwork as a pool under test.
//!
//! - the name of a scope: an unbound queue of that scope with intrusive items. In the case `join`,
//!   the waiter joins each item as a helper instead of sleeping.
//! - `spawn`: the default scope with a boxed closure per item; in the case `join`, its handle is
//!   joined.
//! - `execute`: the default scope with a closure per item that has no handle; not in the case
//!   `join`.
//! - `execute-all`, `enqueue-all`: closures without a handle, and intrusive items, queued a batch at a
//!   time. Only in cases with batches, and not with a clock for each enqueue.
//! - `halves`, in the case `join` only: `uwork::join` of the item and of nothing, on the default
//!   scope.
//! - `limited`: the default scope with a `max_active` of 1, and intrusive items.
//! - `unshared`: the default scope with limits that nodes do not share, and intrusive items. The
//!   difference to `default` is the cost of sharing.
//! - `ordered`: an ordered queue with intrusive items.
//! - `c`: the default scope with intrusive items, through the C interface.
//!
//! The queue is created before the clock starts and destroyed after it has stopped.

use std::sync::atomic::{AtomicU64, Ordering};

use uwork::{AffinityScopeChoice, Flags, JoinHandle, Queue, Work, WorkItem};
#[cfg(feature = "all")]
use uwork_rivals::Sample;
use uwork_rivals::{Load, Pool, Producer, Progress, measure};

#[cfg(feature = "all")]
use super::c_pool::ThroughC;
use super::contestant::{Contestant, Names, with_clock};

/// The name in tables and records.
pub(super) const RUNNER: &str = "uwork";
/// The variants with a closure for each item.
pub(super) const CLOSURES: [&str; 2] = ["spawn", EXECUTE];
const EXECUTE: &str = "execute";
/// The variants that queue a batch at a time.
pub(super) const BATCHES: [&str; 2] = [EXECUTE_ALL, ENQUEUE_ALL];
const EXECUTE_ALL: &str = "execute-all";
const ENQUEUE_ALL: &str = "enqueue-all";
/// The variant of case `join` that is `uwork::join`.
pub(super) const HALVES: &str = "halves";
/// The variant that goes through the C interface.
pub(super) const C: &str = "c";

/// The contestants of uwork in a case, one for each variant that exists in it.
pub(super) fn contestants(
    case: &'static str,
    variants: &[&'static str],
    load: Load,
) -> Vec<Contestant> {
    let joins = case == "join";
    let how = if joins { Submits::Joined } else { Submits::OneByOne };
    let contestant = |variant: &'static str| Contestant {
        names: Names { case, runner: RUNNER, variant: with_clock(variant, load.clock) },
        standing: None,
        measure: Box::new(move |_| {
            Ok(match variant {
                "spawn" => measure(|| Boxed { queue: queue("default"), joins }, &load),
                EXECUTE => measure(|| Executed::new(false), &load),
                EXECUTE_ALL => measure(|| Executed::new(true), &load),
                ENQUEUE_ALL => measure(|| Intrusive::new("default", Submits::Batches), &load),
                HALVES => measure(|| Halves, &load),
                #[cfg(feature = "all")]
                C => measure(|| ThroughC::new(joins), &load),
                variant => measure(|| Intrusive::new(variant, how), &load),
            })
        }),
    };
    let has_batches = load.outstanding > 1 && !load.clock;
    let exists = |variant: &&'static str| match *variant {
        EXECUTE => !joins,
        EXECUTE_ALL | ENQUEUE_ALL => has_batches,
        _ => true,
    };
    let halves = (joins && variants.contains(&"default")).then_some(HALVES);
    variants.iter().copied().filter(exists).chain(halves).map(contestant).collect()
}

/// A load of intrusive items on a queue with the default scope.
#[cfg(feature = "all")]
pub(super) fn measure_flood(load: &Load) -> Sample {
    measure(|| Intrusive::new("default", Submits::OneByOne), load)
}

/// A new queue. Dropping it waits for everything that was queued on it.
pub(super) fn queue(variant: &str) -> Queue {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let builder = Queue::builder(format!("bench-{number}"));
    let builder = match variant {
        "ordered" => builder.ordered(),
        "limited" => builder.unbound().max_active(1),
        "unshared" => builder.flags(Flags::UNBOUND | Flags::POD_LIMITS),
        scope => {
            let scope: AffinityScopeChoice = scope.parse().expect("variants are scopes");
            builder.unbound().affinity_scope(scope)
        }
    };
    builder.build().expect("a queue with a fresh name and a valid scope can be made")
}

/// An item as users write it.
struct Item {
    work: Work<Item>,
    progress: &'static Progress,
}

uwork::has_work!(impl HasWork for Item { work });

impl WorkItem for Item {
    type Pointer = &'static Item;

    #[inline]
    fn run(this: &'static Item) {
        this.progress.complete();
    }
}

/// How items get to their queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submits {
    OneByOne,
    /// One by one, and each is joined.
    Joined,
    Batches,
}

struct Intrusive {
    queue: Queue,
    submits: Submits,
}

impl Intrusive {
    fn new(variant: &str, submits: Submits) -> Self {
        Self { queue: queue(variant), submits }
    }
}

struct IntrusiveProducer<'a> {
    pool: &'a Intrusive,
    items: Box<[Item]>,
}

impl Pool for Intrusive {
    type Producer<'a> = IntrusiveProducer<'a>;

    fn producer<'a>(
        &'a self,
        progress: &'static Progress,
        outstanding: usize,
    ) -> IntrusiveProducer<'a> {
        let items = (0..outstanding).map(|_| Item { work: Work::new(), progress }).collect();
        IntrusiveProducer { pool: self, items }
    }
}

impl Producer for IntrusiveProducer<'_> {
    #[inline]
    unsafe fn submit(&mut self, index: usize) {
        let item: *const Item = &raw const self.items[index];
        // SAFETY: the item stays in place until everything that was queued has run (contract of
        // `submit`), and uwork does not access it after its function returns.
        let queued = self.pool.queue.enqueue(unsafe { &*item });
        debug_assert!(queued.is_queued(), "the item queued last under this index has completed");
        let _ = queued;
    }

    #[inline]
    unsafe fn submit_all(&mut self, count: usize) {
        if self.pool.submits != Submits::Batches {
            for index in 0..count {
                // SAFETY: by this function's contract.
                unsafe { self.submit(index) };
            }
            return;
        }
        let items: *const [Item] = &raw const self.items[..count];
        // SAFETY: as in `submit`, for each item.
        let all = self.pool.queue.enqueue_all(unsafe { &*items });
        debug_assert_eq!(all.queued, count, "the items queued last have completed");
        let _ = all;
    }

    fn settle(&mut self, progress: &'static Progress) {
        if self.pool.submits == Submits::Joined {
            self.items[0].work.flush_helping();
        } else {
            progress.wait();
        }
    }
}

struct Boxed {
    queue: Queue,
    joins: bool,
}

struct BoxedProducer<'a> {
    pool: &'a Boxed,
    progress: &'static Progress,
    last: Option<JoinHandle<()>>,
}

impl Pool for Boxed {
    type Producer<'a> = BoxedProducer<'a>;

    fn producer<'a>(
        &'a self,
        progress: &'static Progress,
        _outstanding: usize,
    ) -> Self::Producer<'a> {
        BoxedProducer { pool: self, progress, last: None }
    }
}

impl Producer for BoxedProducer<'_> {
    #[inline]
    unsafe fn submit(&mut self, _index: usize) {
        let progress = self.progress;
        let handle = self.pool.queue.spawn(move || progress.complete());
        if self.pool.joins {
            self.last = Some(handle);
        }
    }

    fn settle(&mut self, progress: &'static Progress) {
        match self.last.take() {
            Some(handle) => handle.join().expect("the load's items do not panic"),
            None => progress.wait(),
        }
    }
}

struct Executed {
    queue: Queue,
    in_batches: bool,
}

impl Executed {
    fn new(in_batches: bool) -> Self {
        Self { queue: queue("default"), in_batches }
    }
}

struct ExecutedProducer<'a> {
    pool: &'a Executed,
    progress: &'static Progress,
}

impl Pool for Executed {
    type Producer<'a> = ExecutedProducer<'a>;

    fn producer<'a>(
        &'a self,
        progress: &'static Progress,
        _outstanding: usize,
    ) -> Self::Producer<'a> {
        ExecutedProducer { pool: self, progress }
    }
}

impl Producer for ExecutedProducer<'_> {
    #[inline]
    unsafe fn submit(&mut self, _index: usize) {
        let progress = self.progress;
        let queued = self.pool.queue.execute(move || progress.complete());
        debug_assert!(queued.is_ok(), "the queue is open");
        let _ = queued;
    }

    #[inline]
    unsafe fn submit_all(&mut self, count: usize) {
        if !self.pool.in_batches {
            for index in 0..count {
                // SAFETY: by this function's contract.
                unsafe { self.submit(index) };
            }
            return;
        }
        let progress = self.progress;
        let closures = std::iter::repeat_n(move || progress.complete(), count);
        let queued = self.pool.queue.execute_all(closures);
        debug_assert!(queued.is_ok(), "the queue is open");
        let _ = queued;
    }
}

struct Halves;

struct HalvesProducer(&'static Progress);

impl Pool for Halves {
    type Producer<'a> = HalvesProducer;

    fn producer(&self, progress: &'static Progress, _outstanding: usize) -> HalvesProducer {
        HalvesProducer(progress)
    }
}

impl Producer for HalvesProducer {
    #[inline]
    unsafe fn submit(&mut self, _index: usize) {
        let progress = self.0;
        uwork::join(|| (), || progress.complete());
    }

    /// Each item has run when its `join` returns.
    fn settle(&mut self, _progress: &'static Progress) {}
}
