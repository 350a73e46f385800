//! Functions that run on one CPU, and on each CPU.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::child::alone;
use crate::support::machine::{cpus, current_cpu, two_cpus};
use crate::support::{queue, watchdog, within};
use uwork::{ErrorKind, on_each_cpu, work_on_cpu};

// Catches: a CPU that is skipped or served twice, a function that runs elsewhere, a return before
// the end.
#[test]
fn each_cpu_runs_the_function_once_on_itself() {
    let _watchdog = watchdog();
    let all = cpus();
    for _ in 0..20 {
        let seen = Mutex::new(BTreeMap::new());
        on_each_cpu(|cpu| {
            assert_eq!(current_cpu(), cpu);
            std::thread::yield_now();
            *seen.lock().unwrap().entry(cpu).or_insert(0) += 1;
        })
        .unwrap();
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), all);
        assert!(seen.values().all(|&times| times == 1), "{seen:?}");
    }
}

// Catches: a result that is lost, data that cannot be borrowed, a function that runs on the
// caller's CPU.
#[test]
fn work_on_cpu_runs_there_and_returns_the_result() {
    let _watchdog = watchdog();
    for cpu in cpus() {
        let borrowed = [1, 2, 3];
        let mut changed = 0;
        let owned = String::from("moved");
        let (sum, seen, thread, name) = work_on_cpu(cpu, || {
            changed += 1;
            let thread = std::thread::current().id();
            (borrowed.iter().sum::<i32>(), current_cpu(), thread, owned)
        })
        .unwrap();
        assert_eq!((sum, seen, changed, name.as_str()), (6, cpu, 1, "moved"));
        assert_ne!(thread, std::thread::current().id());
    }
}

// Catches: a panic that is swallowed, that ends the worker, or that prevents the others from
// finishing.
#[test]
fn panics_are_reported_and_propagated_when_all_have_finished() {
    alone("panics_are_reported_and_propagated_when_all_have_finished", || {
        let _watchdog = watchdog();
        let cpu = cpus()[0];
        let before = uwork::panics();
        let outcome = catch_unwind(|| work_on_cpu(cpu, || panic!("alone")));
        assert_eq!(*outcome.unwrap_err().downcast_ref::<&str>().unwrap(), "alone");
        assert_eq!(uwork::panics(), before + 1);

        let finished = Mutex::new(Vec::new());
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            on_each_cpu(|at| {
                if at == cpu {
                    panic!("on the first");
                }
                finished.lock().unwrap().push(at);
            })
        }));
        assert_eq!(*outcome.unwrap_err().downcast_ref::<&str>().unwrap(), "on the first");
        assert_eq!(finished.into_inner().unwrap().len(), cpus().len() - 1);
        assert_eq!(uwork::panics(), before + 2);
        assert_eq!(work_on_cpu(cpu, || 3), Ok(3), "the worker goes on");
    });
}

// Catches: a payload that is not propagated, whose destructor panics while the caller unwinds, which
// ends the process. The caller gets the payload that is propagated, and drops or forgets it.
#[test]
fn payloads_that_are_not_propagated_are_dropped_before_the_caller_unwinds() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::SeqCst);
            panic!("on purpose, in the payload's destructor");
        }
    }
    if two_cpus().is_none() {
        return;
    }
    alone("payloads_that_are_not_propagated_are_dropped_before_the_caller_unwinds", || {
        let _watchdog = watchdog();
        let outcome = catch_unwind(|| on_each_cpu(|_| panic_any(PanicsWhenDropped)));
        std::mem::forget(outcome.unwrap_err());
        assert_eq!(DROPPED.load(Ordering::SeqCst), cpus().len() - 1);
        assert_eq!(work_on_cpu(cpus()[0], || 4), Ok(4), "the worker goes on");
    });
}

// Catches: a wait for a permit that the caller itself holds.
#[test]
fn a_function_on_a_cpu_cannot_wait_for_another() {
    let _watchdog = watchdog();
    let first = cpus()[0];
    let answers = within("nested calls", move || {
        let inside = || {
            let each = on_each_cpu(|_| unreachable!("refused")).unwrap_err();
            let one = work_on_cpu::<_, ()>(first, || unreachable!("refused")).unwrap_err();
            (each.kind(), one.would_deadlock())
        };
        let answers = Mutex::new(vec![work_on_cpu(first, inside).unwrap()]);
        on_each_cpu(|_| {
            let answer = inside();
            answers.lock().unwrap().push(answer);
        })
        .unwrap();
        answers.into_inner().unwrap()
    });
    assert_eq!(answers.len(), 1 + cpus().len());
    assert!(answers.iter().all(|&answer| answer == (ErrorKind::WouldDeadlock, true)));
}

// Catches: a wait that is not declared: the per-CPU items of this CPU would never start.
#[test]
fn items_of_any_queue_may_call_it() {
    let _watchdog = watchdog();
    for builder in [
        queue("cpus"),
        queue("cpus").per_cpu(),
        queue("cpus").ordered(),
        queue("cpus").max_active(1),
    ] {
        let queue = builder.build().unwrap();
        for cpu in cpus() {
            let job = queue.spawn(move || {
                let seen = Mutex::new(0);
                on_each_cpu(|_| *seen.lock().unwrap() += 1).unwrap();
                (work_on_cpu(cpu, current_cpu).unwrap(), seen.into_inner().unwrap())
            });
            let seen = within("a call from an item", move || job.join()).unwrap();
            assert_eq!(seen, (cpu, cpus().len()));
        }
    }
}
