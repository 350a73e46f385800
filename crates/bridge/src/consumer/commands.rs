//! The commands for outcomes: which script, with which keys and arguments.

use redis::Cmd;

use super::link::{DIED, Link, Lost, Place};
use super::outcome::{Outcome, Twice};
use crate::config::Results;
use crate::handler::{Failure, Reply};
use crate::policy::{Fate, after_failure};
use crate::scripts::{SCRIPTS, call, ms};

/// Bytes of the error of a failed job.
const ERROR_MAX: usize = 64 << 10;

/// The acknowledgement of completed jobs of a stream.
pub(super) fn complete(link: &Link, stream: usize, places: &[Place], twice: Twice) -> Cmd {
    let (config, keys) = (&link.shared.config, &link.streams[stream].1);
    let mut command = call(&SCRIPTS.complete, &[&keys.stream, &keys.stats]);
    command.arg(&config.group).arg(u8::from(config.keep)).arg(twice.word()).arg(places.len());
    places.iter().for_each(|(_, id)| {
        command.arg(id.to_string());
    });
    link.retries(places).into_iter().for_each(|(id, first)| {
        command.arg(id.to_string()).arg(first);
    });
    command
}

/// The acknowledgement of retries of other groups, if these exist.
pub(super) fn skip(link: &Link, stream: usize, retries: &[(Place, String)]) -> Cmd {
    let config = &link.shared.config;
    let mut command = call(&SCRIPTS.skip, &[&link.streams[stream].1.stream]);
    command.arg(&config.group).arg(u8::from(config.keep));
    retries.iter().for_each(|((_, id), group)| {
        command.arg(id.to_string()).arg(group);
    });
    command
}

/// The idle time of entries that were handed back.
fn back_ms(link: &Link) -> u64 {
    ms(link.shared.config.heartbeat) + 1
}

/// The removal of consumers without entries: of one that leaves, and those that are idle for so long.
pub(super) fn leave(link: &Link, stream: usize, idle_ms: u64, leaver: Option<&str>) -> Cmd {
    let (config, keys) = (&link.shared.config, &link.streams[stream].1);
    let mut command = call(&SCRIPTS.leave, &[&keys.stream, &keys.dead]);
    command.arg(&config.group).arg(idle_ms).arg(leaver.unwrap_or("")).arg(u8::from(config.keep));
    command.arg(leaver.map_or(0, |_| back_ms(link)));
    command
}

/// The return of jobs of a stream to the other consumers.
pub(super) fn hand_back(link: &Link, stream: usize, places: &[Place]) -> Cmd {
    let (shared, keys) = (&link.shared, &link.streams[stream].1);
    let mut command = call(&SCRIPTS.hand_back, &[&keys.stream]);
    command.arg(&shared.config.group).arg(&shared.consumer);
    command.arg(back_ms(link));
    places.iter().for_each(|place| {
        let deliveries = link.delivered(place).deliveries.saturating_sub(1);
        command.arg(place.1.to_string()).arg(deliveries);
    });
    command
}

/// The record of begins of a stream, and whether each is alone.
pub(super) fn begin(
    link: &Link,
    stream: usize,
    begins: impl Iterator<Item = (Place, bool)>,
) -> Cmd {
    let mut command = call(&SCRIPTS.begin, &[&link.streams[stream].1.stream]);
    command.arg(&link.shared.config.group).arg(&link.shared.consumer);
    begins.for_each(|((_, id), is_alone)| {
        command.arg(id.to_string()).arg(u8::from(is_alone));
    });
    command
}

/// The sign of life of a consumer that has begun jobs which others own now.
pub(super) fn spare(link: &Link, stream: usize, lost: &[Lost]) -> Cmd {
    let keys = &link.streams[stream].1;
    let mut command = call(&SCRIPTS.spare, &[&keys.stream, &keys.dead]);
    command.arg(&link.shared.config.group).arg(&link.shared.consumer).arg(DIED);
    lost.iter().for_each(|lost| {
        command.arg(lost.place.1.to_string()).arg(&lost.first);
    });
    command
}

pub(super) fn has_effects(reply: &Reply, results: Results) -> bool {
    reply.effect.is_some() || (reply.result.is_some() && results != Results::Dropped)
}

/// The acknowledgement of a job with its result and effects.
pub(super) fn effects(link: &Link, outcome: &Outcome, reply: &Reply) -> Cmd {
    let config = &link.shared.config;
    let (stream, entry) = outcome.place;
    let keys = &link.streams[stream].1;
    let of = [&keys.stream, &keys.stats, &keys.guard, &keys.dead];
    let mut command = call(&SCRIPTS.effects, &of);
    command.arg(&config.group).arg(entry.to_string()).arg(u8::from(config.keep));
    let results_max = if let Results::Stream(max) = config.results { max } else { 0 };
    command.arg(outcome.twice.word()).arg(attempt(link, outcome));
    command.arg(config.dead_max).arg(results_max).arg(link.first(&outcome.place));
    let id = outcome.id.clone().unwrap_or_else(|| entry.to_string());
    // One copy of a result, which may be large.
    let key = keys.result(&id);
    let life_ms = if let Results::Key(life) = config.results { ms(life).max(1) } else { 0 };
    let life_ms = life_ms.to_string();
    let before = ["XADD", &*keys.results, "*", "i", &id, "r"];
    let result: Vec<&[u8]> = match (&reply.result, config.results) {
        (None, _) | (_, Results::Dropped) => Vec::new(),
        (Some(result), Results::Key(_)) => {
            vec![b"SET", key.as_bytes(), result, b"PX", life_ms.as_bytes()]
        }
        (Some(result), Results::Stream(_)) => {
            before.iter().map(|word| word.as_bytes()).chain([&result[..]]).collect()
        }
    };
    let effect: Vec<&[u8]> = reply.effect.iter().flatten().map(Vec::as_slice).collect();
    for words in [result, effect] {
        command.arg(words.len());
        words.into_iter().for_each(|word| {
            command.arg(word);
        });
    }
    command
}

/// The attempt that has ended. Runs of consumers that live are no attempts.
fn attempt(link: &Link, outcome: &Outcome) -> u32 {
    outcome.attempt.min(link.attempt(&outcome.place).unwrap_or(u32::MAX))
}

/// The retry or the burial of a failed job, and which of the two it is.
pub(super) fn failed(link: &Link, outcome: &Outcome, failure: &Failure) -> (Cmd, Fate) {
    let config = &link.shared.config;
    let (stream, entry) = outcome.place;
    let keys = &link.streams[stream].1;
    let attempt = attempt(link, outcome);
    let (max, is_final) = (config.attempts_max, failure.is_final);
    let fate = after_failure(attempt, max, is_final, config.backoff, fastrand::f64());
    let (mut command, last) = match fate {
        Fate::Retry(delay) => {
            let keys = [&keys.stream, &keys.delayed, &keys.stats, &keys.dead];
            (call(&SCRIPTS.retry, &keys), ms(delay))
        }
        Fate::Bury => {
            (call(&SCRIPTS.bury, &[&keys.stream, &keys.dead, &keys.stats]), config.dead_max)
        }
    };
    command.arg(&config.group).arg(&link.shared.consumer).arg(entry.to_string());
    command.arg(u8::from(config.keep)).arg(attempt);
    let text = failure.text.as_bytes();
    command.arg(&text[..text.len().min(ERROR_MAX)]).arg(last);
    if fate == Fate::Bury {
        command.arg(u8::from(failure.text.starts_with(DIED)));
    }
    (command, fate)
}
