//! The timers of one pool: hierarchical wheels of armed delayed items.
//!
//! A pool has two [`TimerBase`]s: one that the keeper covers, and one for deferrable items,
//! for which no thread wakes; workers that are awake check it.
//!
//! `uwork_policy::timer` decides the placement. Each bucket keeps a lower bound of its expiries. So
//! the next expiry is known to the nanosecond without examining the timers, and a bucket of a
//! coarse level is only split when one of its timers is due. Insert and remove take constant time.
//! A split moves a timer at a time ([`Timers::advance`]), so that the lock is never held for long,
//! however many timers a bucket has.
//!
//! A timer has a window: from its expiry, before which it never expires, to its latest time, at
//! which a thread must be awake for it. The wheel is ordered by expiries; a bucket also keeps a
//! lower bound of the latest times in it, and the slack of the timer to which that belongs. The next
//! wake is the first latest time of all, and then every timer expires whose window is open. This
//! stabs the windows greedily, with the fewest wakes that any choice of times permits. In a pool
//! that does not save wakes, each window is one instant, which `uwork_policy::timer::expiry` has
//! chosen.

pub(crate) mod delayed;
pub(crate) mod fire;
pub(crate) mod grace;
mod window;

pub use delayed::{Delayed, Rearmed};
pub use grace::Graced;

use delayed::prefetch_all;
use uwork_policy::timer::{BUCKET_BITS, BUCKETS, LEVELS, Position, begin_of, position};

use crate::pool::NEVER;
use crate::words::host::Host;
use crate::words::sync::{AtomicBool, AtomicU64, Link, Lock, LockGuard, Ordering, Rank, Right};

/// The levels of the wheel, and two rows of buckets between which a sort moves timers.
const ROWS: usize = LEVELS + 2;

/// The buckets: the levels, the finest first, then the rows of sorts. Made on the heap: the stack of a
/// thread that arms may be small.
type Buckets<H> = Box<[Bucket<H>]>;

fn index_of(at: Position) -> usize {
    at.level * BUCKETS + at.bucket
}

/// A wheel, its lock, and the parts that are readable without the lock.
pub(crate) struct TimerBase<H: Host> {
    /// When a thread must be awake for a timer, or `NEVER`. Written under the lock.
    next: AtomicU64,
    /// When the first window opens, or `NEVER`; no later than `next`. Written under the lock.
    open: AtomicU64,
    /// The slack of the timer whose window ends at `next`. Written under the lock.
    slack_ns: AtomicU64,
    /// Whether a thread fires the due timers. README.md has its partners.
    firing: AtomicBool,
    /// Whether the wheel has its buckets: they are allocated without the lock, for the first timer.
    has_buckets: AtomicBool,
    timers: Lock<Timers<H>>,
}

impl<H: Host> TimerBase<H> {
    pub(crate) fn new() -> TimerBase<H> {
        TimerBase {
            next: AtomicU64::new(NEVER),
            open: AtomicU64::new(NEVER),
            slack_ns: AtomicU64::new(0),
            firing: AtomicBool::new(false),
            has_buckets: AtomicBool::new(false),
            timers: Lock::ranked(Rank::Timers, Timers::new()),
        }
    }

    /// When a thread must be awake for a timer: exact, or too early if that timer was removed.
    /// `NEVER` if nothing is armed.
    #[inline]
    pub(crate) fn next(&self, order: Ordering) -> u64 {
        self.next.load(order)
    }

    /// From when a timer may expire: exact, or too early if that timer was removed. `NEVER` if
    /// nothing is armed. A hint.
    #[inline]
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether a timer may expire, or a thread must be awake for one.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.open() <= now || self.next(Ordering::SeqCst) <= now
    }

    /// How long the window is that ends at `next`. A hint.
    pub(crate) fn slack_ns(&self) -> u64 {
        self.slack_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, Timers<H>> {
        self.timers.lock()
    }

    /// Takes the lock in order to arm a timer.
    pub(crate) fn lock_to_arm(&self) -> LockGuard<'_, Timers<H>> {
        // Acquire pairs with `make_buckets`: a thread that sees the flag finds the buckets under
        // the lock.
        if !self.has_buckets.load(Ordering::Acquire) {
            self.make_buckets();
        }
        self.timers.lock()
    }

    #[cold]
    fn make_buckets(&self) {
        let mut buckets: Buckets<H> = (0..ROWS * BUCKETS).map(|_| Bucket::empty()).collect();
        let mut timers = self.timers.lock();
        if timers.buckets.is_empty() {
            std::mem::swap(&mut timers.buckets, &mut buckets);
        }
        // Release the lock before a surplus set of buckets is freed.
        drop(timers);
        self.has_buckets.store(true, Ordering::Release);
    }

    /// Claims the right to fire the due timers; `None` if another thread has it.
    pub(crate) fn begin_firing(&self) -> Option<Firing<'_, H>> {
        let claim = || {
            self.firing.compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        (!self.is_firing() && claim())
            .then(|| Firing { base: self, _held: Right::ranked(Rank::Firing) })
    }

    /// Whether a thread fires the due timers. That thread publishes the next wake before it ends, and
    /// then settles the pool.
    pub(crate) fn is_firing(&self) -> bool {
        self.firing.load(Ordering::SeqCst)
    }

    /// The thread that fires stops for now, at `at`: publishes that no other thread need be awake
    /// before `until` for what is due, because running workers go on. 0 and 0 if nothing is due, or if
    /// the thread may not come back soon.
    pub(crate) fn publish_served(&self, timers: &mut Timers<H>, at: u64, until: u64) {
        timers.served = (at, until);
        self.publish(timers);
    }

    /// In a forked child: nothing is armed any more.
    pub(crate) fn forget(&self, timers: &mut Timers<H>) {
        delayed::forget_armed(timers);
        self.firing.store(false, Ordering::SeqCst);
        self.publish_served(timers, 0, 0);
    }

    /// Publishes the next wake after a change. True if it is earlier than before.
    pub(crate) fn publish(&self, timers: &Timers<H>) -> bool {
        let (before, (next, slack_ns)) = (self.next.load(Ordering::Relaxed), timers.next());
        let (served_at, until) = timers.served;
        let next = if next <= served_at { until } else { next };
        // Relaxed: no thread sleeps until the first, and the second decides only where it sleeps and
        // how much earlier it wakes.
        self.open.store(timers.open(), Ordering::Relaxed);
        self.slack_ns.store(slack_ns, Ordering::Relaxed);
        if next != before {
            // SeqCst: the write side of two Dekker pairs. With `Pool::keep_until`: either the
            // keeper reads this expiry, or the arming thread reads the keeper's deadline; else the
            // keeper would sleep past the timer. With `Pool::remove_route`: either the thread that
            // arms a deferrable item reads that only the keeper will come, or the workers that are
            // woken then read this expiry.
            self.next.store(next, Ordering::SeqCst);
        }
        next < before
    }
}

/// The right to fire the due timers of a wheel. While a thread has it, it takes no lock but the
/// wheel's, sends no wake and calls no user code: the checks of locks treat it as a lock.
#[must_use = "the right is given back when this is dropped"]
pub(crate) struct Firing<'a, H: Host> {
    base: &'a TimerBase<H>,
    _held: Right,
}

impl<H: Host> Drop for Firing<'_, H> {
    fn drop(&mut self) {
        self.base.firing.store(false, Ordering::SeqCst);
    }
}

/// Guard: the lock of the `TimerBase` around it. Rank: after the pool lock.
pub(crate) struct Timers<H: Host> {
    /// The time that the wheel has reached. Nothing armed is due before it.
    reached: u64,
    /// The bucket that is being split, and the time that the wheel has reached once that is done.
    /// The timers that have left it are in finer buckets. Those that are armed for its time meanwhile
    /// still go to its end, behind those armed before.
    split: Option<(Position, u64)>,
    /// The timers of the time that the wheel has reached, which were not in the order of arming.
    sort: Option<Sort>,
    /// When the last slice of the due timers ended, and until when running workers are expected to fire
    /// what was due by then; 0 and 0 if that was all.
    served: (u64, u64),
    armed: usize,
    /// How many timers were ever armed here: timers for the same instant expire in that order.
    sequence: u64,
    /// A bit for each bucket that is not empty.
    occupied: [u64; ROWS],
    /// Empty until they are made, before anything is armed.
    buckets: Buckets<H>,
}

/// The timers of a range of time, in a list through their nodes. Those of a level but the finest are
/// in the order of arming, except for those that were armed again for the same bucket.
struct Bucket<H: Host> {
    head: *mut Delayed<H>,
    tail: *mut Delayed<H>,
    /// No expiry in the bucket is earlier.
    earliest: u64,
    /// No latest time in the bucket is earlier; and the slack of the timer that it belongs to, the
    /// shortest if there are several.
    ends: (u64, u64),
    /// Whether a bucket of the finest level must be sorted before it expires: timers that were armed
    /// later come first.
    is_unsorted: bool,
}

impl<H: Host> Bucket<H> {
    fn empty() -> Bucket<H> {
        Bucket {
            head: std::ptr::null_mut(),
            tail: std::ptr::null_mut(),
            earliest: NEVER,
            ends: (NEVER, 0),
            is_unsorted: false,
        }
    }

    /// A timer with this window is in the bucket.
    fn cover(&mut self, expiry: u64, latest: u64) {
        self.earliest = self.earliest.min(expiry);
        self.ends = self.ends.min((latest, latest - expiry));
    }

    /// Puts `item` at the end.
    ///
    /// # Safety
    /// `item` is in no list, and the bucket's timers are in the caller's wheel.
    unsafe fn push_back(&mut self, item: *mut Delayed<H>) {
        let last = std::mem::replace(&mut self.tail, item);
        // SAFETY: by this function's contract.
        unsafe {
            (*item).node.prev.set(Link(last));
            (*item).node.next.set(Link(std::ptr::null_mut()));
            if last.is_null() {
                self.head = item;
            } else {
                self.is_unsorted |= (*item).node.sequence.get() < (*last).node.sequence.get();
                (*last).node.next.set(Link(item));
            }
        }
    }
}

/// A sort of the timers of one instant by the order of arming, a few timers at a time: a radix sort,
/// whose pass number `p` moves each timer to the bucket of its sequence number's digit `p`. The last
/// pass leaves them in order, from bucket to bucket. Timers that are armed for that instant after the
/// first pass stay in its bucket of the wheel: they are the last ones.
#[derive(Clone, Copy)]
struct Sort {
    /// The bucket of the wheel from which the first pass takes.
    bucket: usize,
    /// The pass in progress.
    pass: u32,
}

impl Sort {
    /// The row to which a pass moves timers.
    fn row(pass: u32) -> usize {
        LEVELS + pass as usize % 2
    }

    /// How many passes sort timers up to this number.
    fn passes(sequence: u64) -> u32 {
        (u64::BITS - sequence.leading_zeros()).div_ceil(BUCKET_BITS).max(1)
    }

    /// The bucket to which the pass in progress moves the timer with this number.
    fn place(self, sequence: u64) -> Position {
        let digit = (sequence >> (self.pass * BUCKET_BITS)) as usize % BUCKETS;
        Position { level: Sort::row(self.pass), bucket: digit }
    }
}

// SAFETY: the armed items belong to the holder of the wheel.
unsafe impl<H: Host> Send for Timers<H> {}

/// What [`Timers::advance`] has found.
pub(crate) enum Advance<H: Host> {
    /// This timer expires next, and is due. It is in the wheel.
    Due(*mut Delayed<H>),
    /// The steps are used up. More may be due.
    Later,
    /// Nothing is due.
    Nothing,
}

impl<H: Host> Timers<H> {
    fn new() -> Timers<H> {
        Timers {
            reached: 0,
            split: None,
            sort: None,
            served: (0, 0),
            armed: 0,
            sequence: 0,
            occupied: [0; ROWS],
            buckets: Box::default(),
        }
    }

    fn bucket(&mut self, at: Position) -> &mut Bucket<H> {
        &mut self.buckets[index_of(at)]
    }

    fn earliest(&self, at: Position) -> u64 {
        self.buckets[index_of(at)].earliest
    }

    /// The first bucket that is not empty. Without a sort, everything else is due later.
    fn first(&self) -> Option<Position> {
        (0..ROWS).find_map(|level| self.first_in(level))
    }

    /// The first bucket of this level, or row of a sort, that is not empty.
    fn first_in(&self, level: usize) -> Option<Position> {
        let buckets = self.occupied[level];
        (buckets != 0).then(|| Position { level, bucket: buckets.trailing_zeros() as usize })
    }

    /// The time from which timers may expire while a bucket is split or sorted.
    fn under_way(&self) -> Option<u64> {
        let splits_to = self.split.map(|(_, reached)| reached);
        splits_to.or(self.sort.map(|_| self.reached))
    }

    /// The bucket for a timer that is armed now.
    fn position(&self, expiry: u64) -> Position {
        // During a split, what is due already goes behind the timers that have not left the bucket.
        let passed = self.split.map_or(0, |(_, reached)| reached);
        position(self.reached, expiry.max(passed))
    }

    /// The first latest time, and the slack of its timer: exact, or too early if that timer was
    /// removed, or a bucket is being split or sorted. `NEVER` if nothing is armed.
    fn next(&self) -> (u64, u64) {
        if let Some(at) = self.under_way() {
            return (at, 0);
        }
        let mut next = (NEVER, 0);
        for (level, &buckets) in self.occupied.iter().enumerate() {
            let mut buckets = buckets;
            while buckets != 0 {
                let at = Position { level, bucket: buckets.trailing_zeros() as usize };
                // Buckets come in the order of time: no later window ends before this bucket begins.
                if begin_of(self.reached, at) > next.0 {
                    return next;
                }
                next = next.min(self.buckets[index_of(at)].ends);
                buckets &= buckets - 1;
            }
        }
        next
    }

    /// The first expiry: exact, or too early if its timer was removed. `NEVER` if nothing is armed.
    fn open(&self) -> u64 {
        let of_first = || self.first().map_or(NEVER, |at| self.earliest(at));
        self.under_way().unwrap_or_else(of_first)
    }

    /// Arms `item` for the window in its node.
    ///
    /// # Safety
    /// `item` is live, in no list, and the caller's.
    pub(crate) unsafe fn insert(&mut self, item: *mut Delayed<H>, now: u64) {
        if self.armed == 0 {
            (self.reached, self.split, self.sort) = (now, None, None);
        }
        self.armed += 1;
        self.sequence += 1;
        // SAFETY: by this function's contract.
        unsafe {
            (*item).node.sequence.set(self.sequence);
            let at = self.position((*item).node.expiry.get());
            self.link(item, at);
        }
    }

    /// Changes the window of an armed item. An item that stays in its bucket, such as a timeout
    /// that is postponed again and again, is not moved: its neighbours are not accessed.
    ///
    /// # Safety
    /// `item` is in this wheel.
    pub(crate) unsafe fn move_to(&mut self, item: *mut Delayed<H>, window: (u64, u64), now: u64) {
        // SAFETY: by this function's contract; an item that was removed is the caller's.
        unsafe {
            let (node, (expiry, latest)) = (&(*item).node, window);
            let at = self.position(expiry);
            if node.position.get() != (at.level as u8, at.bucket as u8) {
                self.remove(item);
                (*item).set_window(window);
                return self.insert(item, now);
            }
            self.sequence += 1;
            node.sequence.set(self.sequence);
            (*item).set_window(window);
            let bucket = self.bucket(at);
            bucket.is_unsorted |= bucket.tail != item;
            bucket.cover(expiry, latest);
        }
    }

    unsafe fn link(&mut self, item: *mut Delayed<H>, at: Position) {
        self.occupied[at.level] |= 1 << at.bucket;
        let bucket = self.bucket(at);
        // SAFETY: the caller owns `item`; the bucket is of this wheel.
        unsafe {
            let node = &(*item).node;
            bucket.cover(node.expiry.get(), (*item).latest.get());
            node.position.set((at.level as u8, at.bucket as u8));
            bucket.push_back(item);
        }
    }

    /// Removes an armed item.
    ///
    /// # Safety
    /// `item` is in this wheel.
    pub(crate) unsafe fn remove(&mut self, item: *mut Delayed<H>) {
        // SAFETY: by this function's contract.
        unsafe { self.unlink(item) };
        self.armed -= 1;
        if self.armed == 0 {
            (self.split, self.sort, self.served) = (None, None, (0, 0));
        }
    }

    unsafe fn unlink(&mut self, item: *mut Delayed<H>) {
        // SAFETY: `item` and its neighbours are in this wheel.
        unsafe {
            let node = &(*item).node;
            let (level, bucket) = node.position.get();
            let at = Position { level: level as usize, bucket: bucket as usize };
            let (prev, next) = (node.prev.get().0, node.next.get().0);
            if prev.is_null() && next.is_null() {
                *self.bucket(at) = Bucket::empty();
                self.occupied[at.level] &= !(1 << at.bucket);
                return;
            }
            match next.is_null() {
                true => self.bucket(at).tail = prev,
                false => (*next).node.prev.set(Link(prev)),
            }
            match prev.is_null() {
                true => self.bucket(at).head = next,
                false => (*prev).node.next.set(Link(next)),
            }
        }
    }

    /// Finds the timer that is due first. Splits and sorts the buckets in its way, moving at most
    /// `steps` timers, which are subtracted.
    pub(crate) fn advance(&mut self, now: u64, steps: &mut usize) -> Advance<H> {
        loop {
            if let Some(sort) = self.sort {
                let Some(sorted) = self.go_on_sorting(sort, steps) else { return Advance::Later };
                if let Some(at) = self.first_in(sorted) {
                    return Advance::Due(self.bucket(at).head);
                }
                self.sort = None;
            }
            if let Some((at, reached)) = self.split {
                if !self.go_on_splitting(at, reached, steps) {
                    return Advance::Later;
                }
                (self.reached, self.split) = (reached, None);
            }
            let Some(at) = self.first() else { return Advance::Nothing };
            let earliest = self.earliest(at);
            if earliest > now {
                return Advance::Nothing;
            }
            if at.level > 0 {
                // The other timers of the bucket are not due before.
                self.split = Some((at, self.reached.max(earliest)));
                continue;
            }
            let instant = begin_of(self.reached, at);
            let bucket = self.bucket(at);
            if bucket.is_unsorted && instant <= now {
                bucket.is_unsorted = false;
                self.reached = instant;
                self.sort = Some(Sort { bucket: at.bucket, pass: 0 });
                continue;
            }
            // SAFETY: the timers of a bucket are in this wheel, and an occupied bucket has some.
            unsafe {
                let expiry = (*bucket.head).node.expiry.get();
                if expiry <= now {
                    return Advance::Due(bucket.head);
                }
                // The timer with the earliest expiry was removed.
                bucket.earliest = expiry;
            }
        }
    }

    /// Moves timers of the bucket that is being split to finer ones. False if the steps are used up
    /// before it is empty.
    fn go_on_splitting(&mut self, at: Position, reached: u64, steps: &mut usize) -> bool {
        while self.occupied[at.level] & 1 << at.bucket != 0 {
            let Some(left) = steps.checked_sub(1) else { return false };
            *steps = left;
            // SAFETY: the timers of a bucket are in this wheel, and an occupied bucket has some.
            unsafe {
                let item = self.bucket(at).head;
                prefetch_all((*item).node.next.get().0);
                self.unlink(item);
                self.link(item, position(reached, (*item).node.expiry.get()));
            }
        }
        true
    }

    /// Sorts the timers of one instant. Returns the row that has them, from bucket to bucket; none if
    /// the steps are used up before.
    fn go_on_sorting(&mut self, mut sort: Sort, steps: &mut usize) -> Option<usize> {
        // A timer that was armed in the first pass has a higher number than all others. Beyond that, a
        // number that rises adds a pass that changes nothing.
        while sort.pass < Sort::passes(self.sequence) {
            let from = match sort.pass {
                0 => Some(Position { level: 0, bucket: sort.bucket })
                    .filter(|at| self.occupied[0] & 1 << at.bucket != 0),
                pass => self.first_in(Sort::row(pass - 1)),
            };
            let Some(from) = from else {
                sort.pass += 1;
                self.sort = Some(sort);
                continue;
            };
            *steps = steps.checked_sub(1)?;
            // SAFETY: the timers of a bucket are in this wheel, and an occupied bucket has some.
            unsafe {
                let item = self.bucket(from).head;
                prefetch_all((*item).node.next.get().0);
                self.unlink(item);
                self.link(item, sort.place((*item).node.sequence.get()));
            }
        }
        Some(Sort::row(sort.pass - 1))
    }

    /// Removes and returns any timer; null if nothing is armed.
    pub(crate) fn pop_any(&mut self) -> *mut Delayed<H> {
        let Some(at) = self.first() else { return std::ptr::null_mut() };
        let item = self.bucket(at).head;
        // SAFETY: an item of one of our lists is in this wheel.
        unsafe { self.remove(item) };
        item
    }

    /// How many are armed.
    pub(crate) fn armed(&self) -> usize {
        self.armed
    }

    /// Visits the armed timers, in no order, until `f` returns false.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Delayed<H>) -> bool) {
        for bucket in &self.buckets {
            let mut item = bucket.head;
            // SAFETY: the timers of a bucket are in this wheel.
            while let Some(timer) = unsafe { item.as_ref() } {
                if !f(timer) {
                    return;
                }
                // SAFETY: as above; the links are this wheel's.
                item = unsafe { timer.node.next.get().0 };
            }
        }
    }
}
