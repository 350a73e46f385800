//! The requests of the trace: on, read, off.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use uwork_engine::trace::{TraceError, TraceEvent, TraceRead, TraceRecord};
use uwork_linux::engine;
use uwork_linux::symbols::names;

use super::protocol::{refusal, text};

/// The longest trace, in seconds.
const SECONDS_MAX: u64 = 3_600;
/// How long a request waits for another thread that reads the trace, which takes milliseconds.
const PATIENCE: Duration = Duration::from_millis(100);

/// A trace that a client has begun. It ends with the client's connection, or by itself before.
pub(super) struct Begun {
    /// The time of its end, in nanoseconds.
    until: u64,
}

impl Begun {
    pub(super) fn goes_on(&self) -> bool {
        engine().is_traced_until(self.until)
    }

    /// Ends it, unless it has ended already.
    pub(super) fn end(self) {
        // Where another thread reads for too long, it ends by itself.
        let _ = unless_read(PATIENCE, || engine().end_trace(self.until));
    }
}

/// `trace on`.
pub(super) fn start(seconds: &str, begun: &mut Option<Begun>) -> String {
    let known: Option<u64> = seconds.parse().ok().filter(|known| (1..=SECONDS_MAX).contains(known));
    let Some(known) = known else {
        let reason =
            format!("{seconds:?} is no length of a trace; allowed are 1 to {SECONDS_MAX} seconds");
        return refusal("bad-value", &reason);
    };
    let start = || engine().start_trace(known * 1_000_000_000);
    match unless_read(PATIENCE, start) {
        Ok(until) => {
            *begun = Some(Begun { until });
            text("")
        }
        Err(error) => refused(error),
    }
}

/// `trace off`.
pub(super) fn stop() -> String {
    engine().stop_trace().map_or_else(refused, |()| text(""))
}

/// `trace read`: a line for each record, after lines that name functions and queues.
pub(super) fn read() -> String {
    unless_read(PATIENCE, || engine().read_trace()).map_or_else(refused, |read| text(&table(read)))
}

/// Repeats a call while another thread reads the trace, for at most `patience`.
fn unless_read<T>(
    patience: Duration,
    mut call: impl FnMut() -> Result<T, TraceError>,
) -> Result<T, TraceError> {
    let begin = Instant::now();
    loop {
        match call() {
            Err(TraceError::IsRead) if begin.elapsed() < patience => std::thread::yield_now(),
            outcome => return outcome,
        }
    }
}

fn refused(error: TraceError) -> String {
    match error {
        TraceError::Unsupported => refusal("unsupported", "this host has no trace"),
        TraceError::IsOn { left_ns } => {
            let seconds = left_ns.div_ceil(1_000_000_000);
            refusal(
                "refused",
                &format!("a trace is on for {seconds} s more, or until its client ends it"),
            )
        }
        TraceError::IsRead => refusal("refused", "another client reads the trace at this moment"),
    }
}

fn table(mut read: TraceRead) -> String {
    let mut lines = format!("lost\t{}\nmore\t{}\n", read.lost, u8::from(read.has_more));
    let mut names = names();
    for (number, function) in &mut read.functions {
        function.name_by(&mut names);
        let name = function.name.clone().unwrap_or_else(|| format!("{:#x}", function.address));
        let _ = writeln!(lines, "function\t{number:x}\t{}", super::status::plain(&name));
    }
    for (pwq, name) in &read.queues {
        let _ = writeln!(lines, "queue\t{pwq}\t{}", super::status::plain(name));
    }
    for TraceRecord { at_ns, event, item, cpu, slot, pwq } in read.records {
        let _ = match event {
            TraceEvent::Queued { thread } => {
                writeln!(lines, "queued\t{at_ns}\t{cpu}\t{item:x}\t{pwq}\t{thread}")
            }
            TraceEvent::Started { function } => {
                writeln!(lines, "started\t{at_ns}\t{cpu}\t{item:x}\t{pwq}\t{slot}\t{function:x}")
            }
            TraceEvent::Ended { thread } => {
                writeln!(lines, "ended\t{at_ns}\t{cpu}\t{item:x}\t{pwq}\t{slot}\t{thread}")
            }
        };
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_another_reader() {
        let mut calls = 0;
        let mut refused_twice = || {
            calls += 1;
            if calls < 3 { Err(TraceError::IsRead) } else { Ok(calls) }
        };
        assert_eq!(unless_read(Duration::MAX, &mut refused_twice), Ok(3));
        let mut always = || Err::<(), _>(TraceError::IsRead);
        assert_eq!(unless_read(Duration::ZERO, &mut always), Err(TraceError::IsRead));
        let mut other = || Err::<(), _>(TraceError::Unsupported);
        assert_eq!(unless_read(Duration::MAX, &mut other), Err(TraceError::Unsupported));
    }
}
