//! `uwork sum`: checksums of file trees, computed by work items.
//!
//! `job` defines the work items and their results, `walk` lists directories, `read` opens and reads
//! files, `digest` hashes, `output` prints results in order, `check` implements `-c`, `names`
//! escapes names, `progress` draws the progress line.

mod check;
mod digest;
mod job;
mod names;
mod output;
mod progress;
mod read;
mod walk;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::Arc;

use self::check::{Check, Mode};
use self::digest::Algorithm;
use self::job::{FILES_PER_ITEM, Job, Shared};
use self::output::Printer;
use self::progress::Progress;
use self::walk::Listing;
use super::UserError;

/// What `uwork sum --help` says below the options.
const DETAILS: &str = "\
A line is HASH, two spaces, NAME. Lines come in the order of the PATHs. A directory stands for the
regular files below it, in the order of their paths' bytes (that of LC_ALL=C sort). Symbolic links
are followed where they are a PATH, not below a directory; --verbose counts the entries below
directories that are skipped. A backslash, newline or carriage return
in a name is escaped as by GNU coreutils, and the line then starts with a backslash.

With -c, the lines of a checksum file are 'HASH  NAME', 'HASH *NAME' or 'SHA256 (NAME) = HASH'.

A PATH that does not exist or cannot be read is reported, and the others are processed.

Exit code: 0; 1 if a file could not be read or did not match, or a checksum file has no valid line;
2 if the command line is invalid; in that case nothing is hashed.";

/// The command line of `uwork sum`.
#[derive(clap::Args)]
#[command(after_long_help = DETAILS)]
pub(crate) struct Args {
    /// The digest algorithm
    #[arg(short, long, value_enum, default_value_t = Algorithm::Sha256)]
    algorithm: Algorithm,
    /// Read checksums from the PATHs and check the files that they list
    #[arg(short, long)]
    check: bool,
    /// With -c: print no line for a file that matches. If several of --quiet, --status and --warn
    /// are given, the last one wins
    #[arg(long, requires = "check", overrides_with_all = ["status", "warn"])]
    quiet: bool,
    /// With -c: print no results; only the exit code reports them
    #[arg(long, requires = "check", overrides_with_all = ["quiet", "warn"])]
    status: bool,
    /// With -c: exit with 1 if a checksum file has a malformed line
    #[arg(long, requires = "check")]
    strict: bool,
    /// With -c: ignore listed files that do not exist
    #[arg(long, requires = "check")]
    ignore_missing: bool,
    /// With -c: report each malformed line
    #[arg(short, long, requires = "check", overrides_with_all = ["quiet", "status"])]
    warn: bool,
    /// End each line with NUL instead of a newline, and do not escape names
    #[arg(short, long, conflicts_with = "check")]
    zero: bool,
    /// The queue's affinity scope
    #[arg(long, value_name = "SCOPE", value_parser = super::scope::parser(), default_value = "default")]
    scope: uwork::AffinityScopeChoice,
    /// At the end, report how many entries below directories were skipped: symbolic links, fifos,
    /// sockets and devices
    #[arg(short, long, conflicts_with = "check")]
    verbose: bool,
    /// Draw no progress line, even on a terminal
    #[arg(long)]
    no_progress: bool,
    /// Files and directories. With no PATH, or when PATH is -, read standard input
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

/// The exit code that a shell reports for a program ended by SIGPIPE: 128 plus the signal's number.
const BROKEN_PIPE: u8 = 128 + 13;

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, UserError> {
    let queue = uwork::Queue::builder("sum").unbound().affinity_scope(args.scope).build();
    let queue = queue.map_err(|error| UserError(error.to_string()))?;
    let progress = Progress::new(!args.no_progress && !args.status);
    let shared = Shared::new(queue, args.algorithm, args.zero, progress);
    let outcome = carry_out(&shared, &args);
    shared.progress.finish();
    match outcome {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::from(BROKEN_PIPE)),
        Err(error) => {
            complain!("uwork: standard output: {}", names::reason(&error));
            Ok(ExitCode::FAILURE)
        }
    }
}

enum Argument {
    StandardInput,
    Directory(Vec<u8>),
    File(Vec<u8>),
}

fn paths(args: &Args) -> Vec<&OsStr> {
    match args.paths.is_empty() {
        true => vec![OsStr::new("-")],
        false => args.paths.iter().map(OsString::as_os_str).collect(),
    }
}

/// The kinds of the arguments. One that does not exist is a file here: its open fails in its turn,
/// with a report.
fn examine(paths: &[&OsStr]) -> Vec<Argument> {
    let look = |path: &&OsStr| {
        let bytes = path.as_bytes().to_vec();
        if *path == "-" {
            return Argument::StandardInput;
        }
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => Argument::Directory(bytes),
            _ => Argument::File(bytes),
        }
    };
    paths.iter().map(look).collect()
}

/// Reads and parses a checksum file. The error is a line for standard error.
fn read_check(path: &OsStr, algorithm: Algorithm, mode: Mode) -> Result<Check, String> {
    let mut text = Vec::new();
    let (source, outcome) = match path.as_bytes() {
        b"-" => {
            ("'standard input'".to_owned(), io::stdin().lock().read_to_end(&mut text).map(drop))
        }
        bytes => (names::quoted(bytes), std::fs::read(path).map(|read| text = read)),
    };
    match outcome {
        Ok(()) => Check::parse(source, &text, algorithm, mode),
        Err(error) => Err(format!("uwork: {source}: {}\n", names::reason(&error))),
    }
}

/// Does the work. Returns false if a file could not be read or did not match.
fn carry_out(shared: &Arc<Shared>, args: &Args) -> io::Result<bool> {
    let mut printer = Printer::new(shared.clone(), output::standard_output()?);
    if args.check {
        return check_all(&mut printer, args);
    }
    let tally = printer.print(jobs(shared, &examine(&paths(args))))?;
    if args.verbose
        && let Some(counts) = tally.skipped.spoken()
    {
        printer.complain(&format!("uwork: skipped: {counts}\n"))?;
    }
    Ok(tally.unreadable == 0)
}

/// Checks the files of each checksum file.
fn check_all(printer: &mut Printer<impl io::Write>, args: &Args) -> io::Result<bool> {
    let mode = Mode {
        quiet: args.quiet,
        status: args.status,
        strict: args.strict,
        ignore_missing: args.ignore_missing,
        warn: args.warn,
    };
    let mut good = true;
    for path in paths(args) {
        let check = match read_check(path, args.algorithm, mode) {
            Ok(check) => Arc::new(check),
            Err(line) => {
                printer.complain(&line)?;
                good = false;
                continue;
            }
        };
        printer.complain(&check.opening_warnings())?;
        let tally = printer.print(check.jobs())?;
        printer.complain(&check.closing_warnings(tally))?;
        good &= tally.mismatched == 0 && tally.unreadable == 0 && tally.matched > 0;
        good &= !check.is_refused();
    }
    Ok(good)
}

/// The jobs for the arguments. Adjacent files share items.
fn jobs(shared: &Arc<Shared>, arguments: &[Argument]) -> Vec<Job> {
    let mut jobs = Vec::new();
    let both_files =
        |a: &Argument, b: &Argument| matches!((a, b), (Argument::File(_), Argument::File(_)));
    for group in arguments.chunk_by(both_files) {
        match &group[0] {
            Argument::StandardInput => jobs.push(Job::StandardInput),
            Argument::Directory(path) => {
                jobs.push(Job::Directory { path: path.clone(), named: true })
            }
            Argument::File(_) => {
                let paths = group.iter().filter_map(|argument| match argument {
                    Argument::File(path) => Some(path.as_slice()),
                    _ => None,
                });
                let files = Arc::new(Listing::of_arguments(shared, paths));
                let starts = (0..files.len()).step_by(FILES_PER_ITEM);
                jobs.extend(starts.map(|start| {
                    let end = files.len().min(start + FILES_PER_ITEM);
                    Job::Entries(files.clone(), start..end)
                }));
            }
        }
    }
    jobs
}
