//! The oracle: checks that no item waits for too long, from the trace of a run and without any
//! knowledge of the engine's state.
//!
//! The items' scripts report what they queue, when an item starts and ends, and which waits it
//! declares. The machine reports what each thread is doing. From these the oracle derives, for
//! every instant, which items are *runnable*: queued, not frozen, within the limit of the queue,
//! the timer due, no run of the item in progress. It also derives how many runs *count as running*
//! in their pod. The pod's target is its number of CPUs; while as many runs count, a runnable item
//! may have to wait.
//!
//! | a run | counts as running |
//! |---|---|
//! | computes, or competes for a CPU | yes |
//! | has computed for longer than the threshold while something waited | no; but see *Shared pods* |
//! | is in a declared wait | no |
//! | is blocked undeclared | no; in tier `Declared` yes: it cannot be known |
//! | of a `CPU_INTENSIVE` queue, on a rescuer, on a thread of the test | no |
//! | of a BH or dedicated queue, whatever it does | yes: it is never replaced |
//!
//! A violation: the pod has fewer counted runs than its target and a runnable item, both without
//! interruption for longer than the bound, and no item starts there.
//!
//! **Shared pods.** Items of an unbound queue whose pods share their work may run in any of them,
//! so these pods are one pool here. Runs that compute for long are replaced up to twice the number
//! of CPUs of a pod, and only where something waits in that pod itself.
//!
//! **The bounds** follow from the documented intervals of the watcher. See [`Rules::bound`].

mod pool;
mod reconfigure;
mod rules;
mod trace;

use uwork_policy::blocking::Tier;

use crate::machine::ThreadId;
use pool::Pool;
use reconfigure::Changes;
use rules::{COOL_DOWN_NS, EXPOSED_NS, MARGIN_NS, SCAN_NS};
pub(crate) use rules::{PoolRules, QueueRules, Rules};
use trace::Trace;

const NEVER: u64 = u64::MAX;

/// A pool, a queue, an item, by number.
pub(crate) type PoolNo = usize;
pub(crate) type QueueNo = usize;
pub(crate) type ItemNo = usize;

/// What a thread is doing, as the machine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stance {
    /// It computes on a CPU.
    OnCpu,
    /// It competes for a CPU.
    OffCpu,
    /// It blocks without declaring it.
    Dozes,
    /// It waits in the engine: a declared wait, if it is in an item.
    Parked,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    item: ItemNo,
    since: u64,
    is_timer: bool,
}

/// The items of a queue in one pool.
#[derive(Debug)]
struct Group {
    queue: QueueNo,
    pool: PoolNo,
    pending: Vec<Pending>,
    running: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not queued, or taken by a run.
    Idle,
    /// It may be queued or armed, in any pool.
    Unknown,
    /// A call that may queue it is in progress.
    Offered,
    Pending,
    /// Armed until this time.
    Armed(u64),
}

#[derive(Debug)]
struct ItemBook {
    queue: QueueNo,
    group: Option<usize>,
    /// The last call that may have queued it: its thread, and the CPU that the call named.
    offer: Option<(ThreadId, Option<u32>)>,
    state: State,
    runs: bool,
}

#[derive(Debug)]
struct Run {
    item: ItemNo,
    group: usize,
    /// When the watcher has first seen it with something waiting.
    met_at: u64,
    /// CPU time since then.
    hog_ns: u64,
    /// Since when it waits or blocks.
    blocked_since: Option<u64>,
}

/// A thread that is in an item.
#[derive(Debug)]
struct ThreadBook {
    id: ThreadId,
    is_worker: bool,
    declares: bool,
    runs: Vec<Run>,
}

/// The oracle; see the module.
pub(crate) struct Oracle {
    rules: Rules,
    pools: Vec<Pool>,
    queues: Vec<QueueRules>,
    /// The number of items of each queue that may be queued in any pool.
    lost: Vec<u32>,
    groups: Vec<Group>,
    items: Vec<ItemBook>,
    threads: Vec<ThreadBook>,
    armed: Vec<ItemNo>,
    frozen: bool,
    /// Nothing is checked any more: the engine is shutting down.
    pub(crate) over: bool,
    starved_until: u64,
    changes: Changes,
    pub(crate) trace: Trace,
}

impl Oracle {
    pub(crate) fn new(rules: Rules) -> Oracle {
        Oracle {
            rules,
            pools: Vec::new(),
            queues: Vec::new(),
            lost: Vec::new(),
            groups: Vec::new(),
            items: Vec::new(),
            threads: Vec::new(),
            armed: Vec::new(),
            frozen: false,
            over: false,
            starved_until: 0,
            changes: Changes::default(),
            trace: Trace::default(),
        }
    }

    pub(crate) fn add_pool(&mut self, rules: PoolRules) -> PoolNo {
        let pool = Pool {
            rules,
            since: None,
            exposed_since: None,
            held: 0,
            computing: 0,
            hogs: 0,
            asleep: 0,
            waits: false,
            competes: false,
        };
        self.pools.push(pool);
        self.pools.len() - 1
    }

    /// The pool with this label.
    pub(crate) fn pool_labelled(&self, label: &str) -> Option<PoolNo> {
        self.pools.iter().position(|pool| pool.rules.label == label)
    }

    pub(crate) fn add_queue(&mut self, rules: QueueRules) -> QueueNo {
        self.queues.push(rules);
        self.lost.push(0);
        self.queues.len() - 1
    }

    pub(crate) fn add_item(&mut self, queue: QueueNo) -> ItemNo {
        self.items.push(ItemBook {
            queue,
            group: None,
            offer: None,
            state: State::Idle,
            runs: false,
        });
        self.items.len() - 1
    }

    fn group_of(&mut self, queue: QueueNo, cpu: u32) -> usize {
        let pool = self.queues[queue].pools[cpu as usize];
        let known = self.groups.iter().position(|group| group.queue == queue && group.pool == pool);
        known.unwrap_or_else(|| {
            self.groups.push(Group { queue, pool, pending: Vec::new(), running: 0 });
            self.groups.len() - 1
        })
    }

    /// An item that is queued while it runs goes to the group in which it runs.
    fn group_now(&self, item: ItemNo, group: usize) -> usize {
        let mut runs = self.threads.iter().flat_map(|thread| &thread.runs);
        runs.find(|run| run.item == item).map_or(group, |run| run.group)
    }

    /// A call begins that may queue or arm the item.
    pub(crate) fn offer(&mut self, item: ItemNo, thread: ThreadId, cpu: Option<u32>) {
        self.forget(item);
        self.offer_anew(item);
        let book = &mut self.items[item];
        (book.offer, book.group) = (Some((thread, cpu)), None);
        self.set_state(item, State::Offered);
    }

    /// That call has queued the item at `now`, or armed it until `due`, on that CPU. Has no effect
    /// if the item was started meanwhile.
    pub(crate) fn accept(&mut self, now: u64, item: ItemNo, cpu: u32, due: Option<u64>) {
        if self.items[item].state != State::Offered {
            return;
        }
        if self.changes() || (due.is_some() && self.is_draining(self.items[item].queue)) {
            self.set_state(item, State::Unknown);
            return;
        }
        let group = self.group_of(self.items[item].queue, cpu);
        self.items[item].group = Some(group);
        match due {
            // The timer may have expired during the run, and the run may be in any pool.
            Some(_) if self.items[item].runs => self.set_state(item, State::Unknown),
            Some(due) => {
                self.set_state(item, State::Armed(due));
                self.armed.push(item);
            }
            None => {
                let group = self.group_now(item, group);
                self.items[item].group = Some(group);
                self.set_state(item, State::Pending);
                self.groups[group].pending.push(Pending { item, since: now, is_timer: false });
            }
        }
    }

    /// The oracle no longer knows where the item is, until it starts or is offered again.
    pub(crate) fn forget(&mut self, item: ItemNo) {
        match self.items[item].state {
            State::Armed(_) => self.armed.retain(|&armed| armed != item),
            State::Pending => {
                let group = self.items[item].group.expect("a pending item has a group");
                self.groups[group].pending.retain(|pending| pending.item != item);
            }
            State::Idle | State::Unknown | State::Offered => {}
        }
        self.set_state(item, State::Unknown);
    }

    /// The item was cancelled. Has no effect if it was offered again meanwhile.
    pub(crate) fn taken_back(&mut self, item: ItemNo) {
        if self.items[item].state == State::Unknown {
            self.set_state(item, State::Idle);
        }
    }

    fn set_state(&mut self, item: ItemNo, state: State) {
        let book = &mut self.items[item];
        let is_lost = |state: State| u32::from(matches!(state, State::Unknown | State::Offered));
        let lost = &mut self.lost[book.queue];
        *lost = *lost + is_lost(state) - is_lost(book.state);
        book.state = state;
    }

    /// The item starts on this thread. For a worker, its CPU determines the pool; for other
    /// threads, the pool is the one in which the item was queued. `told`: the CPU that a thread
    /// reported to the engine.
    pub(crate) fn start(
        &mut self,
        item: ItemNo,
        (thread, worker_cpu): (ThreadId, Option<u32>),
        told: impl Fn(ThreadId) -> u32,
    ) {
        self.forget(item);
        self.set_state(item, State::Idle);
        let ItemBook { queue, group, offer, .. } = self.items[item];
        let group = match (worker_cpu, group, offer) {
            (Some(cpu), ..) | (None, None, Some((_, Some(cpu)))) => self.group_of(queue, cpu),
            (None, Some(group), _) => group,
            (None, None, Some((by, None))) => self.group_of(queue, told(by)),
            (None, None, None) => unreachable!("it was queued"),
        };
        self.items[item].runs = true;
        self.start_old_run(item);
        self.items[item].group = Some(group);
        self.groups[group].running += 1;
        let pool = &mut self.pools[self.groups[group].pool];
        (pool.since, pool.exposed_since) = (None, None);
        let run = Run { item, group, met_at: NEVER, hog_ns: 0, blocked_since: None };
        match self.threads.iter_mut().find(|known| known.id == thread) {
            Some(known) => known.runs.push(run),
            None => self.threads.push(ThreadBook {
                id: thread,
                is_worker: worker_cpu.is_some(),
                declares: false,
                runs: vec![run],
            }),
        }
    }

    /// The item's run ends.
    pub(crate) fn end(&mut self, now: u64, item: ItemNo, thread: ThreadId) {
        let at = self.threads.iter().position(|known| known.id == thread).expect("it started here");
        let run = self.threads[at].runs.pop().expect("it started here");
        assert_eq!(run.item, item, "runs end in the order in which they started");
        if self.threads[at].runs.is_empty() {
            let _ = self.threads.swap_remove(at);
        }
        self.items[item].runs = false;
        self.end_old_run(item);
        self.groups[run.group].running -= 1;
        // An item that was queued again during the run is runnable from here on.
        for group in &mut self.groups {
            for pending in group.pending.iter_mut().filter(|pending| pending.item == item) {
                pending.since = now;
            }
        }
    }

    /// The thread begins or ends a declared wait.
    pub(crate) fn declare(&mut self, thread: ThreadId, declares: bool) {
        if let Some(known) = self.threads.iter_mut().find(|known| known.id == thread) {
            known.declares = declares;
        }
    }

    /// Freezable queues are frozen, or may be.
    pub(crate) fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
        // Items that were runnable until now are not, and vice versa.
        self.pools.iter_mut().for_each(|pool| (pool.since, pool.exposed_since) = (None, None));
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether an item is armed or queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.armed.is_empty() && self.groups.iter().all(|group| group.pending.is_empty())
    }

    pub(crate) fn limit(&mut self, queue: QueueNo, max_active: u32) {
        self.queues[queue].max_active = max_active;
    }

    pub(crate) fn max_active(&self, queue: QueueNo) -> u32 {
        self.queues[queue].max_active
    }

    /// A thread could not be spawned.
    pub(crate) fn starve(&mut self, now: u64) {
        self.starved_until = now + COOL_DOWN_NS + SCAN_NS + MARGIN_NS;
    }

    /// The state does not change from `now` to `until`.
    pub(crate) fn pass(
        &mut self,
        now: u64,
        until: u64,
        disturbed: bool,
        stance: impl Fn(ThreadId) -> Stance,
    ) {
        let mut from = now;
        while from < until && !self.over {
            self.expire(from);
            self.meet(from, &stance);
            let to = self.boundary(from, until, &stance);
            self.count_running(from, to, &stance);
            if disturbed {
                self.put_off_meetings(from, to);
            }
            self.check(from, to, disturbed);
            from = to;
        }
    }

    /// Treats timers that are due as queued items.
    fn expire(&mut self, now: u64) {
        let mut at = 0;
        while at < self.armed.len() {
            let item = self.armed[at];
            match self.items[item].state {
                State::Armed(due) if due <= now => {
                    let _ = self.armed.swap_remove(at);
                    self.set_state(item, State::Pending);
                    let group = self.items[item].group.expect("an armed item has a group");
                    let group = self.group_now(item, group);
                    self.items[item].group = Some(group);
                    let pending = Pending { item, since: due, is_timer: true };
                    self.groups[group].pending.push(pending);
                }
                _ => at += 1,
            }
        }
    }

    /// Until when the state does not change: the next timer, the next run that computes for too
    /// long, or `until`.
    fn boundary(&self, now: u64, until: u64, stance: &impl Fn(ThreadId) -> Stance) -> u64 {
        let dues = self.armed.iter().filter_map(|&item| match self.items[item].state {
            State::Armed(due) => Some(due),
            _ => None,
        });
        let hogs = self.threads.iter().filter_map(|thread| {
            let run = &thread.runs[0];
            let left = self.rules.threshold_ns.checked_sub(run.hog_ns)?;
            let counts = left > 0 && run.met_at <= now && stance(thread.id) == Stance::OnCpu;
            counts.then_some(now + left)
        });
        let met = self.threads.iter().map(|thread| thread.runs[0].met_at);
        dues.chain(hogs).chain(met).filter(|&at| at > now).fold(until, u64::min)
    }

    /// A group's first runnable item.
    fn first_runnable(&self, group: &Group) -> Option<Pending> {
        let rules = &self.queues[group.queue];
        if group.pending.is_empty() || (self.frozen && rules.freezable) {
            return None;
        }
        let mut under_way = group.running;
        if rules.limit_in_all {
            // Permits may be promised to items of other pods.
            let others = |other: &&Group| other.queue == group.queue && other.pool != group.pool;
            let count = |other: &Group| other.running + other.pending.len() as u32;
            under_way += self.groups.iter().filter(others).map(count).sum::<u32>();
            under_way += if rules.has_several_pools() { self.lost[group.queue] } else { 0 };
        }
        let runnable = |pending: &&Pending| !self.items[pending.item].runs;
        let first = || group.pending.iter().find(runnable).copied();
        if under_way < rules.max_active { first() } else { None }
    }

    /// An item may have begun to wait at `now`. Records when the watcher has seen the runs of that
    /// pool.
    fn meet(&mut self, now: u64, stance: &impl Fn(ThreadId) -> Stance) {
        for at in 0..self.pools.len() {
            let mut groups = self.groups.iter().filter(|group| group.pool == at);
            let waits = groups.any(|group| self.first_runnable(group).is_some());
            let pool = &mut self.pools[at];
            (pool.held, pool.computing, pool.hogs, pool.asleep) = (0, 0, 0, 0);
            (pool.waits, pool.competes) = (waits, false);
        }
        for thread in &mut self.threads {
            let (stance, declares) = (stance(thread.id), thread.declares);
            let run = &mut thread.runs[0];
            let computes = matches!(stance, Stance::OnCpu | Stance::OffCpu);
            // A run that waits or blocks is measured again when it is back.
            match run.blocked_since {
                Some(_) if computes => {
                    run.blocked_since = None;
                    run.met_at = run.met_at.max(now + SCAN_NS);
                }
                None if !computes => run.blocked_since = Some(now),
                _ => {}
            }
            let seems_to = || stance == Stance::Dozes && !declares;
            let found_at =
                run.blocked_since.map_or(NEVER, |since| since.saturating_add(self.rules.found()));
            let counts = computes || (seems_to() && now < found_at);
            let pool = &mut self.pools[self.groups[run.group].pool];
            pool.computing += u32::from(thread.is_worker && counts);
        }
        for run in self.threads.iter_mut().map(|thread| &mut thread.runs[0]) {
            let pool = &self.pools[self.groups[run.group].pool];
            if !pool.waits || !pool.has_room() {
                (run.met_at, run.hog_ns) = (NEVER, 0);
            } else if run.met_at == NEVER {
                run.met_at = now + SCAN_NS;
            }
        }
    }

    /// A thread, possibly the watcher, was preempted between `from` and `to`: the watcher meets the
    /// runs that much later.
    fn put_off_meetings(&mut self, from: u64, to: u64) {
        for run in self.threads.iter_mut().map(|thread| &mut thread.runs[0]) {
            if run.met_at != NEVER && run.met_at > from {
                run.met_at += to - from;
            }
        }
    }

    /// Counts the runs that count as running from `from` to `to`.
    fn count_running(&mut self, from: u64, to: u64, stance: &impl Fn(ThreadId) -> Stance) {
        for thread in self.threads.iter_mut().filter(|thread| thread.is_worker) {
            let stance = stance(thread.id);
            let run = &mut thread.runs[0];
            let group = &self.groups[run.group];
            let pool = &mut self.pools[group.pool];
            let computes = matches!(stance, Stance::OnCpu | Stance::OffCpu);
            let is_hog = run.hog_ns >= self.rules.threshold_ns;
            pool.competes |= stance == Stance::OffCpu;
            if stance == Stance::OnCpu && run.met_at <= from {
                run.hog_ns += to - from;
            }
            if pool.rules.single {
                pool.held += 1;
            } else if self.queues[group.queue].intensive {
                // It never counts as running.
            } else if computes && is_hog {
                pool.hogs += 1;
            } else if computes {
                pool.held += 1;
            } else if stance == Stance::Dozes && !thread.declares {
                pool.held += u32::from(self.rules.tier == Tier::Declared);
                pool.asleep += 1;
            }
        }
    }

    fn check(&mut self, from: u64, to: u64, disturbed: bool) {
        let blind = self.is_blind();
        for at in 0..self.pools.len() {
            let pool = &mut self.pools[at];
            let starves = pool.waits && pool.is_below_target();
            if blind || !starves || from < self.starved_until {
                (pool.since, pool.exposed_since) = (None, None);
                continue;
            }
            pool.since = pool.since.or(Some(from));
            let exposed = pool.asleep == 0 && pool.held + pool.hogs >= pool.rules.target;
            pool.exposed_since = if exposed { pool.exposed_since.or(Some(from)) } else { None };
            // The bound for pods that share their work contains a threshold of CPU time.
            if disturbed || (pool.rules.shared && pool.competes) {
                for since in [&mut pool.since, &mut pool.exposed_since] {
                    *since = since.map(|since| since + (to - from));
                }
                continue;
            }
            self.judge(at, to);
        }
    }

    /// The pool has had a runnable item and been below its target until now.
    ///
    /// # Panics
    /// If that has lasted for too long.
    fn judge(&self, at: PoolNo, now: u64) {
        let Pool { rules, held, since, exposed_since, .. } = &self.pools[at];
        let groups = self.groups.iter().filter(|group| group.pool == at);
        let alone = groups.clone().map(|group| group.pending.len()).sum::<usize>() == 1;
        let first = groups.filter_map(|group| self.first_runnable(group));
        let Some(first) = first.min_by_key(|first| first.since) else { return };
        let is_timer = first.is_timer && alone;
        let elsewhere = rules.shared || self.queues[self.items[first.item].queue].shares_permits();
        let (since, bound) = match exposed_since {
            Some(since) if !elsewhere && !is_timer => (Some(*since), EXPOSED_NS),
            _ => (*since, self.rules.bound(is_timer, elsewhere)),
        };
        let waited = now - since.unwrap_or(now).max(first.since);
        if waited > bound {
            panic!(
                "item {} has waited for {waited} ns at {now} ns, {bound} ns are allowed, in pool {:?}, of \
                 whose {} places {held} are held\n{}",
                first.item,
                rules.label,
                rules.target,
                self.describe(at)
            );
        }
    }
}
