//! Collecting a dump: one lock after the other, in the order of their ranks, with bounded work
//! under each.
//!
//! Memory for the copies is allocated before a lock is taken, from a count read without it. If
//! there are more entries by the time the lock is held, the rest is counted and not listed.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Weak};

use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::{AffinityScope, Pods};

use super::running::running_of;
use super::survey::Survey;
use crate::account::QueueAccount;
use crate::engine::Engine;
use crate::pool::{NEVER, Pool};
use crate::queue::owner::Owner;
use crate::queue::pwq::Pwq;
use crate::queue::{Kind, Wq};
use crate::slot::{NotRunning, Slot};
use crate::words::dump::{
    ArmedItem, BlockingDump, Dump, Function, ITEMS_MAX, ItemDump, Items, MachineDump, PoolDump,
    PwqDump, QueueDump, RescuerDump, ScopeDump, WorkerDump, WorkerState,
};
use crate::words::host::{Detection, Host, Observer};
use crate::words::inbox::Node;
use crate::words::item::{Work, WorkList};
use crate::words::sync::Ordering;

impl ItemDump {
    pub(crate) fn of(item: &Work) -> ItemDump {
        ItemDump { address: std::ptr::from_ref(item).addr(), function: Function::of(item.func()) }
    }
}

impl Items {
    pub(crate) fn with_room() -> Items {
        Items { total: 0, first: Vec::with_capacity(ITEMS_MAX) }
    }

    /// Lists the first items of a list whose lock the caller holds, and counts them all.
    fn list(&mut self, list: &WorkList) {
        let mut item = list.front();
        // SAFETY: the items of a list are live while its lock is held, and so are the links.
        while let Some(work) = unsafe { item.as_ref() } {
            if self.first.len() < ITEMS_MAX {
                self.first.push(ItemDump::of(work));
            }
            self.total += 1;
            // SAFETY: as above.
            item = unsafe { <Work as Node>::next(item) };
        }
    }

    /// As [`Items::list`], for a list whose length is known.
    fn list_some(&mut self, list: &WorkList, total: usize) {
        let mut item = list.front();
        while self.first.len() < total.min(ITEMS_MAX) {
            // SAFETY: the items of a list are live while its lock is held, and so are the links.
            let Some(work) = (unsafe { item.as_ref() }) else { break };
            self.first.push(ItemDump::of(work));
            // SAFETY: as above.
            item = unsafe { <Work as Node>::next(item) };
        }
        self.total = total;
    }
}

impl<H: Host> Engine<H> {
    /// A snapshot of the whole engine; see the module. Any thread may call it, also from inside an
    /// item or a reporter.
    pub fn dump(&self) -> Dump {
        let at_ns = self.host().now();
        let queues = self.dump_queues(|_| true);
        let mut pools = Vec::new();
        self.for_each_pool(|pool| pools.push(pool.dump(self)));
        let known =
            |slot: u32| pools.iter().any(|pool| pool.workers.iter().any(|w| w.slot == slot));
        let helpers = Survey::of(self).slots_at_work().filter(|&slot| !known(slot));
        let helpers =
            helpers.map(|slot| Survey::of(self).dump_worker(slot, String::new(), false)).collect();
        let mut dump = Dump {
            at_ns,
            machine: Survey::of(self).dump_machine(),
            blocking: Survey::of(self).dump_blocking(),
            scopes: Survey::of(self).dump_scopes(),
            pools,
            helpers,
            queues,
        };
        dump.join();
        // SAFETY: the dump is as it was collected.
        unsafe { dump.ask_functions() };
        dump
    }

    /// Notes in a dump which of the running workers sleep in their items. `sleeps` says of a thread
    /// whether it sleeps now.
    pub fn note_sleepers(&self, dump: &mut Dump, sleeps: impl Fn(u64) -> bool) {
        let workers = dump.pools.iter_mut().flat_map(|pool| &mut pool.workers);
        let runs = |it: &&mut WorkerDump| it.state == WorkerState::Running && it.thread_id != 0;
        for worker in workers.chain(&mut dump.helpers).filter(runs) {
            let sleeps = sleeps(worker.thread_id);
            // Between two items a worker sleeps as well.
            let run = worker.running.as_ref().map(|running| running.run);
            let is_in_it = run.is_some() && run == self.slot(worker.slot).present_run();
            worker.sleeps = is_in_it && sleeps;
        }
    }

    /// The queues for which `wanted` returns true, with the slots that run their items.
    pub fn dump_queues(&self, mut wanted: impl FnMut(&Wq<H>) -> bool) -> Vec<QueueDump> {
        let mut queues = Vec::new();
        self.for_each_queue(|wq| {
            if wanted(wq) {
                queues.push(wq.dump());
            }
        });
        queues
    }
}

impl<H: Host> Pool<H> {
    fn dump(&self, engine: &Engine<H>) -> PoolDump {
        let counts = self.state.counts();
        let (ready, nr_ready) = self.list_ready();
        let workers = self.list_idle_and_busy(engine).into_iter();
        let name = || self.spec().thread_name();
        let workers =
            workers.map(|(id, idle)| Survey::of(engine).dump_worker(id, name(), idle)).collect();
        let (nr_armed, armed) = self.dump_armed(|_| true);
        let next = self.timers.next(Ordering::Relaxed);
        PoolDump {
            id: self.id,
            cpus: self.spec().cpus.clone(),
            nice: self.spec().nice,
            actual_nice: None,
            target: self.target(),
            nr_workers: counts.workers,
            workers_max: self.workers_max(engine),
            nr_running: counts.running,
            nr_idle: counts.idle,
            waking: counts.waking,
            retired: self.state.is_retired(),
            displaced: self.is_displaced(),
            nr_ready,
            ready,
            next_timer_ns: (next != NEVER).then_some(next),
            nr_armed,
            armed,
            workers,
        }
    }

    /// Armed items of a pool, and how many there are.
    fn dump_armed(&self, wanted: impl Fn(&Wq<H>) -> bool) -> (usize, Vec<ArmedItem>) {
        let mut found: Vec<(ArmedItem, Option<Arc<Owner<H>>>)> = Vec::with_capacity(ITEMS_MAX);
        let mut total = 0;
        for base in self.timer_bases() {
            let timers = base.lock();
            total += timers.armed();
            timers.for_each(|item| {
                if found.len() == ITEMS_MAX {
                    return false;
                }
                // SAFETY: an armed item's node, under the timers' lock: it owns that weak reference.
                let (queue, cpu, deadline_ns) = unsafe {
                    let queue = ManuallyDrop::new(Weak::from_raw(item.node.queue().0.cast_const()));
                    (queue.upgrade(), item.node.cpu(), item.node.expiry.get())
                };
                let item = ItemDump::of(item.work());
                found.push((ArmedItem { item, deadline_ns, cpu, queue: None }, queue));
                true
            });
            drop(timers);
        }
        let mut armed = Vec::with_capacity(found.len());
        for (mut item, owner) in found {
            item.queue = owner.as_ref().map(|owner| owner.wq().name().to_owned());
            if owner.as_ref().is_none_or(|owner| wanted(owner.wq())) {
                armed.push(item);
            }
            owner.into_iter().for_each(Owner::let_go);
        }
        armed.sort_by_key(|item| (item.deadline_ns, item.item.address));
        (total, armed)
    }
}

impl<'a, H: Host> Survey<'a, H> {
    fn dump_machine(self) -> MachineDump {
        let config = self.engine.config();
        MachineDump {
            allowed: self.engine.cpus().allowed.clone(),
            unbound: self.engine.cpus().unbound_cpumask.clone(),
            isolated: config.topology.isolated().clone(),
            default_scope: self.engine.housekeeping().default_scope,
        }
    }

    fn dump_blocking(self) -> BlockingDump {
        let Detection { tier, reason } = self.engine.observer().detection();
        BlockingDump { tier, reason }
    }

    fn dump_scopes(self) -> Vec<ScopeDump> {
        let engine = self.engine;
        let (topology, size) = (&engine.config().topology, engine.housekeeping().cache_shard_size);
        let scope = |scope: AffinityScope| {
            let pods = Pods::of(topology, scope, size);
            let pod_of = |cpu: u32| pods.pod_of(cpu).map(|pod| (cpu, pod));
            let node_of = |pod: &CpuSet| {
                let mut nodes = pod.iter().filter_map(|cpu| topology.cpu(cpu)).map(|cpu| cpu.node);
                let first = nodes.next()?;
                nodes.all(|node| node == first).then_some(first)
            };
            ScopeDump {
                scope,
                nr_pods: pods.pods().len(),
                pod_cpus: pods.pods().to_vec(),
                cpu_pod: topology.possible().iter().filter_map(pod_of).collect(),
                pod_node: pods.pods().iter().map(node_of).collect(),
            }
        };
        AffinityScope::ALL.into_iter().map(scope).collect()
    }

    /// Slots whose owner is in an item.
    pub(crate) fn slots_at_work(self) -> impl Iterator<Item = u32> {
        let slots = (0..).map_while(|id| self.engine.slots.get(id).map(|slot| (id, slot)));
        slots.filter(|(_, slot)| slot.present_run().is_some()).map(|(id, _)| id)
    }

    pub(crate) fn dump_worker(self, id: u32, thread: String, idle: bool) -> WorkerDump {
        let slot = self.engine.slot(id);
        let running = running_of(slot);
        let state = match () {
            () if idle => WorkerState::Idle,
            () if running.is_none() => WorkerState::Between,
            () if slot.waits() => WorkerState::Waiting,
            () if matches!(
                slot.not_running(),
                NotRunning::FoundBlocked(_) | NotRunning::Presumed
            ) =>
            {
                WorkerState::Asleep
            }
            () => WorkerState::Running,
        };
        let (mut scheduled_items, mut deferred_items) = (Items::default(), Items::default());
        // The slot's remote lock costs a fence on every CPU. A worker without an item is at its
        // lists itself, so take the lock for running workers only.
        if running.is_some() {
            (scheduled_items, deferred_items) = (Items::with_room(), Items::with_room());
            let mut remote = slot.lock_remote(self.engine.host());
            remote.visit(|scheduled, deferred| {
                scheduled_items.list(scheduled);
                deferred_items.list(deferred);
            });
        }
        let thread_id = slot.thread();
        WorkerDump {
            thread,
            thread_id,
            slot: id,
            state,
            sleeps: false,
            running,
            scheduled: scheduled_items,
            deferred: deferred_items,
        }
    }
}

impl Dump {
    /// Fills in the queue of each worker's item, and the slots of each queue.
    fn join(&mut self) {
        let workers = self.pools.iter_mut().flat_map(|pool| &mut pool.workers);
        for worker in workers.chain(&mut self.helpers) {
            let Some(running) = &mut worker.running else { continue };
            let mut queues = self.queues.iter_mut();
            let owns = |queue: &QueueDump| queue.pwqs.iter().any(|pwq| Some(pwq.id) == running.pwq);
            if let Some(queue) = queues.find(|queue| owns(queue)) {
                running.queue = Some(queue.name.clone());
                if !queue.slots.contains(&worker.slot) {
                    queue.slots.push(worker.slot);
                }
            }
        }
    }
}

impl<H: Host> Wq<H> {
    /// A snapshot of this queue alone. As [`Engine::dump`].
    pub fn dump(&self) -> QueueDump {
        let (kind, max_active) = (self.kind(), self.max_active());
        let nice = self.engine().default_nice(self.flags());
        let bh = self.flags().contains(uwork_policy::flags::Flags::BH);
        let (kind, nice, strict) = match kind {
            Kind::PerCpu if bh => ("bh", nice, true),
            Kind::PerCpu => ("per-cpu", nice, true),
            Kind::Unbound(attrs) => ("unbound", attrs.nice, attrs.strict),
            Kind::Ordered(attrs) => ("ordered", attrs.nice, attrs.strict),
            Kind::Dedicated(attrs) => ("dedicated", attrs.nice, true),
        };
        let rescuer = self.rescuer().map(|rescuer| {
            let slot = self.engine().slot(rescuer.slot());
            let thread_id = slot.thread();
            RescuerDump { slot: rescuer.slot(), thread_id, running: running_of(slot) }
        });
        let flushers = self.flush.lock().flushers();
        let mut pwqs = Vec::new();
        for (id, pool) in self.pwq_ids() {
            let Some(pwq) = self.engine().pwqs.get(id) else { continue };
            pwqs.push(dump_pwq(pwq, pool));
        }
        let ids = |slot: &Slot<H>| slot.batch.get().0;
        let mine = |id: &u32| pwqs.iter().any(|pwq| Some(pwq.id) == ids(self.engine().slot(*id)));
        let slots = Survey::of(self.engine()).slots_at_work().filter(mine).collect();
        let mut dump = QueueDump {
            name: self.name().to_owned(),
            flags: self.flags(),
            kind,
            nice,
            strict,
            scope: self.effective_scope().map(|scope| scope.to_string()),
            cpus: self.cpus(),
            max_active,
            min_active: self.min_active(),
            nodes: self.shared_nodes(),
            rescuer,
            frozen: self.is_frozen(),
            paused: self.is_paused(),
            gate: self.gate.snapshot(),
            flushers,
            pwqs,
            slots,
        };
        // SAFETY: the dump is as it was collected.
        unsafe { dump.ask_functions() };
        dump
    }
}

fn dump_pwq<H: Host>(pwq: &Pwq<H>, pool: u32) -> PwqDump {
    let mut pending = Items::with_room();
    let mut inner = pwq.lock();
    // Items in the inbox are pending as well.
    pwq.splice(&mut inner);
    pending.list_some(&inner.worklist, inner.queued);
    let counts = pwq.in_flight();
    let (nr_active, max_active, colour) = (inner.nr_active, inner.max_active, inner.colour);
    let (item_ns, started) = (inner.run_times.estimate().item_ns, inner.started);
    let account = inner.account.first().map_or_else(QueueAccount::default, QueueAccount::clone);
    let (ready, saturated) = (pwq.is_ready(), inner.is_saturated());
    drop(inner);
    let awaited = counts.iter().enumerate().filter(|&(_, &(_, awaited))| awaited);
    PwqDump {
        id: pwq.id,
        pool: if pwq.is_ordered() { pwq.home().id } else { pool },
        nr_active,
        max_active,
        ready,
        saturated,
        pending,
        colour,
        awaited: awaited.map(|(colour, _)| colour).collect(),
        in_flight: counts.iter().map(|&(count, _)| count).collect(),
        item_ns,
        started,
        ran: account.runs.count(),
        busy_ns: account.runs.sum_ns(),
        cpu_ns: account.cpu_ns,
        hogs: account.hogs,
        replaced: pwq.events.replaced.get(),
        stolen: pwq.events.stolen.get(),
        maydays: pwq.events.maydays.get(),
        rescued: pwq.events.rescued.get(),
        runs: account.runs,
        waits: account.waits,
    }
}
