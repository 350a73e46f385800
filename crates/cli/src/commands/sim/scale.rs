//! `uwork sim scale`: one producer on each CPU, from 1 to 1,024 CPUs, as a table and a picture.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::AffinityScopeChoice;
use uwork_policy::topology::Topology;
use uwork_sim::costs::load::{Load, Outcome, Queue, run as play};
use uwork_sim::costs::{Costs, TYPICAL};

use super::machines::{SIZES, of_size, pods, sizes};
use super::parallel::in_order;
use super::{UserError, costs};
use crate::commands::progress::Progress;
use crate::commands::{print, written};

#[derive(clap::Args)]
pub(super) struct Args {
    /// What instructions cost: the path of a file of `uwork sim calibrate`, or `typical`
    #[arg(long, value_name = "COSTS", default_value = TYPICAL)]
    costs: String,
    /// Only machines with at least this many CPUs.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    from: u16,
    /// Only machines with at most this many CPUs.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..=1024))]
    cpus: u16,
    /// The scopes of the queue.
    #[arg(
        long = "scope",
        value_name = "SCOPE",
        value_parser = crate::commands::scope::parser(),
        default_values =
            ["default", "cpu", "smt", "cluster", "cache_shard", "cache", "numa", "system"]
    )]
    scopes: Vec<AffinityScopeChoice>,
    /// Items of a batch. Each producer submits a batch, waits for it, and repeats.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    /// Batches of each producer that count.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    batches: u16,
    /// What an item computes, in nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    work: u64,
    /// Places in the engine that a row names: those for whose accesses lines moved for the longest time.
    #[arg(long, value_name = "N", default_value_t = 3)]
    places: usize,
    /// Pods do not take each other's items.
    #[arg(long)]
    strict: bool,
    /// Write the throughput as a picture to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The colors of the picture's lines.
const COLORS: [&str; 8] =
    ["#1f77b4", "#2ca02c", "#ff7f0e", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f"];

/// A simulation. The engine knows a scope only by its pods, so scopes with the same pods share a run.
struct Run {
    cpus: usize,
    pods: Vec<CpuSet>,
    machine: Topology,
    scope: AffinityScopeChoice,
}

/// A line of the table and a point of the picture.
struct Point {
    scope: AffinityScopeChoice,
    cpus: usize,
    pods: usize,
    /// The number of its run.
    run: usize,
}

/// The runs and the points of these scopes and sizes. The first run is that of one CPU.
fn plan(
    scopes: &[AffinityScopeChoice],
    sizes: &[usize],
) -> Result<(Vec<Run>, Vec<Point>), UserError> {
    let run = |scope, cpus| {
        let machine = of_size(cpus);
        machine.map(|machine| Run { cpus, pods: pods(&machine, scope), machine, scope })
    };
    let (mut runs, mut points) = (vec![run(AffinityScopeChoice::Default, 1)?], Vec::new());
    for &scope in scopes {
        for &cpus in sizes {
            let new = run(scope, cpus)?;
            let pods = new.pods.len();
            let known = runs.iter().position(|run| run.cpus == cpus && run.pods == new.pods);
            let run = known.unwrap_or(runs.len());
            if known.is_none() {
                runs.push(new);
            }
            points.push(Point { scope, cpus, pods, run });
        }
    }
    Ok((runs, points))
}

fn measure(args: &Args, figures: &Costs, run: &Run) -> Result<Outcome, UserError> {
    let load = Load {
        producers: run.cpus,
        batch: usize::from(args.batch),
        batches: usize::from(args.batches),
        work_ns: args.work,
        strict: args.strict,
        ..Load::new(run.scope)
    };
    play(&run.machine, figures, Queue::Engine, load).map_err(UserError)
}

pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let figures = costs::read(&args.costs)?;
    if !written(&titles(args, &figures))? {
        return Ok(ExitCode::SUCCESS);
    }
    let (runs, points) = plan(&args.scopes, &sizes(args.from, args.cpus))?;
    let progress = Progress::new(Some(runs.len()));
    let measure = |run: &Run| {
        progress.begin(format!("{}, {} CPUs", run.scope, run.cpus));
        let outcome = measure(args, &figures, run)?;
        progress.done();
        Ok(outcome)
    };
    let (mut outcomes, mut shown) = (Vec::new(), 0);
    let show = |outcome| {
        outcomes.push(outcome);
        while let Some(point) = points.get(shown).filter(|point| point.run < outcomes.len()) {
            let row = row(point, &outcomes[point.run], &outcomes[0], args.places);
            if !progress.suspend(|| written(&row))? {
                return Ok(false);
            }
            shown += 1;
        }
        Ok(true)
    };
    let reads = in_order(&runs, measure, show)?;
    drop(progress);
    let Some(path) = args.svg.as_ref().filter(|_| reads) else { return Ok(ExitCode::SUCCESS) };
    std::fs::write(path, svg(&points, &outcomes, args, &figures))
        .map_err(|error| UserError(format!("{}: {error}", path.display())))?;
    print(&format!("picture: {}\n", path.display()))
}

fn titles(args: &Args, figures: &Costs) -> String {
    let (batch, work, source) = (args.batch, args.work, &figures.source);
    let strict = if args.strict { ", strict" } else { "" };
    format!(
        "simulated: a producer on each CPU, {} batches of {batch} items of {work} ns{strict}; of 1: ns/item \
         over that of one CPU\n\
         costs: {source}\n{:<12} {:>5} {:>5} {:>11} {:>8} {:>6} {:>11} {:>12} {:>8} {:>8} {:>10} {:>8}  {}\n",
        args.batches,
        "scope",
        "CPUs",
        "pods",
        "items/s",
        "ns/item",
        "of 1",
        "CPU ns/item",
        "line ns/item",
        "enq p50",
        "enq p99",
        "wakes/item",
        "KiB",
        "places with the most line time"
    )
}

fn row(point: &Point, outcome: &Outcome, alone: &Outcome, places: usize) -> String {
    let Point { scope, cpus, pods, .. } = point;
    let each = outcome.ns_per_item();
    format!(
        "{:<12} {cpus:>5} {pods:>5} {:>11.0} {each:>8.0} {:>6.2} {:>11.0} {:>12.0} {:>8} {:>8} {:>10.2} {:>8}  {}\n",
        scope.to_string(),
        outcome.rate(),
        each / alone.ns_per_item(),
        outcome.busy_ns_per_item(),
        outcome.lines_ns_per_item(),
        outcome.submission_ns(50),
        outcome.submission_ns(99),
        outcome.wakes_per_item(),
        outcome.used_bytes / 1024,
        costs::shares(&outcome.hottest, places)
    )
}

/// The size of the picture, and the space around its axes.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const MARGIN: f64 = 60.0;

/// The lines of the picture. Scopes that share all runs share a line.
fn curves<'a>(
    points: &'a [Point],
    scopes: &[AffinityScopeChoice],
) -> Vec<(String, Vec<&'a Point>)> {
    let mut curves: Vec<(String, Vec<&Point>)> = Vec::new();
    for scope in scopes {
        let own: Vec<&Point> = points.iter().filter(|point| point.scope == *scope).collect();
        let is_same =
            |others: &[&Point]| others.iter().zip(&own).all(|(one, other)| one.run == other.run);
        match curves.iter_mut().find(|(_, others)| is_same(others)) {
            Some((names, _)) => *names += &format!(", {scope}"),
            None => curves.push((scope.to_string(), own)),
        }
    }
    curves
}

/// The throughput over the CPUs, both on logarithmic axes.
fn svg(points: &[Point], outcomes: &[Outcome], args: &Args, figures: &Costs) -> String {
    let rate = |point: &Point| outcomes[point.run].rate().log10();
    let rates = || points.iter().map(rate);
    let least = rates().fold(f64::MAX, f64::min).floor();
    let most = rates().fold(f64::MIN, f64::max).ceil().max(least + 1.0);
    let widest = points.iter().map(|point| point.cpus).max().unwrap_or(1).max(2);
    let x = |cpus: usize| {
        MARGIN + (cpus as f64).log2() / (widest as f64).log2() * (WIDTH - 2.0 * MARGIN)
    };
    let y = |rate: f64| HEIGHT - MARGIN - (rate - least) / (most - least) * (HEIGHT - 2.0 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" \
         fill=\"white\"/>\n"
    );
    let write = |x: f64, y: f64, anchor: &str, words: &str| {
        format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n")
    };
    let source = figures.source.replace('&', "&amp;").replace('<', "&lt;");
    text += &write(MARGIN, 24.0, "start", &format!("simulated items a second; costs: {source}"));
    text += &write(WIDTH / 2.0, HEIGHT - 16.0, "middle", "CPUs");
    for power in least as i32..=most as i32 {
        let at = y(f64::from(power));
        let _ =
            writeln!(text, "<path d=\"M{MARGIN} {at:.1}H{}\" stroke=\"#ddd\"/>", WIDTH - MARGIN);
        text += &write(MARGIN - 6.0, at + 4.0, "end", &format!("1e{power}"));
    }
    for cpus in SIZES.into_iter().filter(|&cpus| cpus <= widest) {
        text += &write(x(cpus), HEIGHT - MARGIN + 18.0, "middle", &cpus.to_string());
    }
    // Lines may coincide in part. The first ones are thin, and on top of the others.
    for (at, (names, points)) in curves(points, &args.scopes).iter().enumerate().rev() {
        let (color, width) = (COLORS[at % COLORS.len()], 2.0 + 1.5 * at as f64);
        let point = |point: &&Point| format!("{:.1},{:.1}", x(point.cpus), y(rate(point)));
        let line = points.iter().map(point).collect::<Vec<_>>().join(" ");
        let _ = writeln!(
            text,
            "<polyline points=\"{line}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\"/>"
        );
        let at = MARGIN + 16.0 * (at as f64 + 1.0);
        let _ = writeln!(
            text,
            "<path d=\"M{} {at}h20\" stroke=\"{color}\" stroke-width=\"{width}\"/>",
            MARGIN + 10.0
        );
        text += &write(MARGIN + 36.0, at + 4.0, "start", names);
    }
    text + "</svg>\n"
}
