//! The readiness of a pwq: which thread pushes it on a ready list, and which thread returns it to
//! the slab.
//!
//! **Proves.** No item is stranded: while one waits and a worker may take it, the pwq is ready or
//! some thread is about to make it ready; also at `max_active` (SATURATED), when it is raised, and
//! when a worker gives items back. A pwq that its queue releases is returned exactly once.
//!
//! **Bounds.** Two workers, one submitter, two items. The steps between the pwq's own are those of
//! the worker's `work_on`, without an engine. Up to three preemptions at the limit, four when it is
//! raised, any at the end: 19,520, 2,672 and 16 executions.
//!
//! **Seen to fail** when `release` checks before it clears SATURATED, when the check of
//! `claim_ready` is relaxed, when raising the limit does not check, when `unpin` does not check
//! READY, and when `kill` does not check the pins.

use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::host::LoomHost;
use super::{Preemptions, explore};
use crate::account::EndedBatch;
use crate::pool::Pool;
use crate::queue::pwq::{Limits, Pwq, Share, Taken};
use crate::slot::{Next, Slot};
use crate::words::item::word::{Acquire, RunId};
use crate::words::item::{Action, Location, Ticket, Work};
use crate::words::slab::Slab;

unsafe fn nothing(_: std::ptr::NonNull<Work>, _: Action) {}

struct World {
    host: LoomHost,
    pool: Pool<LoomHost>,
    pwq: Pwq<LoomHost>,
    slots: Slab<Slot<LoomHost>>,
    items: [Work; 2],
    runs: Mutex<usize>,
    /// How often the pwq was returned to the slab.
    released: Mutex<usize>,
}

impl World {
    fn new(max_active: u32) -> Arc<World> {
        let world = Arc::new(World {
            host: LoomHost::new(0),
            pool: Pool::new(0),
            pwq: Pwq::new(0),
            slots: Slab::new(2),
            items: [Work::new(nothing), Work::new(nothing)],
            runs: Mutex::new(0),
            released: Mutex::new(0),
        });
        let limits = Limits {
            max_active,
            cpu_intensive: false,
            ordered: false,
            rescuer: None,
            name: crate::queue::Name::EMPTY,
        };
        world.pwq.attach(std::ptr::null(), &world.pool, limits, 0);
        assert!(world.slots.allocate(|_| Slot::new()).is_some());
        assert!(world.slots.allocate(|_| Slot::new()).is_some());
        // A first round, after which the state counts as stored with `SeqCst` (see `sync`).
        assert!(world.pwq.claim_ready());
        world.pool.push_ready(&world.pwq).ignore_in_model();
        assert!(world.serve(0, || {}));
        world
    }

    fn queue(&self, item: usize) {
        let item = &self.items[item];
        let Acquire::Owned(_) = item.word.acquire() else { unreachable!("queued once") };
        item.set_ticket(Ticket::new(0, false));
        item.set_location(Location::Inbox);
        // SAFETY: live and ours.
        unsafe { self.pwq.inbox.push(std::ptr::from_ref(item).cast_mut()) };
        if self.pwq.claim_ready() {
            self.pool.push_ready(&self.pwq).ignore_in_model();
        }
    }

    fn unpin(&self) {
        if self.pwq.unpin() {
            *self.released.lock().unwrap() += 1;
        }
    }

    /// Takes the pwq if it is ready, runs a batch, and releases the pwq. `inside` is called in each
    /// item.
    fn serve(&self, slot: u32, inside: impl Fn()) -> bool {
        if !self.pool.looks_ready() {
            return false;
        }
        let Some(pwq) = self.pool.pop_ready(&mut self.pool.lock()) else {
            return false;
        };
        let own = self.slots.get(slot).unwrap();
        let share = Share::Fair { sharers: 1, others_may_help: true };
        let nobody = &mut |_: &Pwq<LoomHost>| unreachable!("no limit is shared");
        let taken = pwq.take((&self.host, 0), (&self.slots, (slot, own)), share, None, nobody);
        let Taken::Some { count, more, .. } = taken else {
            self.unpin();
            return true;
        };
        if more && pwq.claim_ready() {
            self.pool.push_ready(pwq).ignore_in_model();
        }
        self.unpin();
        let mut number = own.number();
        while let Next::Run(item, run, _) = own.next(&self.host, number) {
            number = run;
            // SAFETY: the item came off our list.
            unsafe { (*item).word.start(RunId { slot, run }) };
            inside();
            *self.runs.lock().unwrap() += 1;
        }
        assert!(!pwq.finish(0, count), "no flush waits");
        if pwq.release(&self.host, EndedBatch::default(), None, nobody) {
            self.pool.push_ready(pwq).ignore_in_model();
        }
        true
    }

    /// The part of workers that scan for as long as the pwq is ready.
    fn serve_all(&self) {
        while self.serve(0, || {}) {}
    }
}

#[test]
fn no_item_is_stranded_at_the_limit() {
    explore("pwq: no item is stranded at the limit", Preemptions::AtMost(3), || {
        let world = World::new(1);
        world.queue(0);
        let submitter = {
            let world = world.clone();
            thread::spawn(move || world.queue(1))
        };
        let workers = [0, 1].map(|slot| {
            let world = world.clone();
            thread::spawn(move || world.serve(slot, || {}))
        });
        submitter.join().unwrap();
        for worker in workers {
            worker.join().unwrap();
        }
        world.serve_all();
        assert_eq!(*world.runs.lock().unwrap(), 2);
        assert!(world.pwq.survey().0);
    });
}

#[test]
fn raising_the_limit_makes_the_pwq_ready() {
    explore("pwq: raising the limit makes ready", Preemptions::AtMost(4), || {
        let world = World::new(1);
        world.queue(0);
        // The first item does not end before the second has run: only the raised limit admits the
        // second.
        let worker = {
            let world = world.clone();
            thread::spawn(move || {
                let inner = world.clone();
                world.serve(1, move || {
                    while *inner.runs.lock().unwrap() == 0 {
                        loom::thread::yield_now();
                    }
                })
            })
        };
        world.queue(1);
        if world.pwq.set_max_active(2) {
            world.pool.push_ready(&world.pwq).ignore_in_model();
        }
        while *world.runs.lock().unwrap() < 1 {
            world.serve(0, || {});
            loom::thread::yield_now();
        }
        worker.join().unwrap();
        world.serve_all();
        assert_eq!(*world.runs.lock().unwrap(), 2);
    });
}

#[test]
fn a_pwq_is_returned_exactly_once() {
    explore("pwq: returned exactly once", Preemptions::Any, || {
        let world = World::new(1);
        // A submitter claimed the readiness for items that have been cancelled since.
        assert!(world.pwq.claim_ready());
        world.pool.push_ready(&world.pwq).ignore_in_model();
        let worker = {
            let world = world.clone();
            thread::spawn(move || world.serve(1, || {}))
        };
        // Make the pwq ready once more, while a worker may have taken it.
        if world.pwq.claim_ready() {
            world.pool.push_ready(&world.pwq).ignore_in_model();
        }
        if world.pwq.kill() {
            *world.released.lock().unwrap() += 1;
        }
        worker.join().unwrap();
        world.serve_all();
        assert_eq!(*world.released.lock().unwrap(), 1);
    });
}
