//! Rescuers: forward progress for queues that must not depend on a new thread.
//!
//! A queue with `MEM_RECLAIM` has a thread of its own, made with the queue, that does nothing as
//! long as its pools can help themselves. A pool cannot if it has work, wants one more worker for it, has
//! nobody who is idle, and no thread can be made. Then it sends a *mayday*: every ready pwq whose queue has a
//! rescuer is marked, and that rescuer is woken. It takes marked pwqs one after the other, and of each
//! one item at a time, up to a batch; then it is the next one's turn. On leaving it kicks the pool.
//!
//! The rescuer takes items as a worker does: it takes the pwq off the pool's list, takes an item under
//! the pwq lock as one of those that hold the pwq, and puts the pwq back if more is left. So
//! `max_active` and order are kept. It does not count in the pool. Should the pwq have left the list, a
//! worker has it; the rescuer finds what that one has left, or nothing.
//!
//! ```text
//! who sends the mayday                  rescuer
//! pwq.mayday = pool                     one of the queue's pwqs is marked: mayday.swap(0)
//! wake its event                        none is: park on the event
//! ```
//!
//! A wake is remembered by the event, so that a mark made after the rescuer's look ends its park at
//! once. The event is in a run slot, which lives as long as the engine: a mayday that comes when the
//! queue has just gone wakes nobody, or a later owner of the slot for nothing.
//!
//! The kernel's `rescuer_thread()` and `send_mayday()` are the model.

use std::sync::Arc;

use crate::cpus::Cpus;
use crate::engine::Engine;
use crate::host::{Host, WorkerSpec};
use crate::pool::Pool;
use crate::pwq::{ALONE, Pwq, Taken};
use crate::queue::{QueueError, Wq};
use crate::sync::{AtomicBool, Link, Ordering};
use crate::wake::WakeToken;

/// Items that a rescuer runs for one pwq before it looks after the next (the kernel's
/// `RESCUER_BATCH`).
const RESCUER_BATCH: u32 = 16;
/// How long a pool is without help before it calls again (the kernel's `MAYDAY_INTERVAL`).
pub(crate) const MAYDAY_INTERVAL_NS: u64 = 100_000_000;
/// Ready pwqs that one mayday looks at.
const MAYDAYS_AT_ONCE: usize = 64;

/// A queue's rescuer.
pub(crate) struct Rescuer<H: Host> {
    /// The slot that it runs items in; it sleeps on that slot's event.
    slot: u32,
    /// Whether its thread was made.
    started: AtomicBool,
    stop: AtomicBool,
    /// Woken when the thread is done with the queue.
    gone: H::Event,
}

impl<H: Host> Rescuer<H> {
    /// Takes a slot for a rescuer whose thread is still to be made.
    pub(crate) fn new(engine: &Engine<H>) -> Result<Rescuer<H>, QueueError> {
        let slot = engine.allocate_slot();
        let slot = slot.ok_or_else(|| QueueError::NoThread("no run slot is free".to_owned()))?;
        Ok(Rescuer {
            slot,
            started: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            gone: H::Event::default(),
        })
    }

    /// In a child after a fork: its thread is not there.
    pub(crate) fn forget(&self, host: &H) {
        self.started.store(false, Ordering::SeqCst);
        self.stop.store(false, Ordering::SeqCst);
        host.renew(&self.gone);
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started.load(Ordering::SeqCst)
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }
}

/// The address of a queue, for its rescuer, which the queue outlives.
struct Rescued<H: Host>(*const Wq<H>);

// SAFETY: a shared reference in all but name.
unsafe impl<H: Host> Send for Rescued<H> {}

impl<H: Host> Wq<H> {
    /// Makes the rescuer's thread. The queue must not move or go before [`Wq::stop_rescuer`].
    pub(crate) fn start_rescuer(&self, rescuer: &Rescuer<H>) -> Result<(), QueueError> {
        let placed: *const Cpus = self.engine().cpus();
        let spec = WorkerSpec {
            name: format!("uw/R-{}", self.name()),
            cpus: self.cpus(),
            nice: crate::queue::NICE_HIGHPRI,
        };
        let (engine, rescued, slot) = (self.engine().clone(), Rescued(self), rescuer.slot);
        let placed = Link(placed.cast_mut());
        let main = move || {
            let (rescued, placed) = (rescued, placed);
            rescuer_main(&engine, rescued.0, slot, placed.0);
        };
        rescuer.started.store(true, Ordering::SeqCst);
        self.engine().host().spawn(&spec, Box::new(main)).map_err(|error| {
            rescuer.started.store(false, Ordering::SeqCst);
            QueueError::NoThread(error.0)
        })
    }

    /// Waits until the rescuer, if there is one, does not use the queue any more. Once.
    pub(crate) fn stop_rescuer(&self) {
        let (engine, Some(rescuer)) = (self.engine(), self.rescuer()) else { return };
        if !rescuer.started.load(Ordering::SeqCst) {
            return engine.slots().release(rescuer.slot);
        }
        rescuer.stop.store(true, Ordering::SeqCst);
        let event = &raw const engine.slot(rescuer.slot).event;
        // SAFETY: slots live as long as the engine.
        unsafe { WakeToken::<H>::new(event) }.send(engine.host());
        while !engine.host().park(&rescuer.gone, None) {}
    }

    /// Runs a batch of a marked pwq: of the first one behind `last`, and round again. Which one it was.
    fn answer_mayday(&self, slot: u32, last: u32) -> Option<u32> {
        let mut next: Option<(bool, u32)> = None;
        self.pwqs().for_each(|pwq| {
            if pwq.mayday.load(Ordering::SeqCst) != 0 {
                let turn = (pwq.id <= last, pwq.id);
                next = Some(next.map_or(turn, |known| known.min(turn)));
            }
        });
        let (_, id) = next?;
        let pwq = self.engine().pwqs().get(id).expect("a queue's pwq has a place");
        // Nobody but the rescuer takes a mark away.
        let pool = pwq.mayday.swap(0, Ordering::SeqCst) - 1;
        self.engine().rescue(pwq, self.engine().pool(pool), slot);
        next.map(|(_, id)| id)
    }
}

fn rescuer_main<H: Host>(
    engine: &Arc<Engine<H>>,
    wq: *const Wq<H>,
    slot: u32,
    placed: *const Cpus,
) {
    let host = engine.host();
    // SAFETY: the host keeps the state for as long as this thread lives.
    let thread = unsafe { &*host.thread() };
    thread.set_rescuer(true);
    // SAFETY: the queue waits for `gone`, which is woken last.
    let queue = unsafe { &*wq };
    let rescuer = queue.rescuer().expect("a rescuer that runs is there");
    engine.enter_thread(engine.slot(slot), &queue.cpus(), placed);
    let mut last = 0;
    loop {
        while let Some(answered) = queue.answer_mayday(slot, last) {
            last = answered;
        }
        if rescuer.stop.load(Ordering::SeqCst) {
            break;
        }
        let _ = host.park(&engine.slot(slot).event, None);
    }
    thread.set_rescuer(false);
    engine.leave_thread(engine.slot(slot));
    engine.slots().release(slot);
    // SAFETY: the queue is there until this wake was seen, and not touched afterwards.
    unsafe { WakeToken::<H>::new(&raw const rescuer.gone) }.send(host);
}

impl<H: Host> Engine<H> {
    /// Whether the calling thread is a queue's rescuer.
    pub fn is_rescuer(&self) -> bool {
        // SAFETY: the host's promise for the calling thread.
        unsafe { &*self.host().thread() }.is_rescuer()
    }

    /// Whether a pool has work, and wants a worker for it that it does not have.
    fn is_helpless(&self, pool: &Pool<H>) -> bool {
        let counts = pool.state.counts();
        pool.looks_ready() && counts.running < pool.target() && counts.idle == 0
    }

    /// No worker can be made for `pool`: calls the rescuers of the queues that wait there.
    #[cold]
    pub(crate) fn send_maydays(&self, pool: &Pool<H>) {
        if !self.is_helpless(pool) {
            return;
        }
        let (mut rescuers, mut count) = ([0_u32; MAYDAYS_AT_ONCE], 0);
        pool.for_each_ready(self.host(), &mut pool.lock(), |pwq| {
            // A pwq on a ready list is live, though its queue may be gone; then nothing is in it.
            if let Some(slot) = pwq.rescuer()
                && count < MAYDAYS_AT_ONCE
                && pwq.mayday.swap(pool.id + 1, Ordering::SeqCst) == 0
            {
                rescuers[count] = slot;
                count += 1;
            }
        });
        for &slot in &rescuers[..count] {
            let event = &raw const self.slot(slot).event;
            // SAFETY: slots live as long as the engine.
            unsafe { WakeToken::<H>::new(event) }.send(self.host());
        }
    }

    /// Runs items of `pwq` in the caller's slot, one at a time, until its batch is over.
    fn rescue(&self, pwq: &Pwq<H>, pool: &Pool<H>, id: u32) {
        let (host, slot) = (self.host(), self.slot(id));
        // SAFETY: the host's promise for the calling thread.
        let thread = unsafe { &*host.thread() };
        self.go_to(slot, &pool.spec().cpus);
        let mut budget = RESCUER_BATCH;
        while budget > 0 {
            let pinned = pool.take_ready(host, &mut pool.lock(), pwq);
            // A worker that leaves all the rest to others takes one item.
            let mut ready = |pwq: &Pwq<H>| self.make_ready(pwq);
            let taken = pwq.take(host, self.slots(), (id, slot), ALONE, &mut ready);
            let more = matches!(taken, Taken::Some { more: true, .. });
            if more && pwq.claim_ready() {
                pool.push_ready(pwq).settle(self);
            }
            if pinned {
                self.unpin(pwq);
            }
            let Taken::Some { count, .. } = taken else { break };
            let began = host.now();
            slot.batch.set(pwq.id, began);
            pool.took_at.set(began as usize);
            self.run_batch((id, slot), None, thread, pwq);
            if pwq.release(host.now().saturating_sub(began), count, &mut ready) {
                pool.push_ready(pwq).settle(self);
            }
            budget = budget.saturating_sub(count);
        }
        if budget == 0 && self.is_helpless(pool) {
            // Its turn comes again when the others had theirs.
            pwq.mayday.store(pool.id + 1, Ordering::SeqCst);
        }
        self.settle(pool);
    }
}
