//! `uwork sim power`.

use std::fmt::Write;
use std::process::ExitCode;

use uwork_sim::power::experiment::{
    Case, Mode, Pair, Placement, Tasks, energy, run as play, saved,
};
use uwork_sim::power::machines::{FREQUENCIES, OVERHEAD, Powered, board, socket};
use uwork_sim::power::model::Energy;

use super::UserError;
use crate::commands::print;
use crate::commands::progress::Progress;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Only this machine.
    #[arg(long)]
    machine: Option<Model>,
    /// The observed virtual time of each run, in seconds.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// How many draws of phases, and of CPUs that arm the tasks, are averaged.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    draws: u64,
}

/// A machine with a power model.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Model {
    /// 4 Cortex-A7 and 4 Cortex-A15: the audio case
    Board,
    /// A server's socket with 10 cores: the periodic case
    Socket,
}

/// The measurement that the audio case follows: joules without and with power-efficient workqueues.
/// V. Kumar, "Power-efficient workqueues", LWN, August 2017.
const PUBLISHED: [(&str, f64, f64); 2] =
    [("A7", 2.619_137, 2.251_463_2), ("A15", 0.322_866, 0.228_904_2)];

pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let wanted = |model: Model| args.machine.is_none_or(|only| only == model);
    let mut text = String::new();
    let progress = Progress::new(None);
    progress.begin("the board");
    if wanted(Model::Board) {
        on_board(&mut text, args);
    }
    if wanted(Model::Socket) {
        if !text.is_empty() {
            text.push('\n');
        }
        progress.begin("the socket");
        on_socket(&mut text, args);
    }
    drop(progress);
    print(&text)
}

/// The case of these arguments, with tasks that are armed on any CPU.
fn case_of(args: &Args, machine: &Powered, tasks: Tasks) -> Case {
    Case {
        tasks,
        placement: Placement::Last,
        armed_on: machine.domains.last().map_or(0, |last| last.cpus.end),
        off: Mode::PerCpu,
        awake: None,
        observed_ns: args.seconds * 1_000_000_000,
        draws: args.draws,
    }
}

fn on_board(text: &mut String, args: &Args) {
    let machine = board(0);
    let case = case_of(args, &machine, Tasks::Audio);
    title(text, "audio", &machine, args);
    let pairs = play(&machine, case);
    table(text, &machine, &energy(&machine, &pairs, OVERHEAD));
    published(text);
    sensitivity(text, &machine, &pairs);
    let little = Case { armed_on: machine.domains[0].cpus.end, ..case };
    variant(text, &machine, "all tasks armed on A7", &play(&machine, little));
    drawn(text, &machine, case);
    frequencies(text, case);
    beside_an_awake_cpu(text, &machine, case);
}

/// The total saving at each frequency.
fn frequencies(text: &mut String, case: Case) {
    let totals = (0..FREQUENCIES).map(|frequency| {
        let machine = board(frequency);
        let saved = saved(&energy(&machine, &play(&machine, case), OVERHEAD));
        saved.last().map_or_else(String::new, |total| percent(*total))
    });
    let totals = totals.collect::<Vec<_>>().join(", ");
    put(text, format_args!("  at each frequency, from the lowest on: total {totals}"));
}

/// What the choice of the CPU saves over a floating pool that leaves it to the system.
fn beside_an_awake_cpu(text: &mut String, machine: &Powered, case: Case) {
    for (placement, how) in [(Placement::Last, "the last"), (Placement::Drawn, "a drawn")] {
        for (domain, cpu) in machine.domains.iter().map(|domain| (domain, domain.cpus.start + 2)) {
            let case = Case { placement, off: Mode::Floating, awake: Some(cpu as u32), ..case };
            let energies = energy(machine, &play(machine, case), OVERHEAD);
            let total = |side: fn(&(Energy, Energy)) -> f64| energies.iter().map(side).sum::<f64>();
            let (off, on) = (total(|(off, _)| off.joules), total(|(_, on)| on.joules));
            let (name, saved) = (domain.name, percent(1.0 - on / off));
            put(
                text,
                format_args!(
                    "  one {name} is awake for 80 %; threads wake on {how} CPU: without the choice of \
                     the CPU {off:.4} J, with it {on:.4} J, saved {saved}"
                ),
            );
        }
    }
}

fn on_socket(text: &mut String, args: &Args) {
    let machine = socket();
    let case = case_of(args, &machine, Tasks::Periodic);
    title(text, "periodic", &machine, args);
    let pairs = play(&machine, case);
    table(text, &machine, &energy(&machine, &pairs, OVERHEAD));
    sensitivity(text, &machine, &pairs);
    drawn(text, &machine, case);
}

fn drawn(text: &mut String, machine: &Powered, case: Case) {
    let pairs = play(machine, Case { placement: Placement::Drawn, ..case });
    variant(text, machine, "a scheduler that draws the CPU of each wake", &pairs);
}

fn title(text: &mut String, case: &str, machine: &Powered, args: &Args) {
    let Args { seconds, draws, .. } = args;
    let (name, about) = (machine.name, machine.about);
    put(
        text,
        format_args!("{case}, simulated on the {name}: {about} ({seconds} s, mean of {draws})"),
    );
}

/// Adds a line.
fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a string takes every text");
}

fn row(text: &mut String, name: &str, off: f64, on: f64, rest: &str) {
    let saved = percent(1.0 - on / off);
    put(text, format_args!("  {name:<10} {off:>10.4} {on:>10.4} {saved:>8}{rest}"));
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn table(text: &mut String, machine: &Powered, energies: &[(Energy, Energy)]) {
    let heads = ["off J", "on J", "saved", "wakes off", "on", "asleep off", "on"];
    put(
        text,
        format_args!(
            "  {:<10} {:>10} {:>10} {:>8} {:>10} {:>7} {:>11} {:>8}",
            "", heads[0], heads[1], heads[2], heads[3], heads[4], heads[5], heads[6]
        ),
    );
    let mut total = (0.0, 0.0);
    for (domain, (off, on)) in machine.domains.iter().zip(energies) {
        let (asleep_off, asleep_on) = (percent(off.asleep), percent(on.asleep));
        let rest = format!(" {:>10} {:>7} {asleep_off:>11} {asleep_on:>8}", off.wakes, on.wakes);
        row(text, domain.name, off.joules, on.joules, &rest);
        total = (total.0 + off.joules, total.1 + on.joules);
    }
    if machine.domains.len() > 1 {
        row(text, "total", total.0, total.1, "");
    }
}

fn published(text: &mut String) {
    put(text, format_args!("  measured with the kernel's workqueues (LWN, August 2017):"));
    let mut total = (0.0, 0.0);
    for (name, off, on) in PUBLISHED {
        row(text, name, off, on, "");
        total = (total.0 + off, total.1 + on);
    }
    row(text, "total", total.0, total.1, "");
}

/// What is saved if each of the weakest numbers is half or twice as large.
fn sensitivity(text: &mut String, machine: &Powered, pairs: &[Pair]) {
    put(text, format_args!("  the three weakest numbers, halved and doubled:"));
    for weak in machine.weakest {
        let with = |factor: f64| {
            let (mut machine, mut work) = (machine.clone(), OVERHEAD);
            (weak.scale)(&mut machine, &mut work, factor);
            savings(&machine, &saved(&energy(&machine, pairs, work)))
        };
        put(text, format_args!("  - {}", weak.about));
        put(text, format_args!("    x 0.5: {};  x 2: {}", with(0.5), with(2.0)));
    }
}

fn variant(text: &mut String, machine: &Powered, what: &str, pairs: &[Pair]) {
    let saved = saved(&energy(machine, pairs, OVERHEAD));
    put(text, format_args!("  with {what}: {}", savings(machine, &saved)));
}

/// The saved part of each domain and of all.
fn savings(machine: &Powered, saved: &[f64]) -> String {
    let names = machine.domains.iter().map(|domain| domain.name).chain(["total"]);
    let parts = names.zip(saved).map(|(name, part)| format!("{name} {}", percent(*part)));
    let skip = if machine.domains.len() == 1 { 1 } else { 0 };
    parts.skip(skip).collect::<Vec<_>>().join(", ")
}
