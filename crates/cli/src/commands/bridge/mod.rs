//! `uwork bridge`: jobs of Redis Streams, run as commands; a producer; the state of streams.

mod push;
mod run;
mod signals;
mod stat;

use std::process::ExitCode;
use std::time::Duration;

use uwork_bridge::Server;

use super::UserError;

/// The variable with the address, which keeps a password out of the list of processes.
const SERVER_VARIABLE: &str = "UWORK_BRIDGE_SERVER";
/// The longest time that an option takes.
const SECONDS_MAX: f64 = 1e9;

/// The command line of `uwork bridge`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run the jobs of streams as commands until SIGINT or SIGTERM.
    Run(run::Args),
    /// Add jobs to a stream.
    Push(push::Args),
    /// Print the state of streams: what waits, runs, failed and died.
    Stat(stat::Args),
}

/// Where the streams are.
#[derive(clap::Args)]
struct Place {
    /// The server: redis://[USER:PASSWORD@]HOST[:PORT][/DB] or unix:///PATH. Several are given for
    /// shards on several nodes. Without it: $UWORK_BRIDGE_SERVER, or redis://127.0.0.1:6379.
    #[arg(long, value_name = "URL")]
    server: Vec<String>,

    /// The number of shards of each stream.
    #[arg(long, value_name = "N", default_value_t = 1)]
    shards: u32,
}

impl Place {
    fn servers(&self) -> Result<Vec<Server>, UserError> {
        let default = || {
            let from_environment = std::env::var(SERVER_VARIABLE).ok();
            vec![from_environment.unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned())]
        };
        let urls = if self.server.is_empty() { default() } else { self.server.clone() };
        urls.iter().map(|url| Server::new(url).map_err(user)).collect()
    }
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, UserError> {
    match args.command {
        Command::Run(args) => run::run(args),
        Command::Push(args) => push::run(args),
        Command::Stat(args) => stat::run(&args),
    }
}

fn user(error: uwork_bridge::Error) -> UserError {
    UserError(error.to_string())
}

/// A time in seconds, with fractions.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=SECONDS_MAX).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("allowed are seconds, from 0 to {SECONDS_MAX:e}, as in 0.5"))
}
