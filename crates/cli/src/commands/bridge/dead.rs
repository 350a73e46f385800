//! `uwork bridge dead`: dead letters, to look at, to replay, to remove.

use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use uwork_bridge::{DeadLetter, DeadLetters, Settled, shown};

use super::{Status, Streams, seconds};
use crate::commands::json::{bytes, line};
use crate::commands::progress::Progress;
use crate::commands::{UserError, print, written, written_raw};

/// Letters of one question.
const PAGE: usize = 500;
/// Bytes of a value in a list.
const LISTED_MAX: usize = 200;
/// Bytes of a payload that `show` prints.
const SHOWN_MAX: usize = 4_096;

/// The command line of `uwork bridge dead`. Without a subcommand it is that of `list`.
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    arg_required_else_help = true
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    list: ListArgs,
}

#[derive(clap::Subcommand)]
enum Command {
    /// List dead letters, the oldest first; the word may be left out.
    List(ListArgs),
    /// Print dead letters with their payloads.
    Show(ShowArgs),
    /// Move dead letters back to their stream, with all attempts left.
    Replay(ReplayArgs),
    /// Remove dead letters. Their ids may be pushed again.
    Drop(SettleArgs),
}

#[derive(clap::Args)]
#[group(id = "list")]
struct ListArgs {
    #[command(flatten)]
    streams: Streams,

    /// How many to list of each stream or shard; 0: all.
    #[arg(long, value_name = "N", default_value_t = 100)]
    count: u64,

    /// Print an object of JSON a line.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[group(id = "show")]
struct ShowArgs {
    #[command(flatten)]
    streams: Streams,

    /// Print an object of JSON a line, with the whole payload.
    #[arg(long, conflicts_with = "payload")]
    json: bool,

    /// Write the payloads and nothing else, byte by byte.
    #[arg(long)]
    payload: bool,

    /// The numbers of the letters. With several streams or shards that have letters of one number:
    /// STREAM/NUMBER.
    #[arg(value_name = "LETTER", required = true)]
    letter: Vec<String>,
}

#[derive(clap::Args)]
#[group(id = "replay")]
struct ReplayArgs {
    #[command(flatten)]
    settle: SettleArgs,

    /// The time after a replay in which a second job of its id is not added.
    #[arg(long, value_name = "SEC", value_parser = seconds, default_value = "3600")]
    window: Duration,
}

#[derive(clap::Args)]
#[group(id = "settle")]
struct SettleArgs {
    #[command(flatten)]
    streams: Streams,

    /// All letters that exist now.
    #[arg(long, conflicts_with = "letter", required_unless_present = "letter")]
    all: bool,

    /// Print an object of JSON a line, one for each stream or shard.
    #[arg(long)]
    json: bool,

    /// The numbers of the letters. With several streams or shards that have letters of one number:
    /// STREAM/NUMBER.
    #[arg(value_name = "LETTER")]
    letter: Vec<String>,
}

/// The dead letters of each stream and shard whose server answers.
fn all_of(streams: &Streams) -> Result<(Vec<DeadLetters>, Status), UserError> {
    let servers = streams.place.servers()?;
    // Letters belong to the stream, whatever its groups.
    let found = streams.look("uwork")?;
    let status = found.status;
    let existing: Vec<String> = found.existing().map(|(_, stat)| stat.stream).collect();
    let of_stream =
        |stream: &String| DeadLetters::of_shards(&servers, stream, streams.place.shards);
    let mut letters: Vec<DeadLetters> = streams.names().into_iter().flat_map(of_stream).collect();
    letters.retain(|letters| existing.iter().any(|stream| stream == letters.stream()));
    Ok((letters, status))
}

/// Runs the command.
pub(super) fn run(args: &Args) -> Result<ExitCode, UserError> {
    match &args.command {
        None => list(&args.list),
        Some(Command::List(args)) => list(args),
        Some(Command::Show(args)) => show(args),
        Some(Command::Replay(args)) => settle(&args.settle, Some(args.window)),
        Some(Command::Drop(args)) => settle(args, None),
    }
}

fn list(args: &ListArgs) -> Result<ExitCode, UserError> {
    let (mut all, mut status) = all_of(&args.streams)?;
    let width = all.iter().map(|letters| letters.stream().len()).max().unwrap_or(0).max(6);
    let title = format!(
        "{:<width$} {:<20} {:>7} {:>8} {:<20} {:<12} {:<12} error",
        "stream", "letter", "age", "attempts", "first entry", "handler", "id"
    );
    if !args.json && !written(&format!("{title}\n"))? {
        return Ok(status.code());
    }
    for letters in &mut all {
        let (mut after, mut left) = (None, if args.count == 0 { u64::MAX } else { args.count });
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(PAGE).min(PAGE);
            let page = letters.page(after.as_deref(), count, LISTED_MAX);
            let page = page.unwrap_or_else(|error| {
                status.failed(of_stream(letters, &error));
                Vec::new()
            });
            let Some(last) = page.last() else { break };
            after = Some(last.number.clone());
            left -= page.len() as u64;
            let row = |letter: &DeadLetter| match args.json {
                true => line(&object(letters.stream(), letter)),
                false => row(width, letters.stream(), letter),
            };
            let text: String = page.iter().map(row).collect();
            if !written(&text)? {
                return Ok(status.code());
            }
        }
        let more = if left == 0 { letters.count() } else { Ok(0) };
        let more = more.unwrap_or_else(|error| {
            status.failed(of_stream(letters, &error));
            0
        });
        if more > args.count {
            let (stream, count) = (shown(letters.stream().as_bytes()), args.count);
            complain!("uwork: {stream}: {count} of {more} letters are listed; --count 0 lists all");
        }
    }
    Ok(status.code())
}

/// An error, and the stream whose letters it concerns.
fn of_stream(letters: &DeadLetters, error: &uwork_bridge::Error) -> String {
    format!("{}: {error}", shown(letters.stream().as_bytes()))
}

fn row(width: usize, stream: &str, letter: &DeadLetter) -> String {
    let cell = |text: &Option<String>| {
        let text = text.as_ref().map(|text| shown(text.as_bytes()));
        text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
    };
    format!(
        "{:<width$} {:<20} {:>7} {:>8} {:<20} {:<12} {:<12} {}\n",
        shown(stream.as_bytes()),
        letter.number,
        age(letter.age),
        letter.attempts,
        cell(&letter.entry),
        cell(&letter.handler),
        cell(&letter.id),
        shown(letter.error.as_bytes())
    )
}

fn object(stream: &str, letter: &DeadLetter) -> Value {
    let mut object = json!({
        "stream": stream,
        "letter": letter.number,
        "age_s": letter.age.as_secs_f64(),
        "attempts": letter.attempts,
        "first_entry": letter.entry,
        "quarantine": letter.quarantine,
        "handler": letter.handler,
        "id": letter.id,
        "key": letter.key,
        "group": letter.group,
        "error": letter.error,
        "payload_bytes": letter.payload_bytes,
    });
    bytes(&mut object, "payload", &letter.payload);
    object
}

fn show(args: &ShowArgs) -> Result<ExitCode, UserError> {
    let (mut all, mut status) = all_of(&args.streams)?;
    for name in &args.letter {
        let Some((nth, number)) = find(&mut all, name, &mut status) else { continue };
        let letters = &mut all[nth];
        let letter = match letters.get(&number) {
            Ok(Some(letter)) => letter,
            Ok(None) => {
                missing(name, &mut status);
                continue;
            }
            Err(error) => {
                status.failed(of_stream(letters, &error));
                continue;
            }
        };
        let stream = letters.stream();
        let is_open = match (args.payload, args.json) {
            (true, _) => written_raw(&letter.payload)?,
            (_, true) => written(&line(&object(stream, &letter)))?,
            _ => written(&page(stream, &letter))?,
        };
        if !is_open {
            break;
        }
    }
    Ok(status.code())
}

/// All of a letter, for people.
fn page(stream: &str, letter: &DeadLetter) -> String {
    let cell = |text: &Option<String>| match text {
        Some(text) => shown(text.as_bytes()),
        None => "-".to_owned(),
    };
    let cut = &letter.payload[..letter.payload.len().min(SHOWN_MAX)];
    let rest = match letter.payload.len() > SHOWN_MAX {
        true => format!("...\n             the first {SHOWN_MAX} bytes; --payload writes all"),
        false => String::new(),
    };
    format!(
        "letter       {}\nstream       {}\nage          {}\nattempts     {}\nfirst entry  {}\n\
         handler      {}\nid           {}\nkey          {}\ngroup        {}\nquarantine   {}\nerror        {}\n\
         payload      {} bytes\n             {}{rest}\n",
        letter.number,
        shown(stream.as_bytes()),
        age(letter.age),
        letter.attempts,
        cell(&letter.entry),
        cell(&letter.handler),
        cell(&letter.id),
        cell(&letter.key),
        cell(&letter.group),
        cell(&letter.quarantine),
        shown(letter.error.as_bytes()),
        letter.payload_bytes,
        shown(cut),
    )
}

/// Replays letters with a window for their ids, or without one drops them.
fn settle(args: &SettleArgs, window: Option<Duration>) -> Result<ExitCode, UserError> {
    let (mut all, mut status) = all_of(&args.streams)?;
    let is_replay = window.is_some();
    if let Some(window) = window {
        all = all.into_iter().map(|letters| letters.window(window)).collect();
    }
    let mut sums = vec![Settled::default(); all.len()];
    if args.all {
        let progress = Progress::new(None);
        for (letters, sum) in all.iter_mut().zip(&mut sums) {
            let stream = shown(letters.stream().as_bytes());
            let verb = if is_replay { "replays" } else { "drops" };
            progress.begin(format!("{verb} the letters of {stream}"));
            let settled = if is_replay { letters.replay_all() } else { letters.remove_all() };
            match settled {
                Ok(settled) => *sum = settled,
                Err(error) => {
                    *sum = error.settled();
                    status.failed(of_stream(letters, &error));
                }
            }
        }
    }
    for name in &args.letter {
        let Some((nth, number)) = find(&mut all, name, &mut status) else { continue };
        let letters = &mut all[nth];
        let settled = match is_replay {
            true => letters.replay(&number),
            false => letters.remove(&number),
        };
        match settled {
            Ok(true) => sums[nth].settled += 1,
            Ok(false) => sums[nth].left += 1,
            Err(error) => {
                sums[nth].settled += error.settled().settled;
                status.failed(of_stream(letters, &error));
            }
        }
    }
    let verb = if is_replay { "replayed" } else { "dropped" };
    let mut text = String::new();
    for (letters, sum) in all.iter().zip(&sums) {
        if sum.left > 0 {
            status.not_found();
        }
        let stream = letters.stream();
        text += &match (args.json, sum.left) {
            (true, left) => line(&json!({"stream": stream, verb: sum.settled, "left": left})),
            (_, 0) => format!("{}: {} {verb}\n", shown(stream.as_bytes()), sum.settled),
            (_, left) => format!(
                "{}: {} {verb}, {left} left: they are no jobs, or have ended meanwhile\n",
                shown(stream.as_bytes()),
                sum.settled
            ),
        };
    }
    print(&text)?;
    Ok(status.code())
}

/// The stream of a letter, and its number. Says so if there is none, or more than one.
fn find(all: &mut [DeadLetters], name: &str, status: &mut Status) -> Option<(usize, String)> {
    let (stream, number) = match name.rsplit_once('/') {
        Some((stream, number)) => (Some(stream), number),
        None => (None, name),
    };
    let (mut found, mut has_failed) = (Vec::new(), false);
    for (nth, letters) in all.iter_mut().enumerate() {
        let is_meant = stream.is_none_or(|stream| stream == letters.stream());
        if !is_meant {
            continue;
        }
        match letters.payload_bytes(number) {
            Ok(None) => {}
            Ok(Some(_)) => found.push(nth),
            Err(error) => {
                status.failed(of_stream(letters, &error));
                has_failed = true;
            }
        }
    }
    match found[..] {
        [] if has_failed => {}
        [] => missing(name, status),
        [nth] => return Some((nth, number.to_owned())),
        [..] => {
            let names = found.iter().map(|&nth| format!("{}/{number}", all[nth].stream()));
            let names = names.collect::<Vec<_>>().join(" and ");
            let names = shown(names.as_bytes());
            status.failed(format_args!("{number} is the number of {names}: name one of them"));
        }
    }
    None
}

fn missing(name: &str, status: &mut Status) {
    // A server that failed may have it.
    let where_found = if status.has_failed() { " where servers answer" } else { "" };
    complain!("uwork: there is no dead letter {}{where_found}", shown(name.as_bytes()));
    status.not_found();
}

/// A time in the largest unit that it fills.
pub(super) fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_the_largest_unit_that_they_fill() {
        let of = |seconds| age(Duration::from_secs(seconds));
        assert_eq!([of(0), of(119), of(120), of(7_199)], ["0 s", "119 s", "2 min", "119 min"]);
        assert_eq!([of(7_200), of(172_799), of(172_800)], ["2 h", "47 h", "2 d"]);
    }
}
