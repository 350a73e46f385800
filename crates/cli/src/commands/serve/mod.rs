//! `uwork serve`: a server that speaks RESP, the protocol of Redis.
//!
//! `settings` reads the command line, `signals` waits for the end; the server itself is a crate of its own.

mod settings;
mod signals;

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc;

use uwork_serve::Server;

pub(crate) use settings::Args;

use self::signals::{End, Signals};
use super::UserError;

/// Runs the command until a signal ends it, or the failure of a thread.
pub(crate) fn run(args: Args) -> Result<ExitCode, UserError> {
    let config = args.config()?;
    // Before any other thread exists: all of them inherit it.
    let signals = Signals::block();
    let threads = config.threads;
    let server = Server::start(config).map_err(|error| UserError(error.to_string()))?;
    let address = server.address();
    let mut out = io::stdout().lock();
    let mut say = |line: &str| {
        // Whoever does not listen any more is no reason not to serve.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    };
    for note in server.notes() {
        say(&format!("note: {note}"));
    }
    if !address.ip().is_loopback() {
        say(
            "note: whoever reaches this address can read and change all keys: there are no passwords",
        );
    }
    say(&format!("{threads} thread(s), no persistence; SIGTERM or Ctrl-C stops"));
    say(&format!("listening on {address}"));
    let (sender, ends) = mpsc::channel();
    let failed = sender.clone();
    server.on_failure(move || _ = failed.send(End::Failure));
    signals.tell(sender).map_err(|error| UserError(format!("no thread for signals: {error}")))?;
    // Both senders are there as long as nothing has come.
    if let Ok(End::Signal(signal)) = ends.recv() {
        say(&format!("{signal}: answering what is in flight"));
    }
    server.stop().map_err(|error| UserError(format!("a thread has failed: {error}")))?;
    say("stopped");
    Ok(ExitCode::SUCCESS)
}
