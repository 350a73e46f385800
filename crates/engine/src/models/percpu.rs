//! Per-CPU locks: sections against sections of the same CPU, a lock handed over, a spinlock, a
//! force.
//!
//! A section is modelled by its effect in the kernel. It checks, and stores unless another thread
//! of its CPU has begun to run or a force has intervened; then it starts again. After one restart
//! it runs without interruption, so that two sections do not restart each other for ever. A CPU's
//! mutex stands for the full barrier of a thread switch in the kernel. It is not held between check
//! and store, where threads of other CPUs, and those of the same CPU, may intervene.
//!
//! **Proves.** The lock holder has exclusive access to the data, sees the writes of the previous
//! holder, and loses no count: every count is exact. In mode 0 among threads of one CPU, with a
//! lock that a worker hands over and a holder that migrates; in mode 1 and in mode 2 against remote
//! threads.
//!
//! **Bounds.** Two or three threads, each with one or two rounds, three to five preemptions: 855 to
//! 55,793 executions.
//!
//! **Seen to fail** with a section that is not restarted by a thread of its CPU, a force that does
//! not restart, a force that does not check again, a relaxed release, a relaxed acquire of a
//! section, of the exchange and of the force.

use std::ptr::NonNull;

use loom::sync::{Arc, Mutex};
use loom::thread;

use uwork_policy::percpu::Mode;

use super::host::LoomHost;
use super::{Preemptions, explore};
use crate::words::host::Host;
use crate::words::percpu::{CpuLock, Place, Row, Sections, Token};
use crate::words::sync::Cell;

loom::thread_local! {
    /// The CPU that the thread is on, and its token.
    static THREAD: std::cell::Cell<(u32, u64)> = std::cell::Cell::new((0, 0));
}

/// Becomes thread number `id`, on `cpu`.
fn become_thread(id: u64, cpu: u32) {
    THREAD.with(|thread| thread.set((cpu, id * 2)));
}

const CPUS: u32 = 2;

/// How often the running code of each CPU has been interrupted.
struct Machine {
    host: LoomHost,
    interrupts: [Mutex<u32>; CPUS as usize],
}

impl Machine {
    fn interrupt(&self, cpu: u32) -> u32 {
        let mut interrupts = self.interrupts[cpu as usize].lock().unwrap();
        *interrupts += 1;
        *interrupts
    }
}

impl Sections for Machine {
    fn token(&self) -> Token {
        Token::new(THREAD.with(|thread| thread.get().1))
    }

    fn cpu(&self) -> u32 {
        THREAD.with(|thread| thread.get().0)
    }

    unsafe fn claim(&self, place: &Place, token: Token) -> Option<NonNull<CpuLock>> {
        let cpu = self.cpu();
        // SAFETY: every CPU of the model has a lock in the row.
        let lock = unsafe { place.first.byte_add(place.stride * cpu as usize).as_ref() };
        // This thread runs now, so a section that another thread began on this CPU is restarted.
        let began = self.interrupt(cpu);
        if !lock.section_finds_free() {
            return None;
        }
        let mut interrupts = self.interrupts[cpu as usize].lock().unwrap();
        if *interrupts != began {
            // This section restarts, and so does any other that has begun meanwhile.
            *interrupts += 1;
            if !lock.section_finds_free() {
                return None;
            }
        }
        lock.section_takes(token);
        drop(interrupts);
        Some(NonNull::from(lock))
    }

    /// Always fails: the slow path repeats the same steps, so exploring them once is enough.
    unsafe fn claim_fast(&self, _: &Place, _: Token) -> Option<NonNull<CpuLock>> {
        None
    }

    fn cpu_fast(&self) -> Option<u32> {
        None
    }

    fn has_sections(&self, _: u32) -> bool {
        true
    }

    fn restart(&self, cpu: u32) {
        self.interrupt(cpu);
    }

    fn relax(&self, round: u32) {
        self.host.relax(round);
    }
}

#[repr(C)]
struct Part {
    lock: CpuLock,
    count: Cell<u32>,
}

struct World {
    row: Row<Machine>,
    parts: Box<[Part]>,
}

impl World {
    fn new(mode: Mode) -> Arc<World> {
        let part = || Part { lock: CpuLock::default(), count: Cell::new(0) };
        let parts: Box<[Part]> = (0..CPUS).map(|_| part()).collect();
        let first = NonNull::from(&parts[0]).cast();
        let place = Place { first, stride: size_of::<Part>(), len: CPUS };
        let machine =
            Machine { host: LoomHost::new(0), interrupts: [Mutex::new(0), Mutex::new(0)] };
        // SAFETY: the parts are on the heap, and live as long as the row.
        let row = unsafe { Row::new(place, mode, machine) };
        Arc::new(World { row, parts })
    }

    /// Counts in the part whose lock the caller holds, and releases the lock.
    fn count(&self, lock: NonNull<CpuLock>) {
        let part = &self.parts[self.row.cpu_of(lock) as usize];
        // SAFETY: we hold the part's lock. The model checks exactly that.
        unsafe { part.count.set(part.count.get() + 1) };
        // SAFETY: we hold it.
        unsafe { part.lock.release() };
    }

    fn count_here(&self) {
        let lock = self.row.lock_here().expect("not held by us");
        self.count(lock);
    }

    fn count_at(&self, cpu: u32) {
        let token = self.row.sections().token();
        self.row.lock_at(cpu, token, token).expect("not held by us");
        self.count(NonNull::from(self.row.at(cpu)));
    }

    /// The count in the part of a CPU.
    fn counted(&self, cpu: u32) -> u32 {
        assert!(!self.row.at(cpu).is_held());
        // SAFETY: every other thread has finished.
        unsafe { self.parts[cpu as usize].count.get() }
    }
}

/// Each thread runs its part; then CPU 0 has counted `all`.
fn run(mode: Mode, all: u32, threads: &[(u32, fn(&Arc<World>))]) {
    let world = World::new(mode);
    let threads: Vec<_> = threads
        .iter()
        .enumerate()
        .map(|(number, &(cpu, part))| {
            let world = world.clone();
            thread::spawn(move || {
                become_thread(number as u64 + 1, cpu);
                part(&world);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(world.counted(0), all);
}

fn count_here(world: &Arc<World>) {
    world.count_here();
}

/// Takes the lock on CPU 0 and releases it on CPU 1.
fn move_away(world: &Arc<World>) {
    let lock = world.row.lock_here().expect("not held by us");
    become_thread(7, 1);
    world.count(lock);
}

/// Lets a worker of CPU 0 take that CPU's lock on behalf of this thread.
fn handed_over(world: &Arc<World>) {
    let token = world.row.sections().token();
    let worker = {
        let world = world.clone();
        thread::spawn(move || {
            become_thread(9, 0);
            world.row.lock_at(0, token, token).expect("not held by us");
        })
    };
    worker.join().unwrap();
    world.count(NonNull::from(world.row.at(0)));
}

#[test]
fn two_threads_of_one_cpu() {
    explore("percpu: mode 0, two of one CPU", Preemptions::AtMost(4), || {
        run(
            Mode::Local,
            3,
            &[
                (0, |world| world.count_here()),
                (0, |world| {
                    world.count_here();
                    world.count_here();
                }),
            ],
        );
    });
}

#[test]
fn three_threads_of_one_cpu() {
    explore("percpu: mode 0, three of one CPU", Preemptions::AtMost(3), || {
        run(Mode::Local, 3, &[(0, count_here), (0, count_here), (0, move_away)]);
    });
}

#[test]
fn a_worker_hands_the_lock_over() {
    explore("percpu: mode 0, handed over", Preemptions::AtMost(3), || {
        run(Mode::Local, 2, &[(0, count_here), (1, handed_over)]);
    });
}

#[test]
fn a_remote_thread_against_a_spinlock() {
    explore("percpu: mode 1, remote", Preemptions::AtMost(4), || {
        run(Mode::Remote, 3, &[(0, count_here), (0, count_here), (1, |world| world.count_at(0))]);
    });
}

#[test]
fn a_force_against_a_section() {
    explore("percpu: mode 2, forced", Preemptions::AtMost(5), || {
        run(
            Mode::Asymmetric,
            3,
            &[
                (0, |world| {
                    world.count_here();
                    world.count_here();
                }),
                (1, |world| world.count_at(0)),
            ],
        );
    });
}

#[test]
fn a_force_against_two_threads_of_the_cpu() {
    explore("percpu: mode 2, forced, two of one CPU", Preemptions::Deep(3), || {
        run(
            Mode::Asymmetric,
            3,
            &[(0, count_here), (0, move_away), (1, |world| world.count_at(0))],
        );
    });
}

#[test]
fn two_forces() {
    explore("percpu: mode 2, two forces", Preemptions::AtMost(3), || {
        run(
            Mode::Asymmetric,
            3,
            &[(0, count_here), (1, |world| world.count_at(0)), (1, |world| world.count_at(0))],
        );
    });
}
