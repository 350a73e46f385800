//! Enqueueing an item: the hottest path. Up to the push it takes no lock, allocates nothing and
//! counts nothing. It reads a clock only where the inbox is empty: that item tells how long it and
//! those behind it have waited.
//!
//! A submitter that has made its pwq ready settles the pool. If the pool is owed a wake, the
//! submitter takes the pool's lock to pick a worker; if it is owed a scan by the watcher, the
//! watcher's lock. If no worker is parked, the submitter takes one that a neighbour can spare, or
//! leaves its claim to the watcher, which spawns one. A submitter spawns a thread only for a pool
//! without any worker, or while no watcher serves: in a child after a fork.

use std::ptr::NonNull;

use uwork_policy::concurrency::wake_neighbour;
use uwork_policy::cpu_choice::{NodeChoice, choose_node};

use crate::account::COUNTED;
use crate::pool::Pool;
use crate::pool::progress::Maker;
use crate::queue::pwq::Pwq;
use crate::queue::{Destination, QueueError, Warned, Wq};
use crate::words::host::{Host, ItemProbe, Report, SubmissionProbe};
use crate::words::item::word::{Acquire, Owned};
use crate::words::item::{Location, Ticket, Work};

/// The result of enqueueing an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an item that was not queued stays with the caller"]
pub enum Queued {
    /// The item will run. From now on it belongs to the engine.
    Yes,
    /// The item was pending already: its next run sees everything that the caller wrote before.
    AlreadyPending,
    /// The item is disabled.
    Disabled,
    /// The queue drains or is being destroyed, and the caller is not one of its items.
    Refused,
}

impl Queued {
    /// Whether this call queued the item.
    pub fn is_queued(self) -> bool {
        self == Queued::Yes
    }
}

impl<H: Host> Wq<H> {
    /// Enqueues `work` for the calling CPU, or for an idle one of its pod.
    ///
    /// # Safety
    /// `work` is live, and stays so and at its address, until its function was called or a cancel
    /// has taken it back.
    #[inline(always)]
    pub unsafe fn queue(&self, work: NonNull<Work>) -> Queued {
        // SAFETY: by this function's contract.
        let owned = match unsafe { work.as_ref() }.word.acquire() {
            Acquire::Owned(owned) => owned,
            Acquire::Pending => return Queued::AlreadyPending,
        };
        // SAFETY: the caller's promise, and we own the item now.
        unsafe { self.queue_owned(work, owned, Destination::Here) }
    }

    /// Enqueues `work` for `cpu`.
    ///
    /// # Errors
    /// The CPU does not exist or the process may not use it; the item is unchanged.
    ///
    /// # Safety
    /// As [`Wq::queue`].
    pub unsafe fn queue_on(&self, cpu: u32, work: NonNull<Work>) -> Result<Queued, QueueError> {
        self.check_cpu(cpu)?;
        // SAFETY: by this function's contract.
        let owned = match unsafe { work.as_ref() }.word.acquire() {
            Acquire::Owned(owned) => owned,
            Acquire::Pending => return Ok(Queued::AlreadyPending),
        };
        // SAFETY: the caller's promise, and we own the item now.
        Ok(unsafe { self.queue_owned(work, owned, Destination::On(cpu)) })
    }

    /// Enqueues `work` for the calling CPU if it is on the NUMA node, else for the node's first, or for an
    /// idle CPU of that one's pod. Without a node, or with one that does not exist, this is [`Wq::queue`].
    ///
    /// # Errors
    /// The queue is a per-CPU one.
    ///
    /// # Safety
    /// As [`Wq::queue`].
    pub unsafe fn queue_node(
        &self,
        node: Option<u32>,
        work: NonNull<Work>,
    ) -> Result<Queued, QueueError> {
        if self.is_per_cpu() {
            return Err(QueueError::NotForThisKind(
                "enqueue_node is for unbound, ordered and dedicated queues; this one is per-CPU",
            ));
        }
        let local = self.engine().host().current_cpu();
        let (topology, allowed) = (&self.engine().config().topology, &self.engine().cpus().allowed);
        // If the CPU has just been taken away, the route of another one is used.
        let to = match choose_node(local, node, topology, allowed) {
            NodeChoice::Cpu(cpu) if cpu != local => Destination::Near(cpu),
            _ => Destination::Here,
        };
        // SAFETY: by this function's contract.
        let owned = match unsafe { work.as_ref() }.word.acquire() {
            Acquire::Owned(owned) => owned,
            Acquire::Pending => return Ok(Queued::AlreadyPending),
        };
        // SAFETY: by this function's contract.
        Ok(unsafe { self.queue_owned(work, owned, to) })
    }

    /// Enqueues an item that the caller owns.
    ///
    /// # Safety
    /// As [`Wq::queue`].
    #[inline(always)]
    pub(crate) unsafe fn queue_owned(
        &self,
        item: NonNull<Work>,
        owned: Owned,
        to: Destination,
    ) -> Queued {
        if !owned.is_fresh() || !self.looks_open() {
            // SAFETY: by this function's contract.
            return unsafe { self.queue_with_care(item, owned, to) };
        }
        let (pwq, cpu) = self.route_to(to);
        // SAFETY: by this function's contract.
        unsafe { self.push(item, pwq, cpu, false) };
        Queued::Yes
    }

    /// # Safety
    /// The item is live and the caller's; from here on it belongs to the pwq.
    #[inline(always)]
    pub(super) unsafe fn push(&self, item: NonNull<Work>, pwq: &Pwq<H>, cpu: u32, collision: bool) {
        // SAFETY: the item is live and ours.
        self.address(unsafe { item.as_ref() }, pwq, cpu, collision);
        // SAFETY: a chain of one item; by this function's contract.
        unsafe { self.push_addressed((item.as_ptr(), item.as_ptr()), pwq, cpu, collision) };
    }

    /// Notes in an item that it goes to this pwq, before the push. Takes no lock, and may be called
    /// with one.
    #[inline(always)]
    pub(crate) fn address(&self, work: &Work, pwq: &Pwq<H>, cpu: u32, collision: bool) {
        self.engine().host().probe_submission(|| SubmissionProbe {
            item: ItemProbe::of(work),
            queue: self.name(),
            requested_cpu: cpu,
            cpu: pwq.home().spec().single_cpu().and(pwq.home().cpu()),
        });
        let mut ticket = Ticket::new(pwq.id, collision);
        if let Some(tracer) = self.engine().host().tracer()
            && tracer.has_tokens()
        {
            let traced = self.engine().trace_queued(tracer, work, pwq.id, cpu);
            ticket = ticket.with_traced(traced);
        }
        work.set_placement(Location::Inbox, ticket);
    }

    /// Pushes a chain of addressed items, and makes the pwq ready.
    ///
    /// # Safety
    /// The items are live and the caller's, linked as [`Inbox::push_chain`] wants them; from here on
    /// they belong to the pwq.
    ///
    /// [`Inbox::push_chain`]: crate::words::inbox::Inbox::push_chain
    #[inline(always)]
    pub(super) unsafe fn push_addressed(
        &self,
        chain: (*mut Work, *mut Work),
        pwq: &Pwq<H>,
        cpu: u32,
        collision: bool,
    ) {
        // SAFETY: by this function's contract.
        unsafe { self.push_unready(chain, pwq) };
        self.make_pushed_ready(pwq, cpu, collision);
    }

    /// Pushes a chain of addressed items. The caller then makes the pwq ready. Takes no lock, and
    /// may be called with one.
    ///
    /// # Safety
    /// As [`Wq::push_addressed`].
    #[inline(always)]
    pub(crate) unsafe fn push_unready(&self, chain: (*mut Work, *mut Work), pwq: &Pwq<H>) {
        let note_time = |item: *mut Work| {
            if COUNTED {
                let now = if pwq.times_items() { self.engine().host().now() } else { 0 };
                // SAFETY: the item is live and ours until the push.
                unsafe { (*item).note_queued_at(now) };
            }
        };
        // SAFETY: by this function's contract.
        unsafe { pwq.inbox.push_chain(chain, note_time) };
    }

    /// Makes a pwq ready after a push.
    #[inline(always)]
    fn make_pushed_ready(&self, pwq: &Pwq<H>, cpu: u32, collision: bool) {
        // Every submitter tries, not only the first to push: that thread may be preempted before it
        // gets here. The flag shares the inbox's cache line. Order: push, then read the flag; its
        // partner is `unsaturate`, or `pin` and the splice after it (README.md of the pwq).
        if pwq.claim_ready() {
            self.make_claimed_ready(pwq, cpu, collision);
        }
    }

    /// Enqueues an item that has run before, or one on a queue that drains.
    ///
    /// # Safety
    /// As [`Wq::queue`].
    unsafe fn queue_with_care(&self, item: NonNull<Work>, owned: Owned, to: Destination) -> Queued {
        // SAFETY: the item is live and ours.
        let (running_on, collision) = match self.check_admission(unsafe { item.as_ref() }, owned) {
            Admission::Refuse(outcome) => return outcome,
            Admission::Admit => (None, false),
            Admission::Collision(pwq) => (pwq, true),
        };
        let (pwq, cpu) = match running_on {
            Some(pwq) => (pwq, to.cpu(self.engine())),
            None => self.route_to(to),
        };
        // SAFETY: by this function's contract.
        unsafe { self.push(item, pwq, cpu, collision) };
        Queued::Yes
    }

    /// The checks that an item needs unless it is enqueued for the first time.
    #[inline]
    fn check_admission(&self, work: &Work, owned: Owned) -> Admission<'_, H> {
        if owned.disable_depth() > 0 {
            work.word.release(owned);
            return Admission::Refuse(Queued::Disabled);
        }
        if !self.admits_caller() {
            // Before the report, which calls code of the user.
            work.word.release(owned);
            self.report_refusal();
            return Admission::Refuse(Queued::Refused);
        }
        if !self.still_runs(work) {
            return Admission::Admit;
        }
        // The item goes to the pwq on which it runs, if that belongs to this queue. It stays close
        // to its data, and an item that enqueues itself stays there when the attributes change.
        let pwq = self.engine().pwqs.get(work.ticket().pwq());
        Admission::Collision(pwq.filter(|pwq| self.owns(pwq) && !self.is_ordered()))
    }

    /// Whether the last run of an item that the caller owns, or holds in its list, is in progress.
    #[inline]
    pub(crate) fn still_runs(&self, work: &Work) -> bool {
        let Some(run) = work.word.owned().last_run() else { return false };
        self.engine().slots.get(run.slot).is_some_and(|slot| slot.is_running(run.run))
    }

    /// Whether the queue accepts all items at present: see [`Gate::looks_open`].
    ///
    /// [`Gate::looks_open`]: crate::queue::gate::Gate::looks_open
    #[inline(always)]
    pub(crate) fn looks_open(&self) -> bool {
        self.gate.looks_open()
    }

    /// Whether the queue accepts an item of the caller, who does not own the item yet. A refusal is
    /// reported.
    pub(super) fn admits_caller_or_reports(&self) -> bool {
        let admits = self.admits_caller();
        if !admits {
            self.report_refusal();
        }
        admits
    }

    /// Reports the first refusal.
    #[cold]
    fn report_refusal(&self) {
        if self.warn_once(Warned::REFUSED) {
            let queue = self.name().to_owned();
            self.engine().caller().report(Report::QueuedWhileDraining { queue });
        }
    }

    /// Puts a pwq, whose readiness the caller claimed, on its pool's ready list, and settles the
    /// pool.
    #[inline(never)]
    pub(crate) fn make_claimed_ready(&self, pwq: &Pwq<H>, cpu: u32, collision: bool) {
        // The only pwq of an ordered queue goes to the pool of the submitting CPU; every other pwq
        // has a home pool.
        let pool = match self.is_ordered() && !collision {
            true => self.pool_for(cpu),
            false => pwq.home(),
        };
        if pool.spec().saves {
            pool.note_slack(self.timer_slack());
        }
        let changed = pool.push_ready(pwq);
        changed.settle_for_submitter(self.engine());
        if pool.spec().shares && pool.state.counts().running >= pool.target() {
            self.consider_neighbour(pool);
        }
    }

    /// In a child after a fork: makes the pwqs ready whose items the child has inherited.
    pub(crate) fn start_inherited(&self) {
        let cpu = self.engine().host().current_cpu();
        for pwq in self.pwq_ids().into_iter().filter_map(|(id, _)| self.engine().pwqs.get(id)) {
            // A flush has moved them from the inbox.
            let waits = !pwq.inbox.is_empty() || !pwq.lock().worklist.is_empty();
            if waits && pwq.claim_ready() {
                self.make_claimed_ready(pwq, cpu, false);
            }
        }
    }

    /// The pool is busy. If its items are long, a neighbour may spare a worker. The watcher handles
    /// items that are unexpectedly long; this path does not measure them.
    fn consider_neighbour(&self, pool: &Pool<H>) {
        if wake_neighbour(1, pool.estimate()) {
            pool.wake_neighbour_worker(self.engine(), Maker::Watch);
        }
    }
}

/// Whether an item may be enqueued, and where.
enum Admission<'a, H: Host> {
    Refuse(Queued),
    Admit,
    /// The item still runs. The pwq is the one on which it runs, if that belongs to this queue.
    Collision(Option<&'a Pwq<H>>),
}
