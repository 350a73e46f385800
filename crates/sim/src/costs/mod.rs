//! What a machine's instructions cost: a named set of figures, and its text.
//!
//! A text has one figure a line, as `cache_ns 55`; `#` starts a comment. A figure that it omits has
//! its default. `bill` charges the figures to threads, `recording` has the engine report its
//! accesses. `load` has producers for experiments, `open` producers whose items must move, `kernel` a
//! queue to compare the engine with, `patterns` small programs to compare the figures with a real
//! machine.

pub mod bill;
#[cfg(feature = "costs")]
mod heap;
#[cfg(feature = "costs")]
pub mod kernel;
mod lines;
#[cfg(feature = "costs")]
pub mod load;
mod locks;
#[cfg(feature = "costs")]
pub mod open;
#[cfg(feature = "costs")]
pub mod patterns;
#[cfg(feature = "costs")]
mod recording;

use std::fmt;
use std::fmt::Write;
use std::str::FromStr;

#[cfg(feature = "costs")]
pub use recording::{Recording, play};

/// A figure of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cost {
    /// An access to a line that the CPU has, with the instructions around it.
    Access,
    /// A locked instruction or a full fence, beyond the access.
    Locked,
    /// The transfer of a line between two CPUs of a core.
    Core,
    /// The transfer of a line within a last-level cache.
    Cache,
    /// The transfer of a line within a node.
    Node,
    /// The transfer of a line between nodes.
    Remote,
    /// A round of a loop that polls: the processor's pause.
    Pause,
    /// A read of the clock.
    Clock,
    /// A system call that does nothing.
    Syscall,
    /// A barrier on all other CPUs.
    Barrier,
    /// A wake of a thread for which a CPU idles, for the waker.
    Wake,
    /// A wake of a thread whose CPUs are busy, the waker's own among them, for the waker.
    Ready,
    /// From a wake until an idle CPU has left its idle state.
    Idle,
    /// A switch to another thread.
    Switch,
    /// The creation of a thread, for its creator.
    Spawn,
    /// From the creation of a thread until it competes for a CPU.
    Start,
    /// How long a thread spins for a lock before it sleeps.
    Spin,
    /// How long a thread keeps a CPU that others want.
    Slice,
}

/// A row of the table of figures.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// Which figure.
    pub cost: Cost,
    /// Its name in a text.
    pub name: &'static str,
    /// Its default and its limits, in nanoseconds.
    pub default: f64,
    /// The least value.
    pub least: f64,
    /// The greatest value.
    pub most: f64,
    /// What it is.
    pub about: &'static str,
}

const fn row(
    cost: Cost,
    name: &'static str,
    default: f64,
    limits: (f64, f64),
    about: &'static str,
) -> Figure {
    Figure { cost, name, default, least: limits.0, most: limits.1, about }
}

/// All figures. The defaults are typical of a server of the 2020s.
pub const FIGURES: [Figure; 18] = [
    row(
        Cost::Access,
        "access_ns",
        1.0,
        (0.1, 1e3),
        "an access to an own line, and the code around it",
    ),
    row(Cost::Locked, "locked_ns", 6.0, (0.1, 1e4), "a locked instruction, beyond the access"),
    row(Cost::Core, "core_ns", 12.0, (0.0, 1e5), "a line between two CPUs of a core"),
    row(Cost::Cache, "cache_ns", 50.0, (1.0, 1e5), "a line within a last-level cache"),
    row(Cost::Node, "node_ns", 100.0, (1.0, 1e5), "a line within a node"),
    row(Cost::Remote, "remote_ns", 180.0, (1.0, 1e6), "a line between nodes"),
    row(Cost::Pause, "pause_ns", 15.0, (0.0, 1e4), "the pause of a loop that polls"),
    row(Cost::Clock, "clock_ns", 22.0, (0.0, 1e5), "a read of the clock"),
    row(Cost::Syscall, "syscall_ns", 120.0, (1.0, 1e6), "an empty system call"),
    row(Cost::Barrier, "barrier_ns", 1_500.0, (1.0, 1e7), "a barrier on all other CPUs"),
    row(Cost::Wake, "wake_ns", 1_500.0, (1.0, 1e7), "a wake on an idle CPU, for the waker"),
    row(Cost::Ready, "ready_ns", 500.0, (1.0, 1e7), "a wake on a busy CPU, for the waker"),
    row(Cost::Idle, "idle_ns", 3_000.0, (0.0, 1e8), "from a wake until an idle CPU executes"),
    row(Cost::Switch, "switch_ns", 1_200.0, (1.0, 1e7), "a switch to another thread"),
    row(Cost::Spawn, "spawn_ns", 12_000.0, (1.0, 1e9), "a thread's creation, for its creator"),
    row(Cost::Start, "start_ns", 20_000.0, (0.0, 1e9), "from a thread's creation to its start"),
    row(Cost::Spin, "spin_ns", 1_000.0, (0.0, 1e6), "how long a thread spins before it sleeps"),
    row(Cost::Slice, "slice_ns", 3e6, (1e3, 1e9), "how long a thread keeps a CPU that others want"),
];

/// Figures that must not decrease from each to the next.
const ASCENDING: [Cost; 4] = [Cost::Core, Cost::Cache, Cost::Node, Cost::Remote];

/// The name of the default figures.
pub const TYPICAL: &str = "typical";

/// The figures of a machine, in picoseconds, so that sums are exact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Where they come from, for every output.
    pub source: String,
    ps: [u64; FIGURES.len()],
}

/// A text is not a set of figures. Prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostError {
    /// The line, from 1; 0 if it concerns several.
    pub line: usize,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl fmt::Display for CostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}

impl std::error::Error for CostError {}

impl Default for Costs {
    fn default() -> Costs {
        let ps = FIGURES.map(|figure| to_ps(figure.default));
        Costs { source: TYPICAL.to_owned(), ps }
    }
}

fn to_ps(ns: f64) -> u64 {
    (ns * 1_000.0).round() as u64
}

impl Costs {
    /// A figure, in picoseconds.
    #[must_use]
    pub fn ps(&self, cost: Cost) -> u64 {
        self.ps[cost as usize]
    }

    /// A figure, in nanoseconds.
    #[must_use]
    pub fn ns(&self, cost: Cost) -> u64 {
        self.ps(cost) / 1_000
    }

    /// Sets a figure.
    ///
    /// # Errors
    /// The value is outside of the figure's limits.
    pub fn set(&mut self, cost: Cost, ns: f64) -> Result<(), String> {
        let Figure { name, least, most, .. } = FIGURES[cost as usize];
        if !(least..=most).contains(&ns) {
            return Err(format!("{name} is {ns}, and must be from {least} to {most}"));
        }
        self.ps[cost as usize] = to_ps(ns);
        Ok(())
    }

    /// The same figures with a few others, for a table of known machines.
    ///
    /// # Panics
    /// A value is outside of its figure's limits.
    #[must_use]
    pub fn with(mut self, source: &str, others: &[(Cost, f64)]) -> Costs {
        for &(cost, ns) in others {
            self.set(cost, ns).expect("a value of the table");
        }
        self.source = source.to_owned();
        self
    }

    fn check(&self) -> Result<(), String> {
        for pair in ASCENDING.windows(2) {
            let [near, far] = [pair[0], pair[1]].map(|cost| FIGURES[cost as usize].name);
            if self.ps(pair[0]) > self.ps(pair[1]) {
                return Err(format!("{near} is more than {far}, and must be at most that"));
            }
        }
        Ok(())
    }

    /// The text of these figures.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("# {}\n", self.source);
        for figure in FIGURES {
            let ns = self.ps(figure.cost) as f64 / 1_000.0;
            let _ = writeln!(text, "{:<11} {ns:>12}  # {}", figure.name, figure.about);
        }
        text
    }
}

impl FromStr for Costs {
    type Err = CostError;

    fn from_str(text: &str) -> Result<Costs, CostError> {
        let (mut costs, mut seen) = (Costs::default(), [false; FIGURES.len()]);
        for (no, line) in text.lines().enumerate() {
            let wrong = |message| CostError { line: no + 1, message };
            let words: Vec<&str> =
                line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let (name, value) = match words[..] {
                [] => continue,
                [name, value] => (name, value),
                _ => return Err(wrong("a line is a name and a number of nanoseconds".to_owned())),
            };
            let figure = FIGURES.iter().find(|figure| figure.name == name).ok_or_else(|| {
                let names = FIGURES.map(|figure| figure.name).join(", ");
                wrong(format!("there is no cost '{name}'; the costs are {names}"))
            })?;
            let ns = value
                .parse::<f64>()
                .map_err(|_| wrong(format!("{name}: '{value}' is not a number of nanoseconds")))?;
            if std::mem::replace(&mut seen[figure.cost as usize], true) {
                return Err(wrong(format!("{name} is given twice")));
            }
            costs.set(figure.cost, ns).map_err(wrong)?;
        }
        costs.check().map_err(|message| CostError { line: 0, message })?;
        Ok(costs)
    }
}
