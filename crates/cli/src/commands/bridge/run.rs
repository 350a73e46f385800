//! `uwork bridge run`: a consumer that runs each job as a command.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use uwork_bridge::{Backoff, Bridge, Config, Exec, Handlers, Results};

use super::lines::Lines;
use super::{Place, seconds, user};
use crate::commands::UserError;
use crate::commands::signals::{Signals, end_by, keep_statuses_of_children};

/// Jobs that may be left behind at the end make the exit code 1.
const LEFT_BEHIND: u8 = 1;

/// The command line of `uwork bridge run`.
#[derive(clap::Args)]
#[group(id = "run")]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,

    /// The stream. Several are given by falling priority.
    #[arg(long, value_name = "STREAM", required = true)]
    stream: Vec<String>,

    /// The command for each job, with its arguments; the last option on the line. The payload is
    /// its standard input. Exit status 0: done; 65: a dead letter; other: try again. If it
    /// cannot be started at first, the consumer ends with exit status 2.
    #[arg(long, value_name = "CMD", required = true, num_args = 1.., allow_hyphen_values = true)]
    exec: Vec<OsString>,

    /// The consumer group; it is created if it does not exist. Each group of a stream runs each job.
    #[arg(long, value_name = "NAME", default_value = "uwork")]
    group: String,

    /// A name for this consumer, for people.
    #[arg(long, value_name = "NAME", default_value = "uwork")]
    name: String,

    /// How many jobs run at once: 1 to 2048. Without it: twice the number of CPUs.
    #[arg(long, value_name = "N")]
    max_active: Option<u32>,

    /// Kill a job after SEC seconds; it is tried again. Without it a run has no limit, and is
    /// reported after a minute.
    #[arg(long, value_name = "SEC", value_parser = seconds)]
    limit: Option<Duration>,

    /// Attempts after which a job becomes a dead letter. A job whose consumers die becomes one only
    /// after three deaths while it ran alone, so it may begin four times even with 1.
    #[arg(long, value_name = "N", default_value_t = 5)]
    attempts: u32,

    /// The delay before the second attempt; each further one is twice as long.
    #[arg(long, value_name = "SEC", value_parser = seconds, default_value = "1")]
    retry_first: Duration,

    /// The longest delay before an attempt.
    #[arg(long, value_name = "SEC", value_parser = seconds, default_value = "600")]
    retry_max: Duration,

    /// The time without a sign of life after which other consumers take over the jobs of one.
    #[arg(long, value_name = "SEC", value_parser = seconds, default_value = "10")]
    heartbeat: Duration,

    /// Keep each job's standard output for SEC seconds, in the key {STREAM}:result:ID, with the braces.
    #[arg(long, value_name = "SEC", value_parser = seconds, conflicts_with = "result_stream")]
    result_keys: Option<Duration>,

    /// Add each job's standard output to the stream {STREAM}:results, with the braces, which keeps
    /// about N of them.
    #[arg(long, value_name = "N")]
    result_stream: Option<u64>,

    /// How many bytes of a job's output to keep, with --result-keys or --result-stream.
    #[arg(long, value_name = "BYTES", default_value_t = 65_536)]
    output_max: usize,

    /// Leave entries in the stream when they are done.
    #[arg(long)]
    keep: bool,

    /// Refuse a server that forgets jobs: that evicts keys, has no append-only file, is a replica, or
    /// does not tell. If a server begins to do so later, no job is fetched from it until that ends.
    /// Without this option such a server is reported.
    #[arg(long)]
    strict: bool,

    /// About how many dead letters to keep; 0: all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    dead_max: u64,

    /// At a signal, wait SEC seconds for running jobs; what still runs is killed, and then handed
    /// back. A second signal ends the wait.
    #[arg(long, value_name = "SEC", value_parser = seconds, default_value = "30")]
    stop_limit: Duration,
}

/// Descriptors of a command: the ends of three pipes and a pidfd while it runs, and a share of those of the
/// commands that are being started, which have five more each. If they do not suffice, the job is handed
/// back and tried again.
const FILES_OF_COMMAND: u64 = 5;
/// Descriptors of a shard: the connections of its two threads, and one for a question to another server.
const FILES_OF_SHARD: u64 = 3;
/// Descriptors of the process: the standard streams, those of the library, and some for programs.
const FILES_OF_PROCESS: u64 = 24;

/// How many commands may run at once with the descriptors that this process may have, at least 1.
fn most_commands(shards: u64) -> u64 {
    let Some(limit) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current else {
        return u64::MAX;
    };
    (limit.saturating_sub(FILES_OF_PROCESS + FILES_OF_SHARD * shards) / FILES_OF_COMMAND).max(1)
}

/// How many jobs run at once: what was asked for, or as many as the default and `most` allow.
fn active(asked: Option<u32>, default: u32, most: u64) -> Result<u32, UserError> {
    match asked {
        Some(asked) if u64::from(asked) > most => Err(UserError(format!(
            "--max-active {asked}: the limit of open files (ulimit -n) allows at most {most}"
        ))),
        Some(asked) => Ok(asked),
        None => Ok(default.min(u32::try_from(most).unwrap_or(u32::MAX))),
    }
}

/// What a first signal meets.
static PHASE: AtomicU8 = AtomicU8::new(STARTS);
/// The consumer connects to its servers, and holds no job.
const STARTS: u8 = 0;
const RUNS: u8 = 1;
const ENDS: u8 = 2;

/// The first signal ends a start at once, and begins the stop of a consumer. A second one ends that.
fn end_at_signals(signals: &Signals, has_come: &mpsc::Sender<()>, running: &Exec, lines: &Lines) {
    let signal = signals.wait();
    if PHASE.compare_exchange(STARTS, ENDS, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
        lines.say("uwork bridge: a signal ends the start");
        lines.finish();
        end_by(signal);
    }
    // Fails only at the end of the process.
    let _ = has_come.send(());
    // A terminal that closes may send more than one SIGHUP.
    let signal = std::iter::repeat_with(|| signals.wait()).find(|&of| of != libc::SIGHUP);
    let signal = signal.unwrap_or(libc::SIGTERM);
    running.kill_all();
    lines.say("uwork bridge: a second signal: running jobs are left to other consumers");
    lines.finish();
    std::process::exit(128 + signal);
}

/// Runs the command.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    let results = match (args.result_keys, args.result_stream) {
        (Some(life), _) => Results::Key(life),
        (_, Some(max)) => Results::Stream(max),
        _ => Results::Dropped,
    };
    let output_max = if results == Results::Dropped { 0 } else { args.output_max };
    let exec = Exec::new(args.exec, output_max).map_err(user)?;
    let mut servers = args.place.servers()?;
    let mut config = Config::new(servers.remove(0), args.stream[0].clone());
    config.servers.extend(servers);
    config.streams = args.stream;
    config.shards = args.place.shards;
    config.group = args.group;
    config.name = args.name;
    let most = most_commands(config.streams.len() as u64 * u64::from(config.shards));
    config.max_active = active(args.max_active, config.max_active, most)?;
    config.limit = args.limit;
    config.attempts_max = args.attempts;
    config.backoff = Backoff { first: args.retry_first, max: args.retry_max };
    config.heartbeat = args.heartbeat;
    config.keep = args.keep;
    config.strict = args.strict;
    config.dead_max = args.dead_max;
    config.results = results;
    keep_statuses_of_children();
    // Before the first thread, so that all threads leave the signals to that one.
    let signals = Signals::block();
    let running = exec.clone();
    let (has_come, comes) = mpsc::channel();
    // A thread of the consumer that waited for the reader of standard error would give no heartbeat.
    let lines = Lines::of_stderr()?;
    let ends = {
        let (running, lines) = (running.clone(), lines.clone());
        move || end_at_signals(&signals, &has_come, &running, &lines)
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(ends);
    thread.map_err(|error| UserError(format!("a thread for signals: {error}")))?;
    let handlers = Handlers::new().otherwise_exec(exec);
    let report = {
        let lines = lines.clone();
        move |line: &str| lines.say(&format!("uwork bridge: {line}"))
    };
    let bridge = Bridge::start(config, handlers, report).map_err(|error| {
        // The lines before the error.
        lines.finish();
        user(error)
    })?;
    if PHASE.swap(RUNS, Ordering::SeqCst) == ENDS {
        // The signal ends the process.
        loop {
            std::thread::park();
        }
    }
    lines.say(&format!("uwork bridge: {} runs; SIGINT or SIGTERM ends it", bridge.consumer()));
    // The thread that sends it lives as long as the process.
    let _ = comes.recv();
    let stopped = bridge.stop(args.stop_limit);
    // A command that was being started may not be killed yet.
    running.kill_all();
    let counters = stopped.counters;
    lines.say(&format!(
        "uwork bridge: {} done, {} retried, {} dead, {} handed back, {} killed, {} left to others",
        counters.done,
        counters.retries,
        counters.dead,
        counters.handed_back,
        stopped.abandoned,
        stopped.uncommitted
    ));
    lines.finish();
    Ok(if stopped.uncommitted > 0 { ExitCode::from(LEFT_BEHIND) } else { ExitCode::SUCCESS })
}
