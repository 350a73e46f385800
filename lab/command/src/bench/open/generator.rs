//! The generators: threads that submit items when they arrive, whatever the pool does.
//!
//! A generator sleeps until shortly before the next arrival, and spins for the rest. It shares the
//! CPUs with the workers, so it may spin only for as long as a wake from a sleep takes: a longer
//! spin would take CPU time from the items, a shorter one would add to the lateness. When it is
//! late, it submits all due items without a pause. Latencies count from the planned arrival, so its
//! lateness is a part of them; it is the same method for every runner, and each record states it.

use std::hint;
use std::sync::mpsc::channel;
use std::thread;

use uwork_rivals::open::OpenPool;

use super::clock;
use super::item::Item;
use crate::UserError;
use crate::bench::affinity;

/// How long before an arrival a generator wakes.
const SPIN_NS: u64 = 5_000;
/// From the start of the generators to the time that arrivals are planned from.
const HEAD_START_NS: u64 = 20_000_000;

/// An item for a generator.
pub(super) struct Planned {
    /// After the start.
    pub(super) at_ns: u64,
    pub(super) item: &'static Item,
    pub(super) pool: &'static dyn OpenPool<Item>,
}

/// The items of a generator, in the order of their arrival.
pub(super) struct Part {
    /// The CPU that the generator is pinned to; `None` leaves the choice to the system.
    pub(super) cpu: Option<u32>,
    pub(super) list: Vec<Planned>,
}

/// What the generators report.
pub(super) struct Generated {
    /// The time that arrivals were planned from.
    pub(super) start_ns: u64,
    /// The CPU time of the generators: their waits and their submissions.
    pub(super) cpu_ns: u64,
    /// For how long they spun for arrivals. It is a part of `cpu_ns` unless they were preempted
    /// meanwhile.
    pub(super) spun_ns: u64,
}

/// Submits all items, each part by a thread of its own.
pub(super) fn run(parts: Vec<Part>) -> Result<Generated, UserError> {
    let (ready, all_ready) = channel();
    let count = parts.len();
    let threads: Vec<_> = parts
        .into_iter()
        .map(|Part { cpu, list }| {
            let (start, started) = channel();
            let ready = ready.clone();
            let generate = move || {
                let pinned = cpu.map_or(Ok(()), |cpu| affinity::restrict_to(&[cpu]));
                clock::sleep_precisely();
                let _ = ready.send(pinned);
                // Fails if another generator cannot be pinned.
                let start_ns = started.recv().ok()?;
                let spun_ns = submit(&list, start_ns);
                Some((clock::thread_cpu_ns(), spun_ns))
            };
            (start, thread::spawn(generate))
        })
        .collect();
    for pinned in all_ready.iter().take(count) {
        pinned.map_err(|error| UserError(format!("a generator on each CPU: {error}")))?;
    }
    let start_ns = clock::now_ns() + HEAD_START_NS;
    for (start, _) in &threads {
        start.send(start_ns).expect("the generator waits for it");
    }
    let mut generated = Generated { start_ns, cpu_ns: 0, spun_ns: 0 };
    for (_, thread) in threads {
        let ended = thread.join().expect("a generator ends the process on panic");
        let (cpu_ns, spun_ns) = ended.expect("it was started");
        generated.cpu_ns += cpu_ns;
        generated.spun_ns += spun_ns;
    }
    Ok(generated)
}

/// Returns for how long it spun.
fn submit(list: &[Planned], start_ns: u64) -> u64 {
    let mut spun_ns = 0;
    for planned in list {
        let (now_ns, spun) = wait_until(start_ns + planned.at_ns);
        spun_ns += spun;
        planned.item.submitted_at(now_ns);
        planned.pool.submit(planned.item);
    }
    spun_ns
}

/// Returns the present time, which is at least `due_ns`, and for how long it spun.
fn wait_until(due_ns: u64) -> (u64, u64) {
    let mut now_ns = clock::now_ns();
    if now_ns + SPIN_NS < due_ns {
        clock::sleep_until(due_ns - SPIN_NS);
        now_ns = clock::now_ns();
    }
    let from_ns = now_ns;
    while now_ns < due_ns {
        hint::spin_loop();
        now_ns = clock::now_ns();
    }
    (now_ns, now_ns - from_ns)
}
