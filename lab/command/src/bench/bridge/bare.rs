//! Two bare consumers, which differ in one thing: the synchronous and the asynchronous side of the
//! crate `redis`. They send what the bridge sends for jobs that do nothing, and have nothing else
//! of it: no table of jobs, heartbeat, retry or limit. Decision 42 has the figures.

use std::sync::mpsc;
use std::thread;

use redis::{Cmd, Pipeline, Value};

use crate::UserError;

const GROUP: &str = "uwork";
/// Jobs of one read, as in the bridge at its highest rate.
const READ_MAX: usize = 1_000;
const BLOCK_MS: usize = 500;
/// Reads whose jobs are not acknowledged yet.
const READS_AHEAD: usize = 4;

fn group() -> Cmd {
    let mut command = redis::cmd("XGROUP");
    command.arg(&["CREATE", "jobs", GROUP, "0", "MKSTREAM"]);
    command
}

fn read() -> Cmd {
    let mut command = redis::cmd("XREADGROUP");
    command.arg(&["GROUP", GROUP, "bare"]).arg("COUNT").arg(READ_MAX);
    command.arg("BLOCK").arg(BLOCK_MS).arg(&["STREAMS", "jobs", ">"]);
    command
}

fn acknowledge(ids: &[Vec<u8>]) -> Pipeline {
    let mut pipe = redis::pipe();
    pipe.cmd("XACK").arg("jobs").arg(GROUP).arg(ids).cmd("XDEL").arg("jobs").arg(ids);
    pipe
}

/// The ids of the entries in a reply. The jobs do nothing, so they are done.
fn ids(reply: Value) -> Vec<Vec<u8>> {
    let list = |value: Value| if let Value::Array(list) = value { list } else { Vec::new() };
    let streams = list(reply).into_iter().filter_map(|stream| list(stream).pop());
    let entries = streams.flat_map(list).map(list);
    let id = |entry: Vec<Value>| match entry.into_iter().next() {
        Some(Value::BulkString(id)) => Some(id),
        _ => None,
    };
    entries.filter_map(id).collect()
}

fn fail(error: impl std::fmt::Display) -> UserError {
    UserError(format!("a bare consumer: {error}"))
}

/// A thread that reads, and one that acknowledges.
pub(super) fn run_sync(url: &str) -> Result<(), UserError> {
    let client = redis::Client::open(url).map_err(fail)?;
    let mut reading = client.get_connection().map_err(fail)?;
    let mut committing = client.get_connection().map_err(fail)?;
    group().exec(&mut reading).map_err(fail)?;
    let (sender, receiver) = mpsc::sync_channel::<Vec<Vec<u8>>>(READS_AHEAD);
    let committer = thread::spawn(move || {
        receiver.iter().try_for_each(|ids| acknowledge(&ids).exec(&mut committing).map_err(fail))
    });
    loop {
        let ids = ids(read().query(&mut reading).map_err(fail)?);
        if !ids.is_empty() && sender.send(ids).is_err() {
            return committer.join().unwrap_or_else(|_| Err(fail("it has panicked")));
        }
    }
}

/// A task that reads, and one that acknowledges, on a runtime with as many workers as CPUs.
pub(super) fn run_async(url: &str) -> Result<(), UserError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let client = redis::Client::open(url).map_err(fail)?;
    runtime.map_err(fail)?.block_on(async {
        let mut reading = client.get_multiplexed_async_connection().await.map_err(fail)?;
        let mut committing = client.get_multiplexed_async_connection().await.map_err(fail)?;
        group().exec_async(&mut reading).await.map_err(fail)?;
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<Vec<Vec<u8>>>(READS_AHEAD);
        let committer = tokio::spawn(async move {
            while let Some(ids) = receiver.recv().await {
                acknowledge(&ids).exec_async(&mut committing).await.map_err(fail)?;
            }
            Ok(())
        });
        // A task of its own, because the thread of `block_on` is none of the runtime's workers.
        let reader = tokio::spawn(async move {
            loop {
                let reply = read().query_async(&mut reading).await.map_err(fail)?;
                let ids = ids(reply);
                if !ids.is_empty() && sender.send(ids).await.is_err() {
                    return Ok(());
                }
            }
        });
        reader.await.map_err(fail)?.and(committer.await.map_err(fail)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ids_of_a_reply_are_those_of_all_entries() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let entry = |id: &str| Value::Array(vec![bulk(id), Value::Array(Vec::new())]);
        let stream = vec![bulk("jobs"), Value::Array(vec![entry("1-0"), entry("2-0")])];
        let reply = Value::Array(vec![Value::Array(stream)]);
        assert_eq!(ids(reply), [b"1-0".to_vec(), b"2-0".to_vec()]);
        assert!(ids(Value::Nil).is_empty());
    }
}
