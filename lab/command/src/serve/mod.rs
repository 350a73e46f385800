//! `uwork-lab serve`: a server that speaks RESP, the protocol of Redis.
//!
//! `settings` parses the command line, `signals` waits for SIGINT and SIGTERM. The server itself is
//! the crate `uwork-serve`.

mod settings;
mod signals;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc;

use uwork_serve::Server;

pub(crate) use settings::Args;

use self::signals::{End, Signals};
use crate::UserError;

/// Runs the server until a signal arrives or one of its threads fails.
pub(crate) fn run(args: Args) -> Result<ExitCode, UserError> {
    let config = args.config()?;
    // Before any other thread starts, because new threads inherit the signal mask.
    let signals = Signals::block();
    let threads = config.threads;
    let server = Server::start(config).map_err(|error| UserError(error.to_string()))?;
    let address = server.address();
    let mut out = io::stdout().lock();
    let mut say = |line: &str| {
        // A closed standard output does not stop the server.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    for note in server.notes() {
        say(&format!("note: {note}"));
    }
    if !address.ip().is_loopback() {
        say(
            "note: every client that reaches this address can read and change all keys: there are no passwords",
        );
    }
    say(&format!("{threads} thread(s), no persistence; SIGTERM or Ctrl-C stops"));
    say(&format!("listening on {address}"));
    let (sender, ends) = mpsc::channel();
    let failed = sender.clone();
    server.on_failure(move || _ = failed.send(End::Failure));
    signals.tell(sender).map_err(|error| UserError(format!("no thread for signals: {error}")))?;
    // `recv` cannot fail: both senders live until the first message arrives.
    if let Ok(End::Signal(signal)) = ends.recv() {
        say(&format!("{signal}: answering what is in flight"));
    }
    server.stop().map_err(|error| UserError(format!("a thread has failed: {error}")))?;
    say("stopped");
    Ok(ExitCode::SUCCESS)
}
