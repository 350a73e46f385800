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
use uwork_policy::timer::{BUCKETS, LEVELS, Position, begin_of, position};

use crate::host::Host;
use crate::pool::NEVER;
use crate::sync::{AtomicBool, AtomicU64, Link, Lock, LockGuard, Ordering, Rank};

/// The most lists that a sort merges: each holds a power of two runs, so this is more than memory
/// holds.
const MERGES: usize = 48;

/// The buckets, the finest level first. Made on the heap: the stack of a thread that arms may be small.
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
        let mut buckets: Buckets<H> = (0..LEVELS * BUCKETS).map(|_| Bucket::empty()).collect();
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
        (!self.is_firing() && !self.firing.swap(true, Ordering::SeqCst)).then(|| Firing(self))
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

/// The right to fire the due timers of a wheel. While a thread has it, it calls no user code.
#[must_use = "the right is given back when this is dropped"]
pub(crate) struct Firing<'a, H: Host>(&'a TimerBase<H>);

impl<H: Host> Drop for Firing<'_, H> {
    fn drop(&mut self) {
        self.0.firing.store(false, Ordering::SeqCst);
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
    /// When the last slice of the due timers ended, and until when running workers are expected to fire
    /// what was due by then; 0 and 0 if that was all.
    served: (u64, u64),
    armed: usize,
    /// How many timers were ever armed here: timers for the same instant expire in that order.
    sequence: u64,
    /// A bit for each bucket that is not empty.
    occupied: [u64; LEVELS],
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
    /// Whether a bucket of the finest level must be sorted before it expires.
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
                self.is_unsorted |= key(item) < key(last);
                (*last).node.next.set(Link(item));
            }
        }
    }

    /// Sorts the timers, all of one instant.
    ///
    /// # Safety
    /// The bucket's timers are in the caller's wheel.
    #[cold]
    unsafe fn sort(&mut self) {
        self.is_unsorted = false;
        // SAFETY: by this function's contract.
        unsafe {
            self.head = sorted(self.head);
            let (mut prev, mut item) = (std::ptr::null_mut(), self.head);
            while !item.is_null() {
                (*item).node.prev.set(Link(prev));
                (prev, item) = (item, (*item).node.next.get().0);
            }
            self.tail = prev;
        }
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
            served: (0, 0),
            armed: 0,
            sequence: 0,
            occupied: [0; LEVELS],
            buckets: Box::default(),
        }
    }

    fn bucket(&mut self, at: Position) -> &mut Bucket<H> {
        &mut self.buckets[index_of(at)]
    }

    fn earliest(&self, at: Position) -> u64 {
        self.buckets[index_of(at)].earliest
    }

    /// The first bucket that is not empty: everything else is due later.
    fn first(&self) -> Option<Position> {
        let level = self.occupied.iter().position(|&buckets| buckets != 0)?;
        Some(Position { level, bucket: self.occupied[level].trailing_zeros() as usize })
    }

    /// The bucket for a timer that is armed now.
    fn position(&self, expiry: u64) -> Position {
        // During a split, what is due already goes behind the timers that have not left the bucket.
        let passed = self.split.map_or(0, |(_, reached)| reached);
        position(self.reached, expiry.max(passed))
    }

    /// The first latest time, and the slack of its timer: exact, or too early if that timer was
    /// removed or a bucket is being split. `NEVER` if nothing is armed.
    fn next(&self) -> (u64, u64) {
        if let Some((_, reached)) = self.split {
            return (reached, 0);
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
        match (self.split, self.first()) {
            (Some((_, reached)), _) => reached,
            (None, Some(at)) => self.earliest(at),
            (None, None) => NEVER,
        }
    }

    /// Arms `item` for the window in its node.
    ///
    /// # Safety
    /// `item` is live, in no list, and the caller's.
    pub(crate) unsafe fn insert(&mut self, item: *mut Delayed<H>, now: u64) {
        if self.armed == 0 {
            (self.reached, self.split) = (now, None);
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
            (self.split, self.served) = (None, (0, 0));
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

    /// Finds the timer that is due first. Splits the buckets in its way, moving at most `steps`
    /// timers, which are subtracted.
    pub(crate) fn advance(&mut self, now: u64, steps: &mut usize) -> Advance<H> {
        loop {
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
            let bucket = self.bucket(at);
            // SAFETY: the timers of a bucket are in this wheel, and an occupied bucket has some.
            unsafe {
                if bucket.is_unsorted {
                    bucket.sort();
                }
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

/// Sorts a list through `next` in place, by expiry and then by order of arming: a merge sort of the
/// runs that are already in order. Timers for one instant form one run.
///
/// # Safety
/// The list is the caller's.
unsafe fn sorted<H: Host>(mut rest: *mut Delayed<H>) -> *mut Delayed<H> {
    // The list at index `i` is empty or the merge of 2^i runs.
    let mut merged: [*mut Delayed<H>; MERGES] = [std::ptr::null_mut(); MERGES];
    while !rest.is_null() {
        // SAFETY: by this function's contract; a list is in one place at a time.
        unsafe {
            let mut list = rest;
            rest = split_run(list);
            for place in &mut merged {
                let other = std::mem::replace(place, std::ptr::null_mut());
                if other.is_null() {
                    *place = list;
                    break;
                }
                list = merge(other, list);
            }
        }
    }
    // SAFETY: as above.
    merged.into_iter().fold(std::ptr::null_mut(), |all, list| unsafe { merge(list, all) })
}

/// Cuts a list, which is not empty, after its first run. Returns the rest.
///
/// # Safety
/// The list is the caller's.
unsafe fn split_run<H: Host>(mut item: *mut Delayed<H>) -> *mut Delayed<H> {
    // SAFETY: by this function's contract.
    unsafe {
        loop {
            let next = (*item).node.next.get().0;
            if next.is_null() || key(next) < key(item) {
                (*item).node.next.set(Link(std::ptr::null_mut()));
                return next;
            }
            item = next;
        }
    }
}

/// Merges two lists, each in order.
///
/// # Safety
/// The lists are the caller's.
unsafe fn merge<H: Host>(mut a: *mut Delayed<H>, mut b: *mut Delayed<H>) -> *mut Delayed<H> {
    let (mut head, mut tail) = (std::ptr::null_mut(), std::ptr::null_mut::<Delayed<H>>());
    let mut append = |item: *mut Delayed<H>| {
        match tail.is_null() {
            true => head = item,
            // SAFETY: by this function's contract.
            false => unsafe { (*tail).node.next.set(Link(item)) },
        }
        tail = item;
    };
    while !a.is_null() && !b.is_null() {
        // SAFETY: by this function's contract.
        unsafe {
            if key(b) < key(a) {
                std::mem::swap(&mut a, &mut b);
            }
            append(a);
            a = (*a).node.next.get().0;
        }
    }
    // The rest of the list that is not empty is linked already.
    append(if a.is_null() { b } else { a });
    head
}

/// # Safety
/// The item is the caller's.
unsafe fn key<H: Host>(item: *mut Delayed<H>) -> (u64, u64) {
    // SAFETY: by this function's contract.
    unsafe { ((*item).node.expiry.get(), (*item).node.sequence.get()) }
}
