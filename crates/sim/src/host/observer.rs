//! What the engine can learn of the machine's threads.

use std::sync::atomic::{AtomicU64, Ordering};

use uwork_engine::host::{
    Activity, Detection, Frame, Heard, Host, NoStack, Observer, ThreadSample,
};
use uwork_policy::blocking::Tier;

use super::{Event, VirtualHost};

/// The records of a thread.
pub struct Records {
    host: VirtualHost,
    thread: usize,
    /// Its switches when the recording began.
    first: u64,
    /// Its switches when it was sampled, or when the watcher woke for them.
    seen: AtomicU64,
    /// The last sleep that a sample has had.
    slept: Option<(u64, u64)>,
}

impl Records {
    /// Whether there are new ones. The next call is about later ones.
    fn are_new(&self) -> bool {
        let switches = self.host.machine().switches_of(self.thread);
        self.seen.swap(switches, Ordering::Relaxed) != switches
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.host.detecting().recorded -= 1;
    }
}

impl Observer for VirtualHost {
    type Event = Event;
    type Records = Records;

    fn tier(&self) -> Tier {
        self.detecting().tier
    }

    fn detection(&self) -> Detection {
        Detection { tier: self.tier(), reason: "the test says so".to_owned() }
    }

    fn cpu_time(&self, thread: u64) -> Option<u64> {
        self.machine().cpu_time(thread as usize - 1)
    }

    fn run_delay(&self) -> Option<u64> {
        self.detecting().delays_read += 1;
        self.machine().run_delay()
    }

    fn activity(&self, thread: u64) -> Option<Activity> {
        self.detecting().asked += 1;
        let machine = self.machine();
        let id = thread as usize - 1;
        if machine.is_gone(id) {
            return None;
        }
        // As in the system, a parked thread is asleep too.
        let asleep = machine.sleep_of(id).0.is_some() || machine.is_parked(id);
        Some(if asleep { Activity::Sleeps { since: None } } else { Activity::Runs })
    }

    fn stacks_of(&self, threads: &[u64], _: bool) -> Vec<Result<Vec<Frame>, NoStack>> {
        let machine = self.machine();
        let frame =
            |address, symbol: String| Frame { address, symbol: Some(symbol), location: None };
        let stack = |&thread: &u64| {
            let id = thread as usize - 1;
            let calls = [(1, "wait".to_owned()), (2, format!("thread_{id}"))];
            match machine.is_gone(id) {
                true => Err(NoStack::Unavailable),
                false => Ok(calls.map(|(at, symbol)| frame(at, symbol)).into()),
            }
        };
        threads.iter().map(stack).collect()
    }

    fn record(&self, thread: u64) -> Option<Records> {
        let mut detecting = self.detecting();
        if detecting.recorded >= detecting.recorded_max {
            return None;
        }
        detecting.recorded += 1;
        drop(detecting);
        let thread = thread as usize - 1;
        let machine = self.machine();
        let first = machine.switches_of(thread);
        let (_, slept) = machine.sleep_of(thread);
        drop(machine);
        Some(Records { host: self.clone(), thread, first, seen: AtomicU64::new(first), slept })
    }

    fn sample(&self, records: &mut Records) -> ThreadSample {
        let mut detecting = self.detecting();
        detecting.samples += 1;
        if detecting.lossy > 0 && detecting.samples.is_multiple_of(detecting.lossy) {
            return ThreadSample { lost: true, ..ThreadSample::default() };
        }
        drop(detecting);
        let _ = records.are_new();
        let machine = self.machine();
        if machine.switches_of(records.thread) == records.first {
            return ThreadSample::default();
        }
        let (since, slept) = machine.sleep_of(records.thread);
        let slept = slept.filter(|_| records.slept != slept);
        records.slept = slept.or(records.slept);
        let activity = match since {
            None => Activity::Runs,
            since => Activity::Sleeps { since },
        };
        ThreadSample { activity: Some(activity), slept, lost: false }
    }

    fn park_on_records(&self, event: &Event, records: &[&Records], deadline: u64) -> Heard {
        // No thread executes before this one parks.
        let any = || records.iter().filter(|records| records.are_new()).count() > 0;
        if any() {
            return Heard::Records;
        }
        self.machine().observe(records.iter().map(|records| records.thread).collect());
        let is_called = self.park(event, Some(deadline));
        self.machine().observe_no_more();
        match any() {
            true => Heard::Records,
            false if is_called || self.now() < deadline => Heard::Nothing,
            false => Heard::Silence,
        }
    }
}
