//! A snapshot of a stall, collected like a dump at the time when it is to be reported.

use super::survey::Survey;
use super::watchdog::Backed;
use crate::words::dump::{
    Function, NoCalls, STALLED_WORKERS_MAX, Stall, StalledWorker, Wants, WorkerState,
};
use crate::words::host::Host;

/// A worker that is to be listed.
pub(super) struct Listed {
    pub(super) slot: u32,
    /// The name of its thread, if it is a pool's worker.
    pub(super) thread: String,
    pub(super) idle: bool,
}

/// The function with this identity, which was found in a slot or in an item.
pub(super) fn function_at(identity: usize) -> Function {
    // SAFETY: slots get functions from items only.
    unsafe { Function::at(identity) }
}

impl<'a, H: Host> Survey<'a, H> {
    /// The stall at a place, without stacks; `None` if nothing waits there.
    pub(super) fn picture(self, place: Backed, stalled_ns: u64) -> Option<Stall> {
        let pool = match place {
            Backed::Pool(id) => Some(id),
            Backed::Pwq(id) => self.engine.pwqs.get(id).map(|pwq| pwq.home().id),
            Backed::Node { .. } | Backed::Deadlock(_) => None,
        };
        let (wants, pwqs) = match place {
            Backed::Pool(id) => (Wants::Worker, self.engine.pool(id).list_ready().0),
            Backed::Deadlock(_) => (Wants::EachOther, Vec::new()),
            _ => (Wants::Permit, self.pwqs_of(place)),
        };
        let mut stall = Stall {
            at_ns: self.engine.host().now(),
            stalled_ns,
            wants,
            queues: Vec::new(),
            pending: 0,
            pool: pool.map(|id| (id, self.engine.pool(id).spec().label.clone())),
            workers: Vec::new(),
            more_workers: 0,
            deadlock: Vec::new(),
            undeclared: None,
            workers_max: pool.and_then(|id| self.cap_reached(id)),
        };
        for pwq in pwqs.iter().filter_map(|&id| self.engine.pwqs.get(id)) {
            let Some(backlog) = pwq.backlog().filter(|backlog| backlog.queued > 0) else {
                continue;
            };
            stall.pending += backlog.queued;
            stall.add_queue(pwq.queue_name());
        }
        let mut listed = pool.map_or(Vec::new(), |id| self.workers_of(id));
        if let Backed::Deadlock(slot) = place {
            stall.deadlock = self.deadlock_behind(&[slot]);
            for item in 0..stall.deadlock.len() {
                stall.add_queue(stall.deadlock[item].queue.clone());
            }
        }
        let holders = match wants {
            Wants::Worker => Vec::new(),
            Wants::Permit => self.holders_of(&pwqs),
            Wants::EachOther => stall.deadlock.iter().map(|item| item.slot).collect(),
        };
        for &slot in &holders {
            if !listed.iter().any(|worker| worker.slot == slot) {
                listed.push(Listed { slot, thread: self.thread_of(slot), idle: false });
            }
        }
        self.list(&mut stall, listed, &holders);
        if wants != Wants::EachOther {
            let blocking = stall.workers.iter().filter(|worker| worker.blocks);
            let blocking: Vec<u32> = blocking.map(|worker| worker.worker.slot).collect();
            stall.deadlock = self.deadlock_behind(&blocking);
        }
        let is_one = stall.pending > 0 || (wants == Wants::EachOther && !holders.is_empty());
        is_one.then_some(stall)
    }

    /// Lists workers, and marks those in the way.
    pub(super) fn list(self, stall: &mut Stall, listed: Vec<Listed>, holders: &[u32]) {
        for Listed { slot, thread, idle } in listed {
            let mut worker = self.dump_worker(slot, thread, idle);
            if let Some(running) = &mut worker.running {
                let pwq = running.pwq.and_then(|id| self.engine.pwqs.get(id));
                running.queue = pwq.map(|pwq| pwq.queue_name());
                if worker.scheduled.total > 0 && stall.wants == Wants::Worker {
                    stall.pending += worker.scheduled.total;
                    running.queue.clone().into_iter().for_each(|name| stall.add_queue(name));
                }
            }
            // SAFETY: the dump is as `dump_worker` collected it.
            unsafe { worker.ask_functions() };
            let waits = worker.state == WorkerState::Waiting;
            let blocks = match stall.wants {
                Wants::Permit | Wants::EachOther => holders.contains(&slot),
                // A worker in a declared wait does not count as running, so its pool may run
                // another.
                Wants::Worker => worker.running.is_some() && (!waits || worker.scheduled.total > 0),
            };
            let thread = self.engine.slot(slot).runner();
            stall.workers.push(StalledWorker {
                thread,
                blocks,
                worker,
                stack: Err(NoCalls::NotAsked),
            });
        }
        if !stall.workers.iter().any(|worker| worker.blocks) {
            // No worker blocks, so the pool's only worker, or all that it may have, are in
            // declared waits.
            for worker in &mut stall.workers {
                worker.blocks = worker.worker.running.is_some();
            }
        }
        stall.workers.sort_by_key(|worker| !worker.blocks);
        stall.more_workers = stall.workers.len().saturating_sub(STALLED_WORKERS_MAX);
        stall.workers.truncate(STALLED_WORKERS_MAX);
    }

    /// The cap on a pool's workers, if the pool has reached it.
    fn cap_reached(self, id: u32) -> Option<u32> {
        let pool = self.engine.pool(id);
        (!pool.spec().single && pool.is_full(self.engine)).then(|| pool.workers_max(self.engine))
    }

    fn workers_of(self, id: u32) -> Vec<Listed> {
        let pool = self.engine.pool(id);
        let listed = pool.list_idle_and_busy(self.engine).into_iter();
        let name = || pool.spec().thread_name();
        listed.map(|(slot, idle)| Listed { slot, thread: name(), idle }).collect()
    }

    /// The thread name of a worker; empty for other threads.
    pub(super) fn thread_of(self, slot: u32) -> String {
        let mut name = String::new();
        self.engine.for_each_pool(|pool| {
            if pool.lock().workers.contains(&slot) {
                name = pool.spec().thread_name();
            }
        });
        name
    }
}

impl Stall {
    fn add_queue(&mut self, name: String) {
        if !self.queues.contains(&name) {
            self.queues.push(name);
        }
    }
}
