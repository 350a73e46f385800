//! `uwork bridge stat`: the state of streams, as the server knows it.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::json;
use uwork_bridge::{ConsumerStat, Stat, shown};

use super::json::line;
use super::{Place, user};
use crate::commands::{UserError, print};

/// A stream that does not exist makes the exit code 1.
const NO_STREAM: u8 = 1;

/// The command line of `uwork bridge stat`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,

    /// The stream; several may be given.
    #[arg(long, value_name = "STREAM", required = true)]
    stream: Vec<String>,

    /// The consumer group.
    #[arg(long, value_name = "NAME", default_value = "uwork")]
    group: String,

    /// Print it for a monitoring system, in the text format of OpenMetrics.
    #[arg(long)]
    openmetrics: bool,

    /// Print an object of JSON a line, one for each stream or shard.
    #[arg(long, conflicts_with = "openmetrics")]
    json: bool,
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    let servers = args.place.servers()?;
    let mut stats = Vec::new();
    for stream in &args.stream {
        for (server, shard) in uwork_bridge::placed(&servers, stream, args.place.shards) {
            stats.push(Stat::read(server, &shard, &args.group).map_err(user)?);
        }
    }
    print(&match (args.openmetrics, args.json) {
        (true, _) => Stat::to_openmetrics(&stats),
        (_, true) => stats.iter().map(|stat| line(&object(stat))).collect(),
        _ => table(&stats),
    })?;
    let mut code = ExitCode::SUCCESS;
    for stat in &stats {
        let stream = shown(stat.stream.as_bytes());
        if !stat.exists {
            code = ExitCode::from(NO_STREAM);
            eprintln!("uwork: there is no stream {stream}: no job was pushed to it");
        } else if !stat.group_exists {
            let group = shown(args.group.as_bytes());
            eprintln!("uwork: {stream}: there is no group {group}: no consumer has started");
        }
    }
    Ok(code)
}

fn object(stat: &Stat) -> serde_json::Value {
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
        "consumers": stat.consumers.iter().map(consumer).collect::<Vec<_>>(),
    })
}

fn table(stats: &[Stat]) -> String {
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
        "consumers"
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
            stat.consumers.len()
        );
    }
    for stat in stats {
        for consumer in &stat.consumers {
            let (pending, idle) = (consumer.pending, consumer.idle.as_secs_f64());
            let _ = writeln!(
                text,
                "  {} of {}: {pending} held, last seen {idle:.1} s ago",
                shown(consumer.name.as_bytes()),
                shown(stat.stream.as_bytes())
            );
        }
    }
    text
}
