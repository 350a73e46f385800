//! The states that thread hooks keep: on which threads they exist, and until when. Each test runs in a
//! process of its own, because hooks are for the whole process.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use crate::support::child::alone;
use crate::support::gate::Gate;
use crate::support::items::Job;
use crate::support::{received, until};
use uwork::threads::{self, Hooks, ThreadKind};
use uwork::{ErrorKind, Queue};

/// What `f` returns in an item of this queue, on a worker.
fn on_worker<R: Send + 'static>(queue: &Queue, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    // A join could run the item on this thread.
    let _detached = queue.spawn(move || tell.send(f()));
    received(&told).expect("the item runs")
}

/// What `f` returns in an item that the calling thread runs while it waits for it.
fn on_this_thread<R: Send + 'static>(queue: &Queue, f: fn() -> R) -> R {
    let this = thread::current().id();
    loop {
        // A worker may be faster.
        let item = move || (thread::current().id() == this).then(f);
        if let Some(value) = queue.spawn(item).join().unwrap() {
            return value;
        }
    }
}

/// A state that counts itself, and knows its thread.
struct Counted(ThreadId, &'static Counts);

struct Counts {
    starts: AtomicUsize,
    stops: AtomicUsize,
    /// Of threads of the program's.
    helpers: AtomicUsize,
}

impl Counts {
    const fn new() -> Counts {
        Counts {
            starts: AtomicUsize::new(0),
            stops: AtomicUsize::new(0),
            helpers: AtomicUsize::new(0),
        }
    }

    fn start(&'static self, thread: threads::Thread<'_>) -> Counted {
        self.starts.fetch_add(1, Ordering::SeqCst);
        if thread.kind() == ThreadKind::Helper {
            self.helpers.fetch_add(1, Ordering::SeqCst);
        }
        Counted(thread::current().id(), self)
    }

    /// Starts and stops so far.
    fn get(&self) -> (usize, usize) {
        (self.starts.load(Ordering::SeqCst), self.stops.load(Ordering::SeqCst))
    }

    fn add(&'static self) -> Hooks<Counted> {
        threads::add_hooks(|thread| self.start(thread), |_, state| state.stop())
    }

    fn add_lazy(&'static self) -> Hooks<Counted> {
        threads::add_lazy_hooks(|thread| self.start(thread), |_, state| state.stop())
    }
}

impl Counted {
    fn is_here(&self) -> bool {
        self.0 == thread::current().id()
    }

    fn stop(self) {
        assert!(self.is_here());
        self.1.stops.fetch_add(1, Ordering::SeqCst);
    }
}

// Catches: a second pool of a process without states, states that outlive their pool, and a thread of
// the program's that runs items without one.
#[test]
fn every_item_has_the_state_of_its_thread_in_every_pool_of_a_process() {
    const ITEMS: usize = 500;
    alone("every_item_has_the_state_of_its_thread_in_every_pool_of_a_process", || {
        static COUNTS: Counts = Counts::new();
        for round in 0..6 {
            let hooks = if round % 2 == 0 { COUNTS.add() } else { COUNTS.add_lazy() };
            let queue = Queue::builder(format!("pool{round}")).max_active(4).build().unwrap();
            let here = move || hooks.with(Counted::is_here);
            let waiting: Vec<_> = (0..ITEMS).map(|_| queue.spawn(here)).collect();
            assert!(waiting.into_iter().all(|item| item.join().unwrap() == Some(true)));
            for _ in 0..ITEMS {
                assert_eq!(queue.spawn(here).join().unwrap(), Some(true));
                assert_eq!(on_worker(&queue, here), Some(true));
            }
            assert_eq!(hooks.remove_sync().unwrap(), 0);
            let (starts, stops) = COUNTS.get();
            assert!(starts > 0);
            assert_eq!(starts, stops, "threads of uwork and this one");
            assert_eq!(hooks.with(|_| ()), None);
            assert_eq!(queue.spawn(here).join().unwrap(), None, "removed");
        }
        assert!(COUNTS.helpers.load(Ordering::SeqCst) > 0, "this thread ran items");
    });
}

// Catches: states for threads that run no item which asks for one.
#[test]
fn lazy_hooks_make_a_state_where_an_item_asks_and_nowhere_else() {
    alone("lazy_hooks_make_a_state_where_an_item_asks_and_nowhere_else", || {
        static COUNTS: Counts = Counts::new();
        let hooks = COUNTS.add_lazy();
        let silent = Queue::builder("silent").mem_reclaim().build().unwrap();
        let asks = Queue::builder("asks").dedicated().build().unwrap();
        for _ in 0..100 {
            on_worker(&silent, || ());
            silent.spawn(|| ()).join().unwrap();
            on_worker(&asks, || ());
        }
        assert_eq!(COUNTS.get(), (0, 0));
        for _ in 0..100 {
            assert_eq!(on_worker(&asks, move || hooks.with(Counted::is_here)), Some(true));
        }
        assert_eq!(COUNTS.get(), (1, 0));
        assert_eq!(hooks.with(|_| ()), None, "this thread has run no item that asks");
        drop(asks);
        until("the stop hook of the thread that ended", || COUNTS.get() == (1, 1));
    });
}

// Catches: a queue whose items run on a thread that has not called its hooks, and hooks that are called
// for other queues.
#[test]
fn a_queue_calls_its_hooks_before_its_items_on_any_thread() {
    thread_local! {
        static REGISTERED: Cell<bool> = const { Cell::new(false) };
    }
    alone("a_queue_calls_its_hooks_before_its_items_on_any_thread", || {
        let register =
            || threads::add_lazy_hooks(|_| REGISTERED.set(true), |_, ()| REGISTERED.set(false));
        let queues = [
            Queue::builder("shared").build().unwrap(),
            Queue::builder("bh").bh().build().unwrap(),
            Queue::builder("own").dedicated().build().unwrap(),
            Queue::builder("ordered").ordered().mem_reclaim().build().unwrap(),
        ];
        let other = Queue::builder("other").dedicated().build().unwrap();
        // Threads that run already.
        assert!(queues.iter().all(|queue| !on_worker(queue, || REGISTERED.get())));
        for _ in 0..2 {
            let hooks = register();
            for queue in &queues {
                queue.add_hooks(hooks);
                queue.add_hooks(hooks);
                assert!(on_worker(queue, || REGISTERED.get()));
                assert!(queue.spawn(|| REGISTERED.get()).join().unwrap());
            }
            assert!(on_this_thread(&queues[0], || REGISTERED.get()));
            assert!(!on_worker(&other, || REGISTERED.get()));
            hooks.remove_sync().unwrap();
            assert!(!REGISTERED.get(), "removed, for this thread too");
            assert!(!on_worker(&queues[2], || REGISTERED.get()));
        }
    });
}

// Catches: a helper that calls no stop hook, calls it on another thread, or keeps its state after the
// removal although it runs further items.
#[test]
fn a_thread_of_the_program_that_has_helped_stops_at_its_end_or_at_its_next_item() {
    alone("a_thread_of_the_program_that_has_helped_stops_at_its_end_or_at_its_next_item", || {
        static COUNTS: Counts = Counts::new();
        static HOOKS: Mutex<Option<Hooks<Counted>>> = Mutex::new(None);
        let is_here = || HOOKS.lock().unwrap().unwrap().with(Counted::is_here);
        let queue = Queue::builder("helped").build().unwrap();
        let helper = |goes_on: Gate, helped: Gate, again: bool| {
            let queue = queue.clone();
            thread::spawn(move || {
                assert_eq!(on_this_thread(&queue, is_here), Some(true));
                assert_eq!(HOOKS.lock().unwrap().unwrap().with(Counted::is_here), Some(true));
                helped.open();
                goes_on.wait();
                if again {
                    let before = COUNTS.get().1;
                    assert_eq!(on_this_thread(&queue, is_here), None);
                    assert_eq!(COUNTS.get().1, before + 1, "its next item");
                }
            })
        };
        for again in [false, true] {
            let hooks = COUNTS.add_lazy();
            *HOOKS.lock().unwrap() = Some(hooks);
            let (goes_on, helped) = (Gate::new(), Gate::new());
            let thread = helper(goes_on.clone(), helped.clone(), again);
            helped.wait();
            assert_eq!(hooks.remove_sync().unwrap(), 1, "the thread lives, outside of uwork");
            assert_eq!(hooks.remove_sync().unwrap(), 1);
            goes_on.open();
            thread.join().unwrap();
            assert_eq!(hooks.remove_sync().unwrap(), 0);
            let (starts, stops) = COUNTS.get();
            assert_eq!(starts, stops);
        }
        // The end of the thread, with the hooks still there.
        *HOOKS.lock().unwrap() = Some(COUNTS.add_lazy());
        let (goes_on, before) = (Gate::new(), COUNTS.get().1);
        goes_on.open();
        helper(goes_on, Gate::new(), false).join().unwrap();
        assert_eq!(COUNTS.get().1, before + 1);
    });
}

// Catches: a state that is taken back while an item or a call refers to it, and a removal that waits
// for its own caller.
#[test]
fn a_state_stays_while_an_item_or_a_call_uses_it() {
    alone("a_state_stays_while_an_item_or_a_call_uses_it", || {
        static COUNTS: Counts = Counts::new();
        let queue = Queue::builder("uses").build().unwrap();
        let hooks = COUNTS.add_lazy();
        let removes = move || {
            let refused = hooks.remove_sync().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::WouldDeadlock);
            assert!(hooks.with(|_| ()).is_some(), "nothing was removed");
            hooks.with(|state| {
                hooks.remove();
                assert!(state.is_here());
            });
            // The item has not ended.
            hooks.with(Counted::is_here)
        };
        assert_eq!(queue.spawn(removes).join().unwrap(), Some(true));
        until("the stop hook after the item", || COUNTS.get() == (1, 1));

        // Outside of items: a call that waits may run another item on this thread.
        static SECOND: Mutex<Option<Hooks<Counted>>> = Mutex::new(None);
        let second = COUNTS.add_lazy();
        *SECOND.lock().unwrap() = Some(second);
        on_this_thread(&queue, || assert!(SECOND.lock().unwrap().unwrap().with(|_| ()).is_some()));
        let (_, stops) = COUNTS.get();
        second.with(|state| {
            second.remove();
            assert_eq!(second.remove_sync().unwrap_err().kind(), ErrorKind::WouldDeadlock);
            on_this_thread(&queue, || ());
            assert!(state.is_here());
        });
        assert!(COUNTS.get().1 > stops, "this thread's, at the end of the call");
        assert_eq!(second.with(|_| ()), None);
        assert_eq!(second.remove_sync().unwrap(), 0);
        let (starts, stops) = COUNTS.get();
        assert_eq!(starts, stops);
    });
}

// Catches: a removal that keeps the workers of a shared pool in stop hooks, while items of others wait.
#[test]
fn stop_hooks_of_a_removal_hold_up_no_pool() {
    alone("stop_hooks_of_a_removal_hold_up_no_pool", || {
        let (gate, stopping) = (Gate::new(), Gate::new());
        let (held, begun) = (gate.clone(), stopping.clone());
        let hooks = threads::add_lazy_hooks(
            |_| (),
            move |_, ()| {
                begun.open();
                held.wait();
            },
        );
        let queue = Queue::builder("shared").build().unwrap();
        // Workers that have slept beside each other: all of the pool have a state.
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let (inside, leave) = (Gate::new(), Gate::new());
                let (begun, held) = (inside.clone(), leave.clone());
                let item = queue.spawn(move || {
                    hooks.with(|()| ()).unwrap();
                    begun.open();
                    held.wait_blocking();
                });
                inside.wait();
                (item, leave)
            })
            .collect();
        workers.iter().for_each(|(_, leave)| leave.open());
        for (item, _) in workers {
            until("an item has run on its worker", || item.is_finished());
        }
        hooks.remove();
        stopping.wait();
        for _ in 0..100 {
            assert_eq!(on_worker(&queue, move || hooks.with(|()| ())), None);
        }
        queue.flush().unwrap();
        gate.open();
        assert_eq!(hooks.remove_sync().unwrap(), 0);
    });
}

// Catches: a hook that calls itself, hooks that stop before those that they have used, and a start hook
// that is called for every item after it has panicked.
#[test]
fn a_start_hook_may_ask_for_other_states_and_panics_once() {
    alone("a_start_hook_may_ask_for_other_states_and_panics_once", || {
        static FIRST: Mutex<Option<Hooks<u32>>> = Mutex::new(None);
        static SECOND: Mutex<Option<Hooks<u32>>> = Mutex::new(None);
        static STOPS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
        static PANICS: AtomicUsize = AtomicUsize::new(0);
        let first = threads::add_lazy_hooks(
            |_| {
                let itself = FIRST.lock().unwrap().unwrap();
                assert_eq!(itself.with(|_| ()), None);
                let other = SECOND.lock().unwrap().unwrap();
                other.with(|n| *n).unwrap() + 1
            },
            |_, n| STOPS.lock().unwrap().push(n),
        );
        let second = threads::add_lazy_hooks(|_| 1, |_, n| STOPS.lock().unwrap().push(n));
        *FIRST.lock().unwrap() = Some(first);
        *SECOND.lock().unwrap() = Some(second);
        let panics = threads::add_lazy_hooks(
            |_| -> u32 {
                PANICS.fetch_add(1, Ordering::SeqCst);
                panic!("at the start")
            },
            |_, _| unreachable!("its start has panicked"),
        );
        let own = Queue::builder("own").dedicated().build().unwrap();
        for _ in 0..3 {
            let states = move || (first.with(|n| *n), second.with(|n| *n), panics.with(|n| *n));
            assert_eq!(on_worker(&own, states), (Some(2), Some(1), None));
        }
        assert_eq!(PANICS.load(Ordering::SeqCst), 1);
        assert_eq!(panics.remove_sync().unwrap(), 0);
        drop(own);
        until("both stop hooks", || STOPS.lock().unwrap().len() == 2);
        assert_eq!(*STOPS.lock().unwrap(), [2, 1], "the reverse of the starts");
    });
}

/// The item that a start hook cancels.
static CANCELLED: Mutex<Option<Arc<Job>>> = Mutex::new(None);

// Catches: a helper that calls hooks while it holds the item: a cancel of that item, from the hook or
// from another thread, would spin until the hook returns.
#[test]
fn an_item_can_be_cancelled_while_its_helper_calls_hooks() {
    alone("an_item_can_be_cancelled_while_its_helper_calls_hooks", || {
        let queue = Queue::builder("helped").build().unwrap();
        let was_cancelled = Arc::new(AtomicUsize::new(0));
        let by_hook = was_cancelled.clone();
        let start = move |thread: threads::Thread<'_>| {
            if thread.kind() == ThreadKind::Helper
                && let Some(item) = CANCELLED.lock().unwrap().take()
            {
                by_hook.fetch_add(usize::from(item.work.cancel().is_some()), Ordering::SeqCst);
            }
        };
        let _hooks = threads::add_hooks(start, |_, ()| ());
        until("a hook has cancelled the item that its thread waits for", || {
            let item = Job::counting();
            *CANCELLED.lock().unwrap() = Some(item.clone());
            assert!(queue.enqueue(item.clone()).is_queued());
            let waits = item.clone();
            // A thread calls the hook once.
            thread::spawn(move || waits.work.flush_helping()).join().unwrap();
            let cancelled = was_cancelled.load(Ordering::SeqCst);
            // A worker may be faster.
            assert!(item.tally.finished() <= 1);
            cancelled > 0
        });
    });
}

// Catches: a lost or doubled hook while hooks come and go beside items that run, help and ask.
#[test]
fn hooks_come_and_go_while_items_run() {
    const ROUNDS: usize = 200;
    alone("hooks_come_and_go_while_items_run", || {
        static COUNTS: Counts = Counts::new();
        thread_local! {
            static ALIVE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
        }
        let is_over = Gate::new();
        let queues: Arc<Vec<Queue>> = Arc::new(vec![
            Queue::builder("first").build().unwrap(),
            Queue::builder("second").max_active(3).build().unwrap(),
            Queue::builder("third").dedicated().build().unwrap(),
        ]);
        let submitters: Vec<_> = (0..3)
            .map(|_| {
                let (queues, is_over) = (queues.clone(), is_over.clone());
                thread::spawn(move || {
                    while !is_over.is_open() {
                        for queue in &*queues {
                            queue.spawn(|| ()).join().unwrap();
                        }
                    }
                })
            })
            .collect();
        for round in 0..ROUNDS {
            let start = move |thread: threads::Thread<'_>| {
                ALIVE.with_borrow_mut(|alive| {
                    assert!(!alive.contains(&round), "started twice");
                    alive.push(round);
                });
                COUNTS.start(thread)
            };
            let stop = move |_: threads::Thread<'_>, state: Counted| {
                let is_alive = |alive: &mut Vec<usize>| {
                    let before = alive.len();
                    alive.retain(|started| *started != round);
                    alive.len() + 1 == before
                };
                let _ = ALIVE.try_with(|alive| assert!(is_alive(&mut alive.borrow_mut())));
                state.stop();
            };
            let hooks = match round % 3 {
                0 => threads::add_hooks(start, stop),
                _ => threads::add_lazy_hooks(start, stop),
            };
            if round % 3 == 1 {
                queues.iter().for_each(|queue| queue.add_hooks(hooks));
                for queue in &*queues {
                    let is_alive = move || ALIVE.with_borrow(|alive| alive.contains(&round));
                    assert!(on_worker(queue, is_alive));
                    assert!(queue.spawn(is_alive).join().unwrap());
                }
            }
            for queue in &*queues {
                assert_eq!(on_worker(queue, move || hooks.with(Counted::is_here)), Some(true));
                let item = queue.spawn(move || hooks.with(Counted::is_here));
                assert_eq!(item.join().unwrap(), Some(true));
            }
            // Submitters may have helped, and be outside of items.
            let left = hooks.remove_sync().unwrap();
            assert!(left <= submitters.len(), "{left}");
        }
        is_over.open();
        submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
        let (starts, stops) = COUNTS.get();
        assert!(starts >= ROUNDS);
        assert_eq!(starts, stops);
    });
}
