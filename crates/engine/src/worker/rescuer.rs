//! Rescuers: forward progress for queues that must not depend on a new thread.
//!
//! A queue with `MEM_RECLAIM` has a thread of its own, created with the queue: its rescuer. The
//! rescuer sleeps while the queue's pools can help themselves. A pool cannot if it has work, needs
//! another worker for it, has no idle worker, and no thread can be created. Then it sends a
//! *mayday*: it marks every ready pwq whose queue has a rescuer, and wakes that rescuer. The
//! rescuer takes the marked pwqs in turn. Of each it runs items, one at a time, up to a batch. When
//! it leaves a pwq it settles the pool.
//!
//! The rescuer takes items as a worker does. It takes the pwq off the pool's list, takes an item
//! under the pwq lock and with a permit, and puts the pwq back if items are left. So `max_active`
//! and order are kept. The rescuer is not in the pool's running count. If the pwq has left the
//! list, a worker has it; the rescuer finds the items that the worker left, or none.
//!
//! ```text
//! thread that sends the mayday          rescuer
//! pwq.mayday = pool                     one of the queue's pwqs is marked: mayday.swap(0)
//! wake its event                        none is marked: park on the event
//! ```
//!
//! The event remembers a wake, so a mark made after the rescuer's scan ends its park at once. The
//! event is in a run slot, which lives as long as the engine. A mayday that comes when the queue
//! has just been destroyed wakes no thread, or wakes a later owner of the slot, which parks again.
//!
//! The kernel's `rescuer_thread()` and `send_mayday()` are the model.

use std::sync::Arc;

use uwork_policy::cpuset::CpuSet;

use crate::account;
use crate::engine::Engine;
use crate::pool::Pool;
use crate::queue::pwq::{Pwq, Share, Taken};
use crate::queue::{QueueError, Wq};
use crate::slot::Slot;
use crate::words::host::{Cpus, Event, Host, Places, Runner, ThreadKind, WorkerSpec};
use crate::words::sync::{AtomicBool, Link, Ordering};
use crate::words::wake::WakeToken;
use crate::worker::batch::BatchRunner;

/// Items that a rescuer runs for one pwq before it serves the next (the kernel's `RESCUER_BATCH`).
const RESCUER_BATCH: u32 = 16;
/// How long a pool without help waits before it calls again (the kernel's `MAYDAY_INTERVAL`).
pub(crate) const MAYDAY_INTERVAL_NS: u64 = 100_000_000;
/// How many ready pwqs a single mayday marks.
const MAYDAYS_AT_ONCE: usize = 64;

/// A queue's rescuer.
pub(crate) struct Rescuer<H: Host> {
    /// The slot that it runs items in; it parks on that slot's event.
    slot: u32,
    /// Whether its thread was created.
    started: AtomicBool,
    stop: AtomicBool,
    /// Woken when the thread no longer uses the queue.
    finished: H::Event,
}

impl<H: Host> Rescuer<H> {
    /// Allocates a slot for a rescuer, whose thread is created later.
    pub(crate) fn new(engine: &Engine<H>) -> Result<Rescuer<H>, QueueError> {
        let slot = Slot::allocate(&engine.slots);
        let slot = slot.ok_or_else(|| QueueError::NoThread("no run slot is free".to_owned()))?;
        Ok(Rescuer {
            slot,
            started: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            finished: H::Event::default(),
        })
    }

    /// In a child after a fork: its thread does not exist.
    pub(crate) fn forget(&self) {
        self.started.store(false, Ordering::SeqCst);
        self.stop.store(false, Ordering::SeqCst);
        self.finished.renew();
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

// SAFETY: equivalent to a shared reference, which the queue outlives.
unsafe impl<H: Host> Send for Rescued<H> {}

impl<H: Host> Wq<H> {
    /// Creates the rescuer's thread. The queue must stay in place until [`Wq::stop_rescuer`].
    pub(crate) fn start_rescuer(&self, rescuer: &Rescuer<H>) -> Result<(), QueueError> {
        let placed: *const Cpus = self.engine().cpus();
        let spec = WorkerSpec {
            name: format!("uw/R-{}", self.name()),
            cpus: self.cpus(),
            nice: crate::queue::NICE_HIGHPRI,
            runner: Some(Runner { kind: ThreadKind::Rescuer, queue: Some(self.name().to_owned()) }),
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

    /// Where the rescuer runs that has no items to run, on these CPUs of the queue.
    pub(crate) fn places_of_rescuer<'a>(&self, cpus: &'a CpuSet) -> Places<'a> {
        Places::all(cpus, self.is_per_cpu())
    }

    /// Waits until the rescuer, if there is one, no longer uses the queue. Call it once.
    pub(crate) fn stop_rescuer(&self) {
        let (engine, Some(rescuer)) = (self.engine(), self.rescuer()) else { return };
        if !rescuer.started.load(Ordering::SeqCst) {
            return engine.slots.release(rescuer.slot);
        }
        rescuer.stop.store(true, Ordering::SeqCst);
        let event = &raw const engine.slot(rescuer.slot).event;
        // SAFETY: slots live as long as the engine.
        unsafe { WakeToken::<H>::new(event) }.send(engine.host());
        while !engine.host().park(&rescuer.finished, None) {}
    }

    /// Runs a batch of a marked pwq: the next one after `last`, in cyclic order. Returns its id.
    fn answer_mayday(&self, slot: u32, last: u32) -> Option<u32> {
        let mut next: Option<(bool, u32)> = None;
        self.pwqs().for_each(|pwq| {
            if pwq.calls_rescuer() {
                let turn = (pwq.id <= last, pwq.id);
                next = Some(next.map_or(turn, |known| known.min(turn)));
            }
        });
        let (_, id) = next?;
        let pwq = self.engine().pwqs.get(id).expect("a queue's pwq has a place");
        // Only the rescuer clears a mark, so it is still set here.
        let pool = pwq.answer_call().expect("a mark that the rescuer alone clears");
        pwq.rescue(self.engine(), self.engine().pool(pool), slot);
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
    // SAFETY: the queue waits for `finished`, which is woken last.
    let queue = unsafe { &*wq };
    let rescuer = queue.rescuer().expect("a rescuer that runs is there");
    engine.slot(slot).place_thread(engine, queue.places_of_rescuer(&queue.cpus()), placed);
    let mut last = 0;
    loop {
        while let Some(answered) = queue.answer_mayday(slot, last) {
            last = answered;
        }
        if rescuer.stop.load(Ordering::SeqCst) {
            break;
        }
        host.outside_items(thread);
        let _ = host.park(&engine.slot(slot).event, None);
    }
    thread.set_rescuer(false);
    engine.slot(slot).forget_thread_number(engine);
    engine.slots.release(slot);
    // SAFETY: the queue lives until this wake is seen, and is not accessed afterwards.
    unsafe { WakeToken::<H>::new(&raw const rescuer.finished) }.send(host);
}

impl<H: Host> Engine<H> {
    /// Whether the calling thread is a queue's rescuer.
    pub fn is_rescuer(&self) -> bool {
        self.caller().thread.is_rescuer()
    }
}

impl<H: Host> Pwq<H> {
    /// Runs items of this pwq in the caller's slot, one at a time, until its batch is over.
    fn rescue(&self, engine: &Engine<H>, pool: &Pool<H>, id: u32) {
        let (host, slot) = (engine.host(), engine.slot(id));
        let thread = engine.caller().thread;
        slot.go_to(engine, pool.spec().places_in_pod());
        let mut budget = RESCUER_BATCH;
        while budget > 0 {
            let pinned = pool.take_ready(&mut pool.lock(), self);
            // A worker that leaves all the rest to others takes one item.
            let mut ready = |pwq: &Pwq<H>| pwq.make_ready(engine);
            let taken = self.take(
                (host, host.now()),
                (&engine.slots, (id, slot)),
                Share::One,
                None,
                &mut ready,
            );
            let more = matches!(taken, Taken::Some { more: true, .. });
            if more && self.claim_ready() {
                pool.push_ready(self).settle(engine);
            }
            if pinned {
                self.release_pin(engine);
            }
            let Taken::Some { count, estimate, waited_ns, .. } = taken else { break };
            let began = host.now();
            slot.batch.set(self.id, began, host.current_cpu());
            pool.note_batch(began);
            self.events.rescued.add(u64::from(count));
            let meter = account::CpuMeter::default();
            let batch = account::Batch::begin(engine, slot, &meter, (began, waited_ns), estimate);
            BatchRunner::new(engine, (id, slot), None).run_batch(thread, self, &batch.split);
            if self.release(host, batch.end(engine, slot, count), None, &mut ready) {
                pool.push_ready(self).settle(engine);
            }
            budget = budget.saturating_sub(count);
        }
        if budget == 0 && pool.is_helpless() {
            // Its turn comes again after those of the other pwqs.
            self.call_rescuer_again(pool.id);
        }
        pool.settle(engine);
    }
}

impl<H: Host> Pool<H> {
    /// Whether a pool has work and lacks a worker that it needs for it.
    fn is_helpless(&self) -> bool {
        let counts = self.state.counts();
        self.looks_ready() && counts.running < self.target() && counts.idle == 0
    }

    /// No worker can be spawned for this pool: calls the rescuers of the queues that wait there.
    #[cold]
    pub(crate) fn send_maydays(&self, engine: &Engine<H>) {
        if !self.is_helpless() {
            return;
        }
        let (mut rescuers, mut count) = ([0_u32; MAYDAYS_AT_ONCE], 0);
        self.for_each_ready(&mut self.lock(), |pwq| {
            // A pwq on a ready list is live. Its queue may be destroyed; then the pwq is empty.
            if let Some(slot) = pwq.rescuer()
                && count < MAYDAYS_AT_ONCE
                && pwq.call_rescuer(self.id)
            {
                pwq.events.maydays.add(1);
                rescuers[count] = slot;
                count += 1;
            }
        });
        for &slot in &rescuers[..count] {
            let event = &raw const engine.slot(slot).event;
            // SAFETY: slots live as long as the engine.
            unsafe { WakeToken::<H>::new(event) }.send(engine.host());
        }
    }
}
