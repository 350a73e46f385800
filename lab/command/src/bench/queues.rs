//! `uwork-lab bench queues`: the cost of a queue: to create it, its memory, to use it once, to destroy
//! it.

use std::cell::RefCell;
use std::fs;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use uwork::Queue;

use super::contestant::{Contestant, Group, Names, RatioTo};
use super::measured::Measured;
use super::options::count;
use super::pipeline::{Output, Plan};
use super::summary::Metric;
use super::{UserError, report, uwork_pool};

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Number of queues that exist at once
    #[arg(long, value_name = "N", default_value = "100000", allow_hyphen_values = true)]
    queues: String,
    /// A hundredth of that number, for a quick check
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    output: Output,
}

const NANOS: Metric = Metric { name: "ns_per_op", unit: "ns", title: "ns_per_op", decimals: 0 };
const BYTES: Metric =
    Metric { name: "bytes_per_queue", unit: "B", title: "bytes_per_queue", decimals: 0 };

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    let queues = count("--queues", &args.queues, 1..=1_000_000)?;
    let count = if args.quick { queues.div_ceil(100) } else { queues };
    let kinds =
        ["unbound", "percpu", "ordered"].map(|name| Rc::new(Kind { name, ..Kind::default() }));
    let mut contestants = Vec::new();
    for kind in &kinds {
        contestants.push(contestant("create", kind, move |kind| kind.create(count)));
        contestants.push(contestant("use", kind, Kind::use_once));
    }
    // All queues are kept until the last one is measured, so that none reuses the memory of
    // another.
    contestants.extend(kinds.iter().map(|kind| contestant("destroy", kind, Kind::destroy)));
    let title = format!("queues  ({count} of each kind at once)");
    // In one sample, because a second one would reuse the memory of the first.
    let group = Group { title, contestants, samples: 1, ratio_to: RatioTo::Nothing };
    Plan::new("queues", vec![group]).shown_by(report::list).one_sample_suffices().run(&args.output)
}

fn contestant(
    case: &'static str,
    kind: &Rc<Kind>,
    measure: impl Fn(&Kind) -> Result<Measured, UserError> + 'static,
) -> Contestant<Measured> {
    let kind = Rc::clone(kind);
    Contestant {
        names: Names { case, runner: uwork_pool::RUNNER, variant: kind.name.to_owned() },
        standing: None,
        measure: Box::new(move |_| measure(&kind)),
    }
}

/// The queues of a kind, which the contestants create, use and destroy in this order.
#[derive(Default)]
struct Kind {
    name: &'static str,
    /// The first queue of its kind creates the threads, which all later queues share.
    first: RefCell<Option<Queue>>,
    queues: RefCell<Vec<Queue>>,
}

impl Kind {
    fn make(&self, name: String) -> Result<Queue, UserError> {
        let builder = Queue::builder(name);
        let builder = match self.name {
            "percpu" => builder.per_cpu(),
            "ordered" => builder.ordered(),
            _ => builder,
        };
        builder.build().map_err(|error| UserError(error.to_string()))
    }

    fn create(&self, count: usize) -> Result<Measured, UserError> {
        let kind = self.name;
        *self.first.borrow_mut() = Some(self.make(format!("bench-{kind}-first"))?);
        let names: Vec<String> =
            (0..count).map(|number| format!("bench-{kind}-{number}")).collect();
        let mut queues = Vec::with_capacity(count);
        let before = resident_bytes()?;
        let (result, nanos) = timed(count, || {
            for name in names {
                queues.push(self.make(name)?);
            }
            Ok(())
        });
        result?;
        let bytes = resident_bytes()?.saturating_sub(before) as f64 / count as f64;
        *self.queues.borrow_mut() = queues;
        Ok(Measured::new(vec![(NANOS, nanos), (BYTES, bytes)]))
    }

    fn use_once(&self) -> Result<Measured, UserError> {
        let queues = self.queues.borrow();
        let (result, nanos) = timed(queues.len(), || {
            let handles: Vec<_> = queues.iter().map(|queue| queue.spawn(|| ())).collect();
            handles.into_iter().try_for_each(|handle| handle.join())
        });
        result.map_err(|error| UserError(error.to_string()))?;
        *self.first.borrow_mut() = None;
        Ok(Measured::new(vec![(NANOS, nanos)]))
    }

    fn destroy(&self) -> Result<Measured, UserError> {
        let queues = self.queues.take();
        let ((), nanos) = timed(queues.len(), || drop(queues));
        Ok(Measured::new(vec![(NANOS, nanos)]))
    }
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
