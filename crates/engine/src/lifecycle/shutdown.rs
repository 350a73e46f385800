//! Orderly shutdown: no more items are accepted, existing items run or are cancelled, and the
//! caller learns what did not end.
//!
//! ```text
//! shut, or sealed:      every queue's gate, also those of queues created later
//! armed items:          removed and released
//! pending items:        Drain: run     Cancel: removed and released
//! running items:        waited for, at most until the deadline
//! destructors:          the same
//! sealed:               in any case, nothing is accepted from here on
//! idle workers:         retire
//! ```
//!
//! **No queue is missed.** The shutdown and a new queue are a Dekker pair:
//!
//! ```text
//! shutdown                               a new queue
//! W1: set the engine's mark              W2: register the queue
//! R1: mark each registered queue         R2: engine's mark ? mark the queue
//! ```
//!
//! The mark is sequentially consistent, and the registry has a lock: one side sees the other. A
//! submitter that read an open gate just before it was shut may still push. Its item is removed
//! or run by the rounds that follow. If it comes after all of them, a worker that the submitter
//! itself wakes runs it. For an item that is being armed, see `arm_owned`.
//!
//! **User code.** Taking items off calls none. They are released one at a time, by threads that
//! hold no locks and that the caller need not wait for: [`disposal`](crate::lifecycle::disposal).
//!
//! **It ends.** In Drain mode items may queue items without end: the deadline stops that.
//! No lock is held during a wait, and each wait is a flush with a timeout.

use std::sync::Arc;

use crate::engine::Engine;
use crate::queue::owner::Owner;
use crate::queue::pwq::{COLOURS, Pwq};
use crate::queue::{QueueError, SEALED, SHUT, Wq};
use crate::words::dump::{QueueDump, Shutdown, ShutdownReport, Unfinished, WorkerDump};
use crate::words::host::Host;
use crate::words::host::thread::Frame;
use crate::words::item::{Location, WorkList};
use crate::words::sync::{AtomicU32, Ordering};
use crate::words::wake::Waiters;
use crate::worker::Caller;

/// The least time for destructors, however small the limit.
const RELEASE_NS: u64 = 50_000_000;

/// The progress of an engine's shutdown: `SHUT`, `SEALED`.
pub(crate) struct ShutdownState(AtomicU32);

impl ShutdownState {
    pub(crate) fn new() -> ShutdownState {
        ShutdownState(AtomicU32::new(0))
    }
}

impl<H: Host> Engine<H> {
    /// Whether a shutdown has begun.
    pub fn is_shut_down(&self) -> bool {
        self.shutdown_state.0.load(Ordering::SeqCst) != 0
    }

    /// Whether no queue accepts anything any more: a draining shutdown has ended, or a cancelling one
    /// has begun.
    pub fn accepts_nothing(&self) -> bool {
        self.shutdown_state.0.load(Ordering::SeqCst) & SEALED != 0
    }

    /// Ends the engine's work, within `limit_ns` nanoseconds: see the module. Returns when nothing
    /// is left or the time is over. Queues that are created later accept nothing. Destructors get
    /// 50 ms, however small the limit is.
    ///
    /// A second call repeats this: it waits for the items that the first one left, and a `Cancel`
    /// removes the items that a `Drain` left. Concurrent calls both do so.
    ///
    /// # Errors
    /// The caller is inside a work item: it would wait for itself. Nothing was done.
    pub fn shutdown(&self, how: Shutdown, limit_ns: u64) -> Result<ShutdownReport, QueueError> {
        if self.caller().is_inside_an_item() {
            return Err(QueueError::WouldDeadlock);
        }
        let began = self.host().now();
        let deadline = began.saturating_add(limit_ns);
        let dispose_until = deadline.max(began.saturating_add(RELEASE_NS));
        self.shutdown_state.mark_all_queues(
            self,
            match how {
                Shutdown::Drain => SHUT,
                Shutdown::Cancel => SHUT | SEALED,
            },
        );
        let mut released = remove_timed(self);
        let complete = loop {
            if how == Shutdown::Cancel {
                // Regardless of the limit, which bounds the wait for running items only.
                released += remove_pending(self);
            }
            let mut settled = self.disposal.dispose_until(self, dispose_until);
            self.for_each_queue(|wq| settled &= wq.settle_until(Some(deadline)));
            if is_quiet(self) {
                break true;
            }
            if !settled || self.host().now() >= deadline {
                break false;
            }
        };
        self.shutdown_state.mark_all_queues(self, SHUT | SEALED);
        released += remove_timed(self);
        self.disposal.dispose_until(self, dispose_until);
        let unfinished = if complete { Vec::new() } else { unfinished(self) };
        let (releasing, unreleased) = self.disposal.not_disposed(self);
        // Unfinished items still need the watcher, so end only the pools then.
        if unfinished.is_empty() {
            self.retire()
        } else {
            self.for_each_pool(|pool| pool.retire(self));
        }
        let took_ns = self.host().now().saturating_sub(began);
        Ok(ShutdownReport { how, took_ns, released, unfinished, releasing, unreleased })
    }
}

impl ShutdownState {
    /// Gives the marks of an engine that shuts down to a new queue, which is registered already.
    pub(crate) fn shut_late_queue<H: Host>(&self, wq: &Wq<H>) {
        // SeqCst: R2 of the module's diagram.
        let marks = self.0.load(Ordering::SeqCst);
        if marks != 0 {
            wq.gate.shut(marks);
        }
    }

    /// In a forked child: ends the parent's shutdown, if one has begun. The child has no items for
    /// which a drain waits, and the thread that seals the queues may not exist there.
    pub(super) fn end_in_child<H: Host>(&self, owners: &[Arc<Owner<H>>]) {
        if self.0.load(Ordering::SeqCst) != 0 {
            self.0.fetch_or(SEALED, Ordering::SeqCst);
            owners.iter().for_each(|owner| owner.wq().gate.shut(SHUT | SEALED));
        }
    }

    fn mark_all_queues<H: Host>(&self, engine: &Engine<H>, marks: u32) {
        self.0.fetch_or(marks, Ordering::SeqCst);
        engine.for_each_queue(|wq| wq.gate.shut(marks));
    }
}

impl<'a, H: Host> Caller<'a, H> {
    /// Calls `f` as if from inside an item of the queue. `f` may drop the last handle of a queue
    /// that still runs items, and that drop must not wait for them on this thread. `f` does not
    /// unwind.
    pub(crate) fn run_as_in_an_item(self, wq: Option<&Wq<H>>, f: impl FnOnce()) {
        let thread = self.thread;
        let wq = wq.map_or(std::ptr::null(), Wq::identity);
        // No slot has this number.
        let frame = Frame { slot: u32::MAX, wq, outer: thread.frame() };
        thread.set_frame(&frame);
        f();
        thread.set_frame(frame.outer);
    }
}

/// Whether no queue has queued or running items: two surveys in a row find none, and the
/// same number of items spliced so far.
fn is_quiet<H: Host>(engine: &Engine<H>) -> bool {
    let survey = || {
        let (mut idle, mut items) = (true, 0_u64);
        engine.for_each_queue(|wq| {
            let (quiet, spliced) = wq.survey();
            idle &= quiet;
            items += spliced;
        });
        (idle, items)
    };
    let first = survey();
    first.0 && survey() == first
}

/// Removes all items that are armed or wait for a grace period, to be released. Returns their
/// number.
fn remove_timed<H: Host>(engine: &Engine<H>) -> u64 {
    let mut released = engine.grace.release_all(engine);
    engine.for_each_pool(|pool| released += pool.release_armed(engine));
    released
}

fn unfinished<H: Host>(engine: &Engine<H>) -> Vec<Unfinished> {
    let dump = engine.dump();
    let busy = dump.queues.into_iter().filter(|queue| queue.in_flight() > 0);
    let workers: Vec<WorkerDump> =
        dump.pools.into_iter().flat_map(|pool| pool.workers).chain(dump.helpers).collect();
    let with_workers = |queue: QueueDump| {
        let runs = |worker: &&WorkerDump| queue.slots.contains(&worker.slot);
        let workers = workers.iter().filter(runs).cloned().collect();
        Unfinished { at_ns: dump.at_ns, queue, workers }
    };
    busy.map(with_workers).collect()
}

/// Removes all pending items of all queues, to be released. Returns their number.
fn remove_pending<H: Host>(engine: &Engine<H>) -> u64 {
    let mut released = 0;
    for owner in engine.registry.owners() {
        let list = engine.disposal.open(Some(&owner));
        let pwqs = owner.wq().pwq_ids().into_iter();
        for pwq in pwqs.filter_map(|(id, _)| engine.pwqs.get(id)) {
            released += remove_pending_of(engine, &owner, pwq, list);
        }
        engine.disposal.close(engine, list);
        Owner::let_go(owner);
    }
    released
}

/// The same for one pwq, into an open list of the disposal. Calls no user code: the items stay
/// pending, and are in a list again before the pwq's lock is released.
fn remove_pending_of<H: Host>(
    engine: &Engine<H>,
    owner: &Arc<Owner<H>>,
    pwq: &Pwq<H>,
    list: u32,
) -> u64 {
    let wq = owner.wq();
    let mut inner = pwq.lock();
    pwq.splice(&mut inner);
    if pwq.is_quiet() {
        return 0;
    }
    let mut items = inner.worklist.take();
    inner.queued = 0;
    // Items that were taken and not started may be in any slot: a neighbour's worker, a helper.
    // Under the pwq lock no item moves from the worklist to a slot or back.
    let mut unplug = false;
    // An owner that is in no item has nothing scheduled, or is about to run it.
    let slots = (0..).map_while(|id| engine.slots.get(id));
    for slot in slots.filter(|slot| slot.is_at_work()) {
        unplug |= slot.lock_remote(engine.host()).take_all_of(pwq.id, &mut items);
    }
    let (mut counts, mut waiters) = ([0_u32; COLOURS], Waiters::new());
    let mut with_destructors = WorkList::new();
    loop {
        let item = items.pop_front();
        // SAFETY: the item came off a list that we own: it is live and ours.
        let Some(work) = (unsafe { item.as_ref() }) else { break };
        let ticket = work.ticket();
        counts[ticket.colour()] += 1;
        if ticket.waited_for() {
            // The waiters check again, and release the item themselves if that is due.
            let mut those = inner.waiters.take_matching(item.addr());
            waiters.append(those.take_to_recheck());
        }
        work.set_placement(Location::Detached, ticket.with_waited_for(false));
        if work.func().is_foreign() {
            // Another language counts no holders: once it is idle, its holder owns it again.
            work.word.release(work.word.owned());
        } else {
            // SAFETY: in no list now.
            unsafe { with_destructors.push_back(item) };
        }
    }
    engine.disposal.add(list, with_destructors);
    // As in a cancel: the deferred item of an ordered queue keeps the queue plugged.
    let ready = unplug && pwq.is_ordered() && pwq.unplug(&mut inner, &mut waiters);
    drop(inner);
    if ready {
        pwq.make_ready(engine);
    }
    // Before any item is released: an item may hold the queue itself, whose end waits for
    // these counts.
    for (colour, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
        if pwq.finish(colour, count) {
            wq.end_colour(engine, pwq, colour);
        }
    }
    waiters.complete(engine.host());
    counts.iter().map(|&count| u64::from(count)).sum()
}
