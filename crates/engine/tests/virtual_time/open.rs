//! Open loops: items arrive at planned times, and none waits while a CPU idles that could run it
//! ([`conservation`]).

use std::panic::catch_unwind;

use uwork_engine::host::Host;
use uwork_engine::{Attrs, Kind, Queued};
use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};

use crate::chance::{Chance, Chaos};
use crate::conservation::{Conservation, Passage};
use crate::host::VirtualHost;
use crate::item::Item;
use crate::plan::{Arrival, Mix, Pattern, arrivals, percentile, perfect};
use crate::seeds::{failures, number};
use crate::setup::{MS, Setup, US, VirtualEngine, make, spec, with_engine};

/// Histories of one run of the tests; `UWORK_SIM_SEEDS=N` runs more.
const SEEDS: u64 = 1_000;
/// Histories of each tier in which items block.
const BLOCKING_SEEDS: u64 = 50;
/// Items of one history.
const ITEMS: usize = 2_000;
/// Machines with 4, 16 and 64 CPUs.
const MACHINES: [&str; 5] = ["core:4", "llc:2 core:2", "core:16", "llc:4 core:4", "llc:8 core:8"];
const SCOPES: [AffinityScopeChoice; 5] = [
    AffinityScopeChoice::Default,
    AffinityScopeChoice::Explicit(AffinityScope::Cpu),
    AffinityScopeChoice::Explicit(AffinityScope::CacheShard),
    AffinityScopeChoice::Explicit(AffinityScope::Cache),
    AffinityScopeChoice::Explicit(AffinityScope::System),
];

/// An open loop.
#[derive(Clone, Copy, Debug)]
struct Case {
    machine: &'static str,
    scope: AffinityScopeChoice,
    mix: Mix,
    pattern: Pattern,
    submitters: u64,
    /// Whether the mask leaves CPU 0 out.
    spares_first: bool,
    items: usize,
    /// How blocks are detected, if items block undeclared.
    blocks: Option<Tier>,
}

impl Case {
    fn draw(chance: &mut Chance) -> Case {
        let machine = *chance.pick(&MACHINES);
        let percent = *chance.pick(&[30, 60, 80]);
        let pattern = match chance.below(5) {
            0 => Pattern::Bursts { size: 10 + chance.below(91), percent },
            _ => Pattern::Poisson { percent },
        };
        Case {
            machine,
            scope: *chance.pick(&SCOPES),
            mix: *chance.pick(&Mix::ALL),
            pattern,
            submitters: 1 + chance.below(4),
            spares_first: chance.one_in(4),
            items: ITEMS,
            blocks: None,
        }
    }

    fn mask(&self, engine: &VirtualEngine) -> CpuSet {
        let skip = usize::from(self.spares_first);
        engine.config().allowed.iter().skip(skip).collect()
    }
}

/// Runs a case. Returns its arrivals, the number of CPUs in the mask, and how the items went.
fn run(seed: u64, case: Case, chaos: Chaos) -> (Vec<Arrival>, usize, Vec<Passage>) {
    with_engine(Setup { machine: case.machine, chaos, seed }, move |engine| {
        let host = engine.host();
        let mask = case.mask(engine);
        let attrs = Attrs { nice: 0, cpumask: mask.clone(), scope: case.scope, strict: false };
        let queue = make(engine, spec("q", Kind::Unbound(attrs)));
        let mut oracle = Conservation::new(&mask, chaos.wake_ns.max(chaos.spawn_ns));
        if let Some(tier) = case.blocks {
            host.detecting().tier = tier;
            oracle.expect_blocks();
        }
        host.machine().conservation = Some(Box::new(oracle));
        let cpus = mask.len();
        let all = {
            let chance = &mut host.machine().chance;
            arrivals(chance, case.mix, case.pattern, cpus as u64, case.items)
        };
        let mut streams = vec![Vec::new(); case.submitters as usize];
        for &arrival in &all {
            let at = match case.pattern {
                Pattern::Poisson { .. } => host.machine().chance.below(case.submitters),
                Pattern::Bursts { .. } => arrival.at % case.submitters,
            };
            streams[at as usize].push(arrival);
        }
        let streams = streams.into_iter().map(|stream| {
            let at = host.machine().chance.below(cpus as u64) as usize;
            let cpu = mask.iter().nth(at).expect("a CPU of the mask");
            let (queue, clock) = (queue.clone(), host.clone());
            host.start(&CpuSet::single(cpu), move || submit(&clock, &queue, &stream))
        });
        let submitters: Vec<_> = streams.collect();
        submitters.into_iter().for_each(|submitter| submitter.join(host));
        queue.flush().expect("not inside of an item");
        assert_eq!(engine.rescues(), 0, "the watch brought workers up that were missing");
        let oracle = host.machine().conservation.take().expect("set above");
        (all, cpus, oracle.items().to_vec())
    })
}

/// Calls `f` with the oracle, the time and the CPU of the calling thread.
fn with_oracle<R>(host: &VirtualHost, f: impl FnOnce(&mut Conservation, u64, u32) -> R) -> R {
    let mut machine = host.machine();
    let (now, cpu) = (machine.now, machine.current_cpu());
    f(machine.conservation.as_mut().expect("the history has an oracle"), now, cpu)
}

/// Queues each item at its time.
fn submit(host: &VirtualHost, queue: &crate::setup::VirtualQueue, stream: &[Arrival]) {
    for &Arrival { at, run_ns, doze_ns } in stream {
        let now = host.time();
        if at > now {
            host.doze(at - now);
        }
        let thread = host.thread_id();
        let no = with_oracle(host, |oracle, now, cpu| oracle.submit(now, cpu, thread));
        let clock = host.clone();
        let item = Item::new(move || {
            with_oracle(&clock, |oracle, now, cpu| oracle.start(now, no, cpu));
            clock.burn(run_ns);
            if doze_ns > 0 {
                clock.doze(doze_ns);
            }
            with_oracle(&clock, |oracle, now, _| oracle.end(now, no));
        });
        assert_eq!(item.queue(queue), Queued::Yes);
    }
}

/// Runs the random case of this seed.
fn run_seed(seed: u64) {
    run_changed(seed, |case| case);
}

/// Runs the random case of this seed, with a change.
fn run_changed(seed: u64, change: impl FnOnce(Case) -> Case) {
    let mut chance = Chance::new(!seed);
    let case = change(Case::draw(&mut chance));
    let wake_ns = *chance.pick(&[0, 5 * US, 20 * US]);
    let chaos = Chaos {
        drawn_order: chance.one_in(4),
        wake_ns,
        spawn_ns: wake_ns,
        park_ns: *chance.pick(&[0, 2 * US]),
        slice_ns: MS,
        ..Chaos::STEADY
    };
    let (arrivals, _, passages) = run(seed, case, chaos);
    assert_eq!(arrivals.len(), passages.len());
}

#[test]
fn no_item_waits_while_a_cpu_of_its_mask_idles() {
    if let Some(seed) = number("UWORK_SIM_SEED") {
        return run_seed(seed);
    }
    let seeds = number("UWORK_SIM_SEEDS").unwrap_or(SEEDS);
    let first = number("UWORK_SIM_FIRST").unwrap_or(0);
    let failed = failures(first..first + seeds, run_seed);
    assert!(failed.is_empty(), "{} histories failed: seeds {failed:?}", failed.len());
}

/// Runs the random case of this seed with items that sleep undeclared for long.
fn run_dozing(seed: u64, tier: Tier) {
    println!("{tier}, seed {seed}");
    let change = |case| Case { mix: Mix::DOZING, items: 500, blocks: Some(tier), ..case };
    run_changed(seed, change);
}

/// Items that sleep undeclared leave their CPU to the items that wait, in each tier.
#[test]
fn no_item_waits_behind_an_undeclared_block_while_a_cpu_idles() {
    for tier in [Tier::Standby, Tier::Events, Tier::Sampling] {
        (0..BLOCKING_SEEDS).for_each(|seed| run_dozing(seed, tier));
    }
}

#[test]
fn the_oracle_finds_items_that_wait_behind_a_block_that_no_thread_detects() {
    let is_found = |seed: u64| catch_unwind(|| run_dozing(seed, Tier::Declared)).is_err();
    assert!((0..BLOCKING_SEEDS).any(is_found), "no history fails without detection");
}

/// A machine whose wakes take time.
const LATENT: Chaos =
    Chaos { wake_ns: 5 * US, spawn_ns: 5 * US, park_ns: 2 * US, slice_ns: MS, ..Chaos::STEADY };

/// Short and long items on 16 CPUs in the default scope, at 60 % of their capacity.
fn bimodal(machine: &'static str, submitters: u64) -> Case {
    Case {
        machine,
        scope: AffinityScopeChoice::Default,
        mix: Mix::BIMODAL,
        pattern: Pattern::Poisson { percent: 60 },
        submitters,
        spares_first: false,
        items: 20_000,
        blocks: None,
    }
}

/// Machines on which the default scope has pods of one CPU and of four.
const OF_16_CPUS: [&str; 2] = ["core:16", "llc:4 core:4"];

/// Whether these times are close to those of a perfect queue: at most 1.3 times as long, and the cost
/// of four wakes.
fn assert_close(what: &str, times: &[u64], perfect: &[u64]) {
    for percent in [50, 90, 99] {
        let (real, best) = (percentile(times, percent), percentile(perfect, percent));
        let limit = best * 13 / 10 + 4 * LATENT.wake_ns;
        assert!(real <= limit, "{what}, percentile {percent}: {real} ns; perfect: {best} ns");
    }
}

#[test]
fn sojourn_times_are_close_to_those_of_a_perfect_queue() {
    for machine in OF_16_CPUS {
        for submitters in [1, 4, 16] {
            let (arrivals, cpus, passages) = run(1, bimodal(machine, submitters), LATENT);
            let perfect = perfect(&arrivals, cpus, 0);
            let sojourns: Vec<u64> = passages.iter().map(Passage::sojourn).collect();
            assert_close(&format!("{machine}, {submitters} submitters"), &sojourns, &perfect);
            let waits = |times: &[u64]| -> Vec<u64> {
                times.iter().zip(&arrivals).map(|(ns, arrival)| ns - arrival.run_ns).collect()
            };
            let what = format!("{machine}, {submitters} submitters, without the run");
            assert_close(&what, &waits(&sojourns), &waits(&perfect));
        }
    }
}

/// An item is held if it waits for more than 60 us in a row while a CPU idles: in a batch behind a
/// long item, or in a queue.
#[test]
fn no_item_waits_in_a_batch_behind_a_long_one_while_a_cpu_idles() {
    const HELD_NS: u64 = 60 * US;
    for machine in OF_16_CPUS {
        for submitters in [1, 4, 16] {
            let (_, _, passages) = run(2, bimodal(machine, submitters), LATENT);
            let is_held = |item: &&Passage| item.waited_beside_idle_ns > HELD_NS;
            let held = passages.iter().filter(is_held).count();
            assert_eq!(held, 0, "{machine}, {submitters} submitters");
        }
    }
}
