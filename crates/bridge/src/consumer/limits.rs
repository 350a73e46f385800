//! The time limit of attempts, and runs that go on beyond it. A run in Rust or C cannot be killed: it
//! keeps its permit until it returns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::failures::Failed;
use super::link::Link;
use super::outcome::End;
use super::shared::{WAIT_MAX, lock};
use crate::job::{Ticket, too_long};
use crate::scripts::ms;

/// The interval at which time limits are checked.
const CHECK_EVERY: Duration = Duration::from_millis(50);
/// How long runs beyond their limit may have all permits. A command is killed by then.
const STUCK_AFTER: Duration = Duration::from_secs(1);
/// Without a time limit a run is reported after this time.
const LONG: Duration = Duration::from_secs(60);
/// The interval at which jobs are looked for that wait for a permit.
const WAITS_EVERY: Duration = Duration::from_millis(200);
/// The interval at which long runs are looked for.
const LONG_EVERY: Duration = Duration::from_secs(1);

/// A job that runs, for reports.
pub(super) struct Running {
    /// Its stream, its entry and its id.
    pub(super) name: String,
    /// The milliseconds that it has run.
    pub(super) ms: u64,
    pub(super) attempt: u32,
    pub(super) ticket: Arc<Ticket>,
}

impl Link {
    /// The jobs that have run for some time, the longest runs first.
    pub(super) fn running(&self, min_ms: u64) -> Vec<Running> {
        let mut running = Vec::new();
        for (place, held) in &*lock(&self.held) {
            if let Some(ms) = held.ticket.running_ms().filter(|&ms| ms >= min_ms) {
                let stream = &self.streams[place.0].0;
                let id = held.id.as_ref().map_or(String::new(), |id| format!(" (id {id})"));
                let name = format!("{stream}: {}{id}", place.1);
                running.push(Running {
                    name,
                    ms,
                    attempt: held.attempt,
                    ticket: held.ticket.clone(),
                });
            }
        }
        running.sort_by_key(|running| std::cmp::Reverse(running.ms));
        running
    }
}

/// The time limits of the attempts of a shard.
pub(super) struct Limits {
    /// When they are checked next.
    pub(super) next: Instant,
    next_waits: Instant,
    /// Since when runs that hang have all permits.
    stuck_since: Option<Instant>,
}

impl Limits {
    pub(super) fn new(now: Instant) -> Limits {
        Limits { next: now, next_waits: now, stuck_since: None }
    }

    /// Hands back jobs that wait for too long, and decides attempts that run for too long. Reports
    /// long ones that have no limit.
    pub(super) fn check(&mut self, link: &Link) {
        let now = Instant::now();
        if now >= self.next_waits {
            self.next_waits = now + WAITS_EVERY;
            hand_back_waiting(link, WAIT_MAX);
        }
        if now < self.next {
            return;
        }
        let Some(limit) = link.shared.config.limit else {
            self.next = now + LONG_EVERY;
            return report_long(link, LONG);
        };
        self.next = now + CHECK_EVERY.min(limit / 2);
        let limit_ms = ms(limit);
        let is_over = |ticket: &Ticket| {
            ticket.running_ms().is_some_and(|ms| ms >= limit_ms) && ticket.settle()
        };
        let over = link.running(limit_ms);
        let hung = link.settle(is_over, || End::Failed(too_long(limit)));
        if hung > 0 {
            report_over(link, &over, limit);
        }
        link.shared.has_hung(hung);
        self.report_if_stuck(link, now);
    }

    /// Reports that runs that hang have all permits.
    fn report_if_stuck(&mut self, link: &Link, now: Instant) {
        if link.shared.permits() > 0 {
            self.stuck_since = None;
            return;
        }
        if now - *self.stuck_since.get_or_insert(now) >= STUCK_AFTER {
            link.shared.report_stuck();
        }
    }
}

/// Hands back jobs that have waited for a permit for this time. They would wait here, kept alive by
/// heartbeats, while other consumers have room. Until a run is shorter none is fetched ahead.
fn hand_back_waiting(link: &Link, limit: Duration) {
    let has_waited = |ticket: &Ticket| ticket.has_waited(limit) && ticket.settle_unstarted();
    if link.settle(has_waited, || End::HandBack) > 0 {
        link.shared.begin_slow();
    }
}

/// Reports runs without a time limit, each once.
fn report_long(link: &Link, long: Duration) {
    for run in link.running(ms(long)) {
        if run.ticket.report_once() {
            let Running { name, attempt, .. } = &run;
            link.shared.reporter.say(&format!(
                "{name} has run for {long:?} in attempt {attempt}, and no time limit (--limit) ends it"
            ));
        }
    }
}

/// Reports the first run that exceeds the limit.
fn report_over(link: &Link, over: &[Running], limit: Duration) {
    let attempts_max = link.shared.config.attempts_max;
    // A dead letter has a line of its own.
    let is_retried = |run: &&Running| run.attempt < attempts_max && run.ticket.is_settled();
    for run in over.iter().filter(is_retried) {
        let (stream, id) = run.name.split_once(": ").unwrap_or(("", &run.name));
        let failed = Failed {
            stream,
            handler: None,
            id: id.to_owned(),
            attempt: run.attempt,
            attempts_max,
            text: &too_long(limit).text,
        };
        failed.report(&link.shared);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex, mpsc};

    use crate::config::Config;
    use crate::consumer::delivered::Delivered;
    use crate::consumer::shared::Shared;
    use crate::handler::{Handlers, Reply};
    use crate::job::{Entry, EntryId, Fields};
    use crate::policy::Deliveries;
    use crate::report::Reporter;
    use crate::server::Server;

    #[test]
    fn a_run_without_a_limit_is_reported_once() {
        let config = Config::new(Server::new("redis://127.0.0.1:1").unwrap(), "jobs");
        let queue = uwork::Queue::builder("long").build().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = lines.clone();
        let reporter = Reporter::new(move |line| sink.lock().unwrap().push(line.to_owned()));
        let (begin, begun) = mpsc::channel();
        let (open, gate) = mpsc::channel();
        let gate = Mutex::new(gate);
        let handlers = Handlers::new().otherwise(move |_| {
            begin.send(()).unwrap();
            // The test may have ended.
            let _ = gate.lock().unwrap().recv();
            Ok(Reply::done())
        });
        let shared = Arc::new(Shared::new(config, handlers, queue, "me".to_owned(), reporter));
        let link = Link::new(shared, &["jobs".to_owned()]);
        let (payload, id) = (Some(b"x".to_vec()), Some("seven".to_owned()));
        let fields = Some(Fields { payload, id, ..Fields::default() });
        let (id, of) = (EntryId(7, 0), Deliveries::default());
        let entry = Entry { id, of, fields, bytes: 0 };
        link.admit(0, Delivered::with(&link.shared, vec![entry]));
        begun.recv().unwrap();
        report_long(&link, Duration::MAX);
        assert_eq!(lines.lock().unwrap().len(), 0, "it has not run for that long");
        report_long(&link, Duration::ZERO);
        report_long(&link, Duration::ZERO);
        let expected = "jobs: 7-0 (id seven) has run for 0ns in attempt 1, and no time limit \
                        (--limit) ends it";
        assert_eq!(*lines.lock().unwrap(), [expected]);
        open.send(()).unwrap();
    }
}
