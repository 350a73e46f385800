//! The ledger: the test's own record of the calls to the engine and of the runs, compared with the
//! engine's promises.
//!
//! Each call is counted when it begins and when it returns. Where several threads use an item at
//! once, a check allows for the effects of the calls in progress.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uwork_engine::Queued;
use uwork_engine::host::Host;
use uwork_policy::cpuset::CpuSet;

use crate::host::VirtualHost;
use crate::item::Item;

/// How many items of a queue may run at once.
#[derive(Clone, Debug)]
pub(crate) enum Limit {
    OnEachCpu(u32),
    InAll(u32),
    OnEachNode(NodeLimits),
}

/// Limits of the nodes on which items were queued, whichever node runs them.
#[derive(Clone, Debug)]
pub(crate) struct NodeLimits {
    /// The node of each CPU.
    node_of: Vec<usize>,
    /// The limit of each node, the highest so far: a lowered limit applies only to items taken
    /// later, which the ledger cannot tell apart.
    max: Vec<u32>,
}

impl NodeLimits {
    /// Creates the limits from the node of each CPU. All CPUs are in use.
    pub(crate) fn new(node_of: Vec<usize>, max_active: u32, min_active: u32) -> NodeLimits {
        let nodes = 1 + node_of.iter().max().expect("a CPU");
        let mut limits = NodeLimits { node_of, max: vec![0; nodes] };
        limits.raise(max_active, min_active);
        limits
    }

    fn raise(&mut self, max_active: u32, min_active: u32) {
        let total = self.node_of.len() as u32;
        for (node, max) in self.max.iter_mut().enumerate() {
            let cpus = self.node_of.iter().filter(|&&of| of == node).count() as u32;
            let share = (max_active * cpus).div_ceil(total);
            *max = share.max(min_active).min(max_active).max(*max);
        }
    }

    fn check(&self, running: &[u32]) {
        for (node, &max) in self.max.iter().enumerate() {
            let here = self.node_of.iter().zip(running).filter(|&(&of, _)| of == node);
            assert!(here.map(|(_, count)| count).sum::<u32>() <= max, "max_active of node {node}");
        }
    }
}

/// A queue, by its number in the ledger.
pub(crate) type QueueNo = usize;
/// An item, by its number in the ledger.
pub(crate) type ItemNo = usize;

#[derive(Default)]
struct Books {
    queues: Vec<QueueBook>,
    items: Vec<ItemBook>,
    /// Whether no freezable item may run.
    frozen: bool,
    /// Whether the engine shuts down: a flush may then end because items are released.
    shut: bool,
    /// Counts the calls that queue an item.
    calls: u64,
    /// The CPUs that workers may use, once that has changed.
    allowed: Option<CpuSet>,
}

struct QueueBook {
    limit: Limit,
    freezable: bool,
    /// Running items by CPU; for a queue with limits per node, by the CPU on which they were
    /// queued.
    running: Vec<u32>,
    /// Items that are queued once only, in the order in which they started.
    started_once: Vec<ItemNo>,
    /// Whether one thread must run all items, and which thread it is.
    one_thread: bool,
    thread: Option<u64>,
}

/// The record of one item.
#[derive(Clone, Debug, Default)]
struct ItemBook {
    /// The queue on which the item is always queued, if there is only one.
    home: Option<QueueNo>,
    /// The CPU on which the item must run.
    cpu: Option<u32>,
    /// The CPU on which the item was queued, if the limits count it there.
    counts_at: Option<u32>,
    /// Whether it is queued only once; then the call numbers at which that call began and returned.
    once: bool,
    called: u64,
    returned: u64,
    /// Calls in progress that may queue the item, and calls that did.
    offers: u64,
    queued: u64,
    started: u64,
    finished: u64,
    /// Calls in progress that may cancel the item, and calls that did.
    cancels: u64,
    cancelled: u64,
    /// How many disables have returned whose enable was not called yet.
    disabled: u64,
    /// The item is not due before this time.
    due: u64,
    /// Whether it is armed, and queued when it is due.
    late: bool,
    /// The count of the engine's releases of the item without a run.
    released: Arc<AtomicU32>,
}

impl ItemBook {
    /// Queueings that have ended, or may be ending now.
    fn over_at_most(&self) -> u64 {
        self.finished + self.cancelled + self.cancels
    }

    fn released(&self) -> u64 {
        u64::from(self.released.load(Ordering::Relaxed))
    }

    /// Whether every queueing has ended, and no call is in progress that may change that.
    fn is_over(&self) -> bool {
        let over = self.finished + self.cancelled + self.released();
        self.queued == over && self.offers == 0 && self.cancels == 0
    }
}

/// The queueings that a flush has to wait for, by item.
pub(crate) struct Before(Vec<(ItemNo, u64)>);

/// The ledger; see the module.
#[derive(Default)]
pub(crate) struct Ledger(Mutex<Books>);

impl Ledger {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add_queue(&self, limit: Limit, cpus: usize, freezable: bool) -> QueueNo {
        let mut books = self.books();
        books.queues.push(QueueBook {
            limit,
            freezable,
            running: vec![0; cpus],
            started_once: Vec::new(),
            one_thread: false,
            thread: None,
        });
        books.queues.len() - 1
    }

    /// Expects all items of this queue to run in one and the same thread.
    pub(crate) fn expect_one_thread(&self, queue: QueueNo) {
        self.books().queues[queue].one_thread = true;
    }

    /// From now on the engine may be shutting down.
    pub(crate) fn shutting_down(&self) {
        self.books().shut = true;
    }

    /// Whether `shutting_down` was called.
    pub(crate) fn is_shut(&self) -> bool {
        self.books().shut
    }

    /// Uses the item's own count of releases without a run.
    pub(crate) fn watch_releases(&self, no: ItemNo, item: &Item) {
        self.books().items[no].released = item.releases();
    }

    /// From now on workers use these CPUs. An item bound to one CPU may run on another.
    pub(crate) fn allow(&self, cpus: &CpuSet) {
        self.books().allowed = Some(cpus.clone());
    }

    fn check_place(&self, no: ItemNo, host: &VirtualHost) {
        let (cpu, worker) = (host.cpu(), host.machine().is_worker());
        if let (true, Some(allowed)) = (worker, &self.books().allowed) {
            assert!(allowed.contains(cpu), "item {no} is on CPU {cpu}; allowed are {allowed}");
        }
    }

    /// The limit was raised. Call it for a lowered limit too: that applies to later starts only, so
    /// the check keeps the old one.
    pub(crate) fn raise_limit(&self, queue: QueueNo, to: u32) {
        if let Limit::InAll(limit) = &mut self.books().queues[queue].limit {
            *limit = (*limit).max(to);
        }
    }

    /// As `raise_limit`, for a queue with limits of nodes.
    pub(crate) fn raise_node_limits(&self, queue: QueueNo, max_active: u32, min_active: u32) {
        if let Limit::OnEachNode(limits) = &mut self.books().queues[queue].limit {
            limits.raise(max_active, min_active);
        }
    }

    /// The engine reports that freezable queues are frozen.
    pub(crate) fn frozen(&self) {
        let mut books = self.books();
        books.frozen = true;
        let frozen = books.queues.iter().filter(|queue| queue.freezable);
        let running: Vec<&[u32]> = frozen.map(|queue| &queue.running[..]).collect();
        assert!(running.iter().all(|by_cpu| by_cpu.iter().all(|&n| n == 0)), "busy: {running:?}");
    }

    /// A thaw will be called.
    pub(crate) fn thawing(&self) {
        self.books().frozen = false;
    }

    /// An item that is queued repeatedly; always on one queue if it has a home.
    pub(crate) fn add_item(&self, home: Option<QueueNo>) -> ItemNo {
        self.add(ItemBook { home, ..ItemBook::default() })
    }

    /// An item that is queued once.
    pub(crate) fn add_once(&self, home: QueueNo, cpu: Option<u32>) -> ItemNo {
        let by_node = matches!(self.books().queues[home].limit, Limit::OnEachNode(_));
        let (cpu, counts_at) = if by_node { (None, cpu) } else { (cpu, None) };
        self.add(ItemBook { home: Some(home), cpu, counts_at, once: true, ..ItemBook::default() })
    }

    /// An item that is armed once, and queued some time later.
    pub(crate) fn add_late(&self, home: QueueNo, cpu: Option<u32>, due: u64) -> ItemNo {
        self.add(ItemBook { home: Some(home), cpu, due, late: true, ..ItemBook::default() })
    }

    fn add(&self, item: ItemBook) -> ItemNo {
        let mut books = self.books();
        books.items.push(item);
        books.items.len() - 1
    }

    /// Wraps a call that queues or arms the item. `did` tells from its result whether it did.
    pub(crate) fn offer<R>(
        &self,
        no: ItemNo,
        call: impl FnOnce() -> R,
        did: impl Fn(&R) -> bool,
    ) -> R {
        let mut books = self.books();
        books.calls += 1;
        books.items[no].called = books.calls;
        books.items[no].offers += 1;
        drop(books);
        let result = call();
        let mut books = self.books();
        books.calls += 1;
        let now = books.calls;
        let item = &mut books.items[no];
        item.offers -= 1;
        item.queued += u64::from(did(&result));
        item.returned = now;
        result
    }

    /// Wraps a call that queues the item.
    pub(crate) fn queue(&self, no: ItemNo, call: impl FnOnce() -> Queued) -> Queued {
        let disabled = self.books().items[no].disabled > 0;
        let queued = self.offer(no, call, |&queued| queued == Queued::Yes);
        let still_disabled = self.books().items[no].disabled > 0;
        assert!(queued != Queued::Yes || !disabled || !still_disabled, "queued while disabled");
        queued
    }

    /// From now on the item is not due before this time.
    pub(crate) fn set_due(&self, no: ItemNo, at: u64) {
        self.books().items[no].due = at;
    }

    /// The item may be due at this time already.
    pub(crate) fn lower_due(&self, no: ItemNo, at: u64) {
        let item = &mut self.books().items[no];
        item.due = item.due.min(at);
    }

    /// Wraps a call that returns whether it cancelled the item.
    pub(crate) fn cancel(&self, no: ItemNo, call: impl FnOnce() -> bool) -> bool {
        self.books().items[no].cancels += 1;
        let was_pending = call();
        let item = &mut self.books().items[no];
        item.cancels -= 1;
        item.cancelled += u64::from(was_pending);
        was_pending
    }

    /// As `cancel`, for a call that waits for the run in progress.
    pub(crate) fn cancel_sync(&self, no: ItemNo, call: impl FnOnce() -> bool) -> bool {
        let started = self.books().items[no].started;
        let was_pending = self.cancel(no, call);
        let item = &self.books().items[no];
        assert!(item.finished >= started, "item {no} ran on behind a cancel: {item:?}");
        was_pending
    }

    /// A disable has returned.
    pub(crate) fn disabled(&self, no: ItemNo) {
        self.books().items[no].disabled += 1;
    }

    /// An enable will be called.
    pub(crate) fn enabling(&self, no: ItemNo) {
        self.books().items[no].disabled -= 1;
    }

    /// Wraps the item's function.
    pub(crate) fn run(&self, no: ItemNo, host: &VirtualHost, function: impl FnOnce()) {
        let cpu = host.cpu();
        self.check_place(no, host);
        self.start(no, cpu, host.time());
        self.check_thread(no, host.thread_id());
        function();
        self.check_place(no, host);
        let mut books = self.books();
        books.items[no].finished += 1;
        let at = books.items[no].counts_at.unwrap_or(cpu);
        if let Some(home) = books.items[no].home {
            books.queues[home].running[at as usize] -= 1;
        }
    }

    fn check_thread(&self, no: ItemNo, thread: u64) {
        let mut books = self.books();
        let Some(home) = books.items[no].home else { return };
        let shut = books.shut;
        let queue = &mut books.queues[home];
        let same = *queue.thread.get_or_insert(thread) == thread;
        // A shutdown lets the thread end, and a thaw or an item that queues another needs it again.
        let keeps = queue.one_thread && !shut;
        assert!(same || !keeps, "item {no} of queue {home} runs in another thread");
    }

    /// Whether the item's function has begun and not ended.
    pub(crate) fn is_running(&self, no: ItemNo) -> bool {
        let item = &self.books().items[no];
        item.started > item.finished
    }

    /// Whether nothing is queued on a queue that has only items of its own.
    pub(crate) fn is_empty(&self, queue: QueueNo) -> bool {
        let books = self.books();
        let mut theirs = books.items.iter().filter(|item| item.home == Some(queue));
        theirs.all(ItemBook::is_over)
    }

    fn start(&self, no: ItemNo, cpu: u32, now: u64) {
        let mut books = self.books();
        let item = &mut books.items[no];
        assert_eq!(item.started, item.finished, "item {no} runs twice at once: {item:?}");
        item.started += 1;
        let taken = item.started + item.cancelled;
        assert!(taken <= item.queued + item.offers, "item {no} runs unasked: {item:?}");
        assert_eq!(item.disabled, 0, "item {no} runs disabled: {item:?}");
        assert!(now >= item.due, "item {no} runs early, at {now}: {item:?}");
        let moved = books.allowed.is_some();
        let item = &books.items[no];
        let placed = moved || item.cpu.is_none_or(|wanted| wanted == cpu);
        assert!(placed, "not on CPU {cpu}: {item:?}");
        let (home, once, at) = (item.home, item.once, item.counts_at.unwrap_or(cpu) as usize);
        let Some(home) = home else { return };
        let frozen = books.frozen;
        let queue = &mut books.queues[home];
        assert!(!frozen || !queue.freezable, "item {no} of queue {home} starts while frozen");
        queue.running[at] += 1;
        let (running, cpus) = (queue.running.iter().sum::<u32>(), queue.running.len() as u32);
        match &queue.limit {
            // The items of a CPU that went offline run together with those of others.
            Limit::OnEachCpu(max) if moved => assert!(running <= max * cpus, "max_active"),
            Limit::OnEachCpu(max) => assert!(queue.running[at] <= *max, "max_active"),
            Limit::InAll(max) => assert!(running <= *max, "max_active"),
            // Also the items of a node together with those of others, whose shares have changed.
            Limit::OnEachNode(_) if moved => {}
            Limit::OnEachNode(limits) => limits.check(&queue.running),
        }
        if once {
            queue.started_once.push(no);
        }
    }

    /// The queueings that a flush of this queue that is called now has to wait for.
    pub(crate) fn queued_on(&self, queue: QueueNo) -> Before {
        let books = self.books();
        let theirs = books.items.iter().enumerate().filter(|(_, item)| item.home == Some(queue));
        // An armed item may not be queued yet; an item that has started was queued.
        let queued = |item: &ItemBook| if item.late { item.started } else { item.queued };
        Before(theirs.map(|(no, item)| (no, queued(item))).collect())
    }

    /// Wraps a flush of this item. A cancel meanwhile ends the wait, which is for the last
    /// queueing: a run of an earlier queueing may then still be in progress.
    pub(crate) fn flush_item(&self, no: ItemNo, item: &Item, flush: impl FnOnce() -> bool) {
        let before = self.books().items[no].clone();
        let _ = flush();
        let after = self.books().items[no].clone();
        let shut = self.is_shut();
        let cancelled = shut || after.cancelled > before.cancelled || after.cancels > 0;
        let over = after.over_at_most() + u64::from(item.released());
        assert!(
            cancelled || over >= before.queued,
            "a flush left item {no} behind: {before:?}, {after:?}"
        );
    }

    /// A flush has returned. Items that the engine released without a run count as ended.
    pub(crate) fn check_over(&self, before: &Before, what: &str) {
        let books = self.books();
        for &(no, queued) in &before.0 {
            let item = &books.items[no];
            let over = books.shut || item.over_at_most() >= queued;
            assert!(over, "{what} left item {no} behind: {item:?}");
        }
    }

    /// Every queueing has ended: the item ran, was cancelled, or was released.
    pub(crate) fn check_all_over(&self) {
        for (no, item) in self.books().items.iter().enumerate() {
            assert!(item.is_over(), "item {no}: {item:?}");
            assert_eq!(item.started, item.finished, "item {no}: {item:?}");
        }
    }

    /// Checks that the items that were queued once started in order. Item A must start before item
    /// B if the call that queued A had returned when the call that queued B began.
    pub(crate) fn check_order(&self, queue: QueueNo) {
        self.check_order_of(queue, |_| true);
    }

    /// As `check_order`, among the items that were queued on the same CPU.
    pub(crate) fn check_order_on_each_cpu(&self, queue: QueueNo) {
        let cpus = self.books().queues[queue].running.len() as u32;
        (0..cpus).for_each(|cpu| self.check_order_of(queue, |item| item.cpu == Some(cpu)));
    }

    fn check_order_of(&self, queue: QueueNo, counts: impl Fn(&ItemBook) -> bool) {
        let books = self.books();
        let mut latest_call = 0;
        for &no in &books.queues[queue].started_once {
            let item = &books.items[no];
            if !counts(item) {
                continue;
            }
            assert!(item.returned > latest_call, "item {no} was overtaken: {item:?}");
            latest_call = latest_call.max(item.called);
        }
    }
}
