//! Every mode in one process: each value has its own mode here, independent of the process's.

mod bundle;
mod cache;
#[path = "../../../uwork/tests/support/counting.rs"]
pub(super) mod counting;
mod drain;
#[allow(dead_code, reason = "others use all of it")]
#[path = "../../../uwork/tests/support/guard.rs"]
mod guard;
#[allow(dead_code, reason = "others use all of it")]
#[path = "../../../uwork/tests/support/slow.rs"]
mod slow;
mod storm;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use uwork_linux::{engine, rseq::Rseq};
use uwork_policy::cpuset::CpuSet;

use super::{Cache, Counter, LockError, Mode, PerCpu};
use uwork_linux::ErrorKind;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

/// The modes that this machine supports.
pub(super) fn modes() -> impl Iterator<Item = Mode> {
    let (_, sections) = Rseq::new();
    Mode::ALL.into_iter().filter(move |mode| sections.is_ok() || !mode.needs_sections())
}

/// The CPUs that the process may use.
pub(super) fn cpus() -> Vec<u32> {
    engine().cpus().allowed.iter().collect()
}

/// Pins the calling thread to these CPUs.
fn pin(cpus: &CpuSet) {
    let outcome = set_mask(0, cpus);
    assert!(outcome.is_ok(), "cannot be kept on CPUs {cpus}: {outcome:?}");
}

/// Pins another thread, if it still exists.
fn pin_other(thread: libc::pid_t, cpus: &CpuSet) {
    if let Err(error) = set_mask(thread, cpus) {
        assert_eq!(
            error.raw_os_error(),
            Some(libc::ESRCH),
            "cannot be kept on CPUs {cpus}: {error}"
        );
    }
}

fn set_mask(thread: libc::pid_t, cpus: &CpuSet) -> std::io::Result<()> {
    let mut mask = vec![0_u64; cpus.last().expect("a CPU") as usize / 64 + 1];
    cpus.iter().for_each(|cpu| mask[cpu as usize / 64] |= 1 << (cpu % 64));
    let size = size_of_val(&mask[..]);
    // SAFETY: the mask is live and of the given length.
    let outcome = unsafe { libc::sched_setaffinity(thread, size, mask.as_ptr().cast()) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Runs `f` on a thread that is pinned to `cpu`.
pub(super) fn on_cpu<R: Send>(cpu: u32, f: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let pinned = scope.spawn(move || {
            pin(&CpuSet::single(cpu));
            f()
        });
        pinned.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
    })
}

#[test]
fn every_part_is_reached_from_everywhere() {
    for mode in modes() {
        let data = PerCpu::in_mode(mode, |cpu| cpu);
        for from in cpus() {
            on_cpu(from, || {
                for cpu in data.cpus() {
                    let mut part = data.lock(cpu).unwrap();
                    assert_eq!(part.cpu(), cpu);
                    *part += 1000;
                    drop(part);
                    *data.try_lock(cpu).unwrap() += 1000;
                    assert_eq!(data.with(cpu, |part| *part % 1000).unwrap(), cpu);
                }
                assert_eq!(data.lock_local().unwrap().cpu(), from);
                assert_eq!(data.try_lock_local().unwrap().cpu(), from);
            });
        }
        let visits = AtomicU32::new(0);
        data.for_each(|cpu, part| {
            assert_eq!(*part, cpu + 2000 * cpus().len() as u32, "mode {mode}");
            visits.fetch_add(1, Ordering::Relaxed);
        })
        .unwrap();
        assert_eq!(visits.into_inner(), data.cpus().len() as u32);
        assert_eq!(
            data.into_inner().len() as u32,
            engine().config().topology.possible().last().unwrap() + 1
        );
    }
}

#[test]
fn a_cpu_that_does_not_exist_is_refused() {
    for mode in modes() {
        let data = PerCpu::in_mode(mode, |_| ());
        for cpu in [data.cpus().end, u32::MAX] {
            for error in [
                data.lock(cpu).map(drop).unwrap_err().to_string(),
                data.try_lock(cpu).map(drop).unwrap_err().to_string(),
                data.with(cpu, |()| ()).unwrap_err().to_string(),
                data.clear_poison(cpu).unwrap_err().to_string(),
            ] {
                assert!(error.contains(&format!("CPU {cpu}")), "{error}");
            }
        }
    }
}

#[test]
fn taking_a_held_lock_again_is_an_error_without_effect() {
    for mode in modes() {
        let data = PerCpu::in_mode(mode, |_| 0);
        let own = cpus()[0];
        on_cpu(own, || {
            let mut guard = data.lock_local().unwrap();
            assert!(data.lock_local().unwrap_err().would_deadlock(), "mode {mode}");
            assert!(matches!(data.try_lock_local(), Err(LockError::Busy)));
            assert!(data.lock(own).unwrap_err().would_deadlock());
            assert!(data.try_lock(own).unwrap_err().would_deadlock());
            assert!(data.with(own, |_| ()).unwrap_err().would_deadlock());
            // The others are visited all the same.
            let error = data.for_each(|_, part| *part += 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldDeadlock);
            *guard += 10;
        });
        let values = data.into_inner();
        let wanted = |cpu| if cpu == own { 10 } else { 1 };
        assert!(values.iter().zip(0..).all(|(value, cpu)| *value == wanted(cpu)), "{values:?}");
    }
}

/// In mode 0 a worker of that CPU requests the lock on behalf of its waiter.
#[test]
fn taking_another_cpus_lock_twice_is_an_error() {
    let cpus = cpus();
    let [from, cpu, ..] = cpus[..] else { return eprintln!("one CPU: nothing to be seen") };
    for mode in modes() {
        let data = PerCpu::in_mode(mode, |_| ());
        on_cpu(from, || {
            let guard = data.lock(cpu).unwrap();
            assert!(data.lock(cpu).unwrap_err().would_deadlock(), "mode {mode}");
            assert!(data.with(cpu, |()| ()).unwrap_err().would_deadlock());
            assert!(data.for_each(|_, ()| ()).unwrap_err().would_deadlock());
            drop(guard);
            data.lock(cpu).map(drop).unwrap();
        });
    }
}

#[test]
fn a_lock_of_another_holder_is_busy() {
    for mode in modes() {
        let data = PerCpu::in_mode(mode, |_| ());
        for cpu in cpus() {
            let guard = data.lock(cpu).unwrap();
            on_cpu(cpu, || {
                assert!(matches!(data.try_lock_local(), Err(LockError::Busy)), "mode {mode}");
                assert!(matches!(data.try_lock(cpu), Err(LockError::Busy)));
            });
            for from in cpus() {
                on_cpu(from, || assert!(matches!(data.try_lock(cpu), Err(LockError::Busy))));
            }
            drop(guard);
            on_cpu(cpu, || data.try_lock_local().map(drop).unwrap());
        }
    }
}

#[test]
fn a_panic_poisons_that_cpus_part_only() {
    for mode in modes() {
        let data = PerCpu::in_mode(mode, |_| 0);
        let cpu = cpus()[0];
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let mut guard = data.lock(cpu).unwrap();
                *guard = 1;
                panic!("on purpose");
            });
            assert!(holder.join().is_err());
        });
        let Err(LockError::Poisoned(guard)) = data.lock(cpu) else { panic!("mode {mode}") };
        assert_eq!((*guard, guard.cpu()), (1, cpu));
        drop(guard);
        assert!(matches!(data.with(cpu, |_| ()), Err(LockError::Poisoned(()))));
        on_cpu(cpu, || assert!(matches!(data.lock_local(), Err(LockError::Poisoned(_)))));
        for other in data.cpus().filter(|&other| other != cpu) {
            assert_eq!(*data.lock(other).unwrap(), 0);
        }
        data.clear_poison(cpu).unwrap();
        assert_eq!(*data.lock(cpu).unwrap(), 1);
    }
}

#[test]
fn a_panic_in_a_visit_propagates_and_poisons_that_part() {
    for mode in modes() {
        let data = PerCpu::in_mode(mode, |_| ());
        for from in cpus() {
            let cpu = *cpus().last().unwrap();
            let visit = || drop(data.with(cpu, |()| panic!("on purpose")));
            let outcome =
                on_cpu(from, || std::panic::catch_unwind(std::panic::AssertUnwindSafe(visit)));
            assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"on purpose"));
            assert!(matches!(data.lock(cpu), Err(LockError::Poisoned(_))), "mode {mode}");
            data.clear_poison(cpu).unwrap();
        }
    }
}

/// A guard that is made and dropped while its thread panics is unrelated to the panic.
#[test]
fn a_guard_of_a_destructor_does_not_poison() {
    struct Adds<'a>(&'a PerCpu<u32>);
    impl Drop for Adds<'_> {
        fn drop(&mut self) {
            *self.0.lock(0).unwrap() += 1;
        }
    }
    for mode in modes() {
        let data = PerCpu::in_mode(mode, |_| 0);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _adds = Adds(&data);
            panic!("on purpose");
        }));
        assert!(outcome.is_err());
        assert_eq!(*data.lock(0).unwrap(), 1);
    }
}

#[test]
fn a_holder_that_moves_keeps_the_lock_that_it_took() {
    let cpus = cpus();
    let [first, second, ..] = cpus[..] else { return eprintln!("one CPU: nothing to be seen") };
    for mode in modes() {
        let data = PerCpu::in_mode(mode, |_| 0);
        let (held, looked) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn({
                let (data, held, looked) = (&data, &held, &looked);
                move || {
                    pin(&CpuSet::single(first));
                    let mut guard = data.lock_local().unwrap();
                    pin(&CpuSet::single(second));
                    assert_eq!(guard.cpu(), first);
                    *guard += 1;
                    held.wait();
                    looked.wait();
                }
            });
            held.wait();
            on_cpu(first, || assert!(matches!(data.try_lock_local(), Err(LockError::Busy))));
            on_cpu(second, || assert_eq!(*data.try_lock_local().unwrap(), 0, "mode {mode}"));
            looked.wait();
        });
        assert_eq!(*data.lock(first).unwrap(), 1);
    }
}

/// In mode 0 a visit holds a permit of the queue that other visits wait for.
#[test]
fn a_visit_may_visit() {
    for mode in modes() {
        let (outer, inner) = (PerCpu::in_mode(mode, |_| 0), PerCpu::in_mode(mode, |_| 0));
        let adds = |_, part: &mut u32| {
            *part += 1;
            inner.for_each(|_, part| *part += 1).unwrap();
        };
        outer.for_each(adds).unwrap();
        let cpus = outer.cpus().end;
        assert!(outer.into_inner().iter().all(|&part| part == 1), "mode {mode}");
        assert!(inner.into_inner().iter().all(|&part| part == cpus), "mode {mode}");
    }
}

/// The kernel records the CPU of a thread only if its area is registered.
#[test]
fn a_thread_without_sections_takes_its_locks_by_force() {
    let (_, sections) = Rseq::new();
    if let Err(why) = sections {
        return eprintln!("no sections here: {why}");
    }
    for mode in modes() {
        let data = PerCpu::in_mode(mode, |_| 0);
        let cache = Cache::<[u8; 64]>::in_mode(mode);
        let counter = Counter::in_mode(mode);
        thread::scope(|scope| {
            scope.spawn(|| {
                Rseq::new().0.unregister_this_thread();
                let cpu = cpus()[0];
                pin(&CpuSet::single(cpu));
                let mut guard = data.lock_local().unwrap();
                *guard += 1;
                assert_eq!(guard.cpu(), cpu);
                assert!(data.lock_local().unwrap_err().would_deadlock(), "mode {mode}");
                drop(guard);
                drop(cache.alloc([1; 64]));
                counter.add(1);
            });
        });
        assert_eq!(data.into_inner().iter().sum::<i32>(), 1);
        assert_eq!((counter.sum(), cache.stats().out), (1, 0));
    }
}
