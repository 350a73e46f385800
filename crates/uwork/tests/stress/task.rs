//! Task work under load: threads add items to each other, wait in every way, cancel, end and start
//! again, with exact counts.

use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, RwLock};
use std::time::Duration;

use crate::support::random::Random;
use crate::support::slow::times;
use crate::support::watchdog;
use uwork::task::{self, Added, Delivery, Notify, TaskHandle, TaskItem, TaskWork};

const THREADS: usize = 8;
/// How often a thread is replaced.
const LIVES: usize = 10;
const STEPS: u64 = times(2_000) * LIVES as u64;

/// The outcomes of items.
#[derive(Default)]
struct Counts {
    added: AtomicU64,
    ran: AtomicU64,
    taken: AtomicU64,
    refused: AtomicU64,
    dropped: AtomicU64,
}

struct Job {
    work: TaskWork<Job>,
    number: u64,
    world: Arc<World>,
}

uwork::has_task_work!(impl HasTaskWork for Job { work });

impl TaskItem for Job {
    type Pointer = Pin<Box<Job>>;

    fn run(this: Pin<Box<Job>>) {
        this.world.counts.ran.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.world.counts.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

struct World {
    counts: Counts,
    /// The handle of each thread's current incarnation.
    handles: Vec<RwLock<TaskHandle>>,
}

impl World {
    fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn post(self: &Arc<World>, random: &mut Random, number: u64) {
        let handle = self.handles[random.below(THREADS as u64) as usize].read().unwrap().clone();
        let notify = *random.pick(&[Notify::None, Notify::Resume, Notify::Signal, Notify::Signal]);
        let job = Box::pin(Job { work: TaskWork::new(), number, world: self.clone() });
        match handle.add(job, notify) {
            Added::Added => World::count(&self.counts.added),
            Added::Pending(_) => panic!("a new item is not pending"),
            Added::Exited(_) => World::count(&self.counts.refused),
        }
        if random.one_in(8) {
            let odd = random.one_in(2);
            let found = handle.cancel_match::<Pin<Box<Job>>, 0>(|job| (job.number & 1 == 1) == odd);
            if found.is_some() {
                World::count(&self.counts.taken);
            }
        }
    }
}

/// Each thread's way to wait, for a moment at most: items added with `None` send no notification.
fn wait(way: u64) {
    match way {
        0 => _ = task::park_timeout(Duration::from_micros(50)),
        1 => {
            let notifier = task::notifier().unwrap();
            notifier.wait(|| {
                let fd = notifier.as_fd().as_raw_fd();
                let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                // SAFETY: one structure, which is live.
                unsafe { libc::poll(&raw mut poll, 1, 1) }
            });
        }
        2 => {
            let mut events = [libc::epoll_event { events: 0, u64: 0 }];
            // SAFETY: no pointers.
            let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
            assert!(epoll >= 0);
            // SAFETY: a new descriptor, which this function owns.
            let epoll: std::os::fd::OwnedFd = unsafe { std::os::fd::FromRawFd::from_raw_fd(epoll) };
            match task::epoll_wait(&epoll, &mut events, 1) {
                Ok(ready) => assert_eq!(ready, 0),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Interrupted),
            }
        }
        _ => std::hint::spin_loop(),
    }
    task::run_once();
}

#[test]
fn every_added_item_runs_or_is_cancelled() {
    let _watchdog = watchdog();
    let placeholder = TaskHandle::current();
    let world = Arc::new(World {
        counts: Counts::default(),
        handles: (0..THREADS).map(|_| RwLock::new(placeholder.clone())).collect(),
    });
    let begin = Arc::new(Barrier::new(THREADS));
    let deliveries = [Delivery::Auto, Delivery::Light, Delivery::Signal];
    let threads: Vec<_> = (0..THREADS)
        .map(|at| {
            let (world, begin) = (world.clone(), begin.clone());
            std::thread::spawn(move || {
                // A thread is replaced now and then, together with the items that others are about
                // to add for it.
                for life in 0..LIVES {
                    let (world, begin) = (world.clone(), begin.clone());
                    let live = move || {
                        task::set_delivery(deliveries[at % 3]).unwrap();
                        *world.handles[at].write().unwrap() = TaskHandle::current();
                        if life == 0 {
                            begin.wait();
                        }
                        let mut random = Random::new((at * 100 + life) as u64);
                        for step in 0..STEPS / LIVES as u64 {
                            world.post(&mut random, step);
                            if random.one_in(4) {
                                wait(random.below(4));
                            }
                        }
                    };
                    std::thread::spawn(live).join().unwrap();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    task::run();
    let counts = &world.counts;
    let [added, ran, taken, refused, dropped] =
        [&counts.added, &counts.ran, &counts.taken, &counts.refused, &counts.dropped]
            .map(|count| count.load(Ordering::Relaxed));
    assert_eq!(added, ran + taken, "{added} added, {ran} run, {taken} taken back");
    assert_eq!(added + refused, THREADS as u64 * STEPS);
    assert_eq!(dropped, added + refused, "each item is dropped once");
}

/// The inner wait ends in a moment. The outer one has no bound, and begins unless all is over.
fn wait_inside_of_a_wait(over: &AtomicBool) {
    let notifier = task::notifier().unwrap();
    notifier.wait(|| {
        task::park_timeout(Duration::from_micros(20));
        if over.load(Ordering::Relaxed) {
            return 0;
        }
        let fd = notifier.as_fd().as_raw_fd();
        let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, which is live.
        unsafe { libc::poll(&raw mut poll, 1, -1) }
    });
    task::safe_point();
}

/// A ring of threads that pass tokens on. Each thread sleeps, in one way or another, until it is
/// notified. A lost notification stops the ring for ever.
#[test]
fn tokens_pass_through_threads_that_sleep_without_a_timeout() {
    const ROUNDS: u64 = times(2_000);
    const TOKENS: u64 = 4;
    let _watchdog = watchdog();
    let passed = Arc::new(AtomicU64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let (handles, threads): (Vec<_>, Vec<_>) = (0..THREADS)
        .map(|at| {
            let (send, receive) = std::sync::mpsc::channel();
            let over = over.clone();
            let thread = std::thread::spawn(move || {
                let delivery = [Delivery::Light, Delivery::Auto, Delivery::Signal][at % 3];
                task::set_delivery(delivery).unwrap();
                send.send(TaskHandle::current()).unwrap();
                let (reader, writer) = std::io::pipe().unwrap();
                while !over.load(Ordering::Relaxed) {
                    match at % 4 {
                        0 => _ = task::park(),
                        2 => wait_inside_of_a_wait(&over),
                        _ => {
                            let mut byte = [0_u8; 1];
                            let buffer = byte.as_mut_ptr().expose_provenance();
                            let arguments = [reader.as_raw_fd() as usize, buffer, 1, 0, 0, 0];
                            // SAFETY: the buffer is live and has the given length.
                            let result = unsafe { task::syscall(libc::SYS_read, arguments) };
                            assert!(result.is_err(), "nothing is ever written");
                            task::safe_point();
                        }
                    }
                }
                drop(writer);
            });
            (receive.recv().unwrap(), thread)
        })
        .unzip();
    let handles: Arc<[TaskHandle]> = handles.into();
    fn pass(at: usize, handles: Arc<[TaskHandle]>, left: u64, passed: Arc<AtomicU64>) {
        let (next, all) = ((at + 1) % handles.len(), handles.clone());
        let token = move || {
            passed.fetch_add(1, Ordering::Relaxed);
            if left > 1 {
                pass(next, all, left - 1, passed);
            }
        };
        assert!(handles[at].add_fn(Notify::Signal, token).is_ok());
    }
    for token in 0..TOKENS {
        pass(token as usize * 2, handles.clone(), ROUNDS, passed.clone());
    }
    crate::support::until("all tokens have passed through", || {
        passed.load(Ordering::Relaxed) == TOKENS * ROUNDS
    });
    for handle in &*handles {
        let over = over.clone();
        // Returns an error if the target was awake and has seen that the test is over.
        let _ = handle.add_fn(Notify::Signal, move || over.store(true, Ordering::Relaxed));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
