//! `uwork bridge stat`: the state of streams, as the server knows it.

use std::fmt::Write as _;
use std::process::ExitCode;

use uwork_bridge::Stat;

use super::{Place, user};
use crate::commands::{UserError, print};

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
    print(&if args.openmetrics { Stat::to_openmetrics(&stats) } else { table(&stats) })
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
    for stat in stats {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:<width$} {:>9} {:>9} {:>9} {:>9} {:>11} {:>9} {:>9} {:>9} {:>10}",
            stat.stream,
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
                consumer.name, stat.stream
            );
        }
    }
    text
}
