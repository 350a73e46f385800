//! The oracle of work conservation: checks from the trace alone that no item waits for long while a
//! CPU of its queue's mask idles.
//!
//! The trace has the submission, the start and the end of each item, and which CPUs idle. The items
//! are those of one unbound queue that is not strict and has no limit, so a queued item is ready.
//! For each item the oracle measures the time without interruption in which the item is ready and
//! some CPU of the mask idles.
//!
//! The bound depends on the run times of the pool to which the item was submitted: that of a CPU, which
//! the submission's probe names. An arriving item waits for the rest of the run that it meets, whose
//! mean is `E[S^2] / 2 E[S]`. The oracle computes it from the pool's last `WINDOW` runs, as of the last
//! start of an item of the pool.
//!
//! | the mean rest of a run | bound |
//! |---|---|
//! | at least `LONG_NS` | `LONG_WAIT_NS`, and the wakes of the workers for it and those before it |
//! | shorter | [`WATCHED_NS`] and wakes, since the pool last started an item |
//! | any, and items block undeclared | [`FOUND_NS`] and wakes, since the pool last started an item |
//!
//! In the second case no thread decides at the submission: the item waits for the watcher.

use std::collections::VecDeque;
use std::fmt::Write;

use uwork_policy::cpuset::CpuSet;

use crate::setup::US;

/// The number of runs of a pool that its statistic covers.
const WINDOW: usize = 64;
/// From this mean rest of a run, an item must not wait behind a run while a CPU idles. The engine
/// weighs the same rest, and an item's run time besides, against the cost of a wake of 50 us. It
/// forgets old runs gradually, so its statistic differs a little.
const LONG_NS: u64 = 40 * US;
/// How long an item may wait there.
const LONG_WAIT_NS: u64 = 50 * US;
/// How long an item may wait for the watcher where no item of its pool starts. The interval between
/// two scans is at most 2 ms. A scan that finds an item in its way is followed by one as soon as no
/// item has started for 0.2 ms.
pub const WATCHED_NS: u64 = 2_050 * US;
/// The same where items block undeclared: a scan sees a run, the next one finds it blocked, and its
/// replacement may block at once, which takes two more scans.
pub const FOUND_NS: u64 = 4 * 2_000 * US;
/// Items of the trace that a failure prints.
const PRINTED: usize = 60;

/// An item's way through the engine.
#[derive(Clone, Copy, Debug)]
pub struct Passage {
    /// The CPU of its pool.
    pool: u32,
    submitted: (u64, u32),
    started: Option<(u64, u32)>,
    ended: Option<u64>,
    /// Items of the pool that waited when it was submitted.
    ahead: u64,
    /// The longest time without interruption in which it waited and a CPU idled.
    pub waited_beside_idle_ns: u64,
}

impl Passage {
    /// The time from the submission to the end.
    pub fn sojourn(&self) -> u64 {
        self.ended.expect("every item has run") - self.submitted.0
    }
}

#[derive(Default)]
struct Pool {
    /// The last run times.
    runs: VecDeque<u64>,
    waiting: VecDeque<usize>,
    /// Since when the mean rest of a run is long.
    long_since: Option<u64>,
    last_start: u64,
}

impl Pool {
    fn mean_rest(&self) -> u64 {
        let sum: u64 = self.runs.iter().sum();
        let squares: u64 = self.runs.iter().map(|ns| ns * ns).sum();
        squares / (2 * sum).max(1)
    }
}

/// The oracle; see the module.
pub struct Conservation {
    /// The CPUs of the mask.
    cpus: Vec<u32>,
    /// By CPU.
    pools: Vec<Pool>,
    items: Vec<Passage>,
    /// Items whose submission has not told its pool yet, and the threads that submit them.
    offered: Vec<(u64, usize)>,
    /// The cost of one wake.
    wake_ns: u64,
    /// Whether items block undeclared.
    blocks: bool,
    /// Since when some CPU idles without interruption.
    idle_since: Option<u64>,
}

impl Conservation {
    /// For a queue with this mask.
    pub fn new(mask: &CpuSet, wake_ns: u64) -> Conservation {
        let pools = mask.last().map_or(0, |last| last + 1);
        Conservation {
            cpus: mask.iter().collect(),
            pools: (0..pools).map(|_| Pool::default()).collect(),
            items: Vec::new(),
            offered: Vec::new(),
            wake_ns,
            blocks: false,
            idle_since: None,
        }
    }

    /// Items block undeclared: no thread decides at a submission, since blocked workers count as
    /// running until they are found.
    pub fn expect_blocks(&mut self) {
        self.blocks = true;
    }

    /// The CPUs of the mask.
    pub fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// The items so far, in the order of their submission.
    pub fn items(&self) -> &[Passage] {
        &self.items
    }

    /// This thread submits an item on this CPU, and tells its pool next. Returns its number.
    pub fn submit(&mut self, now: u64, cpu: u32, thread: u64) -> usize {
        let item = self.items.len();
        self.offered.push((thread, item));
        self.items.push(Passage {
            pool: cpu,
            submitted: (now, cpu),
            started: None,
            ended: None,
            ahead: 0,
            waited_beside_idle_ns: 0,
        });
        item
    }

    /// The item that this thread submits goes to the pool of this CPU.
    pub fn offer(&mut self, thread: u64, cpu: u32) {
        let Some(at) = self.offered.iter().position(|offered| offered.0 == thread) else { return };
        let item = self.offered.swap_remove(at).1;
        let waiting = &mut self.pools[cpu as usize].waiting;
        (self.items[item].pool, self.items[item].ahead) = (cpu, waiting.len() as u64);
        waiting.push_back(item);
    }

    /// The item starts on this CPU.
    pub fn start(&mut self, now: u64, item: usize, cpu: u32) {
        self.items[item].started = Some((now, cpu));
        let pool = &mut self.pools[self.items[item].pool as usize];
        let at = pool.waiting.iter().position(|&waiting| waiting == item).expect("it waits");
        let _ = pool.waiting.remove(at);
        pool.last_start = now;
        let is_long = pool.mean_rest() >= LONG_NS;
        pool.long_since = is_long.then(|| pool.long_since.unwrap_or(now));
    }

    /// The run of the item ends.
    pub fn end(&mut self, now: u64, item: usize) {
        let passage = &mut self.items[item];
        passage.ended = Some(now);
        let (began, _) = passage.started.expect("it has started");
        let runs = &mut self.pools[passage.pool as usize].runs;
        if runs.len() == WINDOW {
            let _ = runs.pop_front();
        }
        runs.push_back(now - began);
    }

    /// The state does not change from `now` to `until`. `idles`: whether some CPU of the mask does.
    pub fn pass(&mut self, now: u64, until: u64, idles: bool) {
        if !idles {
            self.idle_since = None;
            return;
        }
        let idle_since = *self.idle_since.get_or_insert(now);
        for pool in self.pools.iter().filter(|pool| !pool.waiting.is_empty()) {
            for &item in &pool.waiting {
                let passage = &mut self.items[item];
                let since = idle_since.max(passage.submitted.0);
                let wakes = (passage.ahead + 2) * self.wake_ns;
                let waited = &mut passage.waited_beside_idle_ns;
                *waited = (*waited).max(until - since);
                let watched_ns = if self.blocks { FOUND_NS } else { WATCHED_NS };
                let watched = (since.max(pool.last_start), watched_ns + wakes);
                let long = pool.long_since.filter(|_| !self.blocks);
                let long = long.map(|long| (since.max(long), LONG_WAIT_NS + wakes));
                for (since, bound) in long.into_iter().chain([watched]) {
                    assert!(
                        until - since <= bound,
                        "item {item} is ready and a CPU idles from {since} to {until} ns, which is more than \
                         {bound} ns; mean rest of its pool's runs: {} ns\n{}",
                        pool.mean_rest(),
                        self.describe(since, until),
                    );
                }
            }
        }
    }

    /// The items that were in the engine between these times.
    fn describe(&self, from: u64, to: u64) -> String {
        let from = from.saturating_sub(100 * US);
        let mut text = String::new();
        let is_shown = |passage: &Passage| passage.ended.is_none_or(|ended| ended >= from);
        let shown = self.items.iter().enumerate().filter(|(_, passage)| is_shown(passage));
        for (item, passage) in shown.take(PRINTED) {
            let _ = writeln!(text, "  item {item}: {passage:?}");
        }
        let _ = write!(text, "  now {to} ns");
        text
    }
}
