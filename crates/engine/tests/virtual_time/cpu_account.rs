//! The CPU time that a queue's items are said to have used.

use std::sync::Arc;

use uwork_engine::{Kind, QueueSpec, Queued};
use uwork_policy::batch::CPU_READING_BATCHES;
use uwork_policy::flags::Flags;

use crate::item::Item;
use crate::setup::{MS, Setup, US, VirtualEngine, make, spec, with_engine};

/// What an item does with its CPU.
#[derive(Clone, Copy)]
enum Use {
    Burn(u64),
    Sleep(u64),
}

/// Runs such items one after the other. Returns the CPU time and the run time that their queue
/// counted.
fn counted(items: impl Iterator<Item = Use> + Send + 'static) -> (u64, u64) {
    with_engine(Setup::exact("core:1"), |engine: &Arc<VirtualEngine>| {
        let queue = make(engine, QueueSpec { flags: Flags::empty(), ..spec("q", Kind::PerCpu) });
        for what in items {
            let inner = engine.clone();
            let item = Item::new(move || match what {
                Use::Burn(ns) => inner.host().burn(ns),
                Use::Sleep(ns) => inner.host().doze(ns),
            });
            assert_eq!(item.queue(&queue), Queued::Yes);
            queue.flush().unwrap();
        }
        let dump = engine.dump();
        let pwqs = || dump.queues.iter().filter(|queue| queue.name == "q").flat_map(|q| &q.pwqs);
        (pwqs().map(|pwq| pwq.cpu_ns).sum(), pwqs().map(|pwq| pwq.busy_ns).sum())
    })
}

/// Long sleeps, long computations and many short ones in turn.
fn mixed(n: u64) -> Use {
    match n % 20 {
        0 => Use::Burn(3 * MS),
        3 => Use::Sleep(3 * MS),
        _ => Use::Burn(20 * US),
    }
}

#[test]
fn sleeps_do_not_count_and_computations_count_once() {
    let (cpu, busy) = counted((0..200).map(mixed));
    let burnt = 10 * 3 * MS + 180 * 20 * US;
    assert!(busy >= burnt + 10 * 3 * MS, "{busy}");
    assert!(cpu.abs_diff(burnt) <= burnt / 100, "{cpu} counted, {burnt} used");
}

#[test]
fn many_short_items_between_long_ones_change_nothing() {
    let short = u64::from(CPU_READING_BATCHES) * 3 + 1;
    let items = (0..short * 4).map(move |n| match n % short {
        0 => Use::Burn(MS),
        1 => Use::Sleep(5 * MS),
        _ => Use::Burn(US),
    });
    let (cpu, _) = counted(items);
    let burnt = 4 * MS + (short - 2) * 4 * US;
    assert!(cpu.abs_diff(burnt) <= burnt / 20, "{cpu} counted, {burnt} used");
}
