//! What a host says about threads other than the caller.

use uwork_policy::blocking::Tier;
pub use uwork_policy::samples::Activity;
pub use uwork_policy::scan::Heard;

/// A sample of a thread whose context switches are recorded: the result of [`Observer::sample`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSample {
    /// What the thread does; None if unknown (records were lost, or none exist yet).
    pub activity: Option<Activity>,
    /// Its last completed sleep, if that ended since the previous sample: when it began, by the
    /// host's clock, and how long it lasted, in nanoseconds.
    pub slept: Option<(u64, u64)>,
    /// Whether records were lost since the previous sample.
    pub lost: bool,
}

/// How undeclared blocks are detected, and why in this way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detection {
    /// The tier in use.
    pub tier: Tier,
    /// The reason: what was requested, and what the system refused.
    pub reason: String,
}

/// One call on a thread's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The address at which the call continues; for the innermost call, the address that the thread
    /// had reached. An inlined function has its caller's address.
    pub address: usize,
    /// The function's name, if it is known.
    pub symbol: Option<String>,
    /// `file:line`, if known.
    pub location: Option<String>,
}

/// Why the calls of a thread are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStack {
    /// It has not answered in time: it blocks signals, or gets no CPU.
    NoAnswer,
    /// It cannot be asked: the platform has no means, or the thread has ended.
    Unavailable,
}

/// The part of a host that observes threads. Threads are named by their
/// [`Host::thread_id`](super::Host::thread_id).
///
/// The engine stays correct whatever the answers are: see `watch/README.md`. All methods are called
/// without locks held, and from any thread. Those about [`Records`](Observer::Records) are called by
/// the watcher alone.
pub trait Observer: Send + Sync {
    /// The host's event.
    type Event: super::Event;

    /// The records of a thread's context switches. The recording ends when the value is dropped.
    type Records: Send;

    /// How undeclared blocks are detected. The tier may drop while the process runs; it never
    /// rises. Takes a nanosecond or two.
    fn tier(&self) -> Tier;

    /// The tier with its reason, for people.
    fn detection(&self) -> Detection;

    /// The CPU time that a thread has used, in nanoseconds, if known. Takes 0.2 us.
    fn cpu_time(&self, thread: u64) -> Option<u64>;

    /// How long the calling thread has waited for a CPU in its life, in nanoseconds, if known. Takes
    /// some microseconds.
    fn run_delay(&self) -> Option<u64>;

    /// What a thread does, as the system sees it; None if the thread has ended or this is unknown.
    /// Takes some microseconds.
    fn activity(&self, thread: u64) -> Option<Activity>;

    /// The calls that each of these threads is in, innermost first, or why they are unknown. All are
    /// asked before one is waited for. Takes microseconds for threads that answer at once, and up to
    /// 0.6 seconds for all of them. The threads may notice: system calls that they wait in may return
    /// early. Used only for a stall that is about to be reported. Without `named` the frames have
    /// addresses alone: names take a multiple of that time, and their reader may find them from outside.
    fn stacks_of(&self, threads: &[u64], named: bool) -> Vec<Result<Vec<Frame>, NoStack>>;

    /// Begins to record a thread's context switches, in the tier of events. Takes tens of
    /// microseconds, the first time some milliseconds. None if the system refuses.
    fn record(&self, thread: u64) -> Option<Self::Records>;

    /// Samples a recorded thread. Takes tens of nanoseconds, and a few more for each switch since
    /// the previous sample.
    fn sample(&self, records: &mut Self::Records) -> ThreadSample;

    /// As [`Observer::activity`], for a recorded thread, which may be cheaper.
    fn activity_of(&self, _records: &Self::Records, thread: u64) -> Option<Activity> {
        self.activity(thread)
    }

    /// Sleeps until one of these threads leaves its CPU or gets one, or until `deadline`; not at all if
    /// one has done so since it was sampled. May return early. May return late if `event` is woken, but
    /// never after the deadline. `Records` if there may be new ones; `Silence` only after the deadline.
    fn park_on_records(
        &self,
        event: &Self::Event,
        records: &[&Self::Records],
        deadline: u64,
    ) -> Heard;
}
