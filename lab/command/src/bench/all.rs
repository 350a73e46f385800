//! `uwork-lab bench all`: every benchmark, one after the other, each with a file of figures. What
//! `make bench` runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::UserError;

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Small sizes and few samples, for a look
    #[arg(long)]
    quick: bool,
    /// Print the steps and their durations, and run nothing
    #[arg(long)]
    list: bool,
    /// The folder for the files of figures and what the benchmarks print
    #[arg(long, value_name = "FOLDER", default_value = "target/bench")]
    folder: PathBuf,
}

/// A step: the name of its files, the arguments of `uwork-lab bench`, those of a look, and about how
/// many seconds each takes on a machine with two CPUs.
struct Step {
    name: &'static str,
    whole: (&'static str, u64),
    quick: (&'static str, u64),
}

const fn step(name: &'static str, whole: (&'static str, u64), quick: (&'static str, u64)) -> Step {
    Step { name, whole, quick }
}

const STEPS: &[Step] = &[
    step(
        "workqueue",
        ("workqueue --rivals --scope all", 180),
        ("workqueue --rivals --scope all --quick --samples 1", 12),
    ),
    step(
        "workqueue-clock",
        ("workqueue --rivals --clock --case wait --case batch", 90),
        ("workqueue --rivals --clock --case wait --quick --samples 1", 5),
    ),
    step(
        "workqueue-ordered",
        ("workqueue --rivals --ordered --case flood", 30),
        ("workqueue --rivals --ordered --case flood --quick --samples 1", 6),
    ),
    step(
        "scaling-1",
        ("workqueue --rivals --case flood --producers 1", 20),
        ("workqueue --rivals --case flood --producers 1 --quick --samples 1", 3),
    ),
    step(
        "scaling-2",
        ("workqueue --rivals --case flood --producers 2", 20),
        ("workqueue --rivals --case flood --producers 2 --quick --samples 1", 3),
    ),
    step(
        "scaling-4",
        ("workqueue --rivals --case flood --producers 4", 30),
        ("workqueue --rivals --case flood --producers 4 --quick --samples 1", 3),
    ),
    step(
        "scaling-16",
        ("workqueue --rivals --case flood --producers 16 --items 100000", 60),
        ("workqueue --rivals --case flood --producers 16 --quick --samples 1", 5),
    ),
    step(
        "pingpong",
        ("workqueue --rivals --case pingpong", 120),
        ("workqueue --case pingpong --quick --samples 1", 10),
    ),
    step("scope", ("scope", 20), ("scope --quick --samples 1", 2)),
    step("nested", ("nested --rivals", 10), ("nested --rivals --samples 1", 2)),
    step("open", ("open --rivals", 1_440), ("open --rivals --quick", 38)),
    step(
        "blocking",
        ("blocking --rivals", 600),
        ("blocking --rivals --quick --samples 1 --case sleep", 40),
    ),
    step("percpu", ("percpu", 240), ("percpu --quick --samples 1", 8)),
    step("isolation", ("isolation --case steady", 120), ("isolation --case once --quick", 15)),
    step(
        "isolation-cache",
        ("isolation --case cache", 120),
        ("isolation --case cache --quick", 15),
    ),
    step("taskwork", ("taskwork", 120), ("taskwork --quick", 3)),
    step("serve", ("serve", 300), ("serve --quick --case get", 14)),
    step("power", ("power", 750), ("power --quick", 55)),
    step("timers", ("timers", 120), ("timers --quick", 20)),
    step("guest", ("guest", 170), ("guest --quick", 6)),
    step("queues", ("queues", 10), ("queues --quick", 2)),
    step("idle", ("idle", 8), ("idle --seconds 1", 3)),
    step("golden", ("golden", 30), ("golden --samples 1", 10)),
    step("golden-undeclared", ("golden --undeclared", 30), ("golden --undeclared --samples 1", 10)),
    step("bridge", ("bridge", 600), ("bridge --quick --runner uwork", 20)),
    step("observe", ("observe", 160), ("observe --quick", 7)),
    step("progress", ("progress", 1_320), ("progress --quick --case timer-sleep", 30)),
];

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let chosen = |step: &Step| if args.quick { step.quick } else { step.whole };
    let total: u64 = STEPS.iter().map(|step| chosen(step).1).sum();
    println!("{} benchmarks; on two CPUs they take {}", STEPS.len(), spoken(total));
    if args.list {
        for step in STEPS {
            let (line, seconds) = chosen(step);
            println!("  {:<18} {:>8}  uwork-lab bench {line}", step.name, spoken(seconds));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let refused = |error| UserError(format!("{}: {error}", args.folder.display()));
    fs::create_dir_all(&args.folder).map_err(refused)?;
    let progress = ProgressBar::new(total);
    let style = ProgressStyle::with_template("{wide_bar} {elapsed:>4} {msg}");
    progress.set_style(style.expect("a valid template"));
    progress.enable_steady_tick(Duration::from_secs(1));
    let mut left_out = Vec::new();
    write_left_out(&args.folder, &left_out)?;
    for (number, step) in STEPS.iter().enumerate() {
        let (line, seconds) = chosen(step);
        let left: u64 = STEPS[number..].iter().map(|step| chosen(step).1).sum();
        let place = format!("{}/{}", number + 1, STEPS.len());
        progress.set_message(format!("{place} {}, about {} left", step.name, spoken(left)));
        let start = Instant::now();
        let outcome = run_step(step.name, line, &args.folder);
        progress.inc(seconds);
        let took = spoken(start.elapsed().as_secs());
        progress.suspend(|| match outcome {
            Ok(()) => println!("{place:>5}  {:<18} {took}", step.name),
            Err(UserError(reason)) => {
                println!("{place:>5}  {:<18} left out: {reason}", step.name);
                left_out.push(LeftOut { left_out: step.name, reason });
            }
        });
    }
    progress.finish_and_clear();
    // What this machine cannot run (a server that is not installed, a single CPU) is left out. If
    // nothing ran, there is nothing to show.
    write_left_out(&args.folder, &left_out)?;
    Ok(if left_out.len() == STEPS.len() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A step that did not run, as `uwork report` reads it.
#[derive(serde::Serialize)]
struct LeftOut {
    left_out: &'static str,
    reason: String,
}

/// Beside the files of figures, so that the page says what is missing.
fn write_left_out(folder: &Path, steps: &[LeftOut]) -> Result<(), UserError> {
    let path = folder.join("left-out.json");
    let text = serde_json::to_string(steps).expect("texts have a form in JSON");
    fs::write(&path, text).map_err(|error| UserError(format!("{}: {error}", path.display())))
}

/// Runs a benchmark in a process of its own. What it prints goes to NAME.txt, its figures to
/// NAME.json.
fn run_step(name: &str, line: &str, folder: &Path) -> Result<(), UserError> {
    let failed = |error: std::io::Error| UserError(error.to_string());
    let json = folder.join(format!("{name}.json"));
    // A file of an earlier call would be shown as this call's.
    match fs::remove_file(&json) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let printed = fs::File::create(folder.join(format!("{name}.txt"))).map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("bench").args(line.split(' ')).arg("--json").arg(json);
    command.stdin(Stdio::null()).stdout(printed);
    let output = command.stderr(Stdio::piped()).output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Err(UserError(last.unwrap_or("it printed nothing").to_owned()))
}

/// A duration for people.
fn spoken(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        _ => format!("{} min", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        _args: crate::bench::Args,
    }

    #[test]
    fn every_step_is_a_command_line_of_this_program() {
        for step in STEPS {
            for (line, _) in [step.whole, step.quick] {
                let words = ["bench"].into_iter().chain(line.split(' ')).chain(["--json", "F"]);
                if let Err(error) = Line::try_parse_from(words) {
                    panic!("{line}: {error}");
                }
            }
        }
    }

    #[test]
    fn every_step_has_files_of_its_own() {
        let mut names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }
}
