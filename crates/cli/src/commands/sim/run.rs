//! `uwork sim run`.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use uwork_policy::topology::Topology;
use uwork_sim::check::check;
use uwork_sim::costs::play as play_with;
use uwork_sim::play::{Run, play};
use uwork_sim::script::{Script, parse};
use uwork_sim::tape::{Call, What};
use uwork_sim::{machines as named, perfetto};

use super::{UserError, costs, machines};
use crate::commands::print;
use crate::commands::progress::Progress;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The script; - is standard input.
    script: PathBuf,
    /// The machine: a name of `uwork sim machines`, a notation, or a file with one [default: the
    /// script's]
    #[arg(long)]
    machine: Option<String>,
    /// The seed of every random choice [default: the script's]
    #[arg(long)]
    seed: Option<u64>,
    /// Write the run to this file, in the JSON format that Perfetto opens.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Have instructions take time: the path of a file of `uwork sim calibrate`, or `typical`
    /// [default: they take none]
    #[arg(long, value_name = "COSTS")]
    costs: Option<String>,
    /// Print every entry of the run.
    #[arg(long)]
    verbose: bool,
}

fn text_of(path: &Path) -> Result<String, UserError> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|error| UserError(format!("{}: {error}", path.display())))
}

fn read(args: &Args) -> Result<(Script, Topology), UserError> {
    let parsed = parse(&text_of(&args.script)?).map_err(|error| {
        UserError(format!("{}:{}: {}", args.script.display(), error.line, error.message))
    });
    let mut script = parsed?;
    let machine = match &args.machine {
        Some(text) => machines::read(text)?,
        None => named::machine(&script.machine).map_err(|error| UserError(error.to_string()))?,
    };
    script.machine = machine.to_string();
    script.seed = args.seed.unwrap_or(script.seed);
    Ok((script, machine))
}

pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let (script, machine) = read(args)?;
    let costs = args.costs.as_deref().map(costs::read).transpose()?;
    let progress = Progress::new(None);
    progress.begin("playing the script");
    let run = match &costs {
        Some(costs) => play_with(&script, &machine, costs),
        None => play(&script, &machine),
    };
    drop(progress);
    let run = run.map_err(UserError)?;
    if args.verbose {
        let _ = print(&run.tape.to_string())?;
    }
    let cpus = machine.online().len();
    say!("simulated: {} ({cpus} CPUs), seed {}", script.machine, script.seed);
    match &costs {
        Some(costs) => say!("costs: {}", costs.source),
        None => {
            say!("costs: none; instructions take no time, only the script's steps and latencies do")
        }
    }
    print_items(&script, &run)?;
    let counts = run.counts;
    say!(
        "{} us in all; {} wakes, {} wake-ups, {} threads created",
        us(run.ended_at),
        counts.wakes,
        counts.wake_ups,
        counts.spawns
    );
    if let Some(bill) = &run.bill {
        costs::print(bill, run.busy_ns)?;
    }
    if let Some(path) = &args.trace {
        std::fs::write(path, perfetto::json(&script, &run))
            .map_err(|error| UserError(format!("{}: {error}", path.display())))?;
        say!("trace: {}", path.display());
    }
    let violations = check(&script, &machine, &run);
    for violation in &violations {
        say!("violation: {violation}");
    }
    if violations.is_empty() {
        say!("violations: none");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

/// Nanoseconds as microseconds.
fn us(ns: u64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}

#[derive(Default)]
struct Summary {
    queued: u64,
    runs: u64,
    first_start: Option<u64>,
    last_end: Option<u64>,
}

/// A line for each item of the script. The copies of an item count as the item.
fn print_items(script: &Script, run: &Run) -> Result<(), UserError> {
    let mut items: Vec<Summary> = script.items.iter().map(|_| Summary::default()).collect();
    let mut copies = BTreeMap::new();
    for entry in run.tape.entries() {
        let line = |no: &usize| copies.get(no).copied().unwrap_or(*no);
        match &entry.what {
            What::Copies(no, of) => {
                copies.insert(*no, *of);
            }
            What::Ends(Call::Queue(_) | Call::Arm, no, true) => items[line(no)].queued += 1,
            What::Starts(no) => {
                let item = &mut items[line(no)];
                item.runs += 1;
                item.first_start.get_or_insert(entry.at);
            }
            What::Finishes(no) => items[line(no)].last_end = Some(entry.at),
            _ => {}
        }
    }
    say!(
        "{:<16} {:>7} {:>7} {:>16} {:>16}",
        "item",
        "queued",
        "runs",
        "first start us",
        "last end us"
    );
    for (line, item) in script.items.iter().zip(&items) {
        let time = |at: Option<u64>| at.map_or_else(|| "-".to_owned(), us);
        say!(
            "{:<16} {:>7} {:>7} {:>16} {:>16}",
            line.name,
            item.queued,
            item.runs,
            time(item.first_start),
            time(item.last_end)
        );
    }
    Ok(())
}
