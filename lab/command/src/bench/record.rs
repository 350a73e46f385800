//! `--json FILE`: flat records. The file is replaced completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::UserError;
use super::interleave::GroupOutcome;
use super::origin::Origin;
use super::summary::{self, Sampled};

/// One figure. The field names are fixed, because figures are tracked over time by them.
#[derive(Serialize)]
pub(super) struct Record<'a> {
    bench: &'static str,
    case: &'static str,
    runner: &'static str,
    variant: &'a str,
    metric: &'static str,
    value: f64,
    unit: &'static str,
    samples: usize,
    min: f64,
    max: f64,
    /// Submitting threads, where the benchmark has that choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    producers: Option<usize>,
}

/// A record in its written form.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    record: &'a Record<'a>,
    #[serde(flatten)]
    origin: &'a Origin,
}

/// Every metric of every contestant.
pub(super) fn records<'a, S: Sampled>(
    bench: &'static str,
    producers: Option<usize>,
    results: &'a [GroupOutcome<S>],
) -> Vec<Record<'a>> {
    let outcomes = results.iter().flat_map(|group| &group.outcomes);
    outcomes
        .flat_map(|outcome| {
            summary::recorded(outcome).into_iter().map(move |(metric, figure)| Record {
                bench,
                case: outcome.names.case,
                runner: outcome.names.runner,
                variant: &outcome.names.variant,
                metric: metric.name,
                value: figure.median,
                unit: metric.unit,
                samples: figure.samples,
                min: figure.min,
                max: figure.max,
                producers,
            })
        })
        .collect()
}

/// The output file, checked to be writable.
pub(super) struct Target {
    path: PathBuf,
    /// A pipe or a device cannot be replaced by a rename, so it is written directly.
    in_place: bool,
}

impl Target {
    /// Checks before any measurement whether the file can be written. Creates nothing permanent.
    pub(super) fn check(path: &Path) -> Result<Self, UserError> {
        let refuse = |error: io::Error| {
            UserError(format!(
                "--json {}: {error}; a file that can be written is allowed",
                path.display()
            ))
        };
        let exists = match fs::metadata(path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(refuse(error)),
        };
        if exists.is_none() && path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(refuse(io::ErrorKind::IsADirectory.into()));
        }
        if exists.is_some() {
            OpenOptions::new().append(true).open(path).map_err(refuse)?;
        }
        // Resolves symbolic links, so that the rename replaces the file and not the link.
        let path = if exists.is_some() {
            fs::canonicalize(path).map_err(refuse)?
        } else {
            path.to_owned()
        };
        let target = Self { path, in_place: exists.is_some_and(|found| !found.is_file()) };
        if !target.in_place {
            let temporary = target.temporary().map_err(refuse)?;
            File::create_new(&temporary).map_err(refuse)?;
            fs::remove_file(&temporary).map_err(refuse)?;
        }
        Ok(target)
    }

    /// Writes all records with their origin, or nothing.
    pub(super) fn write(&self, records: &[Record<'_>]) -> Result<(), UserError> {
        let refuse =
            |error: io::Error| UserError(format!("--json {}: {error}", self.path.display()));
        let origin = &Origin::here();
        let written: Vec<_> = records.iter().map(|record| Written { record, origin }).collect();
        let mut text =
            serde_json::to_string_pretty(&written).map_err(|error| refuse(error.into()))?;
        text.push('\n');
        if self.in_place {
            let mut file = OpenOptions::new().append(true).open(&self.path).map_err(refuse)?;
            return file.write_all(text.as_bytes()).map_err(refuse);
        }
        let temporary = self.temporary().map_err(refuse)?;
        self.replace(&temporary, &text).map_err(|error| {
            // Best effort: the earlier error is the one to report.
            let _ = fs::remove_file(&temporary);
            refuse(error)
        })
    }

    fn replace(&self, temporary: &Path, text: &str) -> io::Result<()> {
        let mut file = File::create_new(temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(temporary, &self.path)
    }

    /// The temporary file is in the same directory, so that the rename stays within one file
    /// system.
    fn temporary(&self) -> io::Result<PathBuf> {
        let name =
            self.path.file_name().ok_or_else(|| io::Error::other("not the name of a file"))?;
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}", std::process::id()));
        Ok(self.path.with_file_name(hidden))
    }
}
