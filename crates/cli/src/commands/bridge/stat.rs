//! `uwork bridge stat`: the state of streams, as the server knows it.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use uwork_bridge::{ConsumerStat, Stat, shown};

use super::{Found, GroupOfStreams, seconds};
use crate::commands::json::line;
use crate::commands::{UserError, print};

/// The command line of `uwork bridge stat`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    of: GroupOfStreams,

    /// The heartbeat of the consumers: those without a sign of life for longer are not counted as alive.
    #[arg(long, value_name = "SEC", value_parser = seconds, default_value = "10")]
    heartbeat: Duration,

    /// Print it for a monitoring system, in the text format of OpenMetrics.
    #[arg(long)]
    openmetrics: bool,

    /// Print an object of JSON a line, one for each stream or shard.
    #[arg(long, conflicts_with = "openmetrics")]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let Found { stats, status } = args.of.streams.look(&args.of.group)?;
    let stats: Vec<Stat> = stats.into_iter().map(|(_, stat)| stat).collect();
    print(&match (args.openmetrics, args.json) {
        (true, _) => Stat::to_openmetrics(&stats, args.heartbeat),
        (_, true) => stats.iter().map(|stat| line(&object(stat, args.heartbeat))).collect(),
        _ => table(&stats, args.heartbeat),
    })?;
    for stat in stats.iter().filter(|stat| stat.exists && !stat.group_exists) {
        let (stream, group) = (shown(stat.stream.as_bytes()), shown(args.of.group.as_bytes()));
        complain!("uwork: {stream}: there is no group {group}: no consumer has started");
    }
    Ok(status.code())
}

fn object(stat: &Stat, heartbeat: Duration) -> serde_json::Value {
    let consumer = |of: &ConsumerStat| {
        let idle_s = of.idle.as_secs_f64();
        json!({"name": of.name, "held": of.pending, "idle_s": idle_s})
    };
    json!({
        "stream": stat.stream,
        "exists": stat.exists,
        "group_exists": stat.group_exists,
        "lag": stat.lag,
        "in_flight": stat.in_flight,
        "delayed": stat.delayed,
        "dead_letters": stat.dead_letters,
        "done": stat.done,
        "retries": stat.retries,
        "dead": stat.dead,
        "reclaimed": stat.reclaimed,
        "duplicates": stat.duplicates,
        "unread": stat.unread.iter().map(|(key, _)| key).collect::<Vec<_>>(),
        "consumers_alive": stat.consumers_alive(heartbeat),
        "consumers": stat.consumers.iter().map(consumer).collect::<Vec<_>>(),
    })
}

/// Until when entries are held that no process has.
pub(super) fn until(consumer: &ConsumerStat) -> &'static str {
    match consumer.is_quarantine() {
        true => "until they are replayed or dropped",
        false => "until a consumer takes them",
    }
}

fn table(stats: &[Stat], heartbeat: Duration) -> String {
    let width = stats.iter().map(|stat| stat.stream.len()).max().unwrap_or(0).max(6);
    let mut text = format!(
        "{:<width$} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>10}\n",
        "stream",
        "lag",
        "in flight",
        "delayed",
        "dead",
        "done",
        "retries",
        "reclaimed",
        "duplicate",
        "alive"
    );
    for stat in stats.iter().filter(|stat| stat.exists) {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:<width$} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>10}",
            shown(stat.stream.as_bytes()),
            stat.lag,
            stat.in_flight,
            stat.delayed,
            stat.dead_letters,
            stat.done,
            stat.retries,
            stat.reclaimed,
            stat.duplicates,
            stat.consumers_alive(heartbeat)
        );
    }
    for stat in stats {
        for consumer in &stat.consumers {
            let (pending, idle) = (consumer.pending, consumer.idle.as_secs_f64());
            let state = match consumer.is_process() {
                true => format!("last seen {idle:.1} s ago"),
                false => until(consumer).to_owned(),
            };
            let _ = writeln!(
                text,
                "  {} of {}: {pending} held, {state}",
                shown(consumer.name.as_bytes()),
                shown(stat.stream.as_bytes())
            );
        }
    }
    text
}
