//! Per-CPU data in the process's mode: the mode of the environment here, and each of the three in
//! child processes.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crate::support::child::{alone, alone_with, become_nobody, is_started, limit};
use crate::support::forked::{fork, leave};
use crate::support::left_out::not_here;
use crate::support::machine::{cpus, mask, on_cpu, pin, pin_first_thread};
use crate::support::moved::{fewer, run_moved};
use crate::support::percpu::{VARIABLE, has_sections, in_each_mode};
use crate::support::{until, watchdog};
use uwork::percpu::{Bundle, Cache, Counter, Mode, PerCpu, mode, reason};
use uwork::{ErrorKind, Report, Setup, SetupError};

/// Uses every kind of per-CPU data from threads that move, and checks the counts.
fn everything() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 5_000;
    let (data, counter) = (PerCpu::new(|_| 0_u64), Counter::new());
    let cache = Cache::<[u64; 8]>::new("everything");
    let sunk = Arc::new(AtomicU64::new(0));
    let bundle = Bundle::new(32, {
        let sunk = sunk.clone();
        move |items: std::vec::Drain<'_, u64>| {
            sunk.fetch_add(items.sum(), Ordering::Relaxed);
        }
    });
    let cpus = fewer(&cpus(), THREADS as usize);
    run_moved(THREADS as usize, &cpus, |number| {
        for round in 0..ROUNDS {
            if round % 50 == 0 {
                pin(cpus[(round as usize / 50 + number) % cpus.len()]);
            }
            *data.lock_local().unwrap() += 1;
            counter.add(2);
            let object = cache.alloc([round; 8]);
            assert_eq!(*object, [round; 8]);
            bundle.add(1);
            if round % 1000 == number as u64 {
                data.for_each(|_, part| *part += 1).unwrap();
                cache.flush_all().unwrap();
                bundle.drain_all().unwrap();
            }
        }
    });
    bundle.drain_all().unwrap();
    let visits = THREADS * ROUNDS / 1000 * u64::from(data.cpus().end);
    assert_eq!(data.into_inner().iter().sum::<u64>(), THREADS * ROUNDS + visits);
    assert_eq!(counter.sum() as u64, 2 * THREADS * ROUNDS);
    assert_eq!(sunk.load(Ordering::Relaxed), THREADS * ROUNDS);
    cache.close().expect("all objects are back");
}

#[test]
fn a_refusal_as_an_error_has_the_same_text_and_releases_the_lock() {
    fn add(data: &PerCpu<u64>, cpu: u32) -> Result<(), uwork::Error> {
        *data.try_lock(cpu)? += 1;
        Ok(())
    }
    let _watchdog = watchdog();
    let data = PerCpu::new(|_| 0_u64);
    add(&data, 0).expect("it is free");
    let of_another_thread = || thread::scope(|scope| scope.spawn(|| add(&data, 0)).join().unwrap());
    let guard = data.lock(0).expect("it is free");
    assert_eq!(add(&data, 0).unwrap_err().kind(), ErrorKind::WouldDeadlock);
    let busy = of_another_thread().unwrap_err();
    assert_eq!((busy.kind(), busy.kind().errno()), (ErrorKind::Busy, libc::EBUSY));
    drop(guard);
    let panicked = thread::scope(|scope| {
        let holder = scope.spawn(|| {
            let _guard = data.lock(0).expect("it is free");
            panic!("on purpose");
        });
        holder.join()
    });
    panicked.unwrap_err();
    // Twice: the first error has not kept the lock.
    for _ in 0..2 {
        let poisoned = of_another_thread().unwrap_err();
        let text = data.try_lock(0).map(drop).unwrap_err().to_string();
        assert_eq!(poisoned.to_string(), text);
        assert_eq!(
            (poisoned.kind(), poisoned.kind().errno()),
            (ErrorKind::Poisoned, libc::EOWNERDEAD)
        );
    }
    assert_eq!(*data.lock(0).unwrap_err().into_guard().expect("poisoned"), 1);
    data.clear_poison(0).expect("it is free");
    add(&data, 0).expect("it is free");
}

/// A thread that was moved meanwhile would take another CPU's lock, and could wait for a thread
/// that waits for it.
#[test]
fn debug_builds_refuse_a_second_local_lock_wherever_the_thread_is() {
    let _watchdog = watchdog();
    in_each_mode("debug_builds_refuse_a_second_local_lock_wherever_the_thread_is", || {
        let data = PerCpu::new(|_| 0_u64);
        for (own, other) in cpus().into_iter().flat_map(|a| cpus().into_iter().map(move |b| (a, b)))
        {
            thread::scope(|scope| {
                let nested = || {
                    pin(own);
                    let first = data.lock_local().expect("it is free");
                    assert_eq!(first.cpu(), own);
                    pin(other);
                    let refused = match data.lock_local() {
                        Ok(second) => {
                            assert_eq!(second.cpu(), other);
                            false
                        }
                        Err(error) => error.would_deadlock(),
                    };
                    assert_eq!(refused, own == other || cfg!(debug_assertions));
                    drop(first);
                    drop(data.lock_local().expect("nothing is held"));
                };
                scope.spawn(nested).join().expect("no panic");
            });
        }
    });
}

#[test]
fn everything_is_exact_in_the_mode_of_the_environment() {
    let _watchdog = watchdog();
    eprintln!("mode {}: {}", mode(), reason());
    everything();
}

#[test]
fn everything_is_exact_in_each_mode() {
    let _watchdog = watchdog();
    in_each_mode("everything_is_exact_in_each_mode", everything);
}

/// As with a glibc before 2.35, or one in which the registration is turned off.
#[test]
fn each_thread_registers_its_own_area_where_glibc_has_none() {
    let _watchdog = watchdog();
    let test = "each_thread_registers_its_own_area_where_glibc_has_none";
    let is_child = is_started();
    for wanted in &Mode::ALL[..if is_child { 1 } else { Mode::ALL.len() }] {
        let prepare = |command: &mut Command| {
            command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
            command.env(VARIABLE, wanted.number().to_string());
        };
        alone_with(test, prepare, || {
            let number = std::env::var(VARIABLE).expect("as it was set");
            assert!(mode().number().to_string() == number || !has_sections(), "{}", reason());
            use_own_areas();
        });
    }
}

fn use_own_areas() {
    everything();
    let data = PerCpu::new(|_| ());
    thread::scope(|scope| {
        let pinned = || {
            // From the registered area, once it exists.
            for cpu in cpus().into_iter().cycle().take(10) {
                pin(cpu);
                assert_eq!(data.lock_local().expect("it is free").cpu(), cpu);
            }
        };
        scope.spawn(pinned).join().expect("no panic");
    });
    // Threads that end unregister their area before their memory is freed; new threads get the same
    // memory.
    for _ in 0..100 {
        let counter = Counter::new();
        thread::scope(|scope| drop(scope.spawn(|| counter.add(1))));
        assert_eq!(counter.sum(), 1);
    }
}

#[test]
fn the_program_chooses_the_mode_and_the_environment_overrides_it() {
    let test = "the_program_chooses_the_mode_and_the_environment_overrides_it";
    for variable in [None, Some("1")] {
        let prepare = |command: &mut Command| {
            match variable {
                Some(number) => command.env(VARIABLE, number),
                None => command.env_remove(VARIABLE),
            };
        };
        alone_with(test, prepare, || {
            Setup::new().percpu_mode(Mode::Asymmetric).install().unwrap();
            let wanted = match std::env::var(VARIABLE) {
                Ok(_) => (Mode::Remote, "UWORK_PWLOCKS=1"),
                Err(_) => (Mode::Asymmetric, "the program asked for it"),
            };
            assert!((mode(), reason()) == wanted || !has_sections(), "{}: {}", mode(), reason());
        });
        if is_started() {
            return;
        }
    }
}

/// The machines of `ci/vm.sh` have isolated CPUs.
#[test]
fn isolated_cpus_are_accessed_remotely_unless_requested_otherwise() {
    let test = "isolated_cpus_are_accessed_remotely_unless_requested_otherwise";
    let isolated = uwork::topology::Machine::read().unwrap().isolated;
    if isolated.is_empty() {
        return not_here(test, "no CPU is isolated");
    }
    let prepare = |command: &mut Command| _ = command.env_remove(VARIABLE);
    alone_with(test, prepare, || {
        assert_eq!(mode(), Mode::Remote, "{}", reason());
        assert!(reason().contains(&isolated.to_string()), "{}", reason());
        everything();
    });
}

#[test]
fn a_choice_after_the_first_use_is_refused() {
    alone("a_choice_after_the_first_use_is_refused", || {
        let before = mode();
        for late in Mode::ALL {
            let error = Setup::new().percpu_mode(late).install().unwrap_err();
            assert_eq!(error, SetupError::StartedAlready);
        }
        Counter::new().add(1);
        assert_eq!(mode(), before);
    });
}

static REPORTS: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());

fn keep_reports() {
    let keep = |report: &Report| REPORTS.lock().unwrap().push(format!("{report:?}"));
    uwork::set_reporter(keep).expect("no other reporter");
}

#[test]
fn a_mode_that_does_not_exist_is_reported() {
    let prepare = |command: &mut Command| {
        command.env(VARIABLE, "3");
    };
    alone_with("a_mode_that_does_not_exist_is_reported", prepare, || {
        keep_reports();
        Counter::new().add(1);
        let reports = REPORTS.lock().unwrap();
        let told = "\\\"3\\\" is not one of 0 (local), 1 (remote), 2 (asymmetric)";
        assert!(reports.iter().any(|report| report.contains(told)), "{reports:?}");
    });
}

#[test]
fn a_cache_dropped_with_live_objects_keeps_and_reports_them() {
    alone("a_cache_dropped_with_live_objects_keeps_and_reports_them", || {
        keep_reports();
        let cache = Cache::new("leaky");
        let mut objects: Vec<_> = (0..3).map(|_| cache.alloc_raw()).collect();
        let last = objects.pop().expect("three");
        // SAFETY: from `alloc_raw`, once.
        unsafe { cache.free_raw(last) };
        drop(cache);
        for (object, number) in objects.iter().zip(0_u64..) {
            // SAFETY: its memory is kept.
            unsafe { object.write(number) };
            // SAFETY: as above.
            assert_eq!(unsafe { object.read() }, number);
        }
        let reports = REPORTS.lock().unwrap();
        let told = "CacheInUse { cache: \"leaky\", objects: 2 }";
        assert!(reports.iter().any(|report| report == told), "{reports:?}");
    });
}

/// No worker can run there for the caller, so the CPU's part is taken by force.
#[test]
fn parts_of_cpus_outside_the_mask_are_accessible() {
    let _watchdog = watchdog();
    in_each_mode("parts_of_cpus_outside_the_mask_are_accessible", || {
        let machine = uwork::topology::Machine::read().unwrap();
        let only = machine.allowed.first().expect("a CPU");
        pin_first_thread(only);
        assert_eq!(uwork::topology::Machine::read().unwrap().allowed, mask(&[only]));
        let data = PerCpu::new(|_| 0);
        for cpu in data.cpus() {
            *data.lock(cpu).unwrap() += 1;
            data.with(cpu, |part| *part += 1).unwrap();
            *data.try_lock(cpu).unwrap() += 1;
        }
        data.for_each(|_, part| *part += 1).unwrap();
        assert!(data.into_inner().iter().all(|&part| part == 4));
    });
}

/// In mode 0 a worker of that CPU takes the lock. If it waited for the lock, all workers would in
/// the end, and none could run the holder's request.
#[test]
fn threads_that_wait_for_a_lock_do_not_block_its_holder() {
    let _watchdog = watchdog();
    in_each_mode("threads_that_wait_for_a_lock_do_not_block_its_holder", || {
        const ASKERS: u64 = 100;
        let [from, cpu, ..] = cpus()[..] else { return eprintln!("one CPU: nothing to be seen") };
        let (outer, inner) = (PerCpu::new(|_| 0), PerCpu::new(|_| 0));
        let (asked, visited) = (AtomicU64::new(0), AtomicU64::new(0));
        on_cpu(from, || {
            let guard = outer.lock(cpu).unwrap();
            thread::scope(|scope| {
                for number in 0..ASKERS {
                    let (outer, asked, visited) = (&outer, &asked, &visited);
                    scope.spawn(move || {
                        asked.fetch_add(1, Ordering::Relaxed);
                        match number % 3 {
                            0 => *outer.lock(cpu).unwrap() += 1,
                            1 => outer.with(cpu, |part| *part += 1).unwrap(),
                            _ => outer
                                .for_each(|_, part| {
                                    *part += 1;
                                    visited.fetch_add(1, Ordering::Relaxed);
                                })
                                .unwrap(),
                        }
                    });
                }
                until("all ask", || asked.load(Ordering::Relaxed) == ASKERS);
                *inner.lock(cpu).unwrap() += 1;
                drop(guard);
            });
        });
        let elsewhere = outer.cpus().len() as u64 - 1;
        assert_eq!(outer.into_inner().iter().sum::<u64>(), ASKERS + ASKERS / 3 * elsewhere);
        assert_eq!(visited.into_inner(), ASKERS / 3 * (elsewhere + 1));
        assert_eq!(inner.into_inner().iter().sum::<u64>(), 1);
    });
}

/// No worker can be spawned there; and a failing fork does not end the process.
#[test]
fn a_process_that_can_have_no_threads_reaches_every_cpu() {
    let _watchdog = watchdog();
    in_each_mode("a_process_that_can_have_no_threads_reaches_every_cpu", || {
        let data = PerCpu::new(|_| 0);
        become_nobody();
        limit(libc::RLIMIT_NPROC, 0);
        // SAFETY: a child would end at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        for cpu in data.cpus() {
            *data.lock(cpu).unwrap() += 1;
            data.with(cpu, |part| *part += 1).unwrap();
        }
        data.for_each(|_, part| *part += 1).unwrap();
        assert!(data.into_inner().iter().all(|&part| part == 3));
    });
}

/// A child's values are its own, and it waits for no worker of the parent.
#[test]
fn a_forked_child_uses_its_own_per_cpu_data() {
    let _watchdog = watchdog();
    in_each_mode("a_forked_child_uses_its_own_per_cpu_data", || {
        let data = PerCpu::new(|_| 0);
        let cache = Cache::new("forked");
        data.for_each(|_, part| *part += 1).unwrap();
        let status = fork();
        if status.is_none() {
            *data.lock_local().unwrap() += 1;
            data.for_each(|_, part| *part += 1).unwrap();
            drop(cache.alloc(1));
            cache.flush_all().unwrap();
            let sum: u32 = data.into_inner().into_iter().sum();
            leave(!sum.is_multiple_of(2));
        }
        assert_eq!(status, Some(0), "the child's sum is odd: twice the CPUs, and one");
    });
}
