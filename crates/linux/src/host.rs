//! The engine's host on Linux: the only part that makes system calls on the engine's behalf.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uwork_engine::host::{
    Activity, Detection, Forks, Frame, Heard, Host, ItemPoint, ItemProbe, NoStack, Observer,
    Placement, Report, SpawnError, SubmissionProbe, ThreadSample, WorkerSpec,
};
use uwork_engine::trace::Tracer;
use uwork_engine::{Cpus, Demands, ThreadState, Wanted};
use uwork_policy::blocking::Tier;
use uwork_policy::cpuset::CpuSet;

use crate::event::Event;
use crate::process::Options;
use crate::{
    binding, blocked, changes, control, cpu, hooks, membarrier, pages, probes, report, stack,
    thread,
};

/// The host.
pub struct Linux {
    fences: membarrier::Fences,
    /// The zero of its clock, as [`thread::monotonic_ns`] counts, wrapping: when the host was made. Changes
    /// in a forked child only.
    zero_at: AtomicU64,
    changes: changes::Changes,
    tracer: Tracer,
    pub(crate) blocked: blocked::BlockDetector,
}

impl Linux {
    pub(crate) fn new(options: &Options) -> Linux {
        Linux {
            fences: membarrier::Fences::new(),
            zero_at: AtomicU64::new(thread::monotonic_ns()),
            changes: changes::Changes::new(),
            tracer: Tracer::new(),
            blocked: blocked::BlockDetector::new(options.blocking_tier),
        }
    }
}

impl Linux {
    /// How light fences are made, in a few words.
    pub fn fences(&self) -> &'static str {
        if self.fences.are_asymmetric() { "membarrier" } else { "full" }
    }

    /// In a forked child: its clock goes on from `before`, a moment before the fork, if the system's is behind
    /// that. The child can be in another time namespace, after an `unshare` of the parent's.
    pub(crate) fn continue_from(&self, before: u64) {
        if self.now() < before {
            let zero_at = thread::monotonic_ns().wrapping_sub(before);
            self.zero_at.store(zero_at, Ordering::Relaxed);
        }
    }
}

impl Host for Linux {
    type Event = Event;
    type Observer = Linux;

    #[inline]
    fn observer(&self) -> &Linux {
        self
    }

    #[inline]
    fn now(&self) -> u64 {
        // Not `Instant`: a worker reads the clock twice in each batch, and the checked arithmetic of
        // seconds and nanoseconds costs more than the reading. Never negative, whatever the namespace.
        let since = thread::monotonic_ns().wrapping_sub(self.zero_at.load(Ordering::Relaxed));
        since.cast_signed().max(0).cast_unsigned()
    }

    #[inline]
    fn current_cpu(&self) -> u32 {
        cpu::current()
    }

    fn spawn(&self, spec: &WorkerSpec, main: Box<dyn FnOnce() + Send>) -> Result<(), SpawnError> {
        thread::spawn(spec, main)
    }

    fn park(&self, event: &Event, deadline: Option<u64>) -> bool {
        let left = |at: u64| Duration::from_nanos(at.saturating_sub(self.now()));
        control::park(event, deadline.map(left))
    }

    unsafe fn wake(&self, event: *const Event) {
        // SAFETY: by this function's contract.
        unsafe { Event::set(event) };
    }

    fn yield_now(&self) {
        std::thread::yield_now();
    }

    fn relax(&self, round: u32) {
        relax(round);
    }

    fn end_read_sides(&self, keep: u32) -> Option<String> {
        binding::end_read_sides(keep)
    }

    #[inline(always)]
    fn light_fence(&self) {
        self.fences.light();
    }

    fn heavy_fence(&self) {
        self.fences.heavy();
    }

    #[inline]
    fn thread(&self) -> *const ThreadState {
        thread::state()
    }

    fn thread_id(&self) -> u64 {
        thread::id()
    }

    fn waits(&self) -> Option<u64> {
        thread::waits()
    }

    fn report(&self, report: Report) {
        report::issue(report);
    }

    #[inline(always)]
    fn before_items(&self, thread: &ThreadState, demands: &Demands) {
        hooks::before_items(thread, demands);
    }

    #[inline(always)]
    fn wanted(&self, thread: &ThreadState, demands: &Demands) -> Option<Wanted> {
        hooks::wanted(thread, demands)
    }

    fn prepare(&self, thread: &ThreadState, wanted: Wanted) {
        hooks::prepare(thread, wanted);
    }

    #[inline(always)]
    fn hooks_are_due(&self, thread: &ThreadState) -> bool {
        hooks::are_due(thread)
    }

    fn call_hooks(&self, thread: &ThreadState) {
        hooks::catch_up(thread);
    }

    #[inline]
    fn outside_items(&self, thread: &ThreadState) {
        hooks::outside_items(thread);
    }

    #[inline(always)]
    fn tracer(&self) -> Option<&Tracer> {
        Some(&self.tracer)
    }

    #[inline(always)]
    fn probe_submission<'a>(&self, values: impl Fn() -> SubmissionProbe<'a>) {
        probes::submission(values);
    }

    #[inline(always)]
    fn probe_item(&self, point: ItemPoint, values: impl Fn() -> ItemProbe) {
        probes::item(point, &values);
        #[cfg(feature = "tracing")]
        crate::spans::item(point, &values);
    }

    unsafe fn watcher_begins(&self, event: *const Event) {
        control::watcher_begins(event);
    }

    fn watcher_woke(&self) {
        control::attend();
    }
}

impl Observer for Linux {
    type Event = Event;
    type Records = blocked::Records;

    #[inline]
    fn tier(&self) -> Tier {
        self.blocked.tier()
    }

    fn detection(&self) -> Detection {
        self.blocked.detection()
    }

    fn cpu_time(&self, thread: u64) -> Option<u64> {
        thread::cpu_time(thread)
    }

    fn run_delay(&self) -> Option<u64> {
        blocked::run_delay()
    }

    fn activity(&self, thread: u64) -> Option<Activity> {
        self.blocked.activity(thread)
    }

    fn stacks_of(&self, threads: &[u64], named: bool) -> Vec<Result<Vec<Frame>, NoStack>> {
        stack::of_threads(threads, named)
    }

    fn record(&self, thread: u64) -> Option<blocked::Records> {
        let zero_at = self.zero_at.load(Ordering::Relaxed);
        let (records, report) = self.blocked.record(thread, zero_at);
        if let Some(report) = report {
            // On the watcher's thread.
            crate::engine().report_apart(report);
        }
        records
    }

    fn sample(&self, records: &mut blocked::Records) -> ThreadSample {
        records.sample()
    }

    fn activity_of(&self, records: &blocked::Records, thread: u64) -> Option<Activity> {
        records.activity().or_else(|| self.activity(thread))
    }

    fn park_on_records(
        &self,
        event: &Event,
        records: &[&blocked::Records],
        deadline: u64,
    ) -> Heard {
        if event.wait(Some(Duration::ZERO)) {
            return Heard::Nothing;
        }
        match self.blocked.poll(records, deadline.saturating_sub(self.now())) {
            true => Heard::Records,
            false if self.now() >= deadline => Heard::Silence,
            // A signal, or an error.
            false => Heard::Nothing,
        }
    }
}

impl Placement for Linux {
    fn set_cpus(&self, thread: u64, cpus: &CpuSet) {
        thread::place(thread, cpus);
    }

    fn become_standby(&self) -> bool {
        let Err(error) = thread::become_standby() else { return true };
        if let Some(report) = self.blocked.refuse_standby(&error) {
            crate::engine().report_apart(report);
        }
        false
    }

    fn is_caller_real_time(&self) -> bool {
        thread::is_real_time()
    }

    fn rename_thread(&self, name: &str) {
        thread::rename(name);
    }

    fn cpus_changed(&self) -> Option<Cpus> {
        self.blocked.check();
        for report in membarrier::pending_report().into_iter().chain(self.blocked.pending_report())
        {
            // On the watcher's thread.
            crate::engine().report_apart(report);
        }
        control::renew();
        self.changes.look()
    }
}

impl Forks for Linux {
    fn map_pages(bytes: usize) -> NonNull<u8> {
        pages::map(bytes)
    }

    unsafe fn unmap_pages(start: NonNull<u8>, bytes: usize) {
        // SAFETY: by this function's contract.
        unsafe { pages::unmap(start, bytes) };
    }

    fn end_forked_thread(&self) -> ! {
        std::process::exit(0);
    }
}

/// The CPU that the caller runs on. A hint, possibly stale when it is used.
#[inline]
pub fn current_cpu() -> u32 {
    cpu::current()
}

/// Waits a little for another thread, longer from `round` to `round`.
pub fn relax(round: u32) {
    match round {
        0..32 => std::hint::spin_loop(),
        32..256 => std::thread::yield_now(),
        // The other thread is preempted and this one may outrank it: only sleeping lets it run.
        _ => {
            let _held_off = crate::cancel::hold_off();
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Catches: a watcher that was called, and takes it for a time without records.
    #[test]
    fn only_a_wait_until_its_deadline_is_silence() {
        let (host, event) = (Linux::new(&Options::default()), Event::new());
        let soon = || host.now() + 60_000_000_000;
        assert_eq!(host.park_on_records(&event, &[], host.now() + 1_000), Heard::Silence);
        // SAFETY: the event is live.
        unsafe { Event::set(&raw const event) };
        assert_eq!(host.park_on_records(&event, &[], soon()), Heard::Nothing);
        assert_eq!(host.park_on_records(&event, &[], host.now()), Heard::Silence, "once");
    }

    // Catches: a clock that stands at 0 until the system's passes the moment when the host was made.
    #[test]
    fn the_clock_goes_on_in_a_child_whose_system_is_behind() {
        let host = Linux::new(&Options::default());
        let of_parent = |ahead: u64| host.now() + ahead;
        host.continue_from(0);
        assert!(host.now() < of_parent(1), "the same namespace");
        // The second exceeds the time since the system's start.
        for ahead in [1_000_000_000, 1 << 60] {
            let before = of_parent(ahead);
            assert!(host.now() < before);
            host.continue_from(before);
            let now = host.now();
            assert!(now >= before && host.now() >= now);
        }
    }
}
