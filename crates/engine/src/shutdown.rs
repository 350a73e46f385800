//! Ending in order: no more work comes in, what is there is worked off or taken back, and whoever asked
//! hears what did not end.
//!
//! ```text
//! shut, or sealed:      every queue's gate, those that are made later too
//! armed items:          taken off, let go of
//! pending items:        Drain: run     Cancel: taken off, let go of
//! running items:        waited for, at most until the deadline
//! sealed:               whatever happens, nothing is taken from here on
//! idle workers:         go
//! ```
//!
//! **Nobody slips through.** The engine's mark is set first, and then each registered queue's; a new
//! queue is registered first and then looks at the mark. Both are sequentially consistent: one sees
//! the other. A submitter that read an open gate just before it was shut may still push; its item
//! is taken off or run by the rounds that follow, or, if it comes after all of them, run by a worker that
//! it brings up itself. An item that is being armed is treated likewise: see `arm_owned`.
//!
//! **It ends.** In Drain mode items may queue items for as long as they like: the deadline ends that.
//! No lock is held while anything is waited for, and each wait is a flush that gives up in time.

use std::ptr::NonNull;

use crate::dump::{QueueDump, WorkerDump};
use crate::engine::Engine;
use crate::host::Host;
use crate::pwq::{COLOURS, Pwq};
use crate::queue::{QueueError, SEALED, SHUT, Wq};
use crate::sync::{AtomicU32, Ordering};
use crate::thread::Frame;
use crate::wake::Waiters;
use crate::work::{Place, Work, WorkList};

/// What becomes of items that have not started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Shutdown {
    /// They run, and so does what they queue. Delayed items whose time has not come do not.
    Drain,
    /// They are let go of without being run. Only what runs is waited for.
    Cancel,
}

/// What came of a shutdown.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ShutdownReport {
    /// What was asked for.
    pub how: Shutdown,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
    /// Items that were let go of without being run, delayed ones included.
    pub released: u64,
    /// Queues with items that did not end in time; none if all did.
    pub unfinished: Vec<Unfinished>,
}

/// A queue that was not empty in time.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Unfinished {
    /// When this was so, on the host's clock, in nanoseconds.
    pub at_ns: u64,
    /// The queue.
    pub queue: QueueDump,
    /// Who runs its items.
    pub workers: Vec<WorkerDump>,
}

impl ShutdownReport {
    /// Whether everything ended in time.
    pub fn is_complete(&self) -> bool {
        self.unfinished.is_empty()
    }
}

impl Unfinished {
    /// Items that have not started: those that wait to be taken, and those behind or set aside for an
    /// item that runs.
    pub fn pending(&self) -> usize {
        let taken = |worker: &WorkerDump| worker.behind.total + worker.set_aside.total;
        self.queue.pending() + self.workers.iter().map(taken).sum::<usize>()
    }

    /// Items that run.
    pub fn running(&self) -> usize {
        self.workers.len()
    }
}

/// How far the shutdown of an engine is: `SHUT`, `SEALED`.
pub(crate) struct Ending(AtomicU32);

impl Ending {
    pub(crate) fn new() -> Ending {
        Ending(AtomicU32::new(0))
    }
}

impl<H: Host> Engine<H> {
    /// Whether a shutdown has begun.
    pub fn is_shut_down(&self) -> bool {
        self.ending.0.load(Ordering::SeqCst) != 0
    }

    /// Gives a new queue, which is registered already, the marks of an engine that shuts down.
    pub(crate) fn shut_late_queue(&self, wq: &Wq<H>) {
        let marks = self.ending.0.load(Ordering::SeqCst);
        if marks != 0 {
            wq.shut(marks);
        }
    }

    fn shut_all(&self, marks: u32) {
        self.ending.0.fetch_or(marks, Ordering::SeqCst);
        self.for_each_queue(|wq| wq.shut(marks));
    }

    /// Ends the engine's work, within `limit_ns` nanoseconds: see the module. Returns when nothing is
    /// left or the time is over. Queues that are made later take nothing.
    ///
    /// A second call does the same again: it waits for what the first one left, and a `Cancel` takes
    /// off what a `Drain` left. Calls at the same time both do that.
    ///
    /// # Errors
    /// The caller is inside a work item: it would wait for itself. Nothing was done.
    pub fn shutdown(&self, how: Shutdown, limit_ns: u64) -> Result<ShutdownReport, QueueError> {
        if self.is_inside_an_item() {
            return Err(QueueError::WouldDeadlock);
        }
        let began = self.host().now();
        let deadline = began.saturating_add(limit_ns);
        self.shut_all(match how {
            Shutdown::Drain => SHUT,
            Shutdown::Cancel => SHUT | SEALED,
        });
        let mut released = self.release_all_armed() + self.release_graced();
        let complete = loop {
            if how == Shutdown::Cancel {
                // Whatever the limit: it bounds the wait for what runs.
                self.for_each_queue(|wq| released += self.release_pending(wq));
            }
            let mut settled = true;
            self.for_each_queue(|wq| settled &= wq.settle_until(Some(deadline)));
            if self.is_quiet() {
                break true;
            }
            if !settled || self.host().now() >= deadline {
                break false;
            }
        };
        self.shut_all(SHUT | SEALED);
        released += self.release_all_armed() + self.release_graced();
        let unfinished = if complete { Vec::new() } else { self.unfinished() };
        // What is left needs somebody who looks again.
        if unfinished.is_empty() {
            self.retire()
        } else {
            self.retire_pools()
        }
        let took_ns = self.host().now().saturating_sub(began);
        Ok(ShutdownReport { how, took_ns, released, unfinished })
    }

    /// Whether nothing is queued or runs on any queue: two surveys in a row that find nothing, and the
    /// same number of items that ever were.
    fn is_quiet(&self) -> bool {
        let survey = || {
            let (mut idle, mut items) = (true, 0_u64);
            self.for_each_queue(|wq| {
                let (quiet, spliced) = wq.survey();
                idle &= quiet;
                items += spliced;
            });
            (idle, items)
        };
        let first = survey();
        first.0 && survey() == first
    }

    fn release_all_armed(&self) -> u64 {
        let mut released = 0;
        self.for_each_pool(|pool| released += self.release_armed(pool));
        released
    }

    fn unfinished(&self) -> Vec<Unfinished> {
        let dump = self.dump();
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

    /// Takes off everything that is pending on a queue and lets go of it. How many items that were.
    fn release_pending(&self, wq: &Wq<H>) -> u64 {
        let pwqs = wq.pwq_ids().into_iter().filter_map(|(id, _)| self.pwqs().get(id));
        pwqs.map(|pwq| self.release_pending_of(wq, pwq)).sum()
    }

    fn release_pending_of(&self, wq: &Wq<H>, pwq: &Pwq<H>) -> u64 {
        let mut inner = pwq.lock();
        pwq.splice(&mut inner);
        if pwq.is_quiet() {
            return 0;
        }
        let mut items = inner.worklist.take();
        inner.queued = 0;
        // What was taken and not started may be in any slot: a neighbour's worker, a helper. Under the
        // pwq lock nothing gets from the worklist to a slot or back.
        let mut unplug = false;
        // An owner that is in no item has nothing lined up, or is about to run it.
        let slots = (0..).map_while(|id| self.slots().get(id));
        for slot in slots.filter(|slot| slot.is_at_work()) {
            unplug |= slot.lock_remote(self.host()).take_all_of(pwq.id, &mut items);
        }
        let (mut counts, mut waiters) = ([0_u32; COLOURS], Waiters::new());
        for_each(&items, |item| {
            let ticket = item.ticket();
            counts[ticket.colour()] += 1;
            if ticket.waited_for() {
                waiters.append(inner.waiters.take_matching(std::ptr::from_ref(item).addr()));
            }
            item.set_spot(Place::Hands, ticket.with_waited_for(false));
        });
        // As in a cancel: an ordered queue's item that was set aside holds the queue's place.
        let ready = unplug && pwq.is_ordered() && pwq.unplug(&mut inner);
        drop(inner);
        if ready {
            self.make_ready(pwq);
        }
        // Before anything is let go of: what an item holds may be the queue itself, whose end waits for
        // these counts.
        for (colour, &count) in counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            if pwq.finish(colour, count) {
                wq.colour_over(self, pwq, colour);
            }
        }
        waiters.complete(self.host());
        let mut released = 0;
        self.as_in_an_item(Some(wq), || {
            while let Some(item) = NonNull::new(items.pop_front()) {
                // SAFETY: it came off its list: it is live and ours, until it is let go of.
                unsafe {
                    let (word, func) = (&item.as_ref().word, item.as_ref().func());
                    // From here on it is its holder's, who may be waiting for just this.
                    word.release(word.owned());
                    self.let_go(item, func);
                }
                released += 1;
            }
        });
        released
    }

    /// Calls `f` as if from inside an item of the queue: what an item's holder drops may be the last
    /// handle of a queue that still runs something, and must not wait for that here. `f` does not
    /// unwind.
    pub(crate) fn as_in_an_item(&self, wq: Option<&Wq<H>>, f: impl FnOnce()) {
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*self.host().thread() };
        let wq = wq.map_or(std::ptr::null(), Wq::identity);
        // No slot has this number.
        let frame = Frame { slot: u32::MAX, wq, outer: thread.frame() };
        thread.set_frame(&frame);
        f();
        thread.set_frame(frame.outer);
    }
}

/// Visits the items of a list that the caller holds.
fn for_each(items: &WorkList, mut f: impl FnMut(&Work)) {
    let mut item = items.front();
    // SAFETY: the items of a list are live and the caller's.
    while let Some(work) = unsafe { item.as_ref() } {
        f(work);
        // SAFETY: as above.
        item = unsafe { <Work as crate::inbox::Node>::next(item) };
    }
}
