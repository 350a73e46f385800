//! What was asked of the engine, and what it did: kept by the test, compared with the promises.
//!
//! Counts are taken down before and after each call. Where several threads are at an item at once,
//! a check allows for whatever those calls may just be doing.

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

/// Limits of the nodes that items were queued on, wherever they run.
#[derive(Clone, Debug)]
pub(crate) struct NodeLimits {
    /// The node of each CPU.
    node_of: Vec<usize>,
    /// The limit of each node: the highest so far, as a lower one holds for those that are taken
    /// later, of which nothing is known here.
    max: Vec<u32>,
}

impl NodeLimits {
    /// By the node of each CPU; all of them are in use.
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
    /// Whether nothing of a queue that takes part in freezing may run.
    frozen: bool,
    /// Whether the engine shuts down: then a flush may end as items are let go of.
    shut: bool,
    /// Counts the calls that queue something.
    calls: u64,
    /// The CPUs that workers may use, once that has changed.
    allowed: Option<CpuSet>,
}

struct QueueBook {
    limit: Limit,
    freezable: bool,
    /// Running items by CPU; of a queue with limits of nodes, by the CPU that they were queued on.
    running: Vec<u32>,
    /// Items that are queued once only, in the order in which they started.
    started_once: Vec<ItemNo>,
    /// The one thread that runs them all: whether there is to be one, and which it is.
    one_thread: bool,
    thread: Option<u64>,
}

/// One item's book.
#[derive(Clone, Debug, Default)]
struct ItemBook {
    /// The queue that it is always queued on, if that is so.
    home: Option<QueueNo>,
    /// The CPU that it must run on.
    cpu: Option<u32>,
    /// The CPU that it was queued on, where that is what counts.
    counts_at: Option<u32>,
    /// Whether it is queued once only; then the numbers of the queueing's first and last moment.
    once: bool,
    called: u64,
    returned: u64,
    /// Calls going on that may queue it, and those that did.
    offers: u64,
    queued: u64,
    started: u64,
    finished: u64,
    /// Calls going on that may take it back, and those that did.
    cancels: u64,
    cancelled: u64,
    /// Times that a disable has returned and its enable was not called yet.
    disabled: u64,
    /// It is not due before this time.
    due: u64,
    /// Whether it is armed, and queued when that is due.
    late: bool,
    /// Where it is counted that the engine let go of it unrun.
    released: Arc<AtomicU32>,
}

impl ItemBook {
    /// Queueings that are over, or may just be.
    fn over_at_most(&self) -> u64 {
        self.finished + self.cancelled + self.cancels
    }

    fn released(&self) -> u64 {
        u64::from(self.released.load(Ordering::Relaxed))
    }

    /// Whether every queueing is over, and no call is going on that may change that.
    fn is_over(&self) -> bool {
        let over = self.finished + self.cancelled + self.released();
        self.queued == over && self.offers == 0 && self.cancels == 0
    }
}

/// What a flush has to wait for: queueings by item.
pub(crate) struct Before(Vec<(ItemNo, u64)>);

/// See the module.
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

    /// All items of this queue run in one and the same thread.
    pub(crate) fn expect_one_thread(&self, queue: QueueNo) {
        self.books().queues[queue].one_thread = true;
    }

    /// From now on the engine may shut down.
    pub(crate) fn shutting_down(&self) {
        self.books().shut = true;
    }

    /// Whether `shutting_down` was called.
    pub(crate) fn is_shut(&self) -> bool {
        self.books().shut
    }

    /// What the engine lets go of unrun is counted there.
    pub(crate) fn watch_releases(&self, no: ItemNo, item: &Item) {
        self.books().items[no].released = item.releases();
    }

    /// From now on workers use these CPUs. What was meant for one CPU may run on another.
    pub(crate) fn allow(&self, cpus: &CpuSet) {
        self.books().allowed = Some(cpus.clone());
    }

    fn check_place(&self, no: ItemNo, host: &VirtualHost) {
        let (cpu, worker) = (host.cpu(), host.machine().is_worker());
        if let (true, Some(allowed)) = (worker, &self.books().allowed) {
            assert!(allowed.contains(cpu), "item {no} is on CPU {cpu}; allowed are {allowed}");
        }
    }

    /// The limit was raised; a lower one holds for those that start later, so nothing is said then.
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

    /// The engine says that what takes part in freezing has come to rest.
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

    /// An item that is queued again and again; on one queue if it has a home.
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

    /// Around a call that queues or arms the item: it answers whether it did.
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

    /// Around a call that queues the item.
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

    /// Around a call that answers whether it took the item back.
    pub(crate) fn cancel(&self, no: ItemNo, call: impl FnOnce() -> bool) -> bool {
        self.books().items[no].cancels += 1;
        let was_pending = call();
        let item = &mut self.books().items[no];
        item.cancels -= 1;
        item.cancelled += u64::from(was_pending);
        was_pending
    }

    /// As `cancel`, for one that waits for the run that is going on.
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

    /// Around the item's function.
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
        let queue = &mut books.queues[home];
        let same = *queue.thread.get_or_insert(thread) == thread;
        assert!(same || !queue.one_thread, "item {no} of queue {home} runs in another thread");
    }

    /// Whether the item's function has begun and not ended.
    pub(crate) fn is_running(&self, no: ItemNo) -> bool {
        let item = &self.books().items[no];
        item.started > item.finished
    }

    /// Whether nothing is queued on a queue that only items of its own are queued on.
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
            // The items of a CPU that left run among those of others.
            Limit::OnEachCpu(max) if moved => assert!(running <= max * cpus, "max_active"),
            Limit::OnEachCpu(max) => assert!(queue.running[at] <= *max, "max_active"),
            Limit::InAll(max) => assert!(running <= *max, "max_active"),
            // And those of a node among those of others, whose shares have changed.
            Limit::OnEachNode(_) if moved => {}
            Limit::OnEachNode(limits) => limits.check(&queue.running),
        }
        if once {
            queue.started_once.push(no);
        }
    }

    /// What a flush of this queue that is called now has to wait for.
    pub(crate) fn queued_on(&self, queue: QueueNo) -> Before {
        let books = self.books();
        let theirs = books.items.iter().enumerate().filter(|(_, item)| item.home == Some(queue));
        // One that is armed may not be queued yet; one that has started was.
        let queued = |item: &ItemBook| if item.late { item.started } else { item.queued };
        Before(theirs.map(|(no, item)| (no, queued(item))).collect())
    }

    /// Around a flush of this item. A cancel meanwhile ends the wait, which is for the last
    /// queueing: a run of an earlier one may go on then.
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

    /// A flush has returned. Items that the engine let go of unrun count as over.
    pub(crate) fn check_over(&self, before: &Before, what: &str) {
        let books = self.books();
        for &(no, queued) in &before.0 {
            let item = &books.items[no];
            let over = books.shut || item.over_at_most() >= queued;
            assert!(over, "{what} left item {no} behind: {item:?}");
        }
    }

    /// Everything is over: it was run, taken back, or let go of.
    pub(crate) fn check_all_over(&self) {
        for (no, item) in self.books().items.iter().enumerate() {
            assert!(item.is_over(), "item {no}: {item:?}");
            assert_eq!(item.started, item.finished, "item {no}: {item:?}");
        }
    }

    /// The items that were queued once started in order: no item before one whose queueing had
    /// returned when that of the first was called.
    pub(crate) fn check_order(&self, queue: QueueNo) {
        self.check_order_of(queue, |_| true);
    }

    /// As `check_order`, among those that were queued on one and the same CPU.
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
