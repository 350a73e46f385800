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
//! so these pods are one pool here. So are the CPUs of a pod, each of which has a pool in the
//! engine. Runs that compute for long are replaced up to twice the number of CPUs of a pod, and
//! only where something waits in that pod itself.
//!
//! **The bounds** follow from the documented intervals of the watcher. See `Rules::bound`.

mod pass;
mod pool;
mod reconfigure;
mod rules;
mod trace;

use crate::machine::ThreadId;
use pool::Pool;
use reconfigure::Changes;
use rules::{COOL_DOWN_NS, MARGIN_NS, SCAN_NS};
pub use rules::{PoolRules, QueueRules, Rules};
use trace::Trace;

const NEVER: u64 = u64::MAX;

/// A pool, by number.
pub type PoolNo = usize;
/// A queue, by number.
pub type QueueNo = usize;
/// An item, by number.
pub type ItemNo = usize;

/// What a thread is doing, as the machine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stance {
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
pub struct Oracle {
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
    pub over: bool,
    starved_until: u64,
    changes: Changes,
    /// The trace, printed when a history fails.
    pub trace: Trace,
}

impl Oracle {
    /// An oracle that knows no pools yet.
    pub fn new(rules: Rules) -> Oracle {
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

    /// A pool that the oracle checks.
    pub fn add_pool(&mut self, rules: PoolRules) -> PoolNo {
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
    pub fn pool_labelled(&self, label: &str) -> Option<PoolNo> {
        self.pools.iter().position(|pool| pool.rules.label == label)
    }

    /// A queue, whose pools are known.
    pub fn add_queue(&mut self, rules: QueueRules) -> QueueNo {
        self.queues.push(rules);
        self.lost.push(0);
        self.queues.len() - 1
    }

    /// An item of this queue.
    pub fn add_item(&mut self, queue: QueueNo) -> ItemNo {
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
    pub fn offer(&mut self, item: ItemNo, thread: ThreadId, cpu: Option<u32>) {
        self.forget(item);
        self.offer_anew(item);
        let book = &mut self.items[item];
        (book.offer, book.group) = (Some((thread, cpu)), None);
        self.set_state(item, State::Offered);
    }

    /// That call has queued the item at `now`, or armed it until `due`, on that CPU. Has no effect
    /// if the item was started meanwhile.
    pub fn accept(&mut self, now: u64, item: ItemNo, cpu: u32, due: Option<u64>) {
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
    pub fn forget(&mut self, item: ItemNo) {
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
    pub fn taken_back(&mut self, item: ItemNo) {
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
    pub fn start(
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
    pub fn end(&mut self, now: u64, item: ItemNo, thread: ThreadId) {
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
    pub fn declare(&mut self, thread: ThreadId, declares: bool) {
        if let Some(known) = self.threads.iter_mut().find(|known| known.id == thread) {
            known.declares = declares;
        }
    }

    /// Freezable queues are frozen, or may be.
    pub fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
        // Items that were runnable until now are not, and vice versa.
        self.pools.iter_mut().for_each(|pool| (pool.since, pool.exposed_since) = (None, None));
    }

    /// Whether freezable queues are frozen, or may be.
    pub fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether no item is armed or queued.
    pub fn is_empty(&self) -> bool {
        self.armed.is_empty() && self.groups.iter().all(|group| group.pending.is_empty())
    }

    /// The limit of a queue changes.
    pub fn limit(&mut self, queue: QueueNo, max_active: u32) {
        self.queues[queue].max_active = max_active;
    }

    /// The limit of a queue.
    pub fn max_active(&self, queue: QueueNo) -> u32 {
        self.queues[queue].max_active
    }

    /// A thread could not be spawned.
    pub fn starve(&mut self, now: u64) {
        self.starved_until = now + COOL_DOWN_NS + SCAN_NS + MARGIN_NS;
    }
}
