//! Threads that are moved from CPU to CPU all the time, by themselves and, at any point of their
//! code, by another thread; meanwhile other threads access every CPU's part. Every count is exact
//! in the end.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use uwork_policy::cpuset::CpuSet;

use super::guard::Guard;
use super::slow::{SLOW, times};
use super::{cpus, modes, pin, pin_other};
use crate::{Bundle, Cache, Counter, Mode, PerCpu};

const THREADS: u64 = 6;
const ROUNDS: u64 = times(40_000);
/// The number of rounds after which a thread moves itself.
const STAY: u64 = 37;

/// A thread of a storm, which another one moves.
#[derive(Default)]
struct Moved {
    /// Its number in the system; 0 until it has begun.
    id: AtomicI32,
    /// How often it was moved.
    moves: AtomicU64,
    is_done: AtomicBool,
}

/// Records that a thread is done, also if it panics.
struct Done<'a>(&'a Moved);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.is_done.store(true, Ordering::Release);
    }
}

/// How long the process may make no progress until a thread was moved.
const WAIT_MAX: Duration = Duration::from_secs(20 * SLOW);

/// Waits for the condition. A hang ends the process: threads that wait for a thread which panics
/// would never end.
fn until(condition: impl Fn() -> bool) {
    let mut guard = Guard::new(WAIT_MAX);
    while !condition() {
        if let Err(hang) = guard.poll() {
            eprintln!("a storm {hang}");
            std::process::abort();
        }
        thread::yield_now();
    }
}

/// Fewer CPUs than threads, from all over the machine: with a CPU for each thread, none would be
/// preempted.
fn some_cpus() -> Vec<u32> {
    let cpus = cpus();
    let step = cpus.len().div_ceil(THREADS as usize / 2);
    cpus.into_iter().step_by(step).collect()
}

/// Runs `local` `ROUNDS` times on each of some threads that move around, and `remote` on another
/// thread until they are done. A third kind of thread moves them, at any point of their code: a
/// thread that only moved itself would never change its CPU within a section. There are more
/// threads than CPUs, so that they are preempted anywhere.
fn storm(local: impl Fn(u64) + Sync, remote: impl Fn() + Sync) {
    storm_with(local, remote, |_| (), || true);
}

/// As [`storm`]; after each move, the moving thread calls `moved` with the number of the moved
/// thread. Each thread waits in the middle of its rounds until it was moved and `is_enough` returns
/// true: on a busy machine, the threads may otherwise be done before the moving thread begins.
fn storm_with(
    local: impl Fn(u64) + Sync,
    remote: impl Fn() + Sync,
    moved: impl Fn(libc::pid_t) + Send,
    is_enough: impl Fn() -> bool + Sync,
) {
    let cpus = some_cpus();
    let over = AtomicBool::new(false);
    let threads: Vec<Moved> = (0..THREADS).map(|_| Moved::default()).collect();
    let run = |number: u64, moved: &Moved| {
        // SAFETY: no arguments.
        moved.id.store(unsafe { libc::gettid() }, Ordering::Release);
        let done = Done(moved);
        for round in 0..ROUNDS {
            if round % STAY == 0 {
                let turn = (round / STAY + number) as usize;
                pin(&CpuSet::single(cpus[turn % cpus.len()]));
            }
            local(number * ROUNDS + round);
            if round == ROUNDS / 2 {
                until(|| moved.moves.load(Ordering::Relaxed) > 0 && is_enough());
            }
        }
        drop(done);
        // Until then the system does not reuse its number.
        while !over.load(Ordering::Acquire) {
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        for (number, thread) in (0..).zip(&threads) {
            let run = &run;
            scope.spawn(move || run(number, thread));
        }
        let (over, threads, cpus) = (&over, &threads, &cpus);
        scope.spawn(move || {
            let _over = Over(over);
            move_around(threads, cpus, moved);
        });
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                remote();
                thread::yield_now();
            }
        });
    });
}

/// Moves these threads from CPU to CPU until they are done.
fn move_around(threads: &[Moved], cpus: &[u32], moved: impl Fn(libc::pid_t)) {
    let is_done = |thread: &Moved| thread.is_done.load(Ordering::Acquire);
    for turn in 0.. {
        if threads.iter().all(is_done) {
            return;
        }
        for (number, thread) in threads.iter().enumerate() {
            let id = thread.id.load(Ordering::Acquire);
            if id != 0 && !is_done(thread) {
                pin_other(id, &CpuSet::single(cpus[(turn + number) % cpus.len()]));
                moved(id);
                thread.moves.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Ends a storm's threads, also after a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn values_are_exact() {
    for mode in modes() {
        // Two numbers that must always be equal under the lock: a torn write makes them differ.
        let data = PerCpu::in_mode(mode, |_| (0_u64, 0_u64));
        let remote_adds = AtomicU64::new(0);
        storm(
            |_| add_one(&mut data.lock_local().unwrap()),
            || {
                for cpu in data.cpus() {
                    add_one(&mut data.lock(cpu).unwrap());
                    data.with(cpu, add_one).unwrap();
                    remote_adds.fetch_add(2, Ordering::Relaxed);
                }
            },
        );
        let sum: u64 = data.into_inner().into_iter().map(|part| part.0).sum();
        assert_eq!(sum, THREADS * ROUNDS + remote_adds.into_inner(), "mode {mode}");
    }
}

/// The data that a signal's handler uses, and how often it did.
struct Handled {
    data: PerCpu<(u64, u64)>,
    counter: Counter,
    signals: AtomicU64,
    locked: AtomicU64,
}

/// The data for the current storm.
static HANDLED: AtomicPtr<Handled> = AtomicPtr::new(ptr::null_mut());

fn add_one(pair: &mut (u64, u64)) {
    assert_eq!(pair.0, pair.1);
    pair.0 += 1;
    std::hint::black_box(&mut *pair);
    pair.1 += 1;
}

extern "C" fn handle(_: libc::c_int) {
    // SAFETY: live while threads get the signal.
    let it = unsafe { &*HANDLED.load(Ordering::Acquire) };
    it.signals.fetch_add(1, Ordering::Relaxed);
    it.counter.add(1);
    // Fails if it has interrupted a holder.
    if let Ok(mut pair) = it.data.try_lock_local() {
        add_one(&mut pair);
        it.locked.fetch_add(1, Ordering::Relaxed);
    }
}

/// A section that a signal has interrupted restarts, even if the handler ran sections of its own. A
/// handler that has interrupted a holder cannot take the lock.
#[test]
fn a_signals_handler_has_sections_of_its_own() {
    let handler = handle as extern "C" fn(libc::c_int);
    // SAFETY: the handler never waits for a lock; no other test uses this signal.
    unsafe { libc::signal(libc::SIGURG, handler as *const () as libc::sighandler_t) };
    for mode in modes() {
        let handled = Handled {
            data: PerCpu::in_mode(mode, |_| (0, 0)),
            counter: Counter::in_mode(mode),
            signals: AtomicU64::new(0),
            locked: AtomicU64::new(0),
        };
        HANDLED.store(ptr::from_ref(&handled).cast_mut(), Ordering::Release);
        let send = |thread: libc::pid_t| {
            // SAFETY: no pointers; a thread of this process, or one that has ended.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGURG) };
        };
        let local = |_| {
            handled.counter.add(1);
            add_one(&mut handled.data.lock_local().unwrap());
        };
        // Here no thread holds a lock, so that a handler gets it.
        let is_enough = || handled.locked.load(Ordering::Relaxed) > 0;
        storm_with(local, || (), send, is_enough);
        let Handled { data, counter, signals, locked } = handled;
        let (own, signals) = (THREADS * ROUNDS, signals.into_inner());
        assert!(signals > 0 && locked.load(Ordering::Relaxed) > 0, "mode {mode}");
        assert_eq!(counter.sum() as u64, own + signals, "mode {mode}");
        let pairs: u64 = data.into_inner().into_iter().map(|pair| pair.0).sum();
        assert_eq!(pairs, own + locked.into_inner(), "mode {mode}");
    }
}

#[test]
fn counters_are_exact() {
    for mode in modes() {
        let counter = Counter::in_mode(mode);
        let all = (THREADS * ROUNDS * 3) as i64;
        storm(|_| counter.add(3), || assert!((0..=all).contains(&counter.sum())));
        assert_eq!(counter.sum(), all, "mode {mode}");
    }
}

#[test]
fn bundles_neither_lose_nor_duplicate_items() {
    for mode in modes() {
        let (count, sum) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let sink = {
            let (count, sum) = (count.clone(), sum.clone());
            move |items: std::vec::Drain<'_, u64>| {
                count.fetch_add(items.len() as u64, Ordering::Relaxed);
                sum.fetch_add(items.sum(), Ordering::Relaxed);
            }
        };
        let bundle = Bundle::in_mode(mode, 15, sink);
        storm(
            |number| bundle.add(number),
            || assert!(bundle.drain_all().unwrap() <= 15 * cpus().len()),
        );
        bundle.drain_all().unwrap();
        let all = THREADS * ROUNDS;
        assert_eq!(count.load(Ordering::Relaxed), all, "mode {mode}");
        assert_eq!(sum.load(Ordering::Relaxed), all * (all - 1) / 2, "mode {mode}");
    }
}

/// Each object has a flag, which a thread that allocates the object finds clear. Some objects are
/// freed by other threads than those that allocated them.
#[test]
fn no_object_is_given_out_twice() {
    for mode in modes() {
        // A flush that is preempted in its list makes allocations take new memory, at any time.
        let cache = Cache::<AtomicBool>::zeroed_in_mode(mode);
        let (to, from) = std::sync::mpsc::sync_channel::<usize>(1000);
        let (to, from) = (std::sync::Mutex::new(to), std::sync::Mutex::new(from));
        let free = |object: std::ptr::NonNull<AtomicBool>| {
            // SAFETY: allocated, and owned by this call.
            assert!(unsafe { object.as_ref() }.swap(false, Ordering::Relaxed), "mode {mode}");
            // SAFETY: as above.
            unsafe { cache.free_raw(object) };
        };
        storm(
            |number| {
                let object = cache.alloc_raw();
                // SAFETY: new memory is zero, which is a clear flag; flags need no destructor.
                assert!(!unsafe { object.as_ref() }.swap(true, Ordering::Relaxed), "mode {mode}");
                let sent = number % 7 == 0
                    && to.lock().unwrap().try_send(object.as_ptr().expose_provenance()).is_ok();
                if !sent {
                    free(object);
                }
            },
            || {
                for address in from.lock().unwrap().try_iter() {
                    let object = std::ptr::with_exposed_provenance_mut(address);
                    free(std::ptr::NonNull::new(object).expect("an object"));
                }
                cache.flush_all().unwrap();
            },
        );
        for address in from.lock().unwrap().try_iter() {
            let object = std::ptr::with_exposed_provenance_mut(address);
            free(std::ptr::NonNull::new(object).expect("an object"));
        }
        assert_eq!(cache.stats().out, 0, "mode {mode}");
        cache.close().unwrap();
    }
}

/// Memory is returned to the system all the time; an object's contents stay while it is allocated.
#[test]
fn memory_of_allocated_objects_is_never_released() {
    for mode in modes() {
        let cache = Cache::<[u64; 8]>::in_mode(mode);
        storm(
            |number| {
                // More than a magazine has, sometimes.
                let count = if number % 500 == 0 { 300 } else { 2 };
                let objects: Vec<_> = (0..count).map(|_| cache.alloc([number; 8])).collect();
                assert!(objects.iter().all(|object| **object == [number; 8]), "mode {mode}");
            },
            || {
                cache.shrink().unwrap();
            },
        );
        assert_eq!(cache.stats().out, 0, "mode {mode}");
        cache.shrink().unwrap();
        assert_eq!(cache.stats().bytes, 0, "mode {mode}");
        cache.close().unwrap();
    }
}

#[test]
fn modes_are_all_there_on_a_machine_with_sections() {
    let count = modes().count();
    assert!(count == Mode::ALL.len() || count == 1);
}
