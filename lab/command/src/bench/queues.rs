//! `uwork-lab bench queues`: the cost of a queue: to create it, its memory, to use it once, to destroy
//! it.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use uwork::Queue;

use super::options::count;
use super::record::{Record, Target};
use super::{UserError, uwork_pool};

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of queues that exist at once
    #[arg(long, value_name = "N", default_value = "100000", allow_hyphen_values = true)]
    queues: String,
    /// A hundredth of that number, for a quick check
    #[arg(long)]
    quick: bool,
    /// Write the records to FILE
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The results for one kind of queue.
struct Outcome {
    kind: &'static str,
    create_ns: f64,
    bytes: f64,
    use_ns: f64,
    destroy_ns: f64,
}

/// Existing queues, and the results so far.
struct Made(Vec<Queue>, Outcome);

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    let queues = count("--queues", &args.queues, 1..=1_000_000)?;
    let count = if args.quick { queues.div_ceil(100) } else { queues };
    let json = args.json.as_deref().map(Target::check).transpose()?;
    // All queues are kept until the last one is measured, so that none reuses the memory of
    // another.
    let made = ["unbound", "percpu", "ordered"]
        .into_iter()
        .map(|kind| make_and_use(kind, count))
        .collect::<Result<Vec<_>, _>>()?;
    let outcomes: Vec<Outcome> = made.into_iter().map(destroy).collect();
    println!("queues  ({count} of each kind at once)");
    println!("kind     create ns  bytes each  use once ns  destroy ns");
    for outcome in &outcomes {
        let Outcome { kind, create_ns, bytes, use_ns, destroy_ns } = outcome;
        println!("{kind:<8} {create_ns:>9.0}  {bytes:>10.0}  {use_ns:>11.0}  {destroy_ns:>10.0}");
    }
    let records = outcomes.iter().flat_map(|outcome| {
        [
            ("create", ("ns_per_op", "ns"), outcome.create_ns),
            ("create", ("bytes_per_queue", "B"), outcome.bytes),
            ("use", ("ns_per_op", "ns"), outcome.use_ns),
            ("destroy", ("ns_per_op", "ns"), outcome.destroy_ns),
        ]
        .map(|(case, metric, value)| {
            Record::single("queues", case, uwork_pool::RUNNER, outcome.kind, metric, value)
        })
    });
    match json {
        Some(target) => target.write(&records.collect::<Vec<_>>()),
        None => Ok(()),
    }
    .map(|()| ExitCode::SUCCESS)
}

fn make_and_use(kind: &'static str, count: usize) -> Result<Made, UserError> {
    let make = |name: String| {
        let builder = Queue::builder(name);
        let builder = match kind {
            "percpu" => builder.per_cpu(),
            "ordered" => builder.ordered(),
            _ => builder,
        };
        builder.build().map_err(|error| UserError(error.to_string()))
    };
    // The first queue of its kind creates the threads, which all later queues share.
    let first = make(format!("bench-{kind}-first"))?;
    let names: Vec<String> = (0..count).map(|number| format!("bench-{kind}-{number}")).collect();
    let mut queues = Vec::with_capacity(count);
    let before = resident_bytes()?;
    let (result, create_ns) = timed(count, || {
        for name in names {
            queues.push(make(name)?);
        }
        Ok(())
    });
    result?;
    let bytes = resident_bytes()?.saturating_sub(before) as f64 / count as f64;
    let (result, use_ns) = timed(count, || {
        let handles: Vec<_> = queues.iter().map(|queue| queue.spawn(|| ())).collect();
        handles.into_iter().try_for_each(|handle| handle.join())
    });
    result.map_err(|error| UserError(error.to_string()))?;
    drop(first);
    Ok(Made(queues, Outcome { kind, create_ns, bytes, use_ns, destroy_ns: 0.0 }))
}

fn destroy(Made(queues, outcome): Made) -> Outcome {
    let ((), destroy_ns) = timed(queues.len(), || drop(queues));
    Outcome { destroy_ns, ..outcome }
}

/// The result of `f`, and its duration divided by `count`, in nanoseconds.
fn timed<R>(count: usize, f: impl FnOnce() -> R) -> (R, f64) {
    let start = Instant::now();
    let result = f();
    (result, start.elapsed().as_nanos() as f64 / count as f64)
}

/// The resident memory of this process.
fn resident_bytes() -> Result<u64, UserError> {
    const PAGE: u64 = 4_096;
    let path = "/proc/self/statm";
    let text = fs::read_to_string(path).map_err(|error| UserError(format!("{path}: {error}")))?;
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.map(|pages| pages * PAGE).ok_or_else(|| UserError(format!("{path}: {text:?}")))
}
