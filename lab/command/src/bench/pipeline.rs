//! The way of every benchmark from its groups to its records: check, measure in turns, show, warn,
//! write.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use super::UserError;
use super::contestant::Group;
use super::interleave::{self, GroupOutcome};
use super::record::{self, Target};
use super::report;
use super::summary::Sampled;
use super::warning::{self, MachineTime, Warning};

/// Where the figures go besides the table.
#[derive(clap::Args)]
pub(super) struct Output {
    /// Also write the figures to FILE, as a JSON array of flat records
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

type Show<S> = Box<dyn Fn(&GroupOutcome<S>) -> String>;
type Closing<S> = Box<dyn Fn(&[GroupOutcome<S>]) -> String>;

/// A benchmark that is ready to run.
pub(super) struct Plan<S> {
    name: &'static str,
    groups: Vec<Group<S>>,
    show: Show<S>,
    closing: Closing<S>,
    warnings: Vec<Warning>,
    one_sample_suffices: bool,
    producers: Option<usize>,
}

impl<S: Sampled + 'static> Plan<S> {
    /// Groups that are shown as tables. `name` is the benchmark's name in records.
    pub(super) fn new(name: &'static str, groups: Vec<Group<S>>) -> Self {
        let show = Box::new(report::table);
        Self {
            name,
            groups,
            show,
            closing: Box::new(|_| String::new()),
            warnings: Vec::new(),
            one_sample_suffices: false,
            producers: None,
        }
    }

    /// Additional text below each table.
    pub(super) fn below(self, text: impl Fn(&GroupOutcome<S>) -> String + 'static) -> Self {
        self.shown_by(move |group| report::table(group) + &text(group))
    }

    /// Another form than a table.
    pub(super) fn shown_by(mut self, show: impl Fn(&GroupOutcome<S>) -> String + 'static) -> Self {
        self.show = Box::new(show);
        self
    }

    /// Text after the tables of all groups and the warnings.
    pub(super) fn closed_by(
        mut self,
        text: impl Fn(&[GroupOutcome<S>]) -> String + 'static,
    ) -> Self {
        self.closing = Box::new(text);
        self
    }

    /// Reasons to doubt the figures that are known before the measurement.
    pub(super) fn warnings(mut self, warnings: Vec<Warning>) -> Self {
        self.warnings = warnings;
        self
    }

    /// A small number of samples is no reason to doubt the figures, because each sample covers many
    /// operations, or the figures are not medians of samples.
    pub(super) fn one_sample_suffices(mut self) -> Self {
        self.one_sample_suffices = true;
        self
    }

    /// The number of submitting threads, for the records.
    pub(super) fn producers(mut self, producers: usize) -> Self {
        self.producers = Some(producers);
        self
    }

    /// Measures the groups, prints each when it is complete, then the warnings and the closing text,
    /// and writes the records.
    pub(super) fn run(self, output: &Output) -> Result<ExitCode, UserError> {
        let Self { name, mut groups, show, closing, mut warnings, one_sample_suffices, producers } =
            self;
        groups.retain(|group| !group.contestants.is_empty());
        if groups.is_empty() {
            let advice = "nothing to run: add --rivals, or choose with --runner";
            return Err(UserError(advice.to_owned()));
        }
        let target = output.json.as_deref().map(Target::check).transpose()?;
        let samples = groups.iter().map(|group| group.samples).min();
        let (before, start) = (MachineTime::now(), Instant::now());
        let results = interleave::run(groups, |group| print!("{}", show(group)))?;
        let samples = samples.filter(|_| !one_sample_suffices);
        warnings.extend(warning::about(&results, samples, before, start.elapsed()));
        for warning in warnings {
            eprintln!("warning: {warning}");
        }
        print!("{}", closing(&results));
        if let Some(target) = target {
            target.write(&record::records(name, producers, &results))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
