//! Failed attempts, which are reported: the first at once, and then how many.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::outcome::End;
use super::shared::{Shared, lock};
use crate::config::Results;
use crate::handler::{Failure, Reply};
use crate::job::Job;

/// The interval between two lines about failures of one handler.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// Matters that have lines of their own. Producers choose the names of handlers.
const MATTERS_MAX: usize = 100;

/// Counts until a line is due: at once, and then at intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct Throttle {
    said: Option<Instant>,
    unsaid: u64,
}

impl Throttle {
    pub(super) fn add(&mut self, count: u64) {
        self.unsaid += count;
    }

    /// The count, if a line is due now.
    pub(super) fn due(&mut self, every: Duration, now: Instant) -> Option<u64> {
        if self.unsaid == 0 || self.said.is_some_and(|said| now < said + every) {
            return None;
        }
        self.said = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// The interval between two lines about takeovers.
const TOOK_EVERY: Duration = Duration::from_secs(5);

/// Counts jobs that are taken over, a few in each look, until no more is found: one line has them all.
#[derive(Clone, Debug, Default)]
pub(super) struct Takeovers {
    unsaid: u64,
    /// Of those that are not said.
    first: Option<Instant>,
    said: Option<Instant>,
    has_all: bool,
}

impl Takeovers {
    pub(super) fn add(&mut self, count: u64, now: Instant) {
        if count > 0 {
            self.unsaid += count;
            self.first.get_or_insert(now);
            self.has_all = false;
        }
    }

    /// A look has found no more.
    pub(super) fn has_all(&mut self) {
        self.has_all = true;
    }

    /// The count, if a line is due now: when all are known, or after a time, and at the end in any case.
    pub(super) fn due(&mut self, now: Instant, is_end: bool) -> Option<u64> {
        let is_late = |since: Option<Instant>| since.is_none_or(|since| now >= since + TOOK_EVERY);
        let is_due = is_end || (is_late(self.said) && (self.has_all || is_late(self.first)));
        if self.unsaid == 0 || !is_due {
            return None;
        }
        (self.said, self.first) = (Some(now), None);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// Failed attempts that are tried again, by stream and handler.
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<(String, Option<String>), Throttle>);

/// A failed attempt.
pub(super) struct Failed<'a> {
    pub(super) stream: &'a str,
    pub(super) handler: Option<&'a str>,
    pub(super) id: String,
    pub(super) attempt: u32,
    pub(super) attempts_max: u32,
    pub(super) text: &'a str,
}

impl Failures {
    /// The line for an attempt that is the first of its stream and handler, or the first after a while.
    #[must_use]
    pub(super) fn add(&mut self, failed: &Failed<'_>) -> Option<String> {
        let mut matter = (failed.stream.to_owned(), failed.handler.map(str::to_owned));
        if self.0.len() >= MATTERS_MAX && !self.0.contains_key(&matter) {
            matter.1 = None;
        }
        let throttle = self.0.entry(matter).or_default();
        let is_first = throttle.said.is_none();
        throttle.add(1);
        let count = throttle.due(SAY_EVERY, Instant::now())?;
        let Failed { stream, handler, id, attempt, attempts_max, text } = failed;
        let of = handler.map_or(String::new(), |name| format!(" of {name}"));
        let text = text.lines().next().unwrap_or_default();
        let attempt = format!("{id}{of} has failed in attempt {attempt} of {attempts_max}: {text}");
        Some(match is_first {
            true => format!("{stream}: {attempt}"),
            false => {
                format!("{stream}: {count} more attempts{of} have failed; the last: {attempt}")
            }
        })
    }
}

/// The end of a run that has not lost its job.
pub(super) fn end_of(shared: &Shared, job: &Job, result: Result<Reply, Failure>) -> End {
    match result.as_ref().err().and_then(|failure| failure.pause.as_ref()) {
        Some(reason) => shared.pause.begin(reason, &shared.reporter),
        // A handler that does not say when it has started has started when it ends.
        None => job.has_started(),
    }
    if result.as_ref().is_err_and(|failure| failure.is_not_now) {
        return End::HandBack;
    }
    let failure = match result {
        Ok(mut reply) => {
            // A refused effect is a failure too, and is reported as one of this handler.
            reply.handler = reply.effect.is_some().then(|| job.handler.clone()).flatten();
            if shared.config.results == Results::Dropped {
                reply.result = None;
            }
            return End::Done(reply);
        }
        Err(failure) => failure,
    };
    let attempts_max = shared.config.attempts_max;
    // A dead letter has a line of its own.
    if !failure.is_final && job.attempt < attempts_max {
        let failed = Failed {
            stream: &job.stream,
            handler: job.handler(),
            id: job.id(),
            attempt: job.attempt,
            attempts_max,
            text: &failure.text,
        };
        failed.report(shared);
    }
    End::Failed(failure)
}

impl Failed<'_> {
    pub(super) fn report(&self, shared: &Shared) {
        let line = lock(&shared.failures).add(self);
        // Without the lock: the program may be slow to take it.
        line.iter().for_each(|line| shared.reporter.say(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::handler::Handlers;
    use crate::report::Reporter;
    use crate::server::Server;

    fn shared(results: Results, name: &str) -> Shared {
        let mut config = Config::new(Server::new("redis://127.0.0.1:1").unwrap(), "jobs");
        config.results = results;
        let queue = uwork::Queue::builder(name).build().unwrap();
        Shared::new(config, Handlers::new(), queue, "me".to_owned(), Reporter::new(|_| {}))
    }

    #[test]
    fn a_result_without_a_place_is_not_kept() {
        for (results, is_kept) in [(Results::Dropped, false), (Results::Stream(1), true)] {
            let shared = shared(results, &format!("results-{is_kept}"));
            let end = end_of(&shared, &Job::for_test(), Ok(Reply::result("done")));
            assert_eq!(end.bytes(), if is_kept { 4 } else { 0 });
        }
    }

    #[test]
    fn a_failure_may_pause_the_consumer_and_be_an_attempt_all_the_same() {
        let shared = shared(Results::Dropped, "pauses");
        let end = |failure| end_of(&shared, &Job::for_test(), Err(failure));
        assert!(matches!(end(Failure::again("why")), End::Failed(_)) && !shared.pause.is_on());
        let failed = end(Failure::again("why").with_pause("no program"));
        assert!(matches!(failed, End::Failed(failure) if failure.text == "why"));
        assert!(shared.pause.is_on());
        assert!(matches!(end(Failure::not_now("no program")), End::HandBack));
    }

    #[test]
    fn the_first_is_due_at_once_and_the_others_together_after_a_while() {
        let now = Instant::now();
        let mut throttle = Throttle::default();
        let every = Duration::from_secs(10);
        assert_eq!(throttle.due(every, now), None, "nothing has happened");
        throttle.add(2);
        assert_eq!(throttle.due(every, now), Some(2));
        throttle.add(3);
        assert_eq!(throttle.due(every, now), None);
        throttle.add(4);
        assert_eq!(throttle.due(every, now + every), Some(7));
        assert_eq!(throttle.due(every, now + 10 * every), None);
    }

    #[test]
    fn a_line_about_takeovers_has_all_of_several_looks_and_the_end_has_the_rest() {
        let (now, mut took) = (Instant::now(), Takeovers::default());
        took.has_all();
        assert_eq!(took.due(now, true), None, "nothing was taken over");
        took.add(3, now);
        assert_eq!(took.due(now, false), None, "more may come");
        took.add(5, now);
        took.has_all();
        assert_eq!(took.due(now, false), Some(8));
        took.add(2, now);
        took.has_all();
        assert_eq!(took.due(now, false), None, "a line a while");
        assert_eq!(took.due(now + TOOK_EVERY, false), Some(2));
        let later = now + 3 * TOOK_EVERY;
        took.add(1, later);
        assert_eq!(took.due(later, false), None);
        assert_eq!(took.due(later + TOOK_EVERY, false), Some(1), "looks that go on for long");
        took.add(4, later + TOOK_EVERY);
        assert_eq!(took.due(later + TOOK_EVERY, true), Some(4));
    }

    #[test]
    fn each_handler_has_its_first_failure_and_names_without_end_have_one() {
        let mut failures = Failures::default();
        let mut fail = |handler: Option<&str>| {
            let id = "7-0".to_owned();
            let (stream, text) = ("jobs", "no\nmore");
            let failed = Failed { stream, handler, id, attempt: 1, attempts_max: 5, text };
            failures.add(&failed)
        };
        let handlers = [None, None, None, Some("mail"), Some("mail")];
        let lines: Vec<String> = handlers.into_iter().filter_map(&mut fail).collect();
        let expected = [
            "jobs: 7-0 has failed in attempt 1 of 5: no",
            "jobs: 7-0 of mail has failed in attempt 1 of 5: no",
        ];
        assert_eq!(lines, expected);
        let more = (0..1_000).filter_map(|n| fail(Some(&n.to_string()))).count();
        assert_eq!(lines.len() + more, MATTERS_MAX);
    }
}
