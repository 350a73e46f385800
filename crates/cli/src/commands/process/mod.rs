//! The commands that look into a running process and change its attributes: ls, get, set, dump,
//! monitor, top, trace, doctor.

pub(crate) mod apart;
mod attribute;
pub(crate) mod doctor;
mod list;
mod monitor;
pub(crate) mod named;
mod top;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use attribute::Attribute;

use super::{UserError, json, print};
use crate::client::{Client, Failure};

/// The longest interval.
const INTERVAL_MAX_S: f64 = 86_400.0;

/// The command line of `uwork ls`.
#[derive(clap::Args)]
pub(crate) struct LsArgs {
    /// A process, by its number or by the path of its socket. Without it: all processes.
    #[arg(value_name = "PID")]
    process: Option<String>,

    /// The part of the attribute tree to list.
    #[arg(value_name = "PATH", default_value = "")]
    path: String,

    /// Print each process, or each attribute, on a line as JSON.
    #[arg(long)]
    json: bool,
}

/// The command line of `uwork get`.
#[derive(clap::Args)]
pub(crate) struct GetArgs {
    /// The process, by its number or by the path of its socket.
    #[arg(value_name = "PID")]
    process: String,

    /// The attribute's path in the tree, as `uwork ls PID` lists it.
    #[arg(value_name = "PATH", value_parser = attribute_path)]
    path: String,

    /// Describe the attribute: type, unit and permitted values.
    #[arg(long)]
    describe: bool,

    /// Print the value and the description as JSON.
    #[arg(long, conflicts_with = "describe")]
    json: bool,
}

/// The command line of `uwork set`.
#[derive(clap::Args)]
pub(crate) struct SetArgs {
    /// The process, by its number or by the path of its socket.
    #[arg(value_name = "PID")]
    process: String,

    /// The attribute's path in the tree, as `uwork ls PID` lists it.
    #[arg(value_name = "PATH", value_parser = attribute_path)]
    path: String,

    /// The new value.
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    value: String,
}

/// The command line of `uwork dump`.
#[derive(clap::Args)]
pub(crate) struct DumpArgs {
    /// The process, by its number or by the path of its socket.
    #[arg(value_name = "PID")]
    process: String,

    /// Print it as JSON.
    #[arg(long)]
    json: bool,

    /// Print the call stacks of the items that run for 100 ms or longer as well. Their threads
    /// handle a signal, which makes some system calls return early.
    #[arg(long, conflicts_with = "json")]
    stacks: bool,
}

/// The command line of `uwork monitor`.
#[derive(clap::Args)]
pub(crate) struct MonitorArgs {
    /// The process, by its number or by the path of its socket.
    #[arg(value_name = "PID")]
    process: String,

    /// Seconds between two tables; 0 prints a single one.
    #[arg(short, long, value_name = "SEC", default_value = "1")]
    interval: String,

    /// Print N tables, then end.
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,

    /// Print each queue of each table on a line, as JSON.
    #[arg(long)]
    json: bool,

    /// Show the queues whose names match any of these regular expressions.
    #[arg(value_name = "REGEX")]
    names: Vec<String>,
}

/// The command line of `uwork top`.
#[derive(clap::Args)]
pub(crate) struct TopArgs {
    /// The process, by its number or by the path of its socket. Without it: the only one, or a list
    /// to choose from.
    #[arg(value_name = "PID")]
    process: Option<String>,

    /// Seconds between two pictures; the shortest time is 0.05.
    #[arg(short, long, value_name = "SEC", default_value = "1")]
    interval: String,
}

/// The command line of `uwork trace`.
#[derive(clap::Args)]
pub(crate) struct TraceArgs {
    /// The process, by its number or by the path of its socket.
    #[arg(value_name = "PID")]
    process: String,

    /// The file to write: JSON trace events, which ui.perfetto.dev opens.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// How long to record: whole seconds, 1 to 3600.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

/// The command line of `uwork doctor`.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    /// Processes, by their numbers or by the paths of their sockets. Without any: all processes.
    #[arg(value_name = "PID")]
    processes: Vec<String>,

    /// Print each finding on a line, as JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `uwork ls`.
pub(crate) fn ls(args: LsArgs) -> Result<ExitCode, UserError> {
    match args.process {
        None => print(&list::processes(args.json)),
        Some(process) => {
            let mut client = Client::connect(&process)?;
            print(&list::tree(&mut client, &args.path, args.json)?)
        }
    }
}

/// The path of an attribute. A blank one would make another request of the rest of the line.
fn attribute_path(text: &str) -> Result<String, &'static str> {
    match text.trim().is_empty() {
        true => Err("it names no attribute; `uwork ls PID` lists them"),
        false => Ok(text.to_owned()),
    }
}

/// Runs `uwork get`.
pub(crate) fn get(args: GetArgs) -> Result<ExitCode, UserError> {
    let mut client = Client::connect(&args.process)?;
    if args.json {
        return print(&Attribute::ask(&mut client, &args.path)?.line());
    }
    let verb = if args.describe { "describe" } else { "get" };
    print(&client.ask(&format!("{verb} {}", args.path))?)
}

/// Runs `uwork set`.
pub(crate) fn set(args: SetArgs) -> Result<ExitCode, UserError> {
    // A path in the protocol ends at the first space.
    let path = args.path.replace(char::is_whitespace, "!");
    let request = format!("set {path} {}", args.value);
    let answer = Client::connect(&args.process)?.ask(&request);
    print(&answer.map_err(|failure| match failure {
        Failure::Gone(reason) => UserError(format!("{reason}; the value may have changed")),
        refused => refused.into(),
    })?)
}

/// Runs `uwork dump`.
pub(crate) fn dump(args: DumpArgs) -> Result<ExitCode, UserError> {
    let mut requests = vec![if args.json { "dump json" } else { "dump" }];
    if args.stacks {
        requests.push("stacks");
    }
    let until = Instant::now() + doctor::EVIDENCE;
    let mut client = Client::connect(&args.process)?;
    let (answers, missing) = answers_with_names(&mut client, &requests, until)?;
    let text = match args.json {
        true => json::object_of(&answers[0]).ok_or_else(|| {
            UserError(format!("process {} has sent a malformed dump", client.process()))
        })?,
        false => doctor::frames::without_callers(&answers.join("\n")),
    };
    let printed = print(&text)?;
    missing.map_or(Ok(printed), Err)
}

/// Answers, and why the ones behind them are missing.
type Answers = (Vec<String>, Option<UserError>);

/// The answers to requests that have functions in them. The names of the functions are read here. The
/// process names them where that is impossible: it is of an earlier version, or its files cannot be
/// read.
///
/// # Errors
/// There is no answer to the first request.
fn answers_with_names(
    client: &mut Client,
    requests: &[&str],
    until: Instant,
) -> Result<Answers, UserError> {
    let raw: Vec<String> = requests.iter().map(|request| format!("raw {request}")).collect();
    match first_answers(client, &raw) {
        Ok((answers, missing)) => {
            let texts: Vec<&str> = answers.iter().map(String::as_str).collect();
            let found = doctor::names::find(client.process(), &texts, until);
            if !found.is_unread() {
                let named = |text| found.in_json(&found.in_text(text));
                let named = texts.into_iter().map(named).collect();
                for reason in found.missing.iter().cloned().chain(found.left_out()) {
                    complain!("uwork: names of functions or lines are missing: {reason}");
                }
                return Ok((named, missing));
            }
        }
        Err(Failure::Refused(refused)) if refused.code == "bad-request" => {}
        Err(failure) => return Err(failure.into()),
    }
    let asked: Vec<String> = requests.iter().map(|&request| request.to_owned()).collect();
    Ok(first_answers(client, &asked)?)
}

/// The answers up to the first failure, which is an error where it is the first of all.
fn first_answers(client: &mut Client, requests: &[String]) -> Result<Answers, Failure> {
    let mut answers = Vec::new();
    for (request, answer) in requests.iter().zip(client.ask_all(requests)) {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(failure) if answers.is_empty() => return Err(failure),
            Err(failure) => {
                let UserError(reason) = failure.into();
                let request = request.strip_prefix("raw ").unwrap_or(request);
                return Ok((answers, Some(UserError(format!("no {request}: {reason}")))));
            }
        }
    }
    Ok((answers, None))
}

/// Runs `uwork monitor`.
pub(crate) fn monitor(args: MonitorArgs) -> Result<ExitCode, UserError> {
    monitor::run(&args)
}

/// Runs `uwork top`.
pub(crate) fn top(args: &TopArgs) -> Result<ExitCode, UserError> {
    top::run(args)
}

/// Runs `uwork trace`.
pub(crate) fn trace(args: &TraceArgs) -> Result<ExitCode, UserError> {
    trace::run(args)
}

/// A time in nanoseconds, rounded down, with a unit, in at most five characters; 0 is no time.
fn time(ns: u64) -> String {
    const S: u64 = 1_000_000_000;
    const H: u64 = 3_600 * S;
    match ns {
        0 => "-".to_owned(),
        1..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", ns / 1_000_000),
        ns if ns / S < 10_000 => format!("{}s", ns / S),
        ns if ns / H < 10_000 => format!("{}h", ns / H),
        _ => format!("{}d", (ns / H / 24).min(9_999)),
    }
}

/// A queue's name as a part of a path in the attribute tree.
fn in_a_path(name: &str) -> String {
    name.replace(|c: char| c == '/' || c.is_whitespace(), "!")
}

/// A word of a command that the reader may paste into a shell.
fn in_a_shell(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The option `--interval`.
fn interval(text: &str) -> Result<Duration, UserError> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=INTERVAL_MAX_S).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| {
        UserError(format!(
            "--interval: '{text}' is not a number of seconds (allowed: 0 to {INTERVAL_MAX_S})"
        ))
    })
}
