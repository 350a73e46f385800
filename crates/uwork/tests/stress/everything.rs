//! Every operation at once, on eight threads and many queues, with exact counts at the end.
//!
//! The operations of each thread follow from a seed, which is printed; `UWORK_STRESS_SEED` sets it.
//! The interleaving of the threads does not follow from the seed.

use std::future::poll_fn;
use std::io::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::assert_no_rescues;
use crate::support::machine::cpus;
use crate::support::random::Random;
use crate::support::{queue, watchdog};
use uwork::{AffinityScope, AffinityScopeChoice, DelayedWork, Enqueued, Queue, Work, WorkItem};

const THREADS: u64 = 8;
/// How often a boxed item queues itself again, at most.
const HOPS: u64 = 3;
/// Fewer in a build that is not optimized: `ci/stress.sh` builds one that is.
const STEPS: u64 = if cfg!(debug_assertions) { 10_000 } else { 30_000 };
const NODES: usize = 48;
const SEEDS: [u64; 2] = [1, 2];

/// The seeds to run with.
fn seeds() -> Vec<u64> {
    let seeds = match std::env::var("UWORK_STRESS_SEED") {
        Ok(seed) => vec![seed.parse().expect("UWORK_STRESS_SEED is a number")],
        Err(_) => SEEDS.to_vec(),
    };
    // Written directly, because the harness would lose the line if the watchdog ended the process.
    let _ = writeln!(std::io::stderr(), "stress: UWORK_STRESS_SEED is one of {seeds:?}");
    seeds
}

/// The queues, and the counts that belong to no node.
struct World {
    queues: Vec<Queue>,
    /// Its items never wait, so any item can wait for them.
    wide: Queue,
    cpus: Vec<u32>,
    /// Items no longer queue themselves.
    over: AtomicBool,
    seed: u64,
    boxed: Counts,
    shared: Counts,
}

/// How many of the items that their function frees were created, run and dropped.
#[derive(Default)]
struct Counts {
    made: AtomicU64,
    queued: AtomicU64,
    ran: AtomicU64,
    dropped: AtomicU64,
}

fn add_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl World {
    fn new(seed: u64) -> Arc<World> {
        let build = |builder: uwork::Builder| builder.build().unwrap();
        let mut queues = vec![
            build(queue("stress").per_cpu()),
            build(queue("stress").per_cpu().max_active(2)),
            build(queue("stress").ordered()),
            build(queue("stress").max_active(2)),
            build(queue("stress").cpu_intensive()),
        ];
        queues.extend(AffinityScope::ALL.map(|scope| {
            build(queue("stress").affinity_scope(AffinityScopeChoice::Explicit(scope)))
        }));
        Arc::new(World {
            queues,
            wide: build(queue("stress")),
            cpus: cpus(),
            over: AtomicBool::new(false),
            seed,
            boxed: Counts::default(),
            shared: Counts::default(),
        })
    }
}

/// The account of one item: every queueing ends in a run or comes back.
#[derive(Default)]
struct Account {
    queued: AtomicU64,
    ran: AtomicU64,
    taken: AtomicU64,
    running: AtomicBool,
    overlapped: AtomicBool,
}

impl Account {
    fn count<P>(&self, outcome: &Enqueued<P>) {
        if outcome.is_queued() {
            add_one(&self.queued);
        }
    }

    fn take_back<P>(&self, pointer: Option<P>) {
        if pointer.is_some() {
            add_one(&self.taken);
        }
    }

    fn assert_balanced(&self, what: &str) {
        let [queued, ran, taken] =
            [&self.queued, &self.ran, &self.taken].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(queued, ran + taken, "{what}: {queued} queued, {ran} run, {taken} taken back");
        assert!(!self.overlapped.load(Ordering::Relaxed), "{what} ran twice at once");
    }
}

/// A value with two items: one with a timer and one without.
struct Node {
    work: Work<Node, 0>,
    timer: DelayedWork<Node, 1>,
    accounts: [Account; 2],
    world: Arc<World>,
    number: u64,
}

uwork::has_work!(impl HasWork<0> for Node { work });
uwork::has_work!(impl HasDelayedWork<1> for Node { timer });

impl WorkItem<0> for Node {
    type Pointer = Arc<Node>;

    fn run(this: Arc<Node>) {
        this.act(0);
    }
}

impl WorkItem<1> for Node {
    type Pointer = Arc<Node>;

    fn run(this: Arc<Node>) {
        this.act(1);
    }
}

impl Node {
    fn act(self: &Arc<Node>, which: usize) {
        let (account, world) = (&self.accounts[which], &self.world);
        if account.running.swap(true, Ordering::Relaxed) {
            account.overlapped.store(true, Ordering::Relaxed);
        }
        let run = account.ran.fetch_add(1, Ordering::Relaxed);
        let mut random = Random::new(world.seed ^ self.number << 40 ^ run << 8 ^ which as u64);
        match random.below(16) {
            0 => uwork::blocking(std::thread::yield_now),
            1 => assert_eq!(world.wide.spawn(move || run + 1).join().unwrap(), run + 1),
            2 => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
        let again = random.one_in(5) && !world.over.load(Ordering::Relaxed);
        let queue = random.pick(&world.queues);
        account.running.store(false, Ordering::Relaxed);
        if again && which == 0 {
            account.count(&queue.enqueue::<_, 0>(self.clone()));
        } else if again {
            let delay = Duration::from_micros(random.below(500));
            account.count(&queue.enqueue_delayed::<_, 1>(self.clone(), delay));
        }
    }
}

/// An item that its last run frees.
struct Boxed {
    work: Work<Boxed>,
    left: u64,
    world: Arc<World>,
}

uwork::has_work!(impl HasWork for Boxed { work });

impl WorkItem for Boxed {
    type Pointer = Pin<Box<Boxed>>;

    fn run(mut this: Pin<Box<Boxed>>) {
        add_one(&this.world.boxed.ran);
        let world = this.world.clone();
        if this.left > 0 {
            // SAFETY: the item does not move; only a number in it changes.
            unsafe { this.as_mut().get_unchecked_mut() }.left -= 1;
            add_one(&world.boxed.queued);
            let queue = &world.queues[this.left as usize % world.queues.len()];
            assert!(queue.enqueue(this).is_queued());
        }
    }
}

impl Drop for Boxed {
    fn drop(&mut self) {
        add_one(&self.world.boxed.dropped);
    }
}

/// An item whose last reference belongs to the queue.
struct Shared {
    work: Work<Shared>,
    world: Arc<World>,
}

uwork::has_work!(impl HasWork for Shared { work });

impl WorkItem for Shared {
    type Pointer = Arc<Shared>;

    fn run(this: Arc<Shared>) {
        add_one(&this.world.shared.ran);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        add_one(&self.world.shared.dropped);
    }
}

/// One of the eight threads.
struct Actor<'a> {
    world: &'a Arc<World>,
    nodes: &'a [Arc<Node>],
    random: Random,
    /// The nodes that this thread has disabled and not yet enabled.
    disabled: Vec<Arc<Node>>,
}

impl Actor<'_> {
    fn step(&mut self) {
        let node = self.random.pick(self.nodes).clone();
        let queue = self.random.pick(&self.world.queues).clone();
        match self.random.below(100) {
            0..40 => self.queue_somehow(&node, &queue),
            40..60 => self.take_back_somehow(&node),
            60..68 => self.toggle(&node),
            68..72 => drop(node.work.flush()),
            72..74 => drop(node.timer.flush()),
            74..76 => drop(node.work.flush_helping()),
            76 => queue.flush().unwrap(),
            77..84 => self.free_in_function(&queue),
            84..92 => self.spawn_and_join(&queue),
            92..96 => self.spawn_future(&queue),
            _ => uwork::blocking(std::thread::yield_now),
        }
    }

    fn queue_somehow(&mut self, node: &Arc<Node>, queue: &Queue) {
        let cpu = *self.random.pick(&self.world.cpus);
        let delay = Duration::from_micros(self.random.below(800));
        let [plain, timed] = &node.accounts;
        match self.random.below(6) {
            0..3 => plain.count(&queue.enqueue::<_, 0>(node.clone())),
            3 => plain.count(&queue.enqueue_on::<_, 0>(cpu, node.clone()).unwrap()),
            4 => timed.count(&queue.enqueue_delayed::<_, 1>(node.clone(), delay)),
            _ => timed.count(&queue.mod_delayed::<_, 1>(node.clone(), delay)),
        }
    }

    fn take_back_somehow(&mut self, node: &Arc<Node>) {
        let [plain, timed] = &node.accounts;
        match self.random.below(4) {
            0 => plain.take_back(node.work.cancel()),
            1 => plain.take_back(node.work.cancel_sync().unwrap()),
            2 => timed.take_back(node.timer.cancel()),
            _ => timed.take_back(node.timer.cancel_sync().unwrap()),
        }
    }

    /// Disables a node's plain item for a while, or enables one again.
    fn toggle(&mut self, node: &Arc<Node>) {
        if self.disabled.len() > 3 || (!self.disabled.is_empty() && self.random.one_in(2)) {
            let at = self.random.below(self.disabled.len() as u64) as usize;
            self.disabled.swap_remove(at).work.enable().unwrap();
        } else {
            let back = match self.random.one_in(2) {
                true => node.work.disable(),
                false => node.work.disable_sync(),
            };
            node.accounts[0].take_back(back.unwrap());
            self.disabled.push(node.clone());
        }
    }

    fn free_in_function(&mut self, queue: &Queue) {
        let world = self.world.clone();
        if self.random.one_in(2) {
            add_one(&world.boxed.made);
            add_one(&world.boxed.queued);
            let left = self.random.below(HOPS + 1);
            let item = Boxed { work: Work::new(), left, world };
            assert!(queue.enqueue(Box::pin(item)).is_queued());
        } else {
            add_one(&world.shared.made);
            add_one(&world.shared.queued);
            assert!(queue.enqueue(Arc::new(Shared { work: Work::new(), world })).is_queued());
        }
    }

    fn spawn_and_join(&mut self, queue: &Queue) {
        let count = self.random.below(6);
        let handles: Vec<_> = (0..count).map(|number| queue.spawn(move || number)).collect();
        for (number, handle) in handles.into_iter().enumerate() {
            match self.random.below(4) {
                0 if handle.cancel() => assert!(handle.join().is_err()),
                1 => drop(handle),
                _ => assert_eq!(handle.join().unwrap(), number as u64),
            }
        }
    }

    fn spawn_future(&mut self, queue: &Queue) {
        let (mut polls, wanted) = (0, 1 + self.random.below(4));
        let handle = queue.spawn_future(poll_fn(move |context| {
            polls += 1;
            if polls == wanted {
                return Poll::Ready(polls);
            }
            context.waker().wake_by_ref();
            Poll::Pending
        }));
        if self.random.one_in(2) {
            assert_eq!(handle.join().unwrap(), wanted);
        }
    }
}

fn run_with(seed: u64) {
    let world = World::new(seed);
    let nodes: Vec<Arc<Node>> = (0..NODES as u64)
        .map(|number| {
            let (work, timer) = (Work::new(), DelayedWork::new());
            let (accounts, world) = (Default::default(), world.clone());
            Arc::new(Node { work, timer, accounts, world, number })
        })
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (world, nodes) = (&world, &nodes);
            scope.spawn(move || {
                let random = Random::new(seed ^ (thread + 1) << 32);
                let mut actor = Actor { world, nodes, random, disabled: Vec::new() };
                (0..STEPS).for_each(|_| actor.step());
                for node in actor.disabled {
                    node.work.enable().unwrap();
                }
            });
        }
    });
    world.over.store(true, Ordering::Relaxed);
    for node in &nodes {
        // The last run before `over` was set may have queued the item once more.
        while node.timer.is_pending() || node.work.is_pending() {
            node.timer.flush();
            node.work.flush();
        }
    }
    let queues = || world.queues.iter().chain([&world.wide]);
    // A boxed item queues itself on other queues, which may have been flushed before it arrives.
    for _ in 0..=HOPS {
        queues().for_each(|queue| queue.flush().unwrap());
    }
    queues().for_each(|queue| queue.drain().unwrap());
    for node in &nodes {
        assert!(!node.work.is_pending() && !node.timer.is_pending());
        node.accounts[0].assert_balanced("an item");
        node.accounts[1].assert_balanced("an item with a timer");
        assert_eq!(Arc::strong_count(node), 1, "no queue holds it");
        assert!(node.work.enable().is_err(), "every disable was taken back");
    }
    for counts in [&world.boxed, &world.shared] {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        assert_eq!(load(&counts.queued), load(&counts.ran), "each ran as often as it was queued");
        assert_eq!(load(&counts.made), load(&counts.dropped), "each was dropped, once");
    }
    assert!(world.queues.iter().all(Queue::is_idle));
}

// Catches: any loss of an item, concurrent runs of one, a double or missing drop, and a hang.
#[test]
fn everything_at_once_ends_with_exact_counts() {
    let _watchdog = watchdog();
    seeds().into_iter().for_each(run_with);
    assert_no_rescues();
}
