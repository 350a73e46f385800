//! Thread hooks. Each test runs in a process of its own, because hooks are for the whole process.

use std::cell::Cell;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use std::vec::Drain;

use crate::support::child::alone;
use crate::support::gate::Gate;
use crate::support::machine::cpus;
use crate::support::percpu::in_each_mode;
use crate::support::{self, received};
use uwork::percpu::{Bundle, PerCpu, PerCpuWork};
use uwork::rcu::RcuWork;
use uwork::threads::{self, Hooks, ThreadKind};
use uwork::{BoundedQueue, DelayedWork, ErrorKind, Queue, Report, Shutdown, Work};

/// What `f` returns in an item of this queue, on a worker.
fn on_worker<R: Send + 'static>(queue: &Queue, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = mpsc::channel();
    // A join could run the item on this thread.
    let _detached = queue.spawn(move || tell.send(f()));
    received(&told).expect("the item runs")
}

static REPORTS: OnceLock<Mutex<Sender<Report>>> = OnceLock::new();

/// The reports of this process.
fn reports() -> Receiver<Report> {
    let (tell, told) = mpsc::channel();
    REPORTS.set(Mutex::new(tell)).expect("called once in a process");
    let reporter = |report: &Report| {
        let sender = REPORTS.get().expect("set above").lock().expect("no panic under it");
        let _ = sender.send(report.clone());
    };
    uwork::set_reporter(reporter).expect("the first reporter");
    told
}

/// A thread's kind and queue, and whether it ends.
type Event = (ThreadKind, Option<String>, bool);

fn record_events() -> (Hooks<ThreadKind>, Receiver<Event>) {
    let (tell, told) = mpsc::channel();
    let tell_end = tell.clone();
    let hooks = threads::add_hooks(
        move |thread| {
            let _ = tell.send((thread.kind(), thread.queue().map(str::to_owned), false));
            thread.kind()
        },
        move |thread, kind| {
            assert_eq!(kind, thread.kind(), "the thread's own state");
            let _ = tell_end.send((kind, thread.queue().map(str::to_owned), true));
        },
    );
    (hooks, told)
}

fn until(events: &Receiver<Event>, wanted: &Event) {
    while received(events).expect("the wanted event comes") != *wanted {}
}

// Catches: a kind of thread that calls no hook, or a stop hook that is left out.
#[test]
fn every_kind_of_thread_calls_its_hooks() {
    alone("every_kind_of_thread_calls_its_hooks", || {
        let (hooks, events) = record_events();
        assert_eq!(hooks.missed(), 0);
        let shared = Queue::builder("shared").build().unwrap();
        assert_eq!(on_worker(&shared, move || hooks.with(|kind| *kind)), Some(ThreadKind::Worker));
        let bh = Queue::builder("bh").bh().build().unwrap();
        assert_eq!(on_worker(&bh, move || hooks.with(|kind| *kind)), Some(ThreadKind::Bh));
        assert_eq!(hooks.with(|kind| *kind), None, "this thread is the program's");

        let own = Queue::builder("own").dedicated().build().unwrap();
        assert_eq!(on_worker(&own, move || hooks.with(|kind| *kind)), Some(ThreadKind::Dedicated));
        drop(own);
        until(&events, &(ThreadKind::Dedicated, Some("own".to_owned()), true));

        let reclaim = Queue::builder("reclaim").mem_reclaim().build().unwrap();
        until(&events, &(ThreadKind::Rescuer, Some("reclaim".to_owned()), false));
        drop(reclaim);
        until(&events, &(ThreadKind::Rescuer, Some("reclaim".to_owned()), true));
    });
}

// Catches: a panic that ends the worker or leaves its pool without one; a stop hook that is called
// although its start panicked.
#[test]
fn a_hook_that_panics_is_reported_and_the_thread_goes_on() {
    alone("a_hook_that_panics_is_reported_and_the_thread_goes_on", || {
        let reports = reports();
        let before = threads::add_hooks(|_| 1, |_, _| panic!("at the end"));
        let panics = threads::add_hooks(
            |_| -> u32 { panic!("at the start") },
            |_, _| unreachable!("its start has panicked"),
        );
        let after = threads::add_hooks(|_| 3, |_, _| ());
        let own = Queue::builder("own").dedicated().build().unwrap();
        let states = move || [before.with(|n| *n), panics.with(|n| *n), after.with(|n| *n)];
        assert_eq!(on_worker(&own, states), [Some(1), None, Some(3)]);
        drop(own);
        let hook = |wanted: bool, text: &str| loop {
            let report = received(&reports).expect("the panic is reported");
            if let Report::HookPanicked { ends, message, .. } = report {
                assert_eq!((ends, message.as_str()), (wanted, text));
                break;
            }
        };
        hook(false, "at the start");
        hook(true, "at the end");
    });
}

// Catches: a hook that waits for an item of its own pool, which waits for the hook's thread.
#[test]
fn a_hook_may_queue_items_and_must_not_wait_for_them() {
    alone("a_hook_may_queue_items_and_must_not_wait_for_them", || {
        static QUEUE: OnceLock<Queue> = OnceLock::new();
        let reports = reports();
        let (ran, has_run) = mpsc::channel();
        // The worker of the pool of this queue is started already.
        QUEUE.set(Queue::builder("target").build().unwrap()).unwrap();
        threads::add_hooks(
            move |thread| {
                if thread.queue() == Some("own") {
                    let ran = ran.clone();
                    let _detached = QUEUE.get().unwrap().spawn(move || ran.send(()));
                    let _refused = QUEUE.get().unwrap().flush();
                }
            },
            |_, ()| (),
        );
        let own = Queue::builder("own").dedicated().build().unwrap();
        assert_eq!(on_worker(&own, || 42), 42);
        received(&has_run).expect("the queued item runs");
        let refused = |report: Report| match report {
            Report::HookPanicked { message, .. } => {
                assert!(message.contains("it may queue them"), "{message}");
                true
            }
            _ => false,
        };
        while !refused(received(&reports).expect("the wait is refused")) {}
    });
}

// Catches: a declared block that is refused as if it waited for an item: a start hook that connects to a
// database by a helper with `blocking` would leave its thread without a state.
#[test]
fn a_hook_may_declare_a_block() {
    alone("a_hook_may_declare_a_block", || {
        let (tell, told) = mpsc::channel();
        let stop = move |_: threads::Thread<'_>, state| {
            tell.send(uwork::blocking(|| state)).unwrap();
        };
        let start = |_: threads::Thread<'_>| uwork::blocking(|| 42);
        let hooks = [threads::add_hooks(start, stop.clone()), threads::add_lazy_hooks(start, stop)];
        let shared = Queue::builder("shared").build().unwrap();
        let bh = Queue::builder("bh").bh().build().unwrap();
        for queue in [&shared, &bh] {
            let states = move || hooks.map(|hooks| hooks.with(|&state| state));
            assert_eq!(on_worker(queue, states), [Some(42), Some(42)]);
        }
        for hooks in hooks {
            assert_eq!(hooks.remove_sync().unwrap(), 0);
        }
        assert!(told.try_iter().filter(|&state| state == 42).count() >= 4);
    });
}

/// Items of each kind in a static.
struct Idle {
    work: Work<Idle>,
    delayed: DelayedWork<Idle, 1>,
    graced: RcuWork<Idle, 2>,
}
uwork::has_work!(impl HasWork for Idle { work });
uwork::has_work!(impl HasDelayedWork<1> for Idle { delayed });
uwork::has_work!(impl HasRcuWork<2> for Idle { graced });
impl<const ID: u64> uwork::WorkItem<ID> for Idle
where
    Idle: uwork::HasWork<ID>,
{
    type Pointer = &'static Idle;
    fn run(_this: &'static Idle) {}
}

type Wait<'a> = Box<dyn FnOnce() + 'a>;

/// Every call that may wait for an item, by name.
fn waits(queue: &Queue, hooks: Hooks<()>) -> Vec<(&'static str, Wait<'_>)> {
    let bounded = || BoundedQueue::new(queue, 1).expect("a place is allowed");
    static IDLE: Idle =
        Idle { work: Work::new(), delayed: DelayedWork::new(), graced: RcuWork::new() };
    let cpu = cpus()[0];
    let limit = Duration::from_secs(60);
    vec![
        ("flush", Box::new(|| _ = queue.flush())),
        ("flush_timeout", Box::new(move || _ = queue.flush_timeout(limit))),
        ("drain", Box::new(|| _ = queue.drain())),
        ("destroy", Box::new(|| _ = queue.destroy())),
        ("pause", Box::new(|| _ = queue.pause())),
        ("pause_timeout", Box::new(move || _ = queue.pause_timeout(limit))),
        ("flush of an item", Box::new(|| _ = IDLE.work.flush())),
        ("flush_helping", Box::new(|| _ = IDLE.work.flush_helping())),
        ("cancel_sync", Box::new(|| _ = IDLE.work.cancel_sync())),
        ("disable_sync", Box::new(|| _ = IDLE.work.disable_sync())),
        ("flush of a delayed item", Box::new(|| _ = IDLE.delayed.flush())),
        ("cancel_sync of one", Box::new(|| _ = IDLE.delayed.cancel_sync())),
        ("disable_sync of one", Box::new(|| _ = IDLE.delayed.disable_sync())),
        ("flush of an RCU item", Box::new(|| _ = IDLE.graced.flush())),
        ("cancel_sync of one", Box::new(|| _ = IDLE.graced.cancel_sync())),
        ("disable_sync of one", Box::new(|| _ = IDLE.graced.disable_sync())),
        ("flush of a per-CPU item", Box::new(move || _ = PerCpuWork::new(cpu, |_| ()).flush())),
        ("remove_sync", Box::new(move || _ = hooks.remove_sync())),
        ("join", Box::new(|| _ = queue.spawn_future(pending::<()>()).join())),
        ("join_waiting", Box::new(|| _ = queue.spawn_future(pending::<()>()).join_waiting())),
        ("scope", Box::new(|| uwork::scope(queue, |scope| drop(scope.spawn(|| ()))))),
        ("scope with a join", Box::new(|| uwork::scope(queue, |s| _ = s.spawn(|| ()).join()))),
        ("on_stack", Box::new(|| uwork::on_stack(|_| (), |item| _ = item.enqueue(queue)))),
        ("work_on_cpu", Box::new(move || _ = uwork::work_on_cpu(cpu, || ()))),
        ("on_each_cpu", Box::new(|| _ = uwork::on_each_cpu(|_| ()))),
        ("drain_all", Box::new(|| _ = Bundle::new(1, |_: Drain<'_, u32>| ()).drain_all())),
        ("reserve", Box::new(move || _ = bounded().reserve())),
        ("reserve_timeout", Box::new(move || _ = bounded().reserve_timeout(limit))),
        ("bounded spawn", Box::new(move || _ = bounded().spawn(|| ()))),
        ("bounded spawn_timeout", Box::new(move || _ = bounded().spawn_timeout(|| (), limit))),
        ("shutdown", Box::new(move || _ = uwork::shutdown(Shutdown::Drain, limit))),
    ]
}

// Catches: a wait in a hook that hangs, because the awaited item needs the hook's thread; a refused
// call that has had an effect; a drop that waits.
#[test]
fn every_wait_is_refused_in_a_hook_and_the_drop_of_a_queue_does_not_wait() {
    let test = "every_wait_is_refused_in_a_hook_and_the_drop_of_a_queue_does_not_wait";
    in_each_mode(test, || {
        let (tell, told) = mpsc::channel();
        let gate = Gate::new();
        let held = gate.clone();
        let others = threads::add_lazy_hooks(|_| (), |_, ()| ());
        threads::add_hooks(
            move |thread| {
                if thread.queue() != Some("own") {
                    return;
                }
                let target = Queue::builder("target").build().unwrap();
                for (name, wait) in waits(&target, others) {
                    let outcome = catch_unwind(AssertUnwindSafe(wait));
                    let message = outcome.err().and_then(|it| it.downcast_ref::<&str>().copied());
                    tell.send((name, message)).unwrap();
                }
                // No refused call has closed or paused it.
                let held = held.clone();
                target.execute(move || held.wait()).unwrap();
                use_other_cpus();
                drop(target);
                tell.send(("drop", None)).unwrap();
            },
            |_, ()| (),
        );
        let own = Queue::builder("own").dedicated().build().unwrap();
        loop {
            match received(&told).expect("the hook goes on") {
                ("drop", None) => break,
                (name, message) => {
                    let message = message.unwrap_or_else(|| panic!("{name} is not refused"));
                    assert!(message.contains("it may queue them"), "{name}: {message}");
                }
            }
        }
        gate.open();
        support::until("the dropped queue has ended", || Queue::builder("target").build().is_ok());
        assert_eq!(on_worker(&own, || 42), 42);
    });
}

/// Each access to data of other CPUs, for which a worker of that CPU would have to come in mode 0. Here
/// none does.
fn use_other_cpus() {
    let data = PerCpu::new(|cpu| cpu);
    for cpu in data.cpus() {
        assert_eq!(*data.lock(cpu).unwrap(), cpu);
        assert_eq!(*data.try_lock(cpu).unwrap(), cpu);
        assert_eq!(data.with(cpu, |part| *part).unwrap(), cpu);
    }
    data.for_each(|cpu, part| assert_eq!(*part, cpu)).unwrap();
    assert!(data.cpus().contains(&*data.lock_local().unwrap()));
    let bundle = Bundle::new(2, |_: Drain<'_, u32>| ());
    bundle.add(1);
    // What is left goes to the sink.
    drop((data, bundle));
}

// Catches: a half of a hook's join, taken by a thread that came for a half of the item around: the hook
// would have to wait for it.
#[test]
fn a_join_in_a_hook_runs_both_halves_on_its_thread() {
    alone("a_join_in_a_hook_runs_both_halves_on_its_thread", || {
        let queue = Queue::builder("joins").build().unwrap();
        for _ in 0..30 {
            let hooks = threads::add_lazy_hooks(
                |_| {
                    let second = AtomicUsize::new(0);
                    // Long enough for a thief on its way.
                    let first = || {
                        let enough = Instant::now() + Duration::from_millis(20);
                        while second.load(Ordering::SeqCst) == 0 && Instant::now() < enough {
                            thread::yield_now();
                        }
                        second.load(Ordering::SeqCst)
                    };
                    let here = thread::current().id();
                    let (begun, ran_on) = uwork::join(first, || {
                        second.store(1, Ordering::SeqCst);
                        thread::current().id()
                    });
                    begun == 0 && ran_on == here
                },
                |_, _| (),
            );
            // The join around asks for a worker, which takes the second half and looks for more.
            let in_place = on_worker(&queue, move || {
                let (in_place, ()) = uwork::join(|| hooks.with(|&in_place| in_place), || ());
                in_place
            });
            assert_eq!(in_place, Some(true));
            hooks.remove();
        }
    });
}

// Catches: a hook that holds up threads, queues or calls beside its own pool, and items that are
// lost behind it.
#[test]
fn a_hook_that_blocks_holds_up_its_own_pool_only() {
    alone("a_hook_that_blocks_holds_up_its_own_pool_only", || {
        let (at_start, at_stop, gate) = (Gate::new(), Gate::new(), Gate::new());
        let (started, stopped, held) = (at_start.clone(), at_stop.clone(), gate.clone());
        let hold = gate.clone();
        let hooks = threads::add_hooks(
            move |thread| {
                if thread.queue() == Some("slow") {
                    started.open();
                    held.wait();
                }
            },
            move |thread, ()| {
                if thread.queue() == Some("slow to stop") {
                    stopped.open();
                    hold.wait();
                }
            },
        );
        let slow = Queue::builder("slow").dedicated().build().unwrap();
        let ending = Queue::builder("slow to stop").dedicated().build().unwrap();
        assert_eq!(on_worker(&ending, move || hooks.with(|()| ())), Some(()));
        // Does not wait for the hook.
        drop(ending);
        let (ran, has_run) = mpsc::channel();
        let _detached = slow.spawn(move || ran.send(hooks.with(|()| ())));
        at_start.wait();
        at_stop.wait();
        let others = [
            Queue::builder("shared").build().unwrap(),
            Queue::builder("bh").bh().build().unwrap(),
            Queue::builder("own").dedicated().build().unwrap(),
            Queue::builder("ordered").ordered().build().unwrap(),
        ];
        for queue in &others {
            for _ in 0..100 {
                assert_eq!(on_worker(queue, move || hooks.with(|()| ())), Some(()));
            }
            queue.flush().unwrap();
        }
        drop(others);
        // What waits behind the hook can be taken back, and other hooks come and go.
        let back = slow.spawn(|| unreachable!("it is cancelled"));
        assert!(back.cancel());
        let late = slow.flush_timeout(Duration::from_millis(1)).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        threads::add_hooks(|_| (), |_, ()| ()).remove();
        assert_eq!(has_run.try_recv(), Err(mpsc::TryRecvError::Empty));
        gate.open();
        assert_eq!(received(&has_run), Ok(Some(())));
    });
}

// Catches: a hook that only threads call which start later, a removed hook that is called again, and a
// late hook that is called for a thread's end only.
#[test]
fn hooks_that_are_added_late_are_called_on_threads_that_run_already() {
    alone("hooks_that_are_added_late_are_called_on_threads_that_run_already", || {
        let own = Queue::builder("own").dedicated().build().unwrap();
        let worker = on_worker(&own, || std::thread::current().id());
        let (tell, told) = mpsc::channel();
        let late = threads::add_hooks(
            |_| std::thread::current().id(),
            move |thread, started| {
                if thread.queue() == Some("own") {
                    assert_eq!(started, std::thread::current().id());
                    tell.send(started).unwrap();
                }
            },
        );
        assert_eq!(late.missed(), 0);
        assert_eq!(on_worker(&own, move || late.with(|id| *id)), Some(worker));
        late.remove();
        assert_eq!(received(&told), Ok(worker), "the thread lives on, and calls the stop hook");
        assert_eq!(on_worker(&own, move || late.with(|_| ())), None);
        let next = Queue::builder("next").dedicated().build().unwrap();
        assert_eq!(on_worker(&next, move || late.with(|_| ())), None);
        drop(own);
        assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Empty), "it was called once");
    });
}

// Catches: a hook of which a thread calls one half, or which it calls twice.
#[test]
fn hooks_change_while_threads_start() {
    const ROUNDS: usize = 60;
    alone("hooks_change_while_threads_start", || {
        static INSIDE: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static ROUND: Cell<usize> = const { Cell::new(0) };
        }
        // Outlives the others, and tells when a thread has called all of them.
        let (end, ended) = mpsc::channel();
        let end = Mutex::new(end);
        threads::add_hooks(
            |_| (),
            move |thread, ()| {
                if thread.queue().is_some() {
                    end.lock().unwrap().send(ROUND.get()).unwrap();
                }
            },
        );
        let changer = std::thread::spawn(|| {
            for _ in 0..ROUNDS {
                let hooks = threads::add_hooks(
                    |_| {
                        INSIDE.fetch_add(1, Ordering::SeqCst);
                        ROUND.set(ROUND.get() + 1);
                        Arc::new(())
                    },
                    |_, state| {
                        assert_eq!(Arc::strong_count(&state), 1);
                        INSIDE.fetch_sub(1, Ordering::SeqCst);
                        ROUND.set(ROUND.get() - 1);
                    },
                );
                std::thread::yield_now();
                hooks.remove();
            }
        });
        for round in 0..ROUNDS {
            let name = format!("rescued{round}");
            drop(Queue::builder(name).mem_reclaim().build().unwrap());
        }
        changer.join().unwrap();
        for _ in 0..ROUNDS {
            assert_eq!(received(&ended).expect("a rescuer ends"), 0);
        }
    });
}
