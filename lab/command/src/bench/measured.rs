//! Samples that are lists of metrics, and how they come from child processes: how a child prints
//! its figures, and how the parent reads them.
//!
//! Settings that are fixed for a process, such as a tier or a mode, are compared by child
//! processes, one for each sample.

use std::collections::BTreeMap;
use std::io;
use std::panic;
use std::process::{self, Command, Stdio};

use serde::de::DeserializeOwned;

use super::summary::{self, Figure, Metric, Sampled};
use crate::UserError;

/// The hidden option by which such a benchmark starts itself as a child.
#[derive(clap::Args)]
pub(super) struct ChildArgs {
    /// Take one sample and print it; for internal use
    #[arg(long, hide = true, value_name = "JSON")]
    order: Option<String>,
}

impl ChildArgs {
    /// The task of this process, if it is a child.
    pub(super) fn order<O: DeserializeOwned>(&self) -> Result<Option<O>, UserError> {
        let order = self.order.as_deref().map(|text| {
            serde_json::from_str(text).map_err(|error| {
                UserError(format!("--order '{text}': {error}; this option is for internal use"))
            })
        });
        order.transpose()
    }
}

/// The output of a child: its metrics by name.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub(super) struct Figures(BTreeMap<String, f64>);

impl Figures {
    pub(super) fn set(&mut self, metric: Metric, value: f64) {
        self.0.insert(metric.name.to_owned(), value);
    }

    /// Prints them for the parent.
    pub(super) fn print(&self) {
        println!("{}", serde_json::to_string(self).expect("names and numbers"));
    }
}

/// A sample with these metrics.
pub(super) struct Measured {
    metrics: Vec<(Metric, f64)>,
    /// The lines that a child wrote to standard error.
    said: Vec<String>,
}

impl Measured {
    /// A sample that this process has taken. Requires at least one metric.
    pub(super) fn new(metrics: Vec<(Metric, f64)>) -> Self {
        Self { metrics, said: Vec::new() }
    }

    /// All metrics.
    pub(super) fn metrics(&self) -> &[(Metric, f64)] {
        &self.metrics
    }

    /// Parses a child's output, which must consist of known metrics and include the first of them.
    pub(super) fn parse(printed: &str, said: &str, known: &[Metric]) -> Result<Self, UserError> {
        let Figures(mut values) = serde_json::from_str(printed)
            .map_err(|error| UserError(format!("a child's figures cannot be read: {error}")))?;
        let metrics: Vec<_> = known
            .iter()
            .filter_map(|&metric| Some((metric, values.remove(metric.name)?)))
            .collect();
        if let Some(unknown) = values.keys().next() {
            return Err(UserError(format!("a child's figures have an unknown metric '{unknown}'")));
        }
        let lead = known.first().expect("a benchmark has a metric");
        if metrics.first().is_none_or(|(first, _)| first.name != lead.name) {
            return Err(UserError(format!("a child's figures have no {}", lead.name)));
        }
        Ok(Self { metrics, said: lines(said).map(str::to_owned).collect() })
    }

    /// Runs the command in a child. `name` names it in errors.
    pub(super) fn by(command: Command, name: &str, known: &[Metric]) -> Result<Self, UserError> {
        let (printed, said) = output_of(command, name)?;
        Self::parse(&printed, &said, known)
    }
}

impl Sampled for Measured {
    fn figures(samples: &[Self]) -> Vec<(Metric, Figure)> {
        summary::medians(samples, |sample| sample.metrics.clone())
    }

    fn said(&self) -> &[String] {
        &self.said
    }
}

/// The child's standard output and standard error. `name` names the child in errors.
pub(super) fn output_of(mut command: Command, name: &str) -> Result<(String, String), UserError> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| cannot_start(&error))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let last = lines(&said).last().unwrap_or("it printed nothing");
        return Err(UserError(format!("{name}: {}: {last}", output.status)));
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), said))
}

/// The lines of a child's standard error, without the prefixes of the library and of this program:
/// the caller adds the name of the child.
pub(super) fn lines(said: &str) -> impl Iterator<Item = &str> {
    let bare = |line| ["uwork: ", "uwork-lab: "].iter().find_map(|of| str::strip_prefix(line, of));
    let lines = said.lines().map(move |line| bare(line).unwrap_or(line));
    lines.filter(|line| !line.trim().is_empty())
}

/// The command that runs this program again, with an order for `bench NAME`.
pub(super) fn again(bench: &str, order: &impl serde::Serialize) -> Result<Command, UserError> {
    let program = std::env::current_exe().map_err(|error| cannot_start(&error))?;
    let mut command = Command::new(program);
    let order = serde_json::to_string(order).expect("plain text and flags");
    command.args(["bench", bench, "--order", &order]);
    Ok(command)
}

/// From now on a panic ends this child: if a thread panicked alone, other threads would wait for it
/// forever.
pub(super) fn end_on_panic() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        process::exit(101);
    }));
}

fn cannot_start(error: &io::Error) -> UserError {
    UserError(format!("cannot start the child process for a sample: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::bench::summary::RATE;

    const THREADS: Metric =
        Metric { name: "threads_peak", unit: "threads", title: "threads", decimals: 0 };

    #[test]
    fn the_parent_accepts_exactly_what_a_child_prints() {
        let mut figures = Figures::default();
        figures.set(THREADS, 5.0);
        figures.set(RATE, 2.5);
        let printed = serde_json::to_string(&figures).unwrap();
        let known = [RATE, THREADS];
        let measured = Measured::parse(&printed, "a line\n\nuwork: another\n", &known).unwrap();
        let names: Vec<_> = measured.metrics.iter().map(|(m, value)| (m.name, *value)).collect();
        assert_eq!(names, [("items_per_s", 2.5), ("threads_peak", 5.0)]);
        assert_eq!(measured.said(), ["a line", "another"]);

        for (printed, words) in [
            ("", "cannot be read"),
            ("{\"items_per_s\":1,\"speed\":2}", "unknown metric 'speed'"),
            ("{\"threads_peak\":1}", "no items_per_s"),
        ] {
            let UserError(line) = Measured::parse(printed, "", &known).err().expect("refused");
            assert!(line.contains(words), "{line}");
        }
    }
}
