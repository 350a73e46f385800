//! A job in the queue, and the wait of its run for the record of its begin.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::failures::end_of;
use super::link::{Link, Place};
use super::outcome::{End, Outcome, Twice};
use crate::job::{Job, Ticket};

/// How often a run that waits looks whether its job is decided. The end of a consumer leaves it no
/// message.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A run that waits until its begin is recorded. It has its permit, so nothing but the record is
/// between it and its handler.
pub(crate) struct Waiting {
    pub(crate) place: Place,
    pub(crate) is_alone: bool,
    ticket: Arc<Ticket>,
    /// Dropped without a message, the run hands its job back.
    go: Sender<()>,
}

impl Waiting {
    /// Lets the run begin: its begin is recorded.
    pub(crate) fn start(self) {
        self.ticket.record();
        // Fails only if the job was decided meanwhile.
        let _ = self.go.send(());
    }

    /// Its begin was sent to the server, and may be recorded.
    pub(crate) fn lose_answer(&self) {
        self.ticket.lose_answer();
    }

    /// Whether it was decided while it waited.
    pub(crate) fn is_settled(&self) -> bool {
        self.ticket.is_settled()
    }
}

/// A queued job. Dropped without a run, as in a shutdown of the process, it is handed back.
pub(super) struct Run {
    pub(super) link: Arc<Link>,
    pub(super) place: Place,
    /// An earlier run of the job has begun.
    pub(super) is_again: bool,
    /// Whether it runs alone, if its begin is recorded first.
    pub(super) record: Option<bool>,
    /// The memory that is counted for the payload.
    pub(super) bytes: usize,
    pub(super) job: Option<Job>,
}

impl Run {
    pub(super) fn run(mut self) {
        let shared = &self.link.shared;
        self.job.iter().for_each(|job| job.ticket.take_permit());
        let is_trial = self.job.as_ref().is_some_and(|job| job.trial.is_some());
        if shared.pause.is_on() && !is_trial {
            // Dropped, the job goes back to its stream.
            return;
        }
        if !self.is_recorded() {
            // The same, unless the job is decided.
            return;
        }
        if shared.pause.is_on() && !is_trial {
            // It has begun meanwhile.
            return;
        }
        let Some(job) = self.job.take() else { return };
        if !job.ticket.begin() {
            return;
        }
        job.describe(job.handler().unwrap_or_default());
        let result = shared.handlers.run(&job);
        shared.has_run(&job.ticket);
        let end = job.ticket.settle().then(|| end_of(shared, &job, result));
        let Job { id, attempt, payload, .. } = job;
        drop(payload);
        if let Some(end) = &end {
            self.link.keep(&self.place, end.bytes());
        }
        // Before the outcome, with which the committer fetches others.
        self.give_memory();
        if let Some(end) = end {
            let twice = if self.is_again { Twice::Yes } else { Twice::IfMissing };
            self.link.deliver(Outcome { place: self.place, id, attempt, twice, end });
        } else {
            self.link.shared.has_returned();
        }
    }

    fn give_memory(&mut self) {
        self.link.shared.memory.give(std::mem::take(&mut self.bytes));
    }
}

impl Run {
    /// Waits until the begin is recorded, if it must be. False if it cannot be.
    fn is_recorded(&self) -> bool {
        let (Some(is_alone), Some(job)) = (self.record, &self.job) else { return true };
        let ((go, gone), ticket) = (channel(), job.ticket.clone());
        self.link.wait([Waiting { place: self.place, is_alone, ticket, go }]);
        uwork::blocking(|| {
            loop {
                match gone.recv_timeout(LOOK_EVERY) {
                    Ok(()) => return true,
                    Err(RecvTimeoutError::Timeout) if !job.ticket.is_settled() => {}
                    Err(_) => return false,
                }
            }
        })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let job = self.job.take();
        self.give_memory();
        if let Some(job) = job
            && job.ticket.settle_unstarted()
        {
            let (id, attempt, twice) = (job.id, job.attempt, Twice::IfMissing);
            self.link.deliver(Outcome {
                place: self.place,
                id,
                attempt,
                twice,
                end: End::HandBack,
            });
        }
    }
}
