//! `uwork sim check`: random histories on all CPUs.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};
use uwork_sim::check::{Violation, check};
use uwork_sim::draw::{ITEMS, draw};
use uwork_sim::script::Script;
use uwork_sim::shrink::{as_test, shrink};
use uwork_sim::{machines, play};

use super::UserError;

/// The seeds that a thread takes at once.
const CHUNK: u64 = 200;
/// The trials that the shrinking of a script may take.
const TRIES: usize = 3_000;
/// The failing seeds that are listed.
const LISTED: usize = 20;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The number of histories.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Keep the progress in this file, and continue where an earlier run with the same --first has
    /// stopped.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
}

/// What all threads share.
struct Search {
    /// The next chunk to take.
    next: AtomicU64,
    progress: Mutex<Progress>,
    end: u64,
    bar: ProgressBar,
    /// Steps of all histories: entries of their records.
    entries: AtomicU64,
    /// The sum of the records' digests, which does not depend on the order of the histories.
    digest: AtomicU64,
}

struct Progress {
    /// All seeds below this are done.
    done: u64,
    /// Chunks that are done beyond that, by their first seed.
    beyond: Vec<u64>,
    failed: Vec<(u64, Vec<Violation>)>,
}

impl Progress {
    /// A chunk is done. Returns whether `done` has advanced.
    fn finish(&mut self, chunk: &Range<u64>, end: u64) -> bool {
        self.beyond.push(chunk.start);
        let before = self.done;
        while let Some(at) = self.beyond.iter().position(|&start| start == self.done) {
            let start = self.beyond.swap_remove(at);
            self.done = (start + CHUNK).min(end);
        }
        self.done > before
    }
}

/// Plays a script, and returns its violations, and the length and the digest of its record.
fn violations(script: &Script) -> (Vec<Violation>, u64, u64) {
    let machine = machines::machine(&script.machine).expect("a drawn script has a machine");
    match play::play(script, &machine) {
        Ok(run) => {
            let steps = run.tape.entries().len() as u64;
            (check(script, &machine, &run), steps, run.tape.digest())
        }
        // A script that shrinks may lose a CPU that it needs; it is no failure then.
        Err(_) => (Vec::new(), 0, 0),
    }
}

/// The seed at which an earlier run has stopped, if it had the same first seed.
fn stopped_at(path: &Path, first: u64) -> Result<u64, UserError> {
    let Ok(text) = std::fs::read_to_string(path) else { return Ok(first) };
    let mut words = text.split_whitespace().map(str::parse);
    match (words.next(), words.next(), words.next()) {
        (Some(Ok(begun)), Some(Ok(done)), None) if begun == first && done >= first => Ok(done),
        (Some(Ok(begun)), Some(Ok(_)), None) => Err(UserError(format!(
            "{}: a search from seed {begun}, not from {first}; remove the file to begin anew",
            path.display()
        ))),
        _ => Err(UserError(format!("{}: not a file of this command", path.display()))),
    }
}

/// Replaces the file as a whole, so that it is never half written.
fn save(path: &Path, first: u64, done: u64) -> Result<(), UserError> {
    let wrong = |error| UserError(format!("{}: {error}", path.display()));
    let part = path.with_extension("part");
    std::fs::write(&part, format!("{first} {done}\n")).map_err(wrong)?;
    std::fs::rename(&part, path).map_err(wrong)
}

fn search(search: &Search, args: &Args) -> Result<(), UserError> {
    loop {
        let start = search.next.fetch_add(CHUNK, Ordering::Relaxed);
        if start >= search.end {
            return Ok(());
        }
        let chunk = start..(start + CHUNK).min(search.end);
        let mut failed = Vec::new();
        for seed in chunk.clone() {
            let (found, entries, digest) = violations(&draw(seed));
            search.entries.fetch_add(entries, Ordering::Relaxed);
            search.digest.fetch_add(digest, Ordering::Relaxed);
            if !found.is_empty() {
                failed.push((seed, found));
            }
        }
        search.bar.inc(chunk.end - chunk.start);
        let mut progress = search.progress.lock().expect("no panic under this lock");
        progress.failed.extend(failed);
        // A failure stays before the mark, so that a later run finds it again.
        if progress.finish(&chunk, search.end)
            && progress.failed.is_empty()
            && let Some(path) = &args.resume
        {
            save(path, args.first, progress.done)?;
        }
    }
}

pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let end = args.first.saturating_add(args.seeds);
    let start = match &args.resume {
        Some(path) => stopped_at(path, args.first)?.min(end),
        None => args.first,
    };
    if start >= end {
        say!(
            "simulated: all {} histories from seed {} on were played before",
            args.seeds,
            args.first
        );
        return Ok(ExitCode::SUCCESS);
    }
    let style = "{bar:40} {human_pos}/{human_len} histories, {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(style).expect("a template");
    let bar = ProgressBar::new(args.seeds).with_style(style).with_position(start - args.first);
    let shared = Search {
        next: AtomicU64::new(start),
        progress: Mutex::new(Progress { done: start, beyond: Vec::new(), failed: Vec::new() }),
        end,
        bar,
        entries: AtomicU64::new(0),
        digest: AtomicU64::new(0),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let began = Instant::now();
    let outcome: Result<(), UserError> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(|| search(&shared, args))).collect();
        all.into_iter().try_for_each(|one| one.join().expect("a search does not panic"))
    });
    shared.bar.finish_and_clear();
    outcome?;
    let seconds = began.elapsed().as_secs_f64();
    let entries = shared.entries.into_inner() as f64;
    say!("simulated: histories of {ITEMS} items, seeds {start} to {}, no costs", end - 1);
    say!(
        "{:.0} histories and {:.2} million steps a second on {threads} CPUs",
        (end - start) as f64 / seconds,
        entries / seconds / 1e6,
    );
    say!("records: digest {:016x}", shared.digest.into_inner());
    let mut failed = shared.progress.into_inner().expect("no panic under this lock").failed;
    if failed.is_empty() {
        say!("violations: none");
        return Ok(ExitCode::SUCCESS);
    }
    failed.sort_by_key(|(seed, _)| *seed);
    for (seed, found) in failed.iter().take(LISTED) {
        for violation in found {
            say!("seed {seed}: {violation}");
        }
    }
    say!("violations: in {} histories", failed.len());
    let (seed, found) = &failed[0];
    let checker = found[0].checker;
    let fails = |script: &Script| violations(script).0.iter().any(|one| one.checker == checker);
    let progress = crate::commands::progress::Progress::new(None);
    progress.begin(format!("shrinks the history of seed {seed}"));
    let small = shrink(&draw(*seed), TRIES, fails);
    drop(progress);
    say!("seed {seed} as a test:\n\n{}", as_test(&small, &format!("seed_{seed}_{checker}")));
    Ok(ExitCode::FAILURE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_continues_behind_the_last_seed_without_a_gap() {
        let mut progress = Progress { done: 0, beyond: Vec::new(), failed: Vec::new() };
        assert!(!progress.finish(&(CHUNK..2 * CHUNK), 1_000_000));
        assert!(progress.finish(&(0..CHUNK), 1_000_000));
        assert_eq!(progress.done, 2 * CHUNK);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        assert_eq!(stopped_at(&path, 7).unwrap(), 7);
        save(&path, 7, 407).unwrap();
        assert_eq!(stopped_at(&path, 7).unwrap(), 407);
        assert!(stopped_at(&path, 8).is_err());
    }
}
