//! What a torture says: the figures, the last line, and a file with each fault and each disturbance
//! where there is a fault.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::deaths::Explained;
use super::jobs::{Side, Trace};
use super::oracle::{Cause, Disturbance, Evidence, Run, Verdict, WrongEffect};
use crate::UserError;
use crate::bench::summary::Metric;

/// Faults of each kind that the file names.
const NAMED_MAX: usize = 100;

/// A line for each explained letter and the last line, and whether all is good.
#[derive(Default)]
pub(in super::super) struct Said {
    pub(in super::super) line: String,
    pub(in super::super) is_good: bool,
}

const fn count(name: &'static str, title: &'static str) -> Metric {
    Metric { name, unit: "1", title, decimals: 0 }
}

pub(super) fn figures(seed: u32, evidence: &Evidence, verdict: &Verdict) -> Vec<(Metric, f64)> {
    let disturbed = |cause| evidence.disturbances.iter().filter(|of| of.cause == cause).count();
    let counts = [
        (count("lost_jobs", "lost"), verdict.lost.len()),
        (count("innocent_dead_letters", "innocent dead"), verdict.innocent.len()),
        (count("explained_letters", "explained letters"), verdict.explained.len()),
        (count("unburied_poison", "unburied poison"), verdict.unburied.len()),
        (count("unexplained_runs", "unexplained runs"), verdict.unexplained.len()),
        (count("wrong_effects", "wrong effects"), verdict.effects.len()),
        (count("unknown_runs", "unknown runs"), verdict.unknown),
        // Runs beyond the first of each job, but for planned failures and poisonous jobs.
        (count("extra_runs", "extra runs"), verdict.extra as usize),
        (count("poison_jobs", "poison"), evidence.jobs.poison() as usize),
        (count("kills", "kills"), disturbed(Cause::Kill)),
        (count("stops", "stops"), disturbed(Cause::Stop)),
        (count("cuts", "cuts"), disturbed(Cause::Cut(Side::Plain))),
        (count("cluster_cuts", "cluster cuts"), disturbed(Cause::Cut(Side::Cluster))),
        (count("restarts", "restarts"), disturbed(Cause::Restart)),
        (count("clock_steps", "clock steps"), disturbed(Cause::Step)),
        (count("failovers", "failovers"), disturbed(Cause::Failover)),
        (count("own_failovers", "own failovers"), disturbed(Cause::OwnFailover)),
        (count("stalls", "stalls"), disturbed(Cause::Stall)),
        (count("seed", "seed"), seed as usize),
    ];
    counts.map(|(metric, count)| (metric, count as f64)).into()
}

/// The lines at the end. The folder of the records is left if there is a fault.
pub(super) fn said(
    seed: u32,
    evidence: &Evidence,
    verdict: &Verdict,
    folder: &Path,
) -> Result<Said, UserError> {
    let is_good = verdict.is_good();
    let mut line = verdict.explained.iter().map(|of| explained(evidence, of)).collect::<String>();
    // Writing to a string does not fail.
    let _ = write!(
        line,
        "torture: {}: {} jobs, {} lost, {} innocent dead letters, {} of {} poisonous jobs not \
         buried, {} of {} extra runs without a reason, {} wrong effects; seed {seed}",
        if is_good { "passed" } else { "FAILED" },
        evidence.jobs.count,
        verdict.lost.len(),
        verdict.innocent.len(),
        verdict.unburied.len(),
        evidence.jobs.poison(),
        verdict.unexplained.len() + verdict.unknown,
        verdict.extra,
        verdict.effects.len(),
    );
    if is_good {
        // What cannot be removed is left.
        let _ = fs::remove_dir_all(folder);
    } else {
        let file = folder.join("faults");
        let written = fs::write(&file, faults(evidence, verdict));
        written.map_err(|error| UserError(format!("{}: {error}", file.display())))?;
        // Writing to a string does not fail.
        let _ = write!(line, "; see {}", file.display());
    }
    Ok(Said { line, is_good })
}

/// A time since the first run.
fn since_first(evidence: &Evidence) -> impl Fn(u64) -> String {
    let origin = evidence.runs.iter().map(|run| run.begun_us).min().unwrap_or(0);
    move |us| format!("{:.3} s", (us as f64 - origin as f64) / 1e6)
}

/// The line of an explained letter: its job, and what ended each run.
fn explained(evidence: &Evidence, of: &Explained) -> String {
    let at = since_first(evidence);
    let run = |(run, death): &(Run, Option<Disturbance>)| {
        let end = match death {
            Some(death) => format!("{:?} {}", death.cause, at(death.to_us)),
            None => "failed as planned".to_owned(),
        };
        format!("consumer {} {}, {end}", run.consumer, at(run.begun_us))
    };
    let runs: Vec<String> = of.runs.iter().map(run).collect();
    let (job, kind) = (of.job, evidence.jobs.kind(of.job));
    let count = runs.len();
    format!("torture: explained letter: job {job} ({kind:?}), {count} runs: {}\n", runs.join("; "))
}

fn faults(evidence: &Evidence, verdict: &Verdict) -> String {
    let at = since_first(evidence);
    let run = |run: &Run| {
        let end = run.end.map_or("no end".to_owned(), |(us, end)| format!("{end:?} {}", at(us)));
        format!("    consumer {}: begun {}, {end}\n", run.consumer, at(run.begun_us))
    };
    let runs_of = |job: u64| {
        let mut runs: Vec<&Run> = evidence.runs.iter().filter(|run| run.job == job).collect();
        runs.sort_by_key(|run| run.begun_us);
        runs.into_iter().map(run).collect::<String>()
    };
    let mut text = "Times are since the first run.\n".to_owned();
    let mut about = |what: &str, job: u64| {
        let kind = evidence.jobs.kind(job);
        // Writing to a string does not fail.
        let _ = write!(text, "{what}: job {job} ({kind:?})\n{}", runs_of(job));
    };
    verdict.lost.iter().take(NAMED_MAX).for_each(|&job| about("lost", job));
    for letter in verdict.innocent.iter().take(NAMED_MAX) {
        about(&format!("innocent: {}", letter.error), letter.job.unwrap_or(u64::MAX));
    }
    verdict.unburied.iter().take(NAMED_MAX).for_each(|&job| about("poison, not buried", job));
    for (_, next) in verdict.unexplained.iter().take(NAMED_MAX) {
        about(&format!("run without a reason, begun {}", at(next.begun_us)), next.job);
    }
    for &WrongEffect { job, trace, found, expected } in verdict.effects.iter().take(NAMED_MAX) {
        let what = match trace {
            Trace::First => "effects",
            Trace::Second => "second effects",
            Trace::Result => "results",
        };
        about(&format!("{found} {what} in the place of {expected}"), job);
    }
    let mut disturbances: Vec<&Disturbance> = evidence.disturbances.iter().collect();
    disturbances.sort_by_key(|of| of.from_us);
    for Disturbance { cause, victim, from_us, to_us } in disturbances {
        let _ = writeln!(text, "{} to {}: {cause:?} of {victim:?}", at(*from_us), at(*to_us));
    }
    text
}
