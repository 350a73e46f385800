//! Machines as text, for example `package:2 node:2 core:8 smt:2`; [`Topology`] has the full
//! description.
//!
//! Reading goes from text to a `syntax` tree to a [`Topology`] (`build`). Writing (`print`) tries
//! the short form first and verifies it by reading it back, so that every machine survives the
//! round trip.

mod build;
mod listing;
mod print;
mod syntax;

use std::fmt;
use std::str::FromStr;

use super::{Topology, TopologyError};
use crate::cpuset::{CpuSet, MAX_CPUS};
use syntax::{Shape, Word};

/// Why a text is not a machine.
///
/// ```
/// use uwork_policy::topology::Topology;
///
/// let error = "package:2\ncores:8".parse::<Topology>().unwrap_err();
/// assert_eq!(error.line(), 2);
/// assert_eq!(
///     error.message(),
///     "'cores:8': unknown level 'cores' (allowed: package, node, llc, cluster, core, smt)"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotationError {
    line: usize,
    message: String,
}

impl NotationError {
    fn new(line: usize, message: impl Into<String>) -> Self {
        Self { line, message: message.into() }
    }

    /// An error about one word of the text, which it quotes.
    fn at(word: Word<'_>, message: impl fmt::Display) -> Self {
        Self::new(word.line, format!("'{}': {message}", word.text))
    }

    /// The line of the text that is wrong, counted from 1.
    #[must_use]
    pub fn line(&self) -> usize {
        self.line
    }

    /// What is wrong with the text and what is allowed, in one line.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for NotationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for NotationError {}

impl FromStr for Topology {
    type Err = NotationError;

    fn from_str(text: &str) -> Result<Self, NotationError> {
        let machine = syntax::parse(text)?;
        let mut cpus = match &machine.shape {
            Shape::Levels(sum) => build::cpus(sum, machine.threads_last),
            Shape::Listing(clauses) => listing::cpus(clauses)?,
        };
        let known: CpuSet = cpus.iter().map(|cpu| cpu.id).collect();
        for option in [&machine.isolated, &machine.offline].into_iter().flatten() {
            let missing = option.cpus.and_not(&known);
            if !missing.is_empty() {
                let allowed = format!("the machine has no CPU {missing} (allowed: {known})");
                return Err(NotationError::at(option.word, allowed));
            }
        }
        let names = |option: &Option<syntax::CpuOption<'_>>, id| {
            option.as_ref().is_some_and(|option| option.cpus.contains(id))
        };
        for cpu in &mut cpus {
            cpu.isolated = names(&machine.isolated, cpu.id);
            cpu.online = !names(&machine.offline, cpu.id);
        }
        Topology::new(cpus).map_err(|error| match (error, machine.offline) {
            (TopologyError::NoCpu, Some(offline)) => {
                NotationError::at(offline.word, "at least one CPU must stay online")
            }
            (error, _) => NotationError::new(machine.first_line, error.to_string()),
        })
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print::notation(self))
    }
}

fn too_many() -> String {
    format!("the machine has more than {MAX_CPUS} CPUs")
}
