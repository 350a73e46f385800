//! What was asked of the engine, and what it did: kept by the test, compared with the promises.
//!
//! Counts are taken down before and after each call. Where several threads are at an item at once,
//! a check allows for whatever those calls may just be doing.

use std::sync::{Mutex, MutexGuard, PoisonError};

use uwork_engine::Queued;
use uwork_policy::cpuset::CpuSet;

use crate::host::VirtualHost;
use crate::item::Item;

/// How many items of a queue may run at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    OnEachCpu(u32),
    InAll(u32),
}

/// A queue, by its number in the ledger.
pub(crate) type QueueNo = usize;
/// An item, by its number in the ledger.
pub(crate) type ItemNo = usize;

#[derive(Default)]
struct Books {
    queues: Vec<QueueBook>,
    items: Vec<ItemBook>,
    /// Counts the calls that queue something.
    calls: u64,
    /// The CPUs that workers may use, once that has changed.
    allowed: Option<CpuSet>,
}

struct QueueBook {
    limit: Limit,
    /// Running items by CPU.
    running: Vec<u32>,
    /// Items that are queued once only, in the order in which they started.
    started_once: Vec<ItemNo>,
}

/// One item's book.
#[derive(Clone, Debug, Default)]
struct ItemBook {
    /// The queue that it is always queued on, if that is so.
    home: Option<QueueNo>,
    /// The CPU that it must run on.
    cpu: Option<u32>,
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
}

impl ItemBook {
    /// Queueings that are over, or may just be.
    fn over_at_most(&self) -> u64 {
        self.finished + self.cancelled + self.cancels
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

    pub(crate) fn add_queue(&self, limit: Limit, cpus: usize) -> QueueNo {
        let mut books = self.books();
        let started_once = Vec::new();
        books.queues.push(QueueBook { limit, running: vec![0; cpus], started_once });
        books.queues.len() - 1
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

    /// An item that is queued again and again; on one queue if it has a home.
    pub(crate) fn add_item(&self, home: Option<QueueNo>) -> ItemNo {
        self.add(ItemBook { home, ..ItemBook::default() })
    }

    /// An item that is queued once.
    pub(crate) fn add_once(&self, home: QueueNo, cpu: Option<u32>) -> ItemNo {
        self.add(ItemBook { home: Some(home), cpu, once: true, ..ItemBook::default() })
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
        function();
        self.check_place(no, host);
        let mut books = self.books();
        books.items[no].finished += 1;
        if let Some(home) = books.items[no].home {
            books.queues[home].running[cpu as usize] -= 1;
        }
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
        let (home, once) = (item.home, item.once);
        let Some(home) = home else { return };
        let queue = &mut books.queues[home];
        queue.running[cpu as usize] += 1;
        let (running, cpus) = (queue.running.iter().sum::<u32>(), queue.running.len() as u32);
        match queue.limit {
            // The items of a CPU that left run among those of others.
            Limit::OnEachCpu(max) if moved => assert!(running <= max * cpus, "max_active"),
            Limit::OnEachCpu(max) => assert!(queue.running[cpu as usize] <= max, "max_active"),
            Limit::InAll(max) => assert!(running <= max, "max_active"),
        }
        if once {
            queue.started_once.push(no);
        }
    }

    /// What a flush of this queue that is called now has to wait for.
    pub(crate) fn queued_on(&self, queue: QueueNo) -> Before {
        let books = self.books();
        let theirs = books.items.iter().enumerate().filter(|(_, item)| item.home == Some(queue));
        Before(theirs.map(|(no, item)| (no, item.queued)).collect())
    }

    /// Around a flush of this item. A cancel meanwhile ends the wait, which is for the last
    /// queueing: a run of an earlier one may go on then.
    pub(crate) fn flush_item(&self, no: ItemNo, item: &Item, flush: impl FnOnce() -> bool) {
        let before = self.books().items[no].clone();
        let _ = flush();
        let after = &self.books().items[no];
        let cancelled = after.cancelled > before.cancelled || after.cancels > 0;
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
            assert!(item.over_at_most() >= queued, "{what} left item {no} behind: {item:?}");
        }
    }

    /// Everything is over. `released` is how often the engine let go of an item unrun.
    pub(crate) fn check_end(&self, no: ItemNo, released: u32) {
        let item = &self.books().items[no];
        let over = item.finished + item.cancelled + u64::from(released);
        assert_eq!(item.queued, over, "item {no}: {item:?}, released {released}");
        assert_eq!(item.started, item.finished, "item {no}: {item:?}");
        assert_eq!((item.offers, item.cancels), (0, 0), "item {no}: {item:?}");
    }

    /// The items that were queued once started in order: no item before one whose queueing had
    /// returned when that of the first was called.
    pub(crate) fn check_order(&self, queue: QueueNo) {
        let books = self.books();
        let mut latest_call = 0;
        for &no in &books.queues[queue].started_once {
            let item = &books.items[no];
            assert!(item.returned > latest_call, "item {no} was overtaken: {item:?}");
            latest_call = latest_call.max(item.called);
        }
    }
}
