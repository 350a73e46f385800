//! Decisions of a consumer: how many jobs to hold, when to try again, when to give up. Pure: counts
//! and times in, a decision out.

use std::time::Duration;

/// Work that is fetched ahead, as a time at the recent rate.
const AHEAD: Duration = Duration::from_millis(20);
/// Jobs fetched ahead at most.
const AHEAD_MAX: usize = 4_096;
/// Jobs of the first read, whose size is unknown.
const FIRST_READ: usize = 16;
/// The time for which outcomes are collected at high rates.
const LINGER: Duration = Duration::from_millis(1);
/// The rate from which on outcomes are collected.
const LINGER_ABOVE_PER_S: f64 = 2_000.0;
/// Weight of the newest rate in the mean.
const NEWEST: f64 = 0.3;

/// How many jobs a consumer may hold: what its queue can run at once, and what it will run in the
/// next 20 ms at its recent rate. It reads no more than probably fit into the memory that is left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    rate_per_s: f64,
    /// The largest recent entry; None before the first read.
    entry_bytes: Option<usize>,
    /// The largest recent result. Each job that is held may have such a one soon.
    result_bytes: usize,
    /// Jobs have waited for a permit for long: none is fetched ahead.
    pub(crate) is_slow: bool,
    /// How many shards may read at once. Each has its part of the memory; 0 counts as 1.
    pub(crate) readers: usize,
}

impl Window {
    /// Learns how many jobs have ended in a time.
    pub(crate) fn ended(&mut self, jobs: usize, within: Duration) {
        let rate = jobs as f64 / within.as_secs_f64().max(1e-6);
        self.rate_per_s += (rate - self.rate_per_s) * NEWEST;
    }

    /// Learns the largest entry of a read. The maximum decays by half at each read.
    pub(crate) fn read(&mut self, largest_bytes: usize) {
        let before = self.entry_bytes.unwrap_or(0);
        self.entry_bytes = Some(largest_bytes.max(before / 2));
    }

    /// Learns the bytes of a result, and returns the largest recent ones. The maximum decays by a
    /// sixteenth at each.
    pub(crate) fn result(&mut self, bytes: usize) -> usize {
        let before = self.result_bytes;
        self.result_bytes = bytes.max(before - before.div_ceil(16));
        self.result_bytes
    }

    fn ahead(&self) -> usize {
        if self.is_slow {
            return 0;
        }
        ((self.rate_per_s * AHEAD.as_secs_f64()) as usize).clamp(1, AHEAD_MAX)
    }

    /// Whether a consumer that holds `total` jobs fetches more: when half of what was fetched ahead
    /// is used up. So a read brings many jobs, and the other half lasts until they arrive.
    pub(crate) fn reads_at(&self, held: usize, bytes_left: usize, permits: usize) -> bool {
        let size = self.size(held, bytes_left, permits);
        size > held && held + self.ahead().min(size).div_ceil(2) <= size
    }

    /// How long to collect outcomes before they are sent: a moment at high rates, so that an
    /// exchange carries many.
    pub(crate) fn linger(&self) -> Duration {
        if self.rate_per_s < LINGER_ABOVE_PER_S { Duration::ZERO } else { LINGER }
    }

    /// The number of jobs to hold while so many can run at once, with any memory: none without a
    /// permit, since a job that is held and cannot run would be kept from other consumers.
    pub(crate) fn wanted(&self, permits: usize) -> usize {
        if permits == 0 { 0 } else { permits + self.ahead() }
    }

    /// The same with this memory left beside the jobs that are held and without their results. While any
    /// is left one job is read, which may have no result.
    pub(crate) fn size(&self, held: usize, bytes_left: usize, permits: usize) -> usize {
        let of_results = self.result_bytes.saturating_mul(held);
        let fit = match self.entry_bytes {
            _ if bytes_left == 0 => 0,
            None => FIRST_READ.saturating_sub(held),
            Some(bytes) => {
                let each = bytes.saturating_add(self.result_bytes).max(1);
                let of_reader = bytes_left.saturating_sub(of_results).div_ceil(self.readers.max(1));
                (of_reader / each).max(1)
            }
        };
        self.wanted(permits).min(held + fit)
    }
}

/// Entries of one read. The server delivers without regard to sizes, and large ones for which there is
/// no memory cross the network in vain. So a first read is small, and each full one doubles the next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads(usize);

/// Entries of a first read.
const READ_FIRST: usize = 100;
/// Entries of a read at most.
const READ_MAX: usize = 1_000;

impl Default for Reads {
    fn default() -> Reads {
        Reads(READ_FIRST)
    }
}

impl Reads {
    /// How many to ask for, with room for so many.
    pub(crate) fn count(self, room: usize) -> usize {
        room.min(self.0)
    }

    /// Learns that a reply was cut in its middle: the server has perhaps a limit for them.
    pub(crate) fn was_cut(&mut self) {
        self.0 = (self.0 / 2).max(1);
    }

    /// Learns how many of those asked for have come, and whether all have found memory.
    pub(crate) fn read(&mut self, asked: usize, came: usize, had_memory: bool) {
        let is_full = asked == self.0 && came >= asked;
        self.0 = match had_memory {
            true if is_full => (2 * self.0).min(READ_MAX),
            true if came > 0 => self.0,
            _ => READ_FIRST,
        };
    }
}

/// Delays before further attempts: each is twice the one before, up to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The delay before the second attempt.
    pub first: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Backoff {
    /// The delay after a failed attempt, the first of which is 1. `spread` is a random number from
    /// 0 to 1, which takes up to a quarter off, so that jobs that failed together do not return
    /// together.
    pub(crate) fn after(self, attempt: u32, spread: f64) -> Duration {
        let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
        let delay = self.first.saturating_mul(doubled).min(self.max);
        delay.mul_f64(1.0 - spread.clamp(0.0, 1.0) / 4.0)
    }
}

/// The fate of a job whose attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Retry(Duration),
    Bury,
}

pub(crate) fn after_failure(
    attempt: u32,
    attempts_max: u32,
    is_final: bool,
    backoff: Backoff,
    spread: f64,
) -> Fate {
    if is_final || attempt >= attempts_max {
        Fate::Bury
    } else {
        Fate::Retry(backoff.after(attempt, spread))
    }
}

/// What the server's delivery counter of an entry says. The scripts write it.
///
/// | part | digits | meaning |
/// |---|---|---|
/// | deliveries | the last 5 | consumers that have fetched the entry, this one included |
/// | lonely | the one before | the last of these runs in a row that were alone, 9 at most |
/// | begun | the 7 before | runs of it that have begun, and of which no end is known |
/// | alone | the first, its bit 1 | the last of these runs was the only job of its consumer |
/// | own | the first, its bit 2 | the last of these runs is the owner's; the scripts read it |
/// | lives | the first, its bit 4 | a consumer that had begun it before lives |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deliveries {
    pub(crate) deliveries: u64,
    pub(crate) begun: u32,
    /// The last runs were alone, as many as prove that the job kills its consumers.
    pub(crate) is_proven: bool,
    pub(crate) lives: bool,
}

/// Deaths in a row, each with no other job, that prove that a job kills its consumers. One may be a
/// kill from outside that met a long job.
pub(crate) const LONELY_MIN: u64 = 3;
/// The unit of the runs that were alone.
const LONELY: u64 = 100_000;
/// The unit of the runs that have begun.
const BEGUN: u64 = 1_000_000;
/// The unit of the flags.
const FLAGS: u64 = BEGUN * 10_000_000;
const ALONE: u64 = 1;
const LIVES: u64 = 4;

impl Deliveries {
    pub(crate) fn read(counter: u64) -> Deliveries {
        let (begun, flags) = (counter % FLAGS / BEGUN, counter / FLAGS);
        Deliveries {
            deliveries: counter % LONELY,
            begun: begun as u32,
            is_proven: flags & ALONE != 0 && counter % BEGUN / LONELY >= LONELY_MIN,
            lives: flags & LIVES != 0,
        }
    }

    /// Whether an earlier run has begun.
    pub(crate) fn is_again(self) -> bool {
        self.begun > 0 || self.lives
    }
}

/// How a delivered entry is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// At once. Its begin is recorded if it is still running a moment later.
    Now,
    /// After its begin was recorded: a consumer that had it has died.
    Recorded,
    /// The same, and as the only job of this consumer: it would be the last attempt, or a further one
    /// for the proof.
    Alone,
    /// Not at all: its consumer died each time, the last times with no other job.
    Never,
}

/// `failed` attempts have ended with an error.
pub(crate) fn how_to_begin(failed: u32, of: Deliveries, attempts_max: u32) -> Begin {
    let attempts = failed.saturating_add(of.begun);
    match of {
        _ if failed >= attempts_max && of.begun == 0 => Begin::Never,
        Deliveries { begun: 0, deliveries: ..=1, .. } => Begin::Now,
        Deliveries { begun: 0, .. } => Begin::Recorded,
        _ if of.is_proven && attempts >= attempts_max => Begin::Never,
        _ if attempts.saturating_add(1) >= attempts_max => Begin::Alone,
        _ => Begin::Recorded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff =
        Backoff { first: Duration::from_millis(100), max: Duration::from_secs(1) };

    /// Memory for any number of jobs.
    const ANY: usize = usize::MAX;

    #[test]
    fn the_window_is_what_the_queue_runs_in_20_ms() {
        let mut window = Window::default();
        assert_eq!(window.wanted(4), 5, "an unknown rate: one job ahead");
        window.read(100);
        (0..50).for_each(|_| window.ended(1_000, Duration::from_millis(10)));
        let size = window.size(0, ANY, 4);
        assert!((1_900..=2_004).contains(&size) && size == window.wanted(4), "{size}");
        (0..50).for_each(|_| window.ended(10_000, Duration::from_millis(1)));
        assert_eq!(window.size(0, ANY, 4), 4 + AHEAD_MAX);
        (0..50).for_each(|_| window.ended(0, Duration::from_secs(1)));
        assert_eq!(window.size(0, ANY, 4), 5, "long jobs: the others are left to other consumers");
        assert_eq!(window.size(0, ANY, 0), 0, "runs that hang have all permits");
        window.is_slow = true;
        assert_eq!(window.size(0, ANY, 4), 4, "none ahead of runs that last");
        assert!(window.reads_at(3, ANY, 4) && !window.reads_at(4, ANY, 4));
    }

    #[test]
    fn a_read_waits_until_half_of_the_jobs_ahead_are_used_up() {
        let mut window = Window::default();
        window.read(100);
        let reads_at = |window: &Window, held| window.reads_at(held, ANY, 256);
        assert!(reads_at(&window, 256) && !reads_at(&window, 257), "long jobs: one at a time");
        assert_eq!(window.linger(), Duration::ZERO);
        (0..50).for_each(|_| window.ended(100, Duration::from_millis(5)));
        let size = window.size(0, ANY, 256);
        assert!(reads_at(&window, size - 200) && !reads_at(&window, size - 199), "{size}");
        assert_eq!(window.linger(), LINGER);
        // Room for 100 jobs at most.
        assert!(window.reads_at(50, 5_000, 256) && !window.reads_at(51, 4_900, 256));
        assert!(!window.reads_at(0, ANY, 0), "no permit");
    }

    #[test]
    fn a_read_brings_what_fits_into_the_memory_that_is_left() {
        let mut window = Window::default();
        assert_eq!(window.size(0, 64 << 20, 256), FIRST_READ, "the size of an entry is unknown");
        window.read(4 << 20);
        assert_eq!(window.size(0, 48 << 20, 256), 12);
        assert_eq!(window.size(100, 44 << 20, 256), 111, "small ones are held");
        window.read(1 << 30);
        assert_eq!(window.size(3, 1, 256), 4, "the next one may be small");
        assert!(window.size(3, 0, 256) == 3 && !window.reads_at(3, 0, 256), "all is used up");
        (0..24).for_each(|_| window.read(10));
        assert_eq!(window.size(0, 48 << 20, 256), 257, "a large entry is forgotten");
    }

    #[test]
    fn a_read_leaves_memory_for_the_results_of_all_jobs_that_are_held() {
        let mut window = Window::default();
        window.read(1_000);
        assert_eq!(window.size(0, 100_000, 256), 100);
        window.result(9_000);
        assert_eq!(window.size(0, 100_000, 256), 10);
        assert_eq!(window.size(5, 100_000, 256), 10);
        assert_eq!(window.size(20, 100_000, 256), 21, "the next one may have none");
        assert_eq!(window.size(20, 0, 256), 20);
        window.readers = 2;
        assert_eq!(
            window.size(4, 100_000, 256),
            7,
            "the results of the four, then a half of the rest"
        );
        (0..200).for_each(|_| _ = window.result(0));
        assert_eq!(window.size(0, 100_000, 256), 50, "a large result is forgotten");
    }

    #[test]
    fn reads_grow_while_they_are_full_and_begin_anew_without_jobs_or_memory() {
        let mut reads = Reads::default();
        let mut sizes = Vec::new();
        for _ in 0..5 {
            let asked = reads.count(4_000);
            sizes.push(asked);
            reads.read(asked, asked, true);
        }
        assert_eq!(sizes, [100, 200, 400, 800, 1_000]);
        assert_eq!(reads.count(7), 7);
        reads.read(7, 7, true);
        assert_eq!(reads.count(4_000), 1_000, "there was room for no more");
        reads.read(1_000, 1_000, false);
        assert_eq!(reads.count(4_000), 100, "there was no memory for all");
        reads.read(100, 100, true);
        reads.read(200, 0, true);
        assert_eq!(reads.count(4_000), 100, "no job was left");
        (0..9).for_each(|_| reads.was_cut());
        assert_eq!(reads.count(4_000), 1, "the server cuts its replies");
    }

    #[test]
    fn delays_double_up_to_the_maximum() {
        let delays = [1, 2, 3, 5, 40].map(|attempt| BACKOFF.after(attempt, 0.0).as_millis());
        assert_eq!(delays, [100, 200, 400, 1_000, 1_000]);
        assert_eq!(BACKOFF.after(1, 1.0).as_millis(), 75);
    }

    #[test]
    fn a_job_is_buried_at_its_last_attempt_or_when_its_failure_is_final() {
        assert_eq!(after_failure(5, 5, false, BACKOFF, 0.0), Fate::Bury);
        assert_eq!(after_failure(1, 5, true, BACKOFF, 0.0), Fate::Bury);
        assert_eq!(after_failure(1, 5, false, BACKOFF, 0.0), Fate::Retry(BACKOFF.first));
    }

    #[test]
    fn a_counter_of_the_server_carries_the_runs_that_have_begun() {
        let fresh = Deliveries::read(1);
        assert_eq!(fresh, Deliveries { deliveries: 1, ..Deliveries::default() });
        assert!(!fresh.is_again() && Deliveries::read(1_000_001).is_again());
        let of = Deliveries { deliveries: 2, begun: 3, is_proven: true, lives: false };
        assert_eq!(Deliveries::read(10_000_003_300_002), of);
        let twice = Deliveries { is_proven: false, ..of };
        assert_eq!(Deliveries::read(10_000_003_200_002), twice);
        assert_eq!(Deliveries::read(3_300_002), twice, "the last one was not alone");
        let spared = Deliveries { deliveries: 2, begun: 0, is_proven: false, lives: true };
        assert_eq!(Deliveries::read(40_000_000_000_002), spared);
        assert!(spared.is_again());
        assert!(Deliveries::read(70_000_001_300_000).is_proven, "with its owner's run");
    }

    #[test]
    fn only_a_job_that_was_alone_when_its_consumers_died_is_given_up() {
        let died = |begun, is_proven| Deliveries { deliveries: 9, begun, is_proven, lives: false };
        assert_eq!(how_to_begin(0, Deliveries::read(1), 5), Begin::Now);
        assert_eq!(how_to_begin(4, Deliveries::read(1), 5), Begin::Now);
        assert_eq!(how_to_begin(5, Deliveries::read(1), 5), Begin::Never, "it has failed");
        assert_eq!(how_to_begin(0, died(0, false), 1), Begin::Recorded, "fetched, and no more");
        assert_eq!(how_to_begin(0, died(3, false), 5), Begin::Recorded);
        assert_eq!(how_to_begin(0, died(4, false), 5), Begin::Alone);
        assert_eq!(how_to_begin(3, died(1, false), 5), Begin::Alone);
        assert_eq!(how_to_begin(0, died(7, false), 5), Begin::Alone, "others ran beside it");
        assert_eq!(how_to_begin(0, died(6, false), 5), Begin::Alone, "no proof yet");
        assert_eq!(how_to_begin(0, died(7, true), 5), Begin::Never);
        assert_eq!(how_to_begin(0, died(3, true), 5), Begin::Recorded, "more attempts than before");
    }
}
