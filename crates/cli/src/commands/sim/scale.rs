//! `uwork sim scale`: one producer on each CPU, from 1 to 1,024 CPUs, as a table and a picture.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};
use uwork_sim::costs::load::{Load, Outcome, Queue, run as play};
use uwork_sim::costs::{Costs, TYPICAL};
use uwork_sim::machines::machine;

use super::{UserError, costs};
use crate::commands::print;

/// The sizes of machines.
const CPUS: [usize; 8] = [1, 2, 4, 8, 32, 128, 512, 1024];
/// The size with which others are compared.
const COMPARED: usize = 8;
/// Batches of a producer that count.
const BATCHES: usize = 4;
/// CPUs of a cache, and caches of a node, as in the machine `numa1024`.
const CACHE_CPUS: usize = 8;
const NODE_CACHES: usize = 8;

#[derive(clap::Args)]
pub(super) struct Args {
    /// What instructions cost: the path of a file of `uwork sim calibrate`, or `typical`
    #[arg(long, value_name = "COSTS", default_value = TYPICAL)]
    costs: String,
    /// Only machines with at most this many CPUs.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..=1024))]
    cpus: u16,
    /// Items of a batch. Each producer submits a batch, waits for it, and repeats.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
    /// What an item computes, in nanoseconds.
    #[arg(long, value_name = "NS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(0..=1_000_000))]
    work: u64,
    /// Pods do not take each other's items.
    #[arg(long)]
    strict: bool,
    /// Write the throughput as a picture to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// The scopes: a line of the picture for each, with its color.
const SCOPES: [(AffinityScopeChoice, &str); 4] = [
    (AffinityScopeChoice::Default, "#1f77b4"),
    (AffinityScopeChoice::Explicit(AffinityScope::Cpu), "#2ca02c"),
    (AffinityScopeChoice::Explicit(AffinityScope::Cache), "#ff7f0e"),
    (AffinityScopeChoice::Explicit(AffinityScope::System), "#d62728"),
];

/// A machine of this size: caches of 8 CPUs, nodes of 8 caches.
fn notation(cpus: usize) -> String {
    let (cache, node) = (CACHE_CPUS, CACHE_CPUS * NODE_CACHES);
    if cpus <= cache {
        format!("core:{cpus}")
    } else if cpus <= node {
        format!("llc:{} core:{cache}", cpus / cache)
    } else {
        format!("node:{} llc:{NODE_CACHES} core:{cache}", cpus / node)
    }
}

/// A line of the table and a point of the picture.
struct Point {
    scope: usize,
    cpus: usize,
    outcome: Outcome,
}

fn measure(args: &Args, figures: &Costs) -> Result<Vec<Point>, UserError> {
    let mut points = Vec::new();
    for (scope, &(choice, _)) in SCOPES.iter().enumerate() {
        for cpus in CPUS.into_iter().filter(|&cpus| cpus <= usize::from(args.cpus)) {
            let load = Load {
                producers: cpus,
                batch: usize::from(args.batch),
                batches: BATCHES,
                work_ns: args.work,
                strict: args.strict,
                ..Load::new(choice)
            };
            let machine = machine(&notation(cpus)).map_err(|error| UserError(error.to_string()))?;
            let outcome = play(&machine, figures, Queue::Engine, load).map_err(UserError)?;
            points.push(Point { scope, cpus, outcome });
        }
    }
    Ok(points)
}

pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let figures = costs::read(&args.costs)?;
    let points = measure(args, &figures)?;
    let mut text = String::new();
    let (batch, work, source) = (args.batch, args.work, &figures.source);
    let strict = if args.strict { ", strict" } else { "" };
    let _ = writeln!(
        text,
        "simulated: a producer on each CPU, batches of {batch} items of {work} ns{strict}\ncosts: {source}"
    );
    let heads = ["CPUs", "items/s", "ns/item", "of 8", "enq p50", "enq p99", "wakes/item", "KiB"];
    let _ = write!(text, "{:<12}", "scope");
    heads.iter().for_each(|head| {
        let _ = write!(text, " {head:>10}");
    });
    let _ = writeln!(text, "  line with the most time");
    for point in &points {
        row(&mut text, &points, point);
    }
    if let Some(path) = &args.svg {
        std::fs::write(path, svg(&points, &figures))
            .map_err(|error| UserError(format!("{}: {error}", path.display())))?;
        let _ = writeln!(text, "picture: {}", path.display());
    }
    print(&text)
}

fn row(text: &mut String, points: &[Point], point: &Point) {
    let Point { scope, cpus, outcome } = point;
    let each = outcome.ns_per_item(*cpus);
    let compared =
        points.iter().find(|other| other.scope == *scope && other.cpus == COMPARED).map_or_else(
            || "-".to_owned(),
            |other| format!("{:.2}", each / other.outcome.ns_per_item(COMPARED)),
        );
    let name = SCOPES[*scope].0.to_string();
    let wakes = outcome.wakes as f64 / outcome.items as f64;
    let hot = outcome.hottest.map_or_else(String::new, |hot| {
        format!("{}:{}", costs::place(hot.here.file()), hot.here.line())
    });
    let _ = writeln!(
        text,
        "{name:<12} {cpus:>10} {:>10.0} {each:>10.0} {compared:>10} {:>10} {:>10} {wakes:>10.2} {:>10}  {hot}",
        outcome.rate(),
        outcome.submission_ns(50),
        outcome.submission_ns(99),
        outcome.used_bytes / 1024
    );
}

/// The size of the picture, and the space around its axes.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
const MARGIN: f64 = 60.0;

/// The throughput over the CPUs, both on logarithmic axes.
fn svg(points: &[Point], figures: &Costs) -> String {
    let rates = || points.iter().map(|point| point.outcome.rate().log10());
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
    for cpus in CPUS.into_iter().filter(|&cpus| cpus <= widest) {
        text += &write(x(cpus), HEIGHT - MARGIN + 18.0, "middle", &cpus.to_string());
    }
    for (scope, (choice, color)) in SCOPES.into_iter().enumerate() {
        let line: Vec<String> = points
            .iter()
            .filter(|point| point.scope == scope)
            .map(|point| format!("{:.1},{:.1}", x(point.cpus), y(point.outcome.rate().log10())))
            .collect();
        let line = line.join(" ");
        let _ = writeln!(
            text,
            "<polyline points=\"{line}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"/>"
        );
        let at = MARGIN + 16.0 * (scope as f64 + 1.0);
        let _ = writeln!(
            text,
            "<path d=\"M{} {at}h20\" stroke=\"{color}\" stroke-width=\"2\"/>",
            MARGIN + 10.0
        );
        text += &write(MARGIN + 36.0, at + 4.0, "start", &choice.to_string());
    }
    text + "</svg>\n"
}
