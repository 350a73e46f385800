//! `uwork sim seeds`: published experiments, repeated on simulated machines, with the published
//! figures beside.

use std::fmt::Write;
use std::process::ExitCode;

use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};
use uwork_sim::costs::kernel::Wake;
use uwork_sim::costs::load::{Load, Outcome, Queue, run as play_load};
use uwork_sim::costs::{Costs, TYPICAL};
use uwork_sim::host::VirtualHost;
use uwork_sim::machines::machine;
use uwork_sim::play::play_on as play_script;
use uwork_sim::script::parse;
use uwork_sim::tape::What;

use super::{UserError, costs};
use crate::commands::print;
use crate::commands::progress::Progress;

#[derive(clap::Args)]
pub(super) struct Args {
    /// What instructions cost: the path of a file of `uwork sim calibrate`, or `typical`
    #[arg(long, value_name = "COSTS", default_value = TYPICAL)]
    costs: String,
    /// Batches that count in the experiment of the deferred wake-up
    #[arg(long, value_name = "N", default_value_t = BATCH.1 as u16,
          value_parser = clap::value_parser!(u16).range(1..=1_000))]
    batches: u16,
    /// The time under the kernel's lock there, twice for each item, instead of the fitted one
    #[arg(long, value_name = "NS")]
    held_ns: Option<u64>,
    /// Pins the issuers of the affinity study, to one CPU after the other
    #[arg(long)]
    pinned: bool,
}

/// The deferred wake-up: items a second with the wake under the lock and after it. B. Leitao,
/// "workqueue: defer wake_up_process() outside pool->lock on hot paths", May 2026; 8 producers on 8
/// CPUs.
const DEFERRED: [(AffinityScope, f64, f64); 6] = [
    (AffinityScope::Cpu, 1_419_973.0, 1_413_896.0),
    (AffinityScope::Smt, 1_442_921.0, 1_437_164.0),
    (AffinityScope::CacheShard, 1_184_058.0, 1_279_184.0),
    (AffinityScope::Cache, 1_167_603.0, 1_271_341.0),
    (AffinityScope::Numa, 1_163_617.0, 1_285_427.0),
    (AffinityScope::System, 1_175_933.0, 1_255_227.0),
];

/// Items outstanding in a batch, and batches that count.
const BATCH: (usize, usize) = (100, 16);
/// Producers, and CPUs of `arm8`.
const PRODUCERS: usize = 8;
/// The same for a producer that waits for each item.
const WAIT: (usize, usize) = (1, 100);

/// The share of CPU time in the pool's lock, in percent. C. Lever, "workqueue: Automatic affinity
/// scope fallback for single-pod topologies", February 2026; 12 cores on one cache. The source does
/// not say how long its items compute, so several lengths are shown.
const SPUN_PERCENT: f64 = 39.0;
const LENGTHS_NS: [u64; 6] = [0, 1_000, 2_000, 3_000, 5_000, 10_000];

/// The affinity study of the kernel's Documentation/core-api/workqueue.rst, dm-crypt on a Ryzen 9
/// 3900X: issuers, and MiB/s with the scopes `system`, `cache` and strict `cache`.
const AFFINITY: [(usize, [f64; 3]); 3] = [
    (24, [1_159.40, 1_166.40, 1_166.00]),
    (8, [1_155.40, 1_154.40, 1_112.00]),
    (4, [993.60, 973.40, 828.20]),
];
/// A request, in MiB; requests of an issuer at once, and batches that count.
const REQUEST_MIB: f64 = 1.0 / 32.0;
const REQUESTS: (usize, usize) = (64, 16);

/// A scenario of the kernel's Documentation/core-api/workqueue.rst: the queues of w0 and of the
/// others, and when w0, w1 and w2 start and end, in milliseconds.
struct Scenario {
    name: &'static str,
    queues: &'static str,
    others: &'static str,
    published: [(u64, u64); 3],
}

const SCENARIOS: [Scenario; 3] = [
    Scenario {
        name: "max_active >= 3",
        queues: "queue q percpu",
        others: "q",
        published: [(0, 20), (5, 20), (10, 25)],
    },
    Scenario {
        name: "max_active = 2",
        queues: "queue q percpu max_active=2",
        others: "q",
        published: [(0, 20), (5, 20), (20, 35)],
    },
    Scenario {
        name: "w1, w2 CPU-intensive",
        queues: "queue q percpu\nqueue r percpu intensive",
        others: "r",
        published: [(0, 20), (5, 20), (5, 25)],
    },
];

pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let figures = costs::read(&args.costs)?;
    let mut text = String::new();
    put(&mut text, format_args!("costs: {}", figures.source));
    let batch = (BATCH.0, usize::from(args.batches));
    let progress = Progress::new(Some(6));
    progress.begin("the times of the deferred wake-up");
    let path = path(&figures, batch, args.held_ns)?;
    progress.done();
    progress.begin("the deferred wake-up, batch");
    deferred(&mut text, &figures, "batch", batch, path)?;
    progress.done();
    progress.begin("the deferred wake-up, wait");
    deferred(&mut text, &figures, "wait", WAIT, path)?;
    progress.done();
    progress.begin("one last-level cache");
    single_cache(&mut text, &figures)?;
    progress.done();
    progress.begin("affinity scopes");
    affinity(&mut text, &figures, args.pinned)?;
    progress.done();
    progress.begin("example scenarios");
    golden(&mut text)?;
    drop(progress);
    print(&text)
}

/// Adds a line.
fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes every text");
}

fn play_on(name: &str, figures: &Costs, queue: Queue, load: Load) -> Result<Outcome, UserError> {
    let machine = machine(name).map_err(|error| UserError(error.to_string()))?;
    play_load(&machine, figures, queue, load).map_err(UserError)
}

fn gain(before: f64, after: f64) -> String {
    format!("{:+.1} %", (after / before - 1.0) * 100.0)
}

/// What the published machine computes for each item, beside the costs of the model.
#[derive(Clone, Copy)]
struct Path {
    /// For the producer, and as much for the worker, outside of the queue's lock.
    each_ns: u64,
    /// For the producer, and as much for the worker, under the lock.
    held_ns: u64,
    /// Whether the time under the lock is fitted to a published line.
    fitted: bool,
}

/// The steps in which the time under the lock is searched.
const HELD_STEP_NS: u64 = 100;
const HELD_STEPS: u64 = 7;

/// Two published lines give the machine's speed. Scope `cpu`, where nothing contends: an item's time
/// in all. Scope `system`, with locked wakes: how much of it is under the lock, unless `given` says.
fn path(
    figures: &Costs,
    (batch, batches): (usize, usize),
    given: Option<u64>,
) -> Result<Path, UserError> {
    let rate = |scope, each_ns, held_ns| {
        let scope = AffinityScopeChoice::Explicit(scope);
        let load = Load {
            producers: PRODUCERS,
            batch,
            batches,
            submit_ns: each_ns,
            held_ns,
            work_ns: each_ns,
            ..Load::new(scope)
        };
        play_on("arm8", figures, Queue::Kernel(Wake::Locked), load).map(|outcome| outcome.rate())
    };
    let [(alone, published, _), .., (shared, contended, _)] = DEFERRED;
    let item_ns = |rate: f64| PRODUCERS as f64 * 1e9 / rate;
    let all_ns = (item_ns(published) - item_ns(rate(alone, 0, 0)?)).max(0.0) as u64 / 2;
    if let Some(held_ns) = given {
        let Some(each_ns) = all_ns.checked_sub(held_ns) else {
            return Err(UserError(format!(
                "--held-ns {held_ns}: at most {all_ns}, which is half of an item's time"
            )));
        };
        return Ok(Path { each_ns, held_ns, fitted: false });
    }
    let mut best = (f64::MAX, Path { each_ns: all_ns, held_ns: 0, fitted: true });
    for held_ns in (0..HELD_STEPS).map(|step| step * HELD_STEP_NS).filter(|&ns| ns <= all_ns) {
        let each_ns = all_ns - held_ns;
        let off = (rate(shared, each_ns, held_ns)? - contended).abs();
        if off < best.0 {
            best = (off, Path { each_ns, held_ns, fitted: true });
        }
    }
    Ok(best.1)
}

fn deferred(
    text: &mut String,
    figures: &Costs,
    name: &str,
    (batch, batches): (usize, usize),
    path: Path,
) -> Result<(), UserError> {
    let Path { each_ns, held_ns, fitted } = path;
    let source = if fitted { "both fitted to published lines" } else { "the latter as given" };
    put(
        text,
        format_args!(
            "\ndeferred wake-up, simulated on arm8: 8 producers, {name}, thousand items/s\nof each item \
             {each_ns} ns for the producer and as much for the worker, and twice {held_ns} ns under the \
             kernel's lock, {source}"
        ),
    );
    put(
        text,
        format_args!(
            "{:<12} {:>26} | {:>28} | {:>8} | submission p50/p99 in ns: kernel's shape, engine",
            "scope", "published: locked deferred", "kernel's shape, simulated", "engine"
        ),
    );
    for (scope, locked, unlocked) in DEFERRED {
        let load = Load {
            producers: PRODUCERS,
            batch,
            batches,
            submit_ns: each_ns,
            held_ns,
            work_ns: each_ns,
            ..Load::new(AffinityScopeChoice::Explicit(scope))
        };
        let ours = play_on(
            "arm8",
            figures,
            Queue::Engine,
            Load { submit_ns: each_ns + held_ns, work_ns: each_ns + held_ns, ..load },
        )?;
        // Only batches are published.
        let published = match batch {
            1 => format!("{:>8} {:>8} {:>8}", "-", "-", "-"),
            _ => {
                let gain = gain(locked, unlocked);
                format!("{:>8.0} {:>8.0} {gain:>8}", locked / 1e3, unlocked / 1e3)
            }
        };
        let kernel = |wake| play_on("arm8", figures, Queue::Kernel(wake), load);
        let (before, after) = (kernel(Wake::Locked)?, kernel(Wake::Deferred)?);
        let times = |outcome: &Outcome| {
            format!("{}/{}", outcome.submission_ns(50), outcome.submission_ns(99))
        };
        put(
            text,
            format_args!(
                "{:<12} {published} | {:>9.0} {:>9.0} {:>8} | {:>8.0} | {} -> {}, {}",
                scope.name(),
                before.rate() / 1e3,
                after.rate() / 1e3,
                gain(before.rate(), after.rate()),
                ours.rate() / 1e3,
                times(&before),
                times(&after),
                times(&ours)
            ),
        );
    }
    Ok(())
}

fn single_cache(text: &mut String, figures: &Costs) -> Result<(), UserError> {
    put(
        text,
        format_args!(
            "\none last-level cache, simulated on desktop12: 12 producers, share of CPU time spinning \
             for locks\npublished for the kernel's cache scope: {SPUN_PERCENT} % (items of unknown \
             length)"
        ),
    );
    let heads = ["kernel cache", "kernel cpu", "engine default", "engine cache"];
    put(
        text,
        format_args!(
            "{:<10} {:>22} {:>22} {:>22} {:>22}",
            "item ns", heads[0], heads[1], heads[2], heads[3]
        ),
    );
    let cache = AffinityScopeChoice::Explicit(AffinityScope::Cache);
    let cpu = AffinityScopeChoice::Explicit(AffinityScope::Cpu);
    let kernel = Queue::Kernel(Wake::Locked);
    let variants = [
        (kernel, cache),
        (kernel, cpu),
        (Queue::Engine, AffinityScopeChoice::Default),
        (Queue::Engine, cache),
    ];
    for work_ns in LENGTHS_NS {
        let _ = write!(text, "{work_ns:<10}");
        for (queue, scope) in variants {
            let (batch, batches) = BATCH;
            let load = Load { producers: 12, batch, batches, work_ns, ..Load::new(scope) };
            let outcome = play_on("desktop12", figures, queue, load)?;
            let (spun, rate) = (outcome.spun * 100.0, outcome.rate() / 1e3);
            let _ = write!(text, " {:>22}", format!("{spun:.1} % {rate:.0} k/s"));
        }
        text.push('\n');
    }
    Ok(())
}

/// Two published lines, both of `system`, give the lengths. With 4 issuers the issuers are always
/// busy; with 24, all CPUs are.
fn affinity(text: &mut String, figures: &Costs, pinned: bool) -> Result<(), UserError> {
    let ns_per_request = |cpus: f64, mib: f64| cpus * REQUEST_MIB / mib * 1e9;
    let submit_ns = ns_per_request(4.0, AFFINITY[2].1[0]) as u64;
    let work_ns = ns_per_request(24.0, AFFINITY[0].1[0]) as u64 - submit_ns;
    put(
        text,
        format_args!(
            "\naffinity scopes, simulated on ryzen3900x: MiB/s in requests of 32 KiB\n\
             of each request {submit_ns} ns for the issuer and {work_ns} ns for the worker, from two published \
             lines; issuers {}\n{:<8} {:>28} | {:>28}",
            if pinned { "pinned" } else { "roam" },
            "issuers",
            "published: system cache strict",
            "engine, simulated"
        ),
    );
    let cache = AffinityScope::Cache;
    let variants = [(AffinityScope::System, false), (cache, false), (cache, true)];
    for (issuers, published) in AFFINITY {
        let mut line = format!("{issuers:<8}");
        published.iter().for_each(|mib| line += &format!(" {mib:>9.0}"));
        line += "  |";
        for (scope, strict) in variants {
            let load = Load {
                producers: issuers,
                batch: REQUESTS.0,
                batches: REQUESTS.1,
                submit_ns,
                work_ns,
                strict,
                roams: !pinned,
                ..Load::new(AffinityScopeChoice::Explicit(scope))
            };
            let outcome = play_on("ryzen3900x", figures, Queue::Engine, load)?;
            line += &format!(" {:>9.0}", outcome.rate() * REQUEST_MIB);
        }
        put(text, format_args!("{line}"));
    }
    Ok(())
}

/// The scenarios need no costs: their times are those of the items alone.
fn golden(text: &mut String) -> Result<(), UserError> {
    put(
        text,
        format_args!("\nexample scenarios of the kernel's documents, simulated without costs"),
    );
    put(
        text,
        format_args!("{:<24} {:<5} {:>18} {:>24}", "queue", "item", "published ms", "ours us"),
    );
    for scenario in &SCENARIOS {
        let others = scenario.others;
        let script = format!(
            "machine core:1\n{}\nitem w0 q: burn 5ms; sleep 10ms; burn 5ms\nitem w1 {others}: burn 5ms; \
             sleep 10ms\nitem w2 {others}: burn 5ms; sleep 10ms\nthread: queue w0; queue w1; queue w2\n",
            scenario.queues
        );
        let script = parse(&script).expect("a script of the program");
        let machine = machine(&script.machine).map_err(|error| UserError(error.to_string()))?;
        // The published times have no time slices.
        let unsliced = |host: &VirtualHost| host.machine().chaos.slice_ns = 0;
        let run = play_script(&script, &machine, unsliced).map_err(UserError)?;
        for (item, (starts, ends)) in scenario.published.into_iter().enumerate() {
            let at = |what: What| {
                let entry = run.tape.entries().iter().find(|entry| entry.what == what);
                entry.map_or(u64::MAX, |entry| entry.at)
            };
            let (started, ended) = (at(What::Starts(item)), at(What::Finishes(item)));
            let same = started == starts * 1_000_000 && ended == ends * 1_000_000;
            put(
                text,
                format_args!(
                    "{:<24} w{item:<4} {:>18} {:>24} {}",
                    scenario.name,
                    format!("{starts} to {ends}"),
                    format!("{} to {}", started / 1_000, ended / 1_000),
                    if same { "exact" } else { "differs" }
                ),
            );
        }
    }
    Ok(())
}
