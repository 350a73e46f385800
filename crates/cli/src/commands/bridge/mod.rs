//! `uwork bridge`: jobs of Redis Streams, run as commands; a producer; the state of streams.

mod consumers;
mod dead;
mod lines;
mod push;
mod run;
mod stat;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use uwork_bridge::{SHARDS_MAX, Server, Stat, shown};

use super::UserError;

/// The variable with the address, which keeps a password out of the list of processes.
const SERVER_VARIABLE: &str = "UWORK_BRIDGE_SERVER";
/// The variable with the password.
const PASSWORD_VARIABLE: &str = "UWORK_BRIDGE_PASSWORD";
/// A stream or a letter that does not exist makes the exit code 1.
const NOT_FOUND: u8 = 1;
/// A server that does not answer or refuses makes it 2.
const FAILED: u8 = 2;
/// The longest time that an option takes.
const SECONDS_MAX: f64 = 1e9;

/// The command line of `uwork bridge`. Without a subcommand it is that of `run`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    run: run::Args,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run the jobs of streams as commands until SIGINT or SIGTERM; the word may be left out.
    ///
    /// Exit status 1: jobs may be left to other consumers. 2: a setting, the server or the command is
    /// refused. 128 plus its number: a second signal, or one before the consumer has started.
    Run(run::Args),
    /// Add jobs to a stream.
    ///
    /// Exit status 2: a server does not answer or refuses; jobs before that may be in the stream.
    Push(push::Args),
    /// Print the state of streams: what waits, runs, failed and died.
    ///
    /// Exit status 1: a stream does not exist. 2: a server does not answer or refuses. A line on
    /// standard error says which; the others are printed.
    Stat(stat::Args),
    /// List dead letters, print them, replay or drop them.
    ///
    /// Exit status 1: a stream or a letter does not exist, or a letter was left where it is. 2: a server
    /// does not answer or refuses. A line on standard error says which; the others are printed or
    /// settled.
    Dead(Box<dead::Args>),
    /// List the consumers of streams, alive or dead, and the jobs that they hold.
    ///
    /// Exit status 1: a stream does not exist. 2: a server does not answer or refuses. A line on
    /// standard error says which; the others are printed.
    Consumers(consumers::Args),
}

/// Where the streams are, and what the server demands.
#[derive(clap::Args)]
struct Place {
    /// The server: redis://[USER:PASSWORD@]HOST[:PORT][/DB], the same with rediss:// for TLS, or
    /// unix:///PATH. Several are given for shards on several nodes. Without it:
    /// $UWORK_BRIDGE_SERVER, or redis://127.0.0.1:6379.
    #[arg(long, value_name = "URL")]
    server: Vec<String>,

    /// The number of shards of each stream, 1 to 4096.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = shards)]
    shards: u32,

    /// Read the password from the first line of a file. Without it: $UWORK_BRIDGE_PASSWORD, or the
    /// address's.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,

    /// Multiplies the time limits of exchanges with the servers, for machines so busy that a server
    /// that works exceeds them.
    #[arg(long, value_name = "N", default_value_t = 1)]
    patience: u32,

    /// The certificate of the authority that has signed the server's, in PEM. Without it: the
    /// system's authorities.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// The certificate that this client shows, in PEM, with --tls-key.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The key of that certificate, in PEM.
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
}

impl Place {
    fn servers(&self) -> Result<Vec<Server>, UserError> {
        let default = || {
            let from_environment = variable(SERVER_VARIABLE);
            vec![from_environment.unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned())]
        };
        let urls = if self.server.is_empty() { default() } else { self.server.clone() };
        let password = self.password()?;
        let server = |url: &String| {
            let server = Server::new(url)?.patience(self.patience).certificate_files(
                self.tls_ca.as_deref(),
                self.tls_cert.as_deref(),
                self.tls_key.as_deref(),
            )?;
            Ok(password.iter().fold(server, |server, password| server.password(password)))
        };
        urls.iter().map(|url| server(url).map_err(user)).collect()
    }

    fn password(&self) -> Result<Option<String>, UserError> {
        let Some(file) = &self.password_file else {
            return Ok(variable(PASSWORD_VARIABLE));
        };
        let fail = |error: &dyn std::fmt::Display| {
            UserError(format!("the password's file {}: {error}", file.display()))
        };
        let text = std::fs::read_to_string(file).map_err(|error| fail(&error))?;
        match text.lines().next() {
            Some(line) if !line.is_empty() => Ok(Some(line.to_owned())),
            _ => Err(fail(&"its first line is empty and should be the password")),
        }
    }
}

/// The streams of a command that shows or settles what their servers have.
#[derive(clap::Args)]
struct Streams {
    #[command(flatten)]
    place: Place,

    /// The stream; several may be given.
    #[arg(long, value_name = "STREAM", required = true)]
    stream: Vec<String>,
}

/// Streams, and the group of a command that shows its state.
#[derive(clap::Args)]
struct GroupOfStreams {
    #[command(flatten)]
    streams: Streams,

    /// The consumer group.
    #[arg(long, value_name = "NAME", default_value = "uwork")]
    group: String,
}

/// What the servers have of streams.
struct Found {
    /// Each stream, or each of its shards, with its server.
    stats: Vec<(Server, Stat)>,
    status: Status,
}

/// The exit status so far: the worst of what a command has met.
#[derive(Clone, Copy, Default)]
struct Status(u8);

impl Status {
    fn not_found(&mut self) {
        self.0 = self.0.max(NOT_FOUND);
    }

    /// Names what has failed. The command goes on with the rest.
    fn failed(&mut self, what: impl std::fmt::Display) {
        complain!("uwork: {what}");
        self.0 = FAILED;
    }

    fn has_failed(self) -> bool {
        self.0 == FAILED
    }

    fn code(self) -> ExitCode {
        ExitCode::from(self.0)
    }
}

impl Streams {
    /// The streams, each once.
    fn names(&self) -> Vec<&String> {
        let is_first = |(nth, name): &(usize, &String)| !self.stream[..*nth].contains(name);
        self.stream.iter().enumerate().filter(is_first).map(|(_, name)| name).collect()
    }

    /// Asks the servers. Names those that fail, and the streams that do not exist: those without any
    /// shard.
    fn look(&self, group: &str) -> Result<Found, UserError> {
        let servers = self.place.servers()?;
        let mut found = Found { stats: Vec::new(), status: Status::default() };
        for stream in self.names() {
            let mut exists = false;
            for (server, shard) in uwork_bridge::placed(&servers, stream, self.place.shards) {
                let stat = match Stat::read(server.clone(), &shard, group) {
                    Ok(stat) => stat,
                    Err(error) => {
                        let shard = shown(shard.as_bytes());
                        found.status.failed(format_args!("{shard}: {error}"));
                        exists = true;
                        continue;
                    }
                };
                for (key, error) in &stat.unread {
                    found.status.failed(format_args!("{}: {error}", shown(key.as_bytes())));
                }
                exists |= stat.exists;
                found.stats.push((server, stat));
            }
            if !exists {
                found.status.not_found();
                let stream = shown(stream.as_bytes());
                complain!("uwork: there is no stream {stream}: no job was pushed to it");
            }
        }
        Ok(found)
    }
}

impl Found {
    /// The streams and shards that exist.
    fn existing(self) -> impl Iterator<Item = (Server, Stat)> {
        self.stats.into_iter().filter(|(_, stat)| stat.exists)
    }
}

/// Runs the command.
pub(crate) fn run(args: Args) -> Result<ExitCode, UserError> {
    match args.command {
        None => run::run(args.run),
        Some(Command::Run(args)) => run::run(args),
        Some(Command::Push(args)) => push::run(args),
        Some(Command::Stat(args)) => stat::run(&args),
        Some(Command::Dead(args)) => dead::run(&args),
        Some(Command::Consumers(args)) => consumers::run(&args),
    }
}

/// The value of a variable of the environment. An empty one counts as unset.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn shards(text: &str) -> Result<u32, String> {
    let shards = text.parse().ok().filter(|shards| (1..=SHARDS_MAX).contains(shards));
    shards.ok_or_else(|| format!("allowed are 1 to {SHARDS_MAX}"))
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
