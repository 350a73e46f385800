//! Every mode in one process: the mode of a value is its own here, whatever the process's is.

mod drain;
#[allow(dead_code, reason = "others use all of it")]
#[path = "../../../tests/support/slow.rs"]
mod slow;
mod storm;

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use uwork_policy::cpuset::CpuSet;

use super::{Batch, Cache, Counter, LockError, Mode, PerCpu};
use crate::ErrorKind;
use crate::linux::{engine, rseq::Rseq};

/// The modes that this machine can have.
pub(super) fn modes() -> impl Iterator<Item = Mode> {
    let (_, sections) = Rseq::new();
    Mode::ALL.into_iter().filter(move |mode| sections.is_ok() || !mode.needs_sections())
}

/// The CPUs that the process may use.
fn cpus() -> Vec<u32> {
    engine().cpus().allowed.iter().collect()
}

/// Keeps the calling thread on these CPUs.
fn pin(cpus: &CpuSet) {
    let outcome = set_mask(0, cpus);
    assert!(outcome.is_ok(), "cannot be kept on CPUs {cpus}: {outcome:?}");
}

/// The same with another thread, if it is still there.
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
    // SAFETY: the mask is live and as long as said.
    let outcome = unsafe { libc::sched_setaffinity(thread, size, mask.as_ptr().cast()) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Runs `f` on a thread that stays on `cpu`.
fn on_cpu<R: Send>(cpu: u32, f: impl FnOnce() -> R + Send) -> R {
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
fn who_locks_what_it_holds_is_told_so_and_nothing_is_lost() {
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

/// In mode 0 the lock is asked for by a worker of that CPU, in the name of who waits for it.
#[test]
fn who_holds_another_cpus_lock_and_wants_it_again_is_told_so() {
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
fn what_somebody_else_holds_is_busy() {
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
fn a_panic_in_a_visit_comes_back_and_poisons_that_part() {
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

/// A guard that is made and dropped while its thread panics has nothing to do with that.
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

/// In mode 0 a visit holds a place of the queue that others wait for.
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

/// The kernel keeps the CPU of a thread only where its area is registered.
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

#[test]
fn objects_come_back_from_every_cpu_and_memory_with_them() {
    for mode in modes() {
        let cache = Cache::<[u64; 8]>::in_mode(mode);
        assert_eq!(cache.stats().bytes, 0);
        let objects: Vec<_> = (0..1000).map(|number| cache.alloc([number; 8])).collect();
        assert_eq!(cache.stats().out, 1000);
        assert!(objects.iter().zip(0..).all(|(object, number)| **object == [number; 8]));
        let mut addresses: Vec<_> =
            objects.iter().map(|object| std::ptr::from_ref(&**object).addr()).collect();
        addresses.sort_unstable();
        assert!(addresses.windows(2).all(|two| two[1] - two[0] >= 64), "none overlaps");
        let mut parts: Vec<Vec<_>> = Vec::new();
        parts.resize_with(cpus().len(), Vec::new);
        for (number, object) in objects.into_iter().enumerate() {
            let part = number % parts.len();
            parts[part].push(object);
        }
        for (cpu, part) in cpus().into_iter().zip(parts) {
            on_cpu(cpu, || drop(part));
        }
        assert_eq!(cache.stats().out, 0);
        assert!(cache.stats().in_magazines > 0);
        assert!(cache.flush_all().unwrap() > 0);
        assert_eq!(cache.stats().in_magazines, 0, "mode {mode}");
        let bytes = cache.stats().bytes;
        assert_eq!(cache.shrink().unwrap(), bytes);
        assert_eq!((cache.stats().objects, cache.stats().bytes), (0, 0));
        drop(cache.alloc([0; 8]));
        cache.close().unwrap();
    }
}

#[test]
fn memory_of_allocated_objects_stays() {
    for mode in modes() {
        let cache = Cache::<[u64; 64]>::in_mode(mode);
        let mut objects: Vec<_> = (0..10_000).map(|number| cache.alloc([number; 64])).collect();
        let kept = objects.swap_remove(5_000);
        drop(objects);
        let before = cache.stats().bytes;
        let returned = cache.shrink().unwrap();
        assert!(
            returned > 0 && cache.stats().bytes == before - returned && cache.stats().bytes > 0
        );
        assert_eq!(*kept, [5_000; 64]);
        assert_eq!(cache.stats().out, 1, "mode {mode}");
        // What is left is used again.
        let more: Vec<_> = (0..100).map(|number| cache.alloc([number; 64])).collect();
        assert!(more.iter().zip(0..).all(|(object, number)| **object == [number; 64]));
        let raw = super::Cached::into_raw(kept);
        drop(more);
        let Err(error) = cache.close() else { panic!("one is out") };
        assert_eq!((error.out, error.to_string().contains("1 object(s)")), (1, true));
        let cache = *error.cache;
        // SAFETY: from `into_raw` above.
        drop(unsafe { super::Cached::from_raw(&cache, raw) });
        cache.close().unwrap();
    }
}

#[test]
fn objects_of_any_size_and_alignment() {
    #[repr(align(256))]
    struct Aligned(#[allow(dead_code, reason = "for its size")] u8);
    let cache = Cache::<Aligned>::new("aligned");
    let objects: Vec<_> = (0..100).map(|_| cache.alloc(Aligned(1))).collect();
    assert!(objects.iter().all(|object| std::ptr::from_ref(&**object).addr() % 256 == 0));
    let nothing = Cache::<()>::new("nothing");
    drop((nothing.alloc(()), nothing.alloc(())));
    let large = Cache::<[u8; 5 << 20]>::new("large");
    assert!(large.stats().objects == 0);
    let object = large.alloc_raw();
    assert_eq!(large.stats().out, 1);
    // SAFETY: from `alloc_raw`, once.
    unsafe { large.free_raw(object) };
}

#[test]
fn an_object_whose_destructor_panics_is_freed() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let cache = Cache::new("bombs");
    let object = cache.alloc(Bomb);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(object))).is_err());
    assert_eq!(cache.stats().out, 0);
}

#[test]
fn a_batch_goes_to_the_sink_when_it_is_full_or_drained_or_dropped() {
    for mode in modes() {
        for capacity in [1, 2, 7] {
            let sunk = Arc::new(AtomicUsize::new(0));
            let largest = Arc::new(AtomicUsize::new(0));
            let sink = {
                let (sunk, largest) = (sunk.clone(), largest.clone());
                move |items: std::vec::Drain<'_, usize>| {
                    largest.fetch_max(items.len(), Ordering::Relaxed);
                    sunk.fetch_add(items.sum(), Ordering::Relaxed);
                }
            };
            let batch = Batch::in_mode(mode, capacity, sink);
            for cpu in cpus() {
                on_cpu(cpu, || (0..10).for_each(|_| batch.add(1)));
                assert_eq!(batch.len_on(cpu), 10 % capacity, "mode {mode}");
            }
            let in_batches = cpus().len() * (10 % capacity);
            assert_eq!(sunk.load(Ordering::Relaxed), 10 * cpus().len() - in_batches);
            assert_eq!(largest.load(Ordering::Relaxed), capacity);
            assert_eq!(batch.drain_all().unwrap(), in_batches);
            assert_eq!(sunk.load(Ordering::Relaxed), 10 * cpus().len());
            assert_eq!(batch.drain_all().unwrap(), 0);
            batch.add(5);
            drop(batch);
            assert_eq!(sunk.load(Ordering::Relaxed), 10 * cpus().len() + 5);
        }
    }
}

#[test]
#[should_panic(expected = "a batch of 0 items: 1 to 1048576 are allowed")]
fn a_batch_has_room_for_something() {
    let _ = Batch::<u8>::new(0, |_| ());
}
