//! Work on one CPU's data, in each mode: where it runs, and what a flush of it waits for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use crate::support::gate::Gate;
use crate::support::machine::{cpus, in_the_wait, on_cpu};
use crate::support::percpu::in_each_mode;
use crate::support::{queue, watchdog};
use uwork::ErrorKind;
use uwork::percpu::{Mode, PerCpu, PerCpuWork, is_cpu_remote, mode};

#[test]
fn per_cpu_work_runs_on_its_cpu_or_in_the_call_according_to_the_mode() {
    let _watchdog = watchdog();
    in_each_mode("per_cpu_work_runs_on_its_cpu_or_in_the_call_according_to_the_mode", per_cpu_work);
}

fn per_cpu_work() {
    let queue = queue("percpu").per_cpu().build().unwrap();
    let data = Arc::new(PerCpu::new(|_| 0));
    for (cpu, from) in
        cpus().into_iter().flat_map(|cpu| cpus().into_iter().map(move |from| (cpu, from)))
    {
        let ran_on = Arc::new(AtomicU64::new(u64::MAX));
        let work = PerCpuWork::new(cpu, {
            let (data, ran_on) = (data.clone(), ran_on.clone());
            move |cpu| {
                let mut part = data.lock(cpu).expect("no panic under it");
                assert_eq!(part.cpu(), cpu);
                *part += 1;
                // SAFETY: no arguments.
                ran_on.store(unsafe { libc::sched_getcpu() } as u64, Ordering::Relaxed);
            }
        });
        on_cpu(from, || {
            assert!(work.queue_on(cpu, &queue).unwrap());
            work.flush();
            assert_eq!(is_cpu_remote(cpu), mode() != Mode::Local && cpu != from);
        });
        let wanted = if mode() == Mode::Local { cpu } else { from };
        assert_eq!(ran_on.load(Ordering::Relaxed), u64::from(wanted), "mode {}", mode());
        assert_eq!(work.cpu(), cpu);
        for wrong in [cpu + 1, u32::MAX] {
            assert_eq!(work.queue_on(wrong, &queue).unwrap_err().kind(), ErrorKind::BadCpu);
        }
    }
    let runs = cpus().len() * cpus().len();
    let data = Arc::into_inner(data).expect("no work has it any more");
    assert_eq!(data.into_inner().into_iter().sum::<usize>(), runs);

    let before = uwork::panics();
    let work = PerCpuWork::new(cpus()[0], |_| panic!("on purpose"));
    assert!(work.queue_on(cpus()[0], &queue).unwrap());
    work.flush();
    assert_eq!(uwork::panics(), before + 1);

    let work = PerCpuWork::new(cpus()[0], |_| std::panic::panic_any(PanicsWhenDropped));
    assert!(work.queue_on(cpus()[0], &queue).unwrap(), "the payload's panic stays inside");
    work.flush();
    assert_eq!(uwork::panics(), before + 2);
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

/// It would run on another CPU in mode 0, without notice.
#[test]
fn a_queue_that_cannot_run_work_on_its_cpu_is_refused() {
    let _watchdog = watchdog();
    in_each_mode("a_queue_that_cannot_run_work_on_its_cpu_is_refused", || {
        let runs = Arc::new(AtomicU64::new(0));
        let cpu = cpus()[0];
        let work = PerCpuWork::new(cpu, {
            let runs = runs.clone();
            move |_| {
                runs.fetch_add(1, Ordering::Relaxed);
            }
        });
        let queues = [
            queue("unbound").build().unwrap(),
            queue("ordered").ordered().build().unwrap(),
            queue("bh").bh().build().unwrap(),
        ];
        let mut wanted = 0;
        for (queue, is_per_cpu) in queues.iter().zip([false, false, true]) {
            match work.queue_on(cpu, queue) {
                Ok(queued) => {
                    assert!(queued && (is_per_cpu || mode() != Mode::Local));
                    wanted += 1;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotForThisKind);
                    assert!(!is_per_cpu && mode() == Mode::Local);
                }
            }
            work.flush();
            assert_eq!(runs.load(Ordering::Relaxed), wanted);
        }
    });
}

/// In all modes; in modes 1 and 2 the function runs in another thread's call.
#[test]
fn a_flush_waits_for_the_function_that_another_thread_is_in() {
    let _watchdog = watchdog();
    in_each_mode("a_flush_waits_for_the_function_that_another_thread_is_in", || {
        let queue = queue("percpu").per_cpu().build().unwrap();
        let cpu = cpus()[0];
        let (is_in, go) = (Gate::new(), Gate::new());
        let runs = Arc::new(AtomicU64::new(0));
        let work = Arc::new(PerCpuWork::new(cpu, {
            let (is_in, go, runs) = (is_in.clone(), go.clone(), runs.clone());
            move |_| {
                is_in.open();
                go.wait_blocking();
                runs.fetch_add(1, Ordering::Relaxed);
            }
        }));
        let other = PerCpuWork::new(cpu, |_| ());
        let caller = thread::spawn({
            let (work, queue) = (work.clone(), queue.clone());
            move || work.queue_on(cpu, &queue).unwrap()
        });
        is_in.wait();
        assert!(!other.flush(), "of another item");
        let flush = in_the_wait({
            let (work, runs) = (work.clone(), runs.clone());
            move || (work.flush(), runs.load(Ordering::Relaxed))
        });
        go.open();
        assert_eq!(flush.result(), (true, 1));
        assert!(caller.join().unwrap());
        assert!(!work.flush(), "it is over");
    });
}

#[test]
fn a_flush_in_the_function_itself_waits_for_nothing() {
    let _watchdog = watchdog();
    in_each_mode("a_flush_in_the_function_itself_waits_for_nothing", || {
        let queue = queue("percpu").per_cpu().build().unwrap();
        let cpu = cpus()[0];
        let this = Arc::new(OnceLock::<PerCpuWork>::new());
        let runs = Arc::new(AtomicU64::new(0));
        let work = PerCpuWork::new(cpu, {
            let (this, runs) = (Arc::downgrade(&this), runs.clone());
            move |_| {
                let this = this.upgrade().expect("it is in use");
                assert!(!this.get().expect("set before it is queued").flush());
                runs.fetch_add(1, Ordering::Relaxed);
            }
        });
        let work = this.get_or_init(|| work);
        assert!(work.queue_on(cpu, &queue).unwrap());
        work.flush();
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    });
}
