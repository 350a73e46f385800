//! Running: no item runs twice at once, and where an item runs that is queued while it runs
//! (SEMANTICS 2.3 to 2.7).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::support::child::alone_with;
use crate::support::gate::{Gate, Log};
use crate::support::items::Job;
use crate::support::machine::{cpus, current_cpu, mask, thread_id, two_cpus, until_asleep};
use crate::support::random::Random;
use crate::support::tiers::VARIABLE;
use crate::support::{keep, queue, until, watchdog};
use uwork::{AffinityScope, AffinityScopeChoice, Builder, Queue, Work, WorkItem, WorkPointer};

fn strict_per_cpu_pods(stem: &str) -> Builder {
    queue(stem)
        .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::Cpu))
        .affinity_strict(true)
}

// Catches: a start without the check whether the item still runs elsewhere, on one queue or across.
#[test]
fn s2_03_an_item_never_runs_twice_at_once_whatever_queue_it_is_on() {
    let _watchdog = watchdog();
    let queues = [
        queue("s2-03").build().unwrap(),
        queue("s2-03").per_cpu().build().unwrap(),
        queue("s2-03").ordered().build().unwrap(),
        queue("s2-03")
            .affinity_scope(AffinityScopeChoice::Explicit(AffinityScope::System))
            .build()
            .unwrap(),
    ];
    // Only non-reentrancy guards the counter: concurrent runs lose increments.
    let unguarded = Arc::new(AtomicU64::new(0));
    let counter = unguarded.clone();
    let job = Job::new(move |_| {
        let before = counter.load(Ordering::Relaxed);
        for _ in 0..20 {
            std::thread::yield_now();
        }
        counter.store(before + 1, Ordering::Relaxed);
    });
    let queued = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (queues, job, queued, cpus) = (&queues, &job, &queued, cpus());
            scope.spawn(move || {
                let mut random = Random::new(seed);
                for _ in 0..3_000 {
                    let queue = random.pick(queues);
                    let outcome = match random.one_in(2) {
                        true => queue.enqueue(job.clone()),
                        false => queue.enqueue_on(*random.pick(&cpus), job.clone()).unwrap(),
                    };
                    queued.fetch_add(u64::from(outcome.is_queued()), Ordering::Relaxed);
                }
            });
        }
    });
    job.work.flush();
    queues.iter().for_each(|queue| queue.flush().unwrap());
    let queued = queued.into_inner();
    assert!(!job.tally.overlapped());
    assert_eq!(u64::from(job.tally.finished()), queued);
    assert_eq!(unguarded.load(Ordering::Relaxed), queued);
}

/// Starts an item of `queue` on `cpu`, and calls `meanwhile` with it while it runs. Returns where
/// it ran: first on `cpu`, then where `meanwhile` sent it.
fn cpus_of_runs(queue: &Queue, cpu: u32, meanwhile: impl FnOnce(&Arc<Job>)) -> Vec<u32> {
    keep(queue);
    let (log, may_end) = (Log::new(), Gate::new());
    let (events, gate) = (log.clone(), may_end.clone());
    let job = Job::new(move |_| {
        events.push(current_cpu());
        gate.wait_blocking();
    });
    assert!(queue.enqueue_on(cpu, job.clone()).unwrap().is_queued());
    log.wait_for_count(1);
    meanwhile(&job);
    may_end.open();
    log.wait_for_count(2);
    until("the second run is over", || job.tally.finished() == 2);
    log.events()
}

// Catches: an item that is queued for another CPU while it runs and leaves its runner's pool.
#[test]
fn s2_04_queued_again_while_running_it_goes_to_the_runners_pool() {
    let _watchdog = watchdog();
    let Some((here, there)) = two_cpus() else { return };
    let unbound = strict_per_cpu_pods("s2-04").build().unwrap();
    let bound = queue("s2-04-bound").per_cpu().build().unwrap();
    for queue in [unbound, bound] {
        let seen = cpus_of_runs(&queue, here, |job| {
            assert!(queue.enqueue_on(there, job.clone()).unwrap().is_queued());
        });
        assert_eq!(seen, [here, here], "{queue:?}");
    }
}

// Catches: rule 2.4 applied across queues (the item must go to the new queue's pool), and an item
// that waits for the end of its run and then starts in the pool of that run.
#[test]
fn s2_04_not_if_the_queue_is_another_one() {
    let _watchdog = watchdog();
    let Some((here, there)) = two_cpus() else { return };
    let runs_on = strict_per_cpu_pods("s2-04-old").build().unwrap();
    let bound = queue("s2-04-new").per_cpu().build().unwrap();
    let unbound = strict_per_cpu_pods("s2-04-new").nice(1).build().unwrap();
    for new in [&bound, &unbound] {
        keep(new);
        let seen = cpus_of_runs(&runs_on, here, |job| {
            assert!(new.enqueue_on(there, job.clone()).unwrap().is_queued());
            // Queued behind the item on the same pwq: when this item has run, the first one was
            // deferred.
            let behind = Job::counting();
            assert!(new.enqueue_on(there, behind.clone()).unwrap().is_queued());
            until("the item behind has run", || behind.tally.finished() == 1);
            assert_eq!(job.tally.started(), 1, "it still runs");
        });
        assert_eq!(seen, [here, there], "{new:?}");
    }
}

// Catches: a collision that blocks the items behind it, or one that is lost at the end of the run.
#[test]
fn s2_05_a_collision_waits_for_the_run_and_delays_no_other_item() {
    let _watchdog = watchdog();
    let queue = strict_per_cpu_pods("s2-05").build().unwrap();
    keep(&queue);
    let cpu = cpus()[0];
    let (started, may_end) = (Gate::new(), Gate::new());
    let job = Job::held(&started, &may_end);
    assert!(queue.enqueue_on(cpu, job.clone()).unwrap().is_queued());
    started.wait();
    assert!(queue.enqueue_on(cpu, job.clone()).unwrap().is_queued());
    let behind: Vec<_> = (0..3).map(|_| Job::counting()).collect();
    for job in &behind {
        assert!(queue.enqueue_on(cpu, job.clone()).unwrap().is_queued());
    }
    until("those behind have run", || behind.iter().all(|job| job.tally.finished() == 1));
    assert_eq!(job.tally.started(), 1);
    may_end.open();
    until("the second run is over", || job.tally.finished() == 2);
    assert!(!job.tally.overlapped());
}

// Catches: a collision that is deferred and lost when a helping thread holds the last free permit
// (max_active 2) at the moment at which the run ends.
#[test]
fn s2_05_a_collision_is_not_lost_when_a_helper_holds_the_last_permit() {
    // An item that waits undeclared computes, as far as the pool can tell, for as long as it waits.
    let declared = |command: &mut std::process::Command| _ = command.env(VARIABLE, "declared");
    let test = "s2_05_a_collision_is_not_lost_when_a_helper_holds_the_last_permit";
    alone_with(test, declared, collides_beside_a_helper);
}

fn collides_beside_a_helper() {
    let _watchdog = watchdog();
    let cpu = cpus()[0];
    // A separate pool, with one worker running at a time.
    let build = |stem: &str| strict_per_cpu_pods(stem).nice(2);
    let queue = build("s2-05-two").max_active(2).build().unwrap();
    let other = build("s2-05-other").build().unwrap();
    keep(&queue);
    let enqueue = |queue: &Queue, job: &Arc<Job>| {
        assert!(queue.enqueue_on(cpu, job.clone()).unwrap().is_queued());
    };

    let (log, may_end) = (Log::new(), Gate::new());
    let (workers, gate) = (log.clone(), may_end.clone());
    let collides = Job::new(move |_| {
        workers.push(thread_id());
        gate.wait_blocking();
    });
    enqueue(&queue, &collides);
    log.wait_for_count(1);
    let runner = log.events()[0];
    enqueue(&queue, &collides);
    let behind = Job::counting();
    enqueue(&queue, &behind);
    until("the collision was deferred", || behind.tally.finished() == 1);

    // The pool's worker computes, so that only the helping thread takes the next item.
    let (computes, may_stop) = (Gate::new(), Gate::new());
    let (entered, stop) = (computes.clone(), may_stop.clone());
    let computing = Job::new(move |_| {
        entered.open();
        stop.wait();
    });
    enqueue(&other, &computing);
    computes.wait();
    let (collided, looked) = (collides.clone(), Job::counting());
    let helped = Job::new(move |_| {
        // The worker scans the queue, finds no item that it may take, and continues.
        assert!(other.enqueue_on(cpu, looked.clone()).unwrap().is_queued());
        may_stop.open();
        until("the worker has looked", || looked.tally.finished() == 1);
        may_end.open();
        until("the run is over", || collided.tally.finished() >= 1);
        until_asleep(runner);
    });
    enqueue(&queue, &helped);
    assert!(helped.work.flush_helping());
    assert_eq!(helped.tally.finished(), 1, "what it saw was as expected");
    until("the item that collided runs again", || collides.tally.finished() == 2);
}

// Catches: an item that requeues itself and moves to the new pools while it does so, or one that
// never moves.
#[test]
fn s2_06_an_item_that_queues_itself_stays_across_attribute_changes() {
    let _watchdog = watchdog();
    let Some((old, new)) = two_cpus() else { return };
    let queue = strict_per_cpu_pods("s2-06").cpumask(mask(&[old])).build().unwrap();
    let (log, changed) = (Log::new(), Gate::new());
    let (events, gate, again) = (log.clone(), changed.clone(), queue.clone());
    let job = Job::new(move |this| {
        events.push(current_cpu());
        gate.wait_blocking();
        if this.tally.started() < 10 {
            assert!(again.enqueue(this.clone()).is_queued());
        }
    });
    assert!(queue.enqueue(job.clone()).is_queued());
    log.wait_for_count(1);
    queue.set_cpumask(mask(&[new])).unwrap();
    changed.open();
    until("the chain is over", || job.tally.finished() == 10 && !job.work.is_pending());
    queue.flush().unwrap();
    assert_eq!(log.events(), [old; 10]);
    assert!(queue.enqueue(job.clone()).is_queued());
    queue.flush().unwrap();
    assert_eq!(log.events()[10], new, "queued afresh, it goes where the queue is now");
}

/// An item in a page of its own, which becomes inaccessible when the item is dropped: any later
/// access crashes.
#[repr(C)]
struct Paged {
    work: Work<Paged>,
    dropped: Arc<AtomicU32>,
    requeue: AtomicBool,
    queue: Option<Queue>,
}

uwork::has_work!(impl HasWork for Paged { work });

struct Page(std::ptr::NonNull<Paged>);

const PAGE: usize = 65_536;

// SAFETY: the value in the page may be used and dropped on any thread.
unsafe impl Send for Page {}

// SAFETY: the page is mapped, and stays where it is, until the pointer is dropped.
unsafe impl WorkPointer for Page {
    type Target = Paged;

    fn into_raw(self) -> std::ptr::NonNull<Paged> {
        std::mem::ManuallyDrop::new(self).0
    }

    unsafe fn from_raw(raw: std::ptr::NonNull<Paged>) -> Page {
        Page(raw)
    }
}

impl Page {
    fn new(item: Paged) -> Page {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the system's choice.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED);
        let page = std::ptr::NonNull::new(page.cast::<Paged>()).expect("a mapping has an address");
        // SAFETY: mapped, writable, aligned and large enough.
        unsafe { page.write(item) };
        Page(page)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the pointer is the only one. The addresses stay reserved, so that no other
        // mapping gets them while a stale pointer exists.
        unsafe {
            self.0.drop_in_place();
            libc::mprotect(self.0.as_ptr().cast(), PAGE, libc::PROT_NONE);
        }
    }
}

impl Drop for Paged {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl WorkItem for Paged {
    type Pointer = Page;

    fn run(this: Page) {
        // SAFETY: mapped until `this` is dropped.
        let item = unsafe { this.0.as_ref() };
        if item.requeue.swap(false, Ordering::Relaxed)
            && let Some(queue) = item.queue.clone()
        {
            assert!(queue.enqueue(this).is_queued());
        }
    }
}

// Catches: any access to an item after its function has returned.
#[test]
fn s2_07_the_function_may_free_its_item() {
    let _watchdog = watchdog();
    let dropped = Arc::new(AtomicU32::new(0));
    let queues = [
        queue("s2-07").build().unwrap(),
        queue("s2-07").per_cpu().build().unwrap(),
        queue("s2-07").ordered().build().unwrap(),
    ];
    for round in 0..1_200 {
        let queue = &queues[round % queues.len()];
        let page = Page::new(Paged {
            work: Work::new(),
            dropped: dropped.clone(),
            requeue: AtomicBool::new(round % 5 == 0),
            queue: Some(queue.clone()),
        });
        assert!(queue.enqueue(page).is_queued());
        if round % 64 == 0 {
            queue.flush().unwrap();
        }
    }
    // An item that queued itself may have come after the first flush.
    queues.iter().for_each(|queue| queue.drain().unwrap());
    assert_eq!(dropped.load(Ordering::Relaxed), 1_200);
}
