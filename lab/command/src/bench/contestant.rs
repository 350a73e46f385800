//! The contestants: one runner with one load each, and the groups that are compared with each
//! other.

use uwork_rivals::{Load, Rival, Sample, Standing};

use super::UserError;

/// The fixed names by which a figure is tracked over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) case: &'static str,
    pub(super) runner: &'static str,
    pub(super) variant: String,
}

impl Names {
    /// The names in a sentence: `uwork default (flood)`.
    pub(super) fn spoken(&self) -> String {
        let space = if self.variant.is_empty() { "" } else { " " };
        format!("{}{space}{} ({})", self.runner, self.variant, self.case)
    }
}

/// Takes one sample, whose number is given; numbers start at 0. An error ends the benchmark.
pub(super) type Measure<S> = Box<dyn Fn(usize) -> Result<S, UserError>>;

/// A runner that is ready to be measured any number of times.
pub(super) struct Contestant<S = Sample> {
    pub(super) names: Names,
    /// `None` for uwork itself.
    pub(super) standing: Option<Standing>,
    pub(super) measure: Measure<S>,
}

impl Contestant {
    /// A rival under the load; `ordered` limits it to one worker.
    pub(super) fn rival(rival: Rival, case: &'static str, load: Load, ordered: bool) -> Self {
        let workers = if ordered { 1 } else { cpus() };
        let variant = if ordered { "ordered" } else { rival.variant };
        Self {
            names: Names { case, runner: rival.runner, variant: with_clock(variant, load.clock) },
            standing: Some(rival.standing),
            measure: Box::new(move |_| Ok(rival.measure(workers, &load))),
        }
    }
}

/// Contestants that run interleaved and share a table.
pub(super) struct Group<S = Sample> {
    pub(super) title: String,
    pub(super) contestants: Vec<Contestant<S>>,
    /// Number of samples of each contestant.
    pub(super) samples: usize,
    pub(super) ratio_to: RatioTo,
}

/// The base of a table's ratios.
#[derive(Clone, Copy)]
pub(super) enum RatioTo {
    /// The fastest pool in practical use.
    FastestRival,
    /// The contestant of this variant.
    Variant(&'static str),
    /// The contestants are not compared.
    Nothing,
}

/// The name of the variant in which each enqueue is timed.
pub(super) fn with_clock(variant: &str, clock: bool) -> String {
    format!("{variant}{}", if clock { "+clock" } else { "" })
}

/// Number of CPUs that this process may use, which is every pool's number of workers.
pub(super) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
