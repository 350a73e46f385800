//! `uwork bridge consumers`: the consumers of streams, and what each holds.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use uwork_bridge::{ConsumerStat, HeldJob, shown};

use super::dead::age;
use super::stat::until;
use super::{GroupOfStreams, seconds};
use crate::commands::json::line;
use crate::commands::{UserError, print};

/// The command line of `uwork bridge consumers`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    of: GroupOfStreams,

    /// The heartbeat of the consumers: without a sign of life for longer, a consumer counts as dead.
    /// They give one every third of it, so a shorter one than theirs shows live consumers as dead.
    #[arg(long, value_name = "SEC", value_parser = seconds, default_value = "10")]
    heartbeat: Duration,

    /// How many jobs of each consumer to list, the oldest first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    jobs: usize,

    /// Print an object of JSON a line, one for each consumer of each stream.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let group = &args.of.group;
    let found = args.of.streams.look(group)?;
    let mut status = found.status;
    let mut text = String::new();
    for (server, stat) in found.existing() {
        let stream = &stat.stream;
        let held = match HeldJob::read(server, stream, group, args.jobs.clamp(1, 1_000)) {
            Ok(held) => held,
            Err(error) => {
                status.failed(format_args!("{}: {error}", shown(stream.as_bytes())));
                continue;
            }
        };
        if held.is_empty() {
            let (stream, group) = (shown(stream.as_bytes()), shown(group.as_bytes()));
            complain!("uwork: {stream}: the group {group} has no consumer");
        }
        for (consumer, jobs) in &held {
            // None: it has entries that no process has.
            let is_alive = consumer.is_process().then_some(consumer.idle <= args.heartbeat);
            let jobs = &jobs[..jobs.len().min(args.jobs)];
            text += &match args.json {
                true => line(&object(stream, consumer, is_alive, jobs)),
                false => lines(stream, consumer, is_alive, jobs),
            };
        }
    }
    print(&text)?;
    Ok(status.code())
}

fn lines(
    stream: &str,
    consumer: &ConsumerStat,
    is_alive: Option<bool>,
    jobs: &[HeldJob],
) -> String {
    let ConsumerStat { name, pending, idle, .. } = consumer;
    let seen = format!("last seen {:.1} s ago", idle.as_secs_f64());
    let state = match is_alive {
        Some(true) => format!("alive, {seen}, holds {pending}"),
        Some(false) => format!("dead, {seen}, holds {pending}"),
        None => format!("{pending} held, {}", until(consumer)),
    };
    let (name, stream) = (shown(name.as_bytes()), shown(stream.as_bytes()));
    let mut text = format!("{name} of {stream}: {state}\n");
    for job in jobs {
        // Writing to a string does not fail.
        let _ = write!(text, "  {}  added {} ago", job.entry, age(job.age));
        for (what, value) in [("id", &job.id), ("handler", &job.handler)] {
            if let Some(value) = value {
                let _ = write!(text, "  {what} {}", shown(value.as_bytes()));
            }
        }
        if job.begun > 0 {
            text.push_str("  begun");
        }
        if job.attempts > 0 || job.deliveries > 1 {
            let (attempts, deliveries) = (job.attempts, job.deliveries);
            let _ = write!(text, "  {attempts} attempts failed  delivered {deliveries} times");
        }
        if is_alive.is_some() && job.idle > Duration::from_secs(1) {
            let _ = write!(text, "  no heartbeat for {}", age(job.idle));
        }
        text.push('\n');
    }
    let more = pending.saturating_sub(jobs.len() as u64);
    if more > 0 {
        let _ = writeln!(text, "  and {more} more");
    }
    text
}

fn object(
    stream: &str,
    consumer: &ConsumerStat,
    is_alive: Option<bool>,
    jobs: &[HeldJob],
) -> serde_json::Value {
    let job = |job: &HeldJob| {
        json!({
            "entry": job.entry,
            "id": job.id,
            "handler": job.handler,
            "age_s": job.age.as_secs_f64(),
            "idle_s": job.idle.as_secs_f64(),
            "deliveries": job.deliveries,
            "begun": job.begun,
            "attempts": job.attempts,
        })
    };
    json!({
        "stream": stream,
        "consumer": consumer.name,
        "alive": is_alive,
        "idle_s": consumer.idle.as_secs_f64(),
        "held": consumer.pending,
        "jobs": jobs.iter().map(job).collect::<Vec<_>>(),
    })
}
