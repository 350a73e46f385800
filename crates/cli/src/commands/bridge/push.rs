//! `uwork bridge push`: a producer for the command line.

use std::io::{self, BufRead, IsTerminal, Read};
use std::mem::ManuallyDrop;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use uwork_bridge::{Producer, Push, Pushed};

use super::lines::say_last;
use super::{Place, seconds, user};
use crate::commands::progress::Progress;
use crate::commands::signals::{Signals, end_by, is_ignored};
use crate::commands::{UserError, print};

/// Lines that are sent together.
const BATCH_MAX: usize = 1_000;
/// Their bytes: a batch ends with the line that reaches them.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// How often a signal that waits for an answer of the server looks for it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What was pushed, for a signal. Locked while jobs are on their way, and from the last answer to the
/// end of the process: a signal neither leaves the fate of a job unknown nor contradicts what was
/// printed.
static STATE: Mutex<State> = Mutex::new(State { pushed: 0, progress: None });

/// Whether a signal waits for [`STATE`], to end the process.
static ENDS: AtomicBool = AtomicBool::new(false);
/// The end of the last push, for a second signal.
static ANSWER: Mutex<Option<Answer>> = Mutex::new(None);

/// The servers have answered for all jobs.
#[derive(Clone, Copy)]
struct Answer {
    /// Jobs.
    pushed: usize,
    is_printed: bool,
}

struct State {
    /// Jobs.
    pushed: usize,
    progress: Option<Progress>,
}

/// The command line of `uwork bridge push`.
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,

    /// The stream.
    #[arg(long, value_name = "STREAM")]
    stream: String,

    /// Add a job for each line of standard input.
    #[arg(long, conflicts_with_all = ["payload", "id"])]
    lines: bool,

    /// The name of the handler, for consumers with several.
    #[arg(long, value_name = "NAME")]
    handler: Option<String>,

    /// The id: a second job with it is not added within the window.
    #[arg(long, value_name = "ID")]
    id: Option<String>,

    /// The key that chooses the shard.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// The delay before the job becomes ready.
    #[arg(long, value_name = "SEC", value_parser = seconds, default_value = "0")]
    delay: Duration,

    /// The time in which a second job of an id is not added.
    #[arg(long, value_name = "SEC", value_parser = seconds, default_value = "3600")]
    window: Duration,

    /// Add nothing if a server forgets jobs: if it evicts keys, has no append-only file, is a replica,
    /// or does not tell.
    #[arg(long)]
    strict: bool,

    /// The payload; '' is an empty one. Without it: standard input, up to its end, which is refused
    /// if it is empty.
    #[arg(value_name = "PAYLOAD")]
    payload: Option<String>,
}

/// Runs the command.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    // Before the first thread, so that all threads leave the signals to that one. Without it a signal
    // ends the process at once.
    let signals = Signals::block();
    let ends = move || end_at_signal(&signals);
    drop(std::thread::Builder::new().name("signals".into()).spawn(ends));
    let servers = args.place.servers()?;
    let producer = Producer::new(servers, &args.stream, args.place.shards).map_err(user)?;
    let mut producer = producer.window(args.window);
    let found = producer.look().map_err(user)?;
    if args.strict && !found.is_empty() {
        return Err(UserError(found.join("; ")));
    }
    found.iter().for_each(|line| complain!("uwork bridge: {line}"));
    if args.lines {
        return push_lines(&args, &mut producer);
    }
    let payload = match &args.payload {
        Some(payload) => payload.clone().into_bytes(),
        None => standard_input()?,
    };
    let mut state = or_end(ManuallyDrop::new(state()));
    let (pushed, text) = match producer.push(push(&args, payload)).map_err(user)? {
        Pushed::Added(entry) => (1, entry),
        Pushed::Delayed => (1, "delayed".to_owned()),
        Pushed::Duplicate => (0, "duplicate".to_owned()),
    };
    state.pushed = pushed;
    answered(state, &format!("{text}\n"))
}

/// Prints the answer. Then a signal that has come meanwhile ends the process.
fn answered(
    state: ManuallyDrop<MutexGuard<'static, State>>,
    text: &str,
) -> Result<ExitCode, UserError> {
    *answer() = Some(Answer { pushed: state.pushed, is_printed: false });
    let code = print(text)?;
    *answer() = Some(Answer { pushed: state.pushed, is_printed: true });
    let _ = or_end(state);
    Ok(code)
}

/// The locked state. If a signal waits for it, leaves it to that, which ends the process.
fn or_end(
    state: ManuallyDrop<MutexGuard<'static, State>>,
) -> ManuallyDrop<MutexGuard<'static, State>> {
    if ENDS.load(Ordering::SeqCst) {
        drop(ManuallyDrop::into_inner(state));
        loop {
            std::thread::park();
        }
    }
    state
}

/// The payload from standard input. A job without one is rarely meant: a closed descriptor, which
/// Rust's runtime opens as /dev/null, and the input of cron and of systemd have no byte either.
fn standard_input() -> Result<Vec<u8>, UserError> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map_err(input)?;
    if bytes.is_empty() {
        let line = "standard input is empty: no job was added; an empty job is the argument ''";
        return Err(UserError(line.to_owned()));
    }
    Ok(bytes)
}

fn push_lines(args: &Args, producer: &mut Producer) -> Result<ExitCode, UserError> {
    // Payloads are bytes, so lines need not be text.
    let mut lines = io::stdin().lock().split(b'\n');
    // Not on a terminal on which the user types the lines.
    state().progress = (!io::stdin().is_terminal()).then(|| Progress::new(None));
    loop {
        if let State { pushed, progress: Some(progress) } = &*state() {
            progress.begin(format!("{pushed} jobs pushed"));
        }
        let batch = batch(lines.by_ref());
        let mut state = or_end(ManuallyDrop::new(state()));
        let count = state.pushed;
        let mut after = |more: usize, error: UserError| {
            state.progress = None;
            UserError(format!("after {} jobs: {}", count + more, error.0))
        };
        let batch = batch.map_err(|error| after(0, input(error)))?;
        if batch.is_empty() {
            state.progress = None;
            return answered(state, &format!("{count} jobs\n"));
        }
        let read = batch.len();
        let pushes = batch.into_iter().map(|line| push(args, without_return(line))).collect();
        producer.push_all(pushes).map_err(|error| after(error.pushed(), user(error)))?;
        state.pushed += read;
        drop(ManuallyDrop::into_inner(state));
    }
}

/// The next lines that are sent together; none at the end.
fn batch(lines: impl Iterator<Item = io::Result<Vec<u8>>>) -> io::Result<Vec<Vec<u8>>> {
    let (mut batch, mut bytes) = (Vec::new(), 0);
    for line in lines {
        let line = line?;
        bytes += line.len();
        batch.push(line);
        if batch.len() >= BATCH_MAX || bytes >= BATCH_BYTES_MAX {
            break;
        }
    }
    Ok(batch)
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn answer() -> MutexGuard<'static, Option<Answer>> {
    ANSWER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a signal, and for the answer to what is on its way; says how many jobs were pushed, and
/// ends the process. A second signal ends the wait.
fn end_at_signal(signals: &Signals) {
    let signal = std::iter::repeat_with(|| signals.wait()).find(|&signal| !is_ignored(signal));
    let signal = signal.unwrap_or(libc::SIGTERM);
    ENDS.store(true, Ordering::SeqCst);
    loop {
        let state = match STATE.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(error)) => Some(error.into_inner()),
        };
        if let Some(mut state) = state {
            state.progress = None;
            say_last(&format!("uwork: a signal: jobs pushed: {}", state.pushed));
            end_by(signal);
        }
        // A terminal that closes may send more than one SIGHUP.
        let is_second = |&of: &i32| of != libc::SIGHUP && !is_ignored(of);
        if signals.come_within(LOOK_EVERY).filter(is_second).is_some() {
            let what = match *answer() {
                None => "it is unknown whether the last jobs were pushed".to_owned(),
                Some(Answer { pushed, is_printed: true }) => format!("jobs pushed: {pushed}"),
                Some(Answer { pushed, is_printed: false }) => {
                    format!("the answer was not read; jobs pushed: {pushed}")
                }
            };
            say_last(&format!("uwork: a second signal: {what}"));
            end_by(signal);
        }
    }
}

fn push(args: &Args, payload: Vec<u8>) -> Push {
    let mut push = Push::new(payload).delay(args.delay);
    if let Some(handler) = &args.handler {
        push = push.handler(handler);
    }
    if let Some(id) = &args.id {
        push = push.id(id);
    }
    if let Some(key) = &args.key {
        push = push.key(key);
    }
    push
}

/// A line without the carriage return of other systems.
fn without_return(mut line: Vec<u8>) -> Vec<u8> {
    line.pop_if(|last| *last == b'\r');
    line
}

fn input(error: io::Error) -> UserError {
    UserError(format!("standard input: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_of_lines_ends_at_its_number_or_its_bytes() {
        let mut lines = (0..2_100).map(|n| Ok(vec![0; if n < 2_000 { 1 } else { 6 << 20 }]));
        let sizes = std::iter::repeat_with(|| batch(&mut lines).unwrap().len());
        assert_eq!(sizes.take(4).collect::<Vec<_>>(), [1_000, 1_000, 3, 3]);
        assert!(batch([Err(io::ErrorKind::Other.into())].into_iter()).is_err());
    }
}
