//! How many jobs may be fetched: by the permits, the rate and the memory, and none in a pause.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::link::Link;
use super::memory::Share;
use super::pause::Gate;
use super::shared::{Shared, lock};
use crate::policy::Window;

impl Shared {
    /// The number of jobs that may be fetched, after a wait of at most `limit` for one, and for a
    /// look at the orphans of the link if these go first.
    pub(crate) fn wait_for_room(&self, link: &Link, limit: Duration) -> usize {
        self.pause.look(&self.reporter);
        let reads = |total| match self.pause.gate() {
            _ if link.orphans_first() => false,
            Gate::Open => {
                let taken = total + self.kept_from(link);
                self.window().reads_at(taken, self.bytes_left(), self.places())
            }
            // Others may run for hours. Without memory the trial would be handed back.
            Gate::Trial => total < self.places() && self.bytes_left() > 0,
            Gate::Closed(_) => false,
        };
        let limit = match self.pause.gate() {
            Gate::Closed(Some(until)) => limit.min(until.saturating_duration_since(Instant::now())),
            _ => limit,
        };
        let is_full = |total: &mut usize| !reads(*total) && !self.is_stopping();
        let waited = self.room.wait_timeout_while(lock(&self.total), limit, is_full);
        let (total, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        let taken = *total + self.kept_from(link);
        if waited.timed_out() { 0 } else { self.size(*total).saturating_sub(taken) }
    }

    pub(crate) fn room_now(&self) -> usize {
        let total = *lock(&self.total);
        self.size(total).saturating_sub(total)
    }

    /// The number of jobs of dead consumers that may be taken over. Up to as many as can run at once
    /// go beyond the window, and the reader waits until they are within it: the reader fills each
    /// place that becomes free at once, so orphans would find none while there is a backlog. If runs
    /// last, none go beyond it, and a link looks for orphans before its reader fills a place.
    pub(crate) fn room_for_orphans(&self) -> usize {
        let total = *lock(&self.total);
        let size = match self.pause.gate() {
            Gate::Open => self.window().wanted(self.places()),
            Gate::Trial => self.places().min(total + 1),
            Gate::Closed(_) => 0,
        };
        let is_window = self.pause.is_on() || self.is_slow();
        let beyond = if is_window { 0 } else { size.min(self.places()) };
        (size + beyond).saturating_sub(total)
    }

    fn window(&self) -> Window {
        let mut window = lock(&self.window).clone();
        (window.is_slow, window.readers) = (self.is_slow(), self.config.shards as usize);
        window
    }

    /// The number of jobs to hold, of which `total` are held.
    fn size(&self, total: usize) -> usize {
        match self.pause.gate() {
            Gate::Open => self.window().size(total, self.bytes_left(), self.places()),
            Gate::Trial if self.bytes_left() > 0 => self.places().min(total + 1),
            Gate::Trial | Gate::Closed(_) => 0,
        }
    }

    /// The memory for the reads of all shards.
    fn bytes_left(&self) -> usize {
        self.memory.left(Share::Reader)
    }

    pub(crate) fn has_read(&self, largest_entry: usize) {
        lock(&self.window).read(largest_entry);
    }

    /// Learns the bytes that a run has for the server. Runs without any cost nothing while none has.
    pub(super) fn has_result(&self, bytes: usize) {
        if bytes > 0 || self.has_results.load(Ordering::Relaxed) {
            let mut window = lock(&self.window);
            let largest = window.result(bytes);
            // Under the lock: a flag that misses a large result would let no run forget it, and the
            // reader would leave room for it for ever.
            self.has_results.store(largest > 0, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_ended(&self, jobs: usize, within: Duration) {
        lock(&self.window).ended(jobs, within);
    }

    pub(crate) fn linger(&self) -> Duration {
        lock(&self.window).linger()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;
    use crate::config::Config;
    use crate::handler::Handlers;
    use crate::report::Reporter;
    use crate::server::Server;

    #[test]
    fn a_large_result_is_forgotten_by_the_runs_after_it_also_beside_one_without_any() {
        const ROUNDS: usize = 20_000;
        let config = Config::new(Server::new("redis://127.0.0.1:1").unwrap(), "jobs");
        let queue = uwork::Queue::builder("results").build().unwrap();
        let reporter = Reporter::new(|_| {});
        let shared = Shared::new(config, Handlers::new(), queue, "me".to_owned(), reporter);
        let shared = Arc::new(shared);
        let (both, other) = (Arc::new(Barrier::new(2)), shared.clone());
        let meet = both.clone();
        let thread = std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                meet.wait();
                other.has_result(1_000);
                meet.wait();
            }
        });
        for _ in 0..ROUNDS {
            // The next run without a result forgets the last byte.
            *lock(&shared.window) = Window::default();
            shared.has_result(1);
            both.wait();
            shared.has_result(0);
            both.wait();
            assert!(shared.has_results.load(Ordering::Relaxed), "one of 1000 bytes is recent");
        }
        thread.join().unwrap();
        (0..1_000).for_each(|_| shared.has_result(0));
        assert!(!shared.has_results.load(Ordering::Relaxed));
    }
}
