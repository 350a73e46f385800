//! Instructions that take time: histories, contention, and the text of costs.

use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};
use uwork_sim::check::check;
use uwork_sim::costs::kernel::Wake;
use uwork_sim::costs::load::{Load, Outcome, Queue, run as run_load};
use uwork_sim::costs::open::{OpenLoop, run as run_open, wake_ns};
use uwork_sim::costs::{Cost, Costs, play};
use uwork_sim::draw::draw;
use uwork_sim::machines::machine;
use uwork_sim::plan::Mix;
use uwork_sim::play::{Ending, Run};
use uwork_sim::script::parse;

/// Eight threads that queue many items of one queue.
fn flood(scope: &str, machine_text: &str, copies: u64) -> Run {
    let calls = "queue a; queue b; queue c";
    let thread = format!("thread: {calls}; {calls}; fork d {copies}\n");
    let text = format!(
        "queue q unbound scope={scope}\nitem a q: burn 1us\nitem b q: burn 1us\nitem c q: burn 1us\n\
         item d q: burn 1us\n{}",
        thread.repeat(8)
    );
    let script = parse(&text).unwrap();
    play(&script, &machine(machine_text).unwrap(), &Costs::default()).unwrap()
}

/// Random scripts with faults, where every access can let another thread run first.
#[test]
fn histories_hold_when_threads_lose_their_cpu_at_any_access() {
    let mut transfers = 0;
    for seed in 0..60 {
        let script = draw(seed);
        let machine = machine(&script.machine).unwrap();
        let run = play(&script, &machine, &Costs::default()).unwrap();
        let found = check(&script, &machine, &run);
        assert!(found.is_empty(), "seed {seed}: {found:?}");
        transfers += run.bill.unwrap().hottest().iter().map(|hot| hot.transfers).sum::<u64>();
    }
    assert!(transfers > 10_000, "{transfers}");
}

/// A waker runs between a worker's last look for work and its sleep. An early model of costs lost
/// that wake: a thread paid for another's accesses there.
#[test]
fn no_wake_is_lost_between_the_last_look_and_the_sleep() {
    for copies in 1..40 {
        let run = flood("system", "node:8 core:1", copies);
        assert_eq!((run.ending, run.rescues), (Ending::Complete, 0), "{copies} copies");
    }
}

#[test]
fn distant_caches_cost_more_than_near_ones() {
    let near = flood("system", "core:8", 50);
    let far = flood("system", "node:8 core:1", 50);
    assert_eq!(far.ending, Ending::Complete);
    let moved = |run: &Run| run.bill.as_ref().unwrap().hottest()[0];
    assert!(moved(&near).transfers > 100, "{:?}", moved(&near));
    assert!(far.busy_ns > near.busy_ns, "{} {}", far.busy_ns, near.busy_ns);
}

/// Catches: reads of a pool's target that are booked in the module of its word, whatever place makes them.
#[test]
fn an_access_is_booked_where_it_is_made() {
    let run = flood("cpu", "node:16 core:1", 50);
    let hottest = run.bill.unwrap().hottest();
    assert!(hottest.len() > 20, "{hottest:?}");
    let helpers = ["target_word.rs", "pool/state.rs", "sync/recorded.rs"];
    let named = |file: &str| helpers.iter().any(|helper| file.ends_with(helper));
    let blind: Vec<_> = hottest.iter().filter(|hot| named(hot.here.file())).collect();
    assert!(blind.is_empty(), "{blind:?}");
}

#[test]
fn a_text_of_costs_is_read_and_written() {
    let mut costs = Costs::default();
    costs.set(Cost::Cache, 60.5).unwrap();
    let read: Costs = costs.text().parse().unwrap();
    assert_eq!(read.ps(Cost::Cache), 60_500);
    assert_eq!(read.text(), costs.text());
}

#[test]
fn an_impossible_cost_is_refused_with_its_line_and_what_is_allowed() {
    let error = |text: &str| text.parse::<Costs>().unwrap_err().to_string();
    assert_eq!(
        error("# mine\ncache_ns -4\n"),
        "line 2: cache_ns is -4, and must be from 1 to 100000"
    );
    assert!(error("cache_ns NaN").contains("must be from 1"));
    assert!(
        error("cash_ns 4").contains("line 1: there is no cost 'cash_ns'; the costs are access_ns")
    );
    assert!(error("cache_ns 4 5").contains("a name and a number"));
    assert!(error("cache_ns 40\ncache_ns 50").contains("line 2: cache_ns is given twice"));
    assert!(error("remote_ns 20").contains("node_ns is more than remote_ns"));
}

/// Timers of one queue that are due at one moment, as near as arming them permits. Returns the most
/// threads of the engine.
fn timers_at_once(machine_text: &str, queue: &str, timers: u64) -> u64 {
    let item = |at: u64| format!("item t{at} q: burn 100ns\n");
    let arm = |at: u64| format!("arm t{at} {}ns; ", 10_000_000 - 200 * at);
    let (items, arms): (String, String) = (0..timers).map(|at| (item(at), arm(at))).unzip();
    let text = format!("queue q {queue}\n{items}thread: {arms}doze 20ms\n");
    let machine = machine(machine_text).unwrap();
    let script = parse(&text).unwrap();
    let run = play(&script, &machine, &Costs::default()).unwrap();
    let found = check(&script, &machine, &run);
    assert!(found.is_empty(), "{found:?}");
    assert_eq!((run.ending, run.rescues), (Ending::Complete, 0));
    run.counts.spawns
}

#[test]
fn timers_at_one_moment_make_no_threads() {
    for (machine, cpus) in [("core:2", 2), ("core:64", 64), ("node:2 core:64", 128)] {
        for queue in ["percpu", "unbound scope=cpu", "unbound scope=system"] {
            let threads = timers_at_once(machine, queue, 2_000);
            // A worker for each CPU, the watcher, and two.
            assert!(threads <= cpus + 3, "{machine}, {queue}: {threads} threads");
        }
    }
}

fn load(queue: Queue, scope: AffinityScope) -> Outcome {
    let load = Load {
        producers: 8,
        batch: 20,
        batches: 2,
        work_ns: 100,
        ..Load::new(AffinityScopeChoice::Explicit(scope))
    };
    run_load(&machine("core:8").unwrap(), &Costs::default(), queue, load).unwrap()
}

#[test]
fn a_lock_for_all_cpus_is_spun_for_and_one_for_each_cpu_is_not() {
    for wake in [Wake::Locked, Wake::Deferred] {
        let shared = load(Queue::Kernel(wake), AffinityScope::System);
        let own = load(Queue::Kernel(wake), AffinityScope::Cpu);
        assert_eq!((shared.items, own.items), (320, 320));
        // The wait for the lock's line is not counted, only that for its holder.
        assert!(shared.spun > 0.02, "{shared:?}");
        assert!(own.spun < 0.001, "{own:?}");
        assert!(own.rate() > shared.rate(), "{own:?} {shared:?}");
    }
}

/// The sums of the first batches are far greater: threads start there.
#[test]
fn the_figures_of_a_load_are_those_of_the_batches_that_count() {
    for warm_up in [4, 40] {
        let scope = AffinityScopeChoice::Explicit(AffinityScope::Cache);
        let load = Load { producers: 8, batch: 20, warm_up, batches: 2, ..Load::new(scope) };
        let machine = machine("core:8").unwrap();
        let outcome = run_load(&machine, &Costs::default(), Queue::Engine, load).unwrap();
        assert_eq!(outcome.items, 320);
        // All producers begin at once, on 8 CPUs.
        assert!(outcome.produced_ns <= 8 * outcome.elapsed_ns, "{outcome:?}");
        assert!(outcome.produced_ns > 2 * outcome.elapsed_ns, "{outcome:?}");
        assert!(outcome.busy_ns <= 8 * outcome.elapsed_ns, "{outcome:?}");
        assert!(outcome.wakes <= 160, "{outcome:?}");
    }
}

/// The second run has its blocks elsewhere, between blocks that were freed.
#[test]
fn a_load_on_the_engine_is_complete_and_the_same_again_on_another_heap() {
    let first = load(Queue::Engine, AffinityScope::Cache);
    let mut blocks: Vec<Vec<u8>> = (1..2_000).map(|size| vec![0; size % 700 + 1]).collect();
    let mut keep = false;
    blocks.retain(|_| {
        keep = !keep;
        keep
    });
    let second = load(Queue::Engine, AffinityScope::Cache);
    drop(blocks);
    assert_eq!((first.items, first.submissions_ns.len()), (320, 320));
    assert!(first.submission_ns(50) <= first.submission_ns(99) && first.threads > 0, "{first:?}");
    assert_eq!(first.submissions_ns, second.submissions_ns);
    assert_eq!(first.elapsed_ns, second.elapsed_ns);
}

/// `uwork sim scale` plays one run for all of them.
#[test]
fn scopes_with_the_same_pods_cost_the_same() {
    let [shard, cache, system] =
        [AffinityScope::CacheShard, AffinityScope::Cache, AffinityScope::System]
            .map(|scope| load(Queue::Engine, scope));
    for other in [cache, system] {
        assert_eq!(shard.submissions_ns, other.submissions_ns);
        assert_eq!((shard.elapsed_ns, shard.busy_ns), (other.elapsed_ns, other.busy_ns));
    }
}

fn open_loop(producers: Vec<u32>) -> OpenLoop {
    OpenLoop {
        producers,
        mix: Mix::alike(20_000),
        gap_ns: 100_000,
        items: 500,
        scope: AffinityScopeChoice::Default,
        seed: 1,
    }
}

#[test]
fn each_item_of_an_open_loop_has_its_time_beside_that_of_the_perfect_queue() {
    let (machine, costs) = (machine("llc:2 core:2").unwrap(), Costs::default());
    for producers in [vec![0], vec![0, 2]] {
        let outcome = run_open(&machine, &costs, &open_loop(producers)).unwrap();
        // The first fifth does not count.
        assert_eq!((outcome.sojourns_ns.len(), outcome.perfect_ns.len()), (400, 400));
        assert!(outcome.sojourns_ns.iter().all(|&ns| ns > 20_000), "{outcome:?}");
        // Two or three servers seldom have an item when the next one arrives.
        let woken = outcome.perfect_ns.iter().filter(|&&ns| ns == 20_000 + wake_ns(&costs));
        assert!(woken.count() > 200, "{outcome:?}");
        assert!(
            outcome.wakes > 0 && outcome.submissions_ns.iter().all(|&ns| ns > 0),
            "{outcome:?}"
        );
    }
}

#[test]
fn an_open_loop_without_a_cpu_for_its_items_is_refused() {
    let error = run_open(&machine("core:2").unwrap(), &Costs::default(), &open_loop(vec![0, 1]));
    assert!(error.unwrap_err().contains("each CPU has a producer"));
}
