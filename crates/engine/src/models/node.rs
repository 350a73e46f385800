//! The limit that the pwqs of one node share: which thread makes a pwq ready again that found the
//! node full.
//!
//! **Proves.** No item is stranded: while one waits in a pwq and the node has a permit, the pwq is
//! ready or some thread is about to make it ready. This also holds when a pwq that was granted the
//! permit has become empty, when another pwq keeps the permit, when the limit is raised, and when
//! the queue is frozen and thawed meanwhile. No more workers than the limit are in items, none
//! begins an item while frozen or above a lowered limit, and no permit is lost.
//!
//! **Bounds.** Two pwqs (three where one is emptied), a worker for each, one item each. The steps
//! between the pwq's own are those of the worker's `work_on`, without an engine. Any number of
//! preemptions, but four when the limit is raised or kept permits are collected, and five in a
//! freeze of a node on which nothing is kept.
//!
//! **Seen to fail** when a full node is not checked again after joining the waiting list, when a
//! permit is released after the check of that list, when raising the limit does not check it, when
//! a declined permit is not released, when a permit granted to an emptied pwq is kept, and when an
//! offer does not check whether the queue is frozen.
//!
//! Of kept permits, when
//!
//! - the row or the epoch is not read again after a permit was kept;
//! - a pwq that joins the row collects nothing, or collects before it joins;
//! - a change of the limit collects nothing, or changes the epoch before the limit;
//! - a permit that another thread collected is not passed on;
//! - a helper takes over nothing;
//! - a kept permit is taken over although more are taken than the limit permits;
//! - a permit is kept in another epoch than that in which it was taken;
//! - a worker that brings a permit along does not read the row or the epoch again after its return.

use std::sync::Mutex;

use loom::sync::Arc;
use loom::thread;

use super::host::LoomHost;
use super::{Preemptions, explore};
use crate::account::EndedBatch;
use crate::pool::Pool;
use crate::queue::Name;
use crate::queue::pwq::{Limits, Pwq, PwqNode, Share, Taken};
use crate::slot::{Next, Slot};
use crate::words::item::word::{Acquire, RunId};
use crate::words::item::{Action, Location, Ticket, Work};
use crate::words::slab::Slab;

unsafe fn nothing(_: std::ptr::NonNull<Work>, _: Action) {}

struct World {
    host: LoomHost,
    pool: Pool<LoomHost>,
    node: PwqNode<LoomHost>,
    /// The pwqs, each with an item of its own.
    pwqs: Vec<(Pwq<LoomHost>, Work)>,
    /// Items that a model queues later, on the first two.
    later: [Work; 2],
    slots: Slab<Slot<LoomHost>>,
    runs: Mutex<usize>,
    inside: Mutex<u32>,
}

impl World {
    /// One item is queued on each pwq, and each is ready.
    fn new(pwqs: u32, max_active: u32) -> Arc<World> {
        let pwq = |id| (Pwq::new(id), Work::new(nothing));
        let world = Arc::new(World {
            host: LoomHost::new(0),
            pool: Pool::new(0),
            node: PwqNode::new(),
            pwqs: (0..pwqs).map(pwq).collect(),
            later: [Work::new(nothing), Work::new(nothing)],
            slots: Slab::new(2),
            runs: Mutex::new(0),
            inside: Mutex::new(0),
        });
        world.node.make_room(pwqs as usize);
        world.node.set_max(max_active);
        assert!(world.slots.allocate(|_| Slot::new()).is_some());
        assert!(world.slots.allocate(|_| Slot::new()).is_some());
        for (pwq, item) in &world.pwqs {
            let limits = Limits {
                max_active,
                cpu_intensive: false,
                ordered: false,
                rescuer: None,
                name: Name::EMPTY,
            };
            pwq.attach(std::ptr::null(), &world.pool, limits, 0);
            assert!(!pwq.share(&world.node));
            // A first round, after which every state counts as stored with `SeqCst` (see `sync`).
            world.node.enqueue(pwq);
            world.node.pass_on(&mut |_| unreachable!("nothing waits"));
            world.queue(pwq, item);
        }
        world.node.end_adding();
        world
    }

    /// Queues an item that was not queued yet.
    fn queue(&self, pwq: &Pwq<LoomHost>, item: &Work) {
        let Acquire::Owned(_) = item.word.acquire() else { unreachable!("queued once") };
        item.set_ticket(Ticket::new(pwq.id, false));
        item.set_location(Location::Inbox);
        // SAFETY: live and ours.
        unsafe { pwq.inbox.push(std::ptr::from_ref(item).cast_mut()) };
        if pwq.claim_ready() {
            self.pool.push_ready(pwq).ignore_in_model();
        }
    }

    /// Takes the first ready pwq, runs a batch, and releases the pwq. `inside` is called in each
    /// item. False if no pwq was ready.
    fn serve(&self, slot: u32, inside: impl Fn()) -> bool {
        let popped = self.pool.pop_ready(&mut self.pool.lock());
        let Some(pwq) = popped else { return false };
        let own = self.slots.get(slot).unwrap();
        let share = Share::Fair { sharers: 1, others_may_help: true };
        let ready = &mut |pwq: &Pwq<LoomHost>| self.pool.push_ready(pwq).ignore_in_model();
        let taken = pwq.take((&self.host, 0), (&self.slots, (slot, own)), share, None, ready);
        if matches!(taken, Taken::Some { more: true, .. }) && pwq.claim_ready() {
            self.pool.push_ready(pwq).ignore_in_model();
        }
        assert!(!pwq.unpin());
        let Taken::Some { count, .. } = taken else { return true };
        let mut number = own.number();
        while let Next::Run(item, run, _) = own.next(&self.host, number) {
            number = run;
            // SAFETY: the item came off our list.
            unsafe { (*item).word.start(RunId { slot, run }) };
            *self.inside.lock().unwrap() += 1;
            inside();
            *self.runs.lock().unwrap() += 1;
            *self.inside.lock().unwrap() -= 1;
        }
        assert!(!pwq.finish(0, count), "no flush waits");
        if pwq.release(&self.host, EndedBatch::default(), None, ready) {
            self.pool.push_ready(pwq).ignore_in_model();
        }
        true
    }

    /// A batch, of no item, at the pwq `at`, with the permit that the other one keeps.
    fn visit(&self, at: usize, inside: impl FnOnce()) -> bool {
        let ready = &mut |pwq: &Pwq<LoomHost>| self.pool.push_ready(pwq).ignore_in_model();
        let [pwq, lender] = [at, 1 - at].map(|at| &self.pwqs[at].0);
        pwq.visit(&self.host, (&self.node, lender), inside, ready)
    }

    /// The part of workers that scan for as long as a pwq is ready.
    fn serve_all(&self) {
        while self.serve(0, || {}) {}
    }

    fn set_limit(&self, max_active: u32) {
        self.node.set_max(max_active);
        for (pwq, _) in &self.pwqs {
            assert!(!pwq.set_max_active(max_active), "the limit is shared");
        }
        self.node.pass_on(&mut |pwq| self.pool.push_ready(pwq).ignore_in_model());
    }

    /// Takes the item out of a pwq, as a cancel does. False if a worker has taken it.
    fn empty(&self, pwq: usize) -> bool {
        let (pwq, _) = &self.pwqs[pwq];
        let mut inner = pwq.lock();
        pwq.splice(&mut inner);
        let taken = !inner.worklist.pop_front().is_null();
        inner.queued -= usize::from(taken);
        drop(inner);
        assert!(!taken || !pwq.finish(0, 1), "no flush waits");
        taken
    }

    fn runs(&self) -> usize {
        *self.runs.lock().unwrap()
    }
}

#[test]
fn no_item_is_stranded_on_a_full_node() {
    explore("node: no item is stranded on a full node", Preemptions::Any, || {
        let world = World::new(2, 1);
        let worker = {
            let world = world.clone();
            thread::spawn(move || {
                let alone = || assert_eq!(*world.inside.lock().unwrap(), 1, "the limit is 1");
                world.serve(1, alone)
            })
        };
        world.serve(0, || assert_eq!(*world.inside.lock().unwrap(), 1, "the limit is 1"));
        worker.join().unwrap();
        world.serve_all();
        assert_eq!(world.runs(), 2);
        assert!(world.pwqs.iter().all(|(pwq, _)| pwq.survey().0));
    });
}

#[test]
fn a_permit_is_passed_on_past_an_emptied_pwq() {
    explore("node: past an emptied pwq", Preemptions::Any, || {
        let world = World::new(3, 1);
        // The first pwq holds the permit; the others start to wait for it.
        let holder = {
            let world = world.clone();
            thread::spawn(move || {
                let inner = world.clone();
                world.serve(1, move || while inner.serve(0, || unreachable!("the limit is 1")) {})
            })
        };
        let taken = world.empty(1);
        holder.join().unwrap();
        world.serve_all();
        assert_eq!(world.runs(), if taken { 2 } else { 3 });
        assert!(world.pwqs.iter().all(|(pwq, _)| pwq.survey().0));
        // No permit was lost on the way.
        assert!(world.node_has_its_permit());
    });
}

#[test]
fn a_kept_permit_is_collected_by_a_pwq_that_finds_the_node_full() {
    explore("node: a kept permit is collected", Preemptions::AtMost(4), || {
        let world = World::crowded();
        let worker = {
            let world = world.clone();
            thread::spawn(move || {
                let alone = || assert_eq!(*world.inside.lock().unwrap(), 1, "one permit is left");
                world.serve(1, alone)
            })
        };
        world.serve(0, || assert_eq!(*world.inside.lock().unwrap(), 1, "one permit is left"));
        worker.join().unwrap();
        world.serve_all();
        assert_eq!(world.runs(), 2);
        assert!(world.pwqs.iter().all(|(pwq, _)| pwq.survey().0));
        assert!(world.node_has_its_permit());
    });
}

/// Lowers the limit while a worker runs the item of a pwq and keeps its permit. No item begins
/// from then on, neither of this pwq nor of the other, until the limit is raised again.
fn lower_then_raise_limit(world: &Arc<World>, lower: u32, upper: u32) {
    assert!(world.empty(1));
    let worker = {
        let world = world.clone();
        thread::spawn(move || world.serve_all())
    };
    world.set_limit(lower);
    worker.join().unwrap();
    let ran = world.runs();
    for (pwq, item) in world.pwqs.iter().zip(&world.later) {
        world.queue(&pwq.0, item);
    }
    world.serve_all();
    assert_eq!(world.runs(), ran, "no permit is left");
    world.set_limit(upper);
    world.serve_all();
    assert_eq!(world.runs(), 3);
    assert!(world.node_has_its_permit());
}

// The thread that collects has no use for the permit, as one that collects two at once.
#[test]
fn a_permit_that_another_thread_collected_is_passed_on() {
    explore("node: a collected permit is passed on", Preemptions::AtMost(4), || {
        let world = World::crowded();
        let worker = {
            let world = world.clone();
            thread::spawn(move || world.serve(1, || {}))
        };
        let collector = {
            let world = world.clone();
            thread::spawn(move || world.node.collect_kept())
        };
        world.serve(0, || {});
        collector.join().unwrap();
        worker.join().unwrap();
        world.serve_all();
        assert_eq!(world.runs(), 2);
        assert!(world.pwqs.iter().all(|(pwq, _)| pwq.survey().0));
        assert!(world.node_has_its_permit());
    });
}

#[test]
fn a_permit_that_a_worker_brings_along_returns_or_is_passed_on() {
    explore("node: a permit is brought along", Preemptions::AtMost(4), || {
        let world = World::crowded();
        // The first pwq keeps the last permit.
        world.serve(0, || {});
        let worker = {
            let world = world.clone();
            thread::spawn(move || {
                let alone = || assert_eq!(*world.inside.lock().unwrap(), 1, "one permit is left");
                world.serve(1, alone)
            })
        };
        world.visit(1, || assert_eq!(*world.inside.lock().unwrap(), 0, "one permit is left"));
        worker.join().unwrap();
        world.serve_all();
        assert_eq!(world.runs(), 2);
        assert!(world.pwqs.iter().all(|(pwq, _)| pwq.survey().0));
        assert!(world.node_has_its_permit());
    });
}

#[test]
fn a_permit_that_a_worker_brings_along_is_not_kept_past_a_lowered_limit() {
    explore("node: brought along past a lowered limit", Preemptions::AtMost(4), || {
        let world = World::crowded();
        world.serve_all();
        let worker = {
            let world = world.clone();
            thread::spawn(move || world.visit(0, || {}))
        };
        world.set_limit(3);
        worker.join().unwrap();
        world.queue(&world.pwqs[0].0, &world.later[0]);
        world.serve_all();
        assert_eq!(world.runs(), 2, "no permit is left");
        world.set_limit(4);
        world.serve_all();
        assert_eq!(world.runs(), 3);
        assert!(world.node_has_its_permit());
    });
}

#[test]
fn no_permit_is_kept_past_a_lowered_limit() {
    explore("node: no permit is kept past a lowered limit", Preemptions::Any, || {
        let world = World::crowded();
        world.set_limit(5);
        world.occupy(1);
        lower_then_raise_limit(&world, 4, 5);
    });
}

#[test]
fn a_freeze_collects_kept_permits() {
    explore("node: a freeze collects what is kept", Preemptions::Any, || {
        let world = World::crowded();
        lower_then_raise_limit(&world, 0, 4);
    });
}

impl World {
    /// Two pwqs of a node with four permits, so that each may keep one; but only one is left.
    fn crowded() -> Arc<World> {
        let world = World::new(2, 4);
        world.occupy(3);
        world
    }

    /// Takes permits for workers of which the model has none.
    fn occupy(&self, permits: u32) {
        (0..permits).for_each(|_| assert!(self.node.try_take().is_some()));
    }

    /// Whether a permit can be taken again, after all threads have finished.
    fn node_has_its_permit(&self) -> bool {
        // Not the one that keeps it.
        let pwq = self.pwqs.iter().map(|(pwq, _)| pwq).find(|pwq| !pwq.keeps_permit());
        let pwq = pwq.expect("one permit is left");
        pwq.take_permit_to_help(&mut pwq.lock())
    }
}

#[test]
fn raising_the_limit_admits_the_next_item() {
    explore("node: raising the limit", Preemptions::AtMost(4), || {
        let world = World::new(2, 1);
        // The first item does not end before the second has run: only the raised limit admits the
        // second.
        let worker = {
            let world = world.clone();
            thread::spawn(move || {
                let inner = world.clone();
                world.serve(1, move || {
                    while inner.runs() == 0 && *inner.inside.lock().unwrap() == 1 {
                        thread::yield_now();
                    }
                })
            })
        };
        world.set_limit(2);
        while world.runs() < 2 {
            world.serve(0, || {});
            thread::yield_now();
        }
        worker.join().unwrap();
        world.serve_all();
        assert_eq!(world.runs(), 2);
    });
}

#[test]
fn a_freeze_takes_back_granted_permits() {
    explore("node: a freeze takes back what was granted", Preemptions::AtMost(5), || {
        let world = World::new(2, 1);
        let worker = {
            let world = world.clone();
            thread::spawn(move || world.serve(1, || {}))
        };
        // The freeze may contend with the worker, which may offer it a permit during the freeze.
        world.serve(0, || {});
        world.set_limit(0);
        worker.join().unwrap();
        world.serve(0, || unreachable!("frozen"));
        world.serve(0, || unreachable!("frozen"));
        world.set_limit(1);
        world.serve_all();
        assert_eq!(world.runs(), 2);
        assert!(world.node_has_its_permit());
    });
}
