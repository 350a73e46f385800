//! The records of the trace: when items were queued, started and ended, on which CPU and by which
//! thread.
//!
//! A submitter chooses the items: it takes a token, records the submission in the ring of its CPU,
//! and marks the item's ticket. The worker that finds the mark records start and end in its own
//! ring. So the records of an item are complete, and a worker pays for the items of its choice
//! alone. There are [`ITEMS_PER_MS`] tokens for each millisecond. Items beyond that are not recorded,
//! and cost a load that finds no token, the same as while the trace is off.
//!
//! Workers renew the tokens as they take batches, with the clock that they have read anyway. A trace
//! has an end from its start: after it no worker renews them.

mod ring;

use crate::words::dump::Function;
use crate::words::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
pub(crate) use ring::Ring;
use ring::{RECORDS, Words};

/// Items of which a trace records each millisecond, at most.
pub const ITEMS_PER_MS: u32 = 64;
/// The records that one call of [`Engine::read_trace`](crate::Engine::read_trace) returns, at most.
pub const READ_MAX: usize = 1 << 15;
const INTERVAL_NS: u64 = 1_000_000;
/// Rings of submitters, by CPU, and rings of workers, by slot. CPUs and slots beyond share them.
const RINGS: usize = 256;
const NEVER: u64 = u64::MAX;

/// An event of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A submitter has queued it.
    Queued {
        /// The submitter's thread, as the host names it.
        thread: u64,
    },
    /// Its run has begun.
    Started {
        /// Its function; [`TraceRead::functions`] has the name.
        function: usize,
    },
    /// Its run has ended.
    Ended {
        /// The thread that ran it.
        thread: u64,
    },
}

/// A record of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRecord {
    /// When, on the host's clock.
    pub at_ns: u64,
    /// What happened.
    pub event: TraceEvent,
    /// The item's address. It may have been freed, and used for another item, since.
    pub item: usize,
    /// The CPU of the thread.
    pub cpu: u32,
    /// The slot of the run; 0 for a submission.
    pub slot: u32,
    /// The pwq that the item was queued on.
    pub pwq: u32,
}

/// What a call of [`Engine::read_trace`](crate::Engine::read_trace) returns.
#[derive(Clone, Debug, Default)]
pub struct TraceRead {
    /// The records, in no order.
    pub records: Vec<TraceRecord>,
    /// Records that were overwritten before they were read.
    pub lost: u64,
    /// Whether more are left to read.
    pub has_more: bool,
    /// The functions of the records, by the number that the records have.
    pub functions: Vec<(usize, Function)>,
    /// The pwqs of the records with the names of their queues, if the queues still exist.
    pub queues: Vec<(u32, String)>,
}

/// A trace could not be started or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceError {
    /// This engine's host has no tracer.
    Unsupported,
    /// A trace is on already.
    IsOn {
        /// For how long, in nanoseconds.
        left_ns: u64,
    },
    /// Another thread reads it at this moment.
    IsRead,
}

/// A renewal of the tokens, or the end of the trace, that a worker has found due.
struct Due {
    /// The time that it found.
    at: u64,
    /// The next time.
    next: u64,
    tokens: u32,
}

/// The fields that submitters and workers look at.
#[repr(align(128))]
struct Tokens {
    /// Items that may still be recorded in this interval. 0 while no trace is on.
    left: AtomicU32,
    /// When a worker renews them; `NEVER` while no trace is on.
    renew_at: AtomicU64,
}

/// A ring, and how far it was read.
struct Source {
    /// Null until it is needed. Never freed before the tracer.
    ring: AtomicPtr<Ring>,
    /// The number of the next record to be read. Guard: `reading`.
    next: AtomicU64,
}

/// The trace of an engine. A host that wants one keeps it.
pub struct Tracer {
    tokens: Tokens,
    /// When the trace ends. 0 while none is on.
    until: AtomicU64,
    /// Whether a thread reads or starts the trace.
    reading: AtomicBool,
    submitters: Box<[Source]>,
    workers: Box<[Source]>,
}

impl Default for Tracer {
    fn default() -> Self {
        Self::new()
    }
}

impl Tracer {
    /// A tracer that is off. It has no rings yet.
    pub fn new() -> Tracer {
        let source =
            |_| Source { ring: AtomicPtr::new(std::ptr::null_mut()), next: AtomicU64::new(0) };
        Tracer {
            tokens: Tokens { left: AtomicU32::new(0), renew_at: AtomicU64::new(NEVER) },
            until: AtomicU64::new(0),
            reading: AtomicBool::new(false),
            submitters: (0..RINGS).map(source).collect(),
            workers: (0..RINGS).map(source).collect(),
        }
    }

    /// Whether a submitter may record its item.
    #[inline(always)]
    pub(crate) fn has_tokens(&self) -> bool {
        self.tokens.left.load(Ordering::Relaxed) != 0
    }

    /// The ring of the submitters on a CPU. None until a trace was started.
    pub(crate) fn of_submitter(&self, cpu: u32) -> Option<&Ring> {
        self.submitters[cpu as usize % RINGS].get()
    }

    /// The ring of the worker with a slot.
    pub(crate) fn of_worker(&self, slot: u32) -> &Ring {
        self.workers[slot as usize % RINGS].ring()
    }

    /// When the trace ends. 0 while none is on.
    pub(crate) fn until(&self) -> u64 {
        self.until.load(Ordering::Relaxed)
    }

    /// Takes a token. False if there is none.
    pub(crate) fn take_token(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.tokens.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Renews the tokens if that is due.
    #[inline(always)]
    pub(crate) fn heartbeat(&self, now: u64) {
        if now >= self.tokens.renew_at.load(Ordering::Relaxed) {
            self.renew(now);
        }
    }

    #[cold]
    fn renew(&self, now: u64) {
        if let Some(due) = self.due(now) {
            self.take_turn(due);
        }
    }

    /// What is due now. The acquire load comes first: a worker that finds the time which a start has
    /// stored finds that trace's end as well.
    fn due(&self, now: u64) -> Option<Due> {
        let at = self.tokens.renew_at.load(Ordering::Acquire);
        if now < at {
            return None;
        }
        Some(match now >= self.until.load(Ordering::Relaxed) {
            true => Due { at, next: NEVER, tokens: 0 },
            false => Due { at, next: now + INTERVAL_NS, tokens: ITEMS_PER_MS },
        })
    }

    /// Does what was due, unless another worker, a start or a stop came first: then the time is
    /// another. A trace that starts between the two writes may lose the tokens of its first
    /// interval, and has new ones after it. After a stop between them up to [`ITEMS_PER_MS`] tokens
    /// remain: so many items are recorded after the stop, and no worker renews the tokens.
    fn take_turn(&self, Due { at, next, tokens }: Due) {
        let turn = &self.tokens.renew_at;
        if turn.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.tokens.left.store(tokens, Ordering::Relaxed);
        }
    }

    /// Begins a trace that ends at `until`, on a machine with these CPUs.
    pub(crate) fn start(&self, now: u64, until: u64, cpus: impl Iterator<Item = u32>) {
        for source in self.submitters.iter().chain(&self.workers) {
            let head = source.get().map_or(0, Ring::head);
            source.next.store(head, Ordering::Relaxed);
        }
        // Submitters may hold locks of the program, and must not allocate: their rings come first.
        cpus.for_each(|cpu| _ = self.submitters[cpu as usize % RINGS].ring());
        self.until.store(until, Ordering::Relaxed);
        // Release: with `due`.
        self.tokens.renew_at.store(now + INTERVAL_NS, Ordering::Release);
        self.tokens.left.store(ITEMS_PER_MS, Ordering::Relaxed);
    }

    /// Ends the trace. The records stay until they are read.
    pub fn stop(&self) {
        self.until.store(0, Ordering::Relaxed);
        self.tokens.renew_at.store(NEVER, Ordering::Relaxed);
        self.tokens.left.store(0, Ordering::Relaxed);
    }

    /// In a forked child: the trace was the parent's.
    pub(crate) fn forked(&self) {
        self.stop();
        self.reading.store(false, Ordering::Relaxed);
    }

    /// Begins to read or start; None while another thread does.
    pub(crate) fn reading(&self) -> Option<Reading<'_>> {
        (!self.reading.swap(true, Ordering::Acquire)).then_some(Reading(self))
    }

    /// The records since the last call, without the names.
    pub(crate) fn read(&self) -> TraceRead {
        let mut read = TraceRead::default();
        for source in self.submitters.iter().chain(&self.workers) {
            source.read(&mut read);
        }
        read
    }
}

/// The right to read, which ends with this.
pub(crate) struct Reading<'a>(&'a Tracer);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.reading.store(false, Ordering::Release);
    }
}

impl Source {
    fn get(&self) -> Option<&Ring> {
        // SAFETY: null, or a ring that lives as long as the tracer. Acquire: its places are visible.
        unsafe { self.ring.load(Ordering::Acquire).as_ref() }
    }

    /// The ring, made at the first call. It allocates then, so the caller holds no lock.
    fn ring(&self) -> &Ring {
        if let Some(ring) = self.get() {
            return ring;
        }
        let made = Box::into_raw(Box::new(Ring::new()));
        let none = std::ptr::null_mut();
        match self.ring.compare_exchange(none, made, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: the ring lives as long as the tracer from here on.
            Ok(_) => unsafe { &*made },
            Err(found) => {
                // SAFETY: it was not published.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: another thread's ring, which lives as long as the tracer.
                unsafe { &*found }
            }
        }
    }

    /// Appends the unread records, as far as there is room.
    fn read(&self, read: &mut TraceRead) {
        let Some(ring) = self.get() else { return };
        let (next, head) = (self.next.load(Ordering::Relaxed), ring.head());
        let oldest = next.max(head.saturating_sub(RECORDS));
        let room = (READ_MAX - read.records.len()) as u64;
        let end = head.min(oldest + room);
        read.lost += oldest - next;
        read.has_more |= end < head;
        for number in oldest..end {
            match ring.get(number) {
                Some(words) => read.records.push(TraceRecord::unpack(words)),
                None => read.lost += 1,
            }
        }
        self.next.store(end, Ordering::Relaxed);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let ring = self.ring.load(Ordering::Acquire);
        if !ring.is_null() {
            // SAFETY: `ring` made it, and no other reference exists.
            drop(unsafe { Box::from_raw(ring) });
        }
    }
}

impl Ring {
    /// Adds a record.
    pub(crate) fn record(&self, record: TraceRecord) {
        self.push(record.pack());
    }
}

const QUEUED: u64 = 0;
const STARTED: u64 = 1;
const ENDED: u64 = 2;

impl TraceRecord {
    /// Time, item, `pwq << 32 | slot << 16 | cpu << 2 | kind`, and the kind's own value.
    fn pack(self) -> Words {
        let (kind, value) = match self.event {
            TraceEvent::Queued { thread } => (QUEUED, thread),
            TraceEvent::Started { function } => (STARTED, function as u64),
            TraceEvent::Ended { thread } => (ENDED, thread),
        };
        let cpu = u64::from(self.cpu) & 0x3fff;
        let place = u64::from(self.pwq) << 32 | u64::from(self.slot) << 16 | cpu << 2 | kind;
        [self.at_ns, self.item as u64, place, value]
    }

    fn unpack([at_ns, item, place, value]: Words) -> TraceRecord {
        let event = match place & 3 {
            QUEUED => TraceEvent::Queued { thread: value },
            STARTED => TraceEvent::Started { function: value as usize },
            _ => TraceEvent::Ended { thread: value },
        };
        TraceRecord {
            at_ns,
            event,
            item: item as usize,
            cpu: (place >> 2 & 0x3fff) as u32,
            slot: (place >> 16 & 0xffff) as u32,
            pwq: (place >> 32) as u32,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SOME: TraceRecord = TraceRecord {
        at_ns: 5,
        event: TraceEvent::Queued { thread: 7 },
        item: 0x1000,
        cpu: 0x3fff,
        slot: 0xfffe,
        pwq: 0xff_fffe,
    };

    #[test]
    fn a_record_is_what_was_packed() {
        let events =
            [TraceEvent::Started { function: usize::MAX }, TraceEvent::Ended { thread: 9 }];
        for event in [SOME.event].into_iter().chain(events) {
            let record = TraceRecord { event, ..SOME };
            assert_eq!(TraceRecord::unpack(record.pack()), record);
        }
    }

    #[test]
    fn tokens_are_renewed_each_millisecond_until_the_end() {
        let tracer = Tracer::new();
        assert!(!tracer.has_tokens(), "off");
        tracer.start(0, 2 * INTERVAL_NS, [0].into_iter());
        for _ in 0..ITEMS_PER_MS {
            assert!(tracer.take_token());
        }
        assert!(!tracer.has_tokens() && !tracer.take_token());
        tracer.heartbeat(INTERVAL_NS - 1);
        assert!(!tracer.has_tokens(), "too early");
        tracer.heartbeat(INTERVAL_NS);
        assert!(tracer.has_tokens());
        tracer.heartbeat(2 * INTERVAL_NS);
        assert!(!tracer.has_tokens(), "ended by itself");
    }

    #[test]
    fn a_worker_that_found_the_old_end_leaves_a_new_trace_on() {
        let tracer = Tracer::new();
        tracer.start(0, INTERVAL_NS, [0].into_iter());
        let old = tracer.due(INTERVAL_NS).expect("it has ended");
        let (now, until) = (2 * INTERVAL_NS, 9 * INTERVAL_NS);
        tracer.start(now, until, [0].into_iter());
        tracer.take_turn(old);
        assert!(tracer.has_tokens());
        tracer.heartbeat(now + INTERVAL_NS);
        assert!(tracer.has_tokens(), "they are renewed");
        // A stop in the same place.
        let old = tracer.due(4 * INTERVAL_NS).expect("a renewal");
        tracer.stop();
        tracer.take_turn(old);
        assert!(!tracer.has_tokens());
    }

    #[test]
    fn records_that_nothing_read_in_time_are_counted_as_lost() {
        let tracer = Tracer::new();
        tracer.start(0, NEVER, [0].into_iter());
        let ring = tracer.submitters[0].ring();
        (0..RECORDS + 10).for_each(|at_ns| ring.push(TraceRecord { at_ns, ..SOME }.pack()));
        let read = tracer.read();
        assert_eq!((read.lost, read.records.len() as u64), (10, RECORDS));
        assert_eq!((read.records[0].at_ns, read.has_more), (10, false));
        assert_eq!(tracer.read().records, [], "each is read once");
        let _reading = tracer.reading().expect("the only reader");
        assert!(tracer.reading().is_none());
    }
}
