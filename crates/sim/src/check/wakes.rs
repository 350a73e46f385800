//! The economy of wakes: a worker is woken for an item.
//!
//! A wake of a worker that idles is justified by one of these:
//!
//! - The worker starts an item before it parks again.
//! - An item of a queue that the worker's pool serves was pending during the waker's step, that is,
//!   since the waker's previous entry. Another worker was faster then, or the queue was at its
//!   limit, which the woken worker had to find out: limits are shared by pools.
//! - A cancel, or a waiter that helped, took an item out of such a queue, and the queue is still
//!   marked as ready. Each such mark justifies one wake in vain: then the pool is scanned, which
//!   clears it. Two wakes scan nothing: one while another worker of the pool is in an item, because
//!   the surplus worker parks at once, and one by the watcher, for a pool beside the marked one.
//! - The waker changes the CPUs: the workers of pools that no queue leads to any more look whether they
//!   are to end, and at deferrable timers.
//! - The script has ended, and the workers are woken to end too.
//!
//! Not checked are wakes of rescuers and of the engine's own threads, and how many workers are woken
//! for one item: that follows from the order in which threads run.

use super::Case;
use crate::machine::ThreadId;
use crate::script::QueueKind;
use crate::tape::{Call, Entry, What};
use uwork_policy::flags::Flags;

/// The engine's threads that are no workers of pools: by name, or by the begin of a name.
const SERVICES: [&str; 5] = ["uw/report", "uw/reaper", "uw/release", "uw/standby", "uw/R-"];
const WATCHER: &str = "uw/watch";

/// Why a worker was woken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// An item was pending.
    Item,
    /// A queue may have been marked as ready, without an item.
    Mark,
    /// The CPUs change.
    Change,
    Nothing,
}

/// A wake whose worker has not yet run an item or parked.
#[derive(Clone, Copy)]
struct Wake {
    at: usize,
    waker: ThreadId,
    reason: Reason,
}

/// A queue's items. Positions are those of entries; 0 is before all.
#[derive(Clone, Copy, Default)]
struct Items {
    pending: usize,
    /// Where an item was pending last, if none is now.
    pending_until: usize,
    /// Where an item was last taken out in another way than by a worker.
    taken_out: usize,
}

/// The workers of one name.
struct Pool {
    /// Which queues it serves.
    serves: Vec<bool>,
    /// Where it was last scanned in vain.
    scanned: usize,
}

struct Economy<'a> {
    case: &'a Case<'a>,
    /// Which entries begin a submission that is accepted.
    accepted: Vec<bool>,
    items: Vec<Items>,
    pools: Vec<Pool>,
    /// The pool of each thread that is a worker.
    pool_of: Vec<Option<usize>>,
    /// The runs in progress of each thread.
    depth: Vec<u32>,
    /// The last entry of each thread that begins a step.
    step: Vec<usize>,
    /// Whether the thread has changed the CPUs in its present step of the script.
    changes_cpus: Vec<bool>,
    woken: Vec<Option<Wake>>,
}

impl Case<'_> {
    /// Each wake of a worker is justified by an item; see the module.
    pub(super) fn wakes(&self) -> Option<String> {
        let mut economy = Economy::new(self);
        let entries = self.run.tape.entries().iter().enumerate();
        let mut entries = entries.take_while(|(_, entry)| entry.what != What::Retires);
        entries.find_map(|(at, entry)| economy.next(at, entry))
    }

    /// Whether the workers of this name serve this queue.
    fn serves(&self, name: &str, queue: usize) -> bool {
        let line = &self.script.queues[queue];
        let pod = name.trim_start_matches("uw/");
        match line.kind {
            QueueKind::Bh => pod.starts_with("bh"),
            QueueKind::Dedicated => pod.starts_with('k'),
            QueueKind::Unbound | QueueKind::Ordered => pod.starts_with('u'),
            QueueKind::PerCpu => {
                let is_bound = pod.starts_with(|first: char| first.is_ascii_digit());
                is_bound && pod.ends_with('H') == line.flags.contains(Flags::HIGHPRI)
            }
        }
    }
}

impl<'a> Economy<'a> {
    fn new(case: &'a Case<'a>) -> Economy<'a> {
        let (names, queues) = (&case.run.threads, case.script.queues.len());
        let mut accepted = vec![false; case.run.tape.entries().len()];
        for made in case.items.iter().flat_map(|item| &item.calls) {
            accepted[made.begin] = made.is_accepted();
        }
        let mut economy = Economy {
            case,
            accepted,
            items: vec![Items::default(); queues],
            pools: Vec::new(),
            pool_of: Vec::with_capacity(names.len()),
            depth: vec![0; names.len()],
            step: vec![0; names.len()],
            changes_cpus: vec![false; names.len()],
            woken: vec![None; names.len()],
        };
        for (thread, name) in names.iter().enumerate() {
            let is_service = SERVICES.iter().any(|service| name.starts_with(service));
            let is_worker = name.starts_with("uw/") && name != WATCHER && !is_service;
            let known = names[..thread].iter().position(|other| other == name);
            economy.pool_of.push(match known {
                _ if !is_worker => None,
                Some(other) => economy.pool_of[other],
                None => {
                    let serves = (0..queues).map(|queue| case.serves(name, queue)).collect();
                    economy.pools.push(Pool { serves, scanned: 0 });
                    Some(economy.pools.len() - 1)
                }
            });
        }
        economy
    }

    /// The next entry. Returns the violation that it completes.
    fn next(&mut self, at: usize, entry: &Entry) -> Option<String> {
        let thread = entry.thread;
        match entry.what {
            What::Begins(Call::Queue(_) | Call::Arm, no) if self.accepted[at] => {
                self.items_of(no).pending += 1;
            }
            What::Ends(Call::Cancel | Call::CancelSync, no, true) => self.take_out(no, at, true),
            What::Starts(no) => {
                let helps = self.depth[thread] > 0 || self.pool_of[thread].is_none();
                self.take_out(no, at, helps);
                self.depth[thread] += 1;
                self.woken[thread] = None;
            }
            What::Finishes(_) => self.depth[thread] -= 1,
            What::Wakes(worker) if self.depth[worker] == 0 => {
                let reason = |pool| match self.changes_cpus[thread] {
                    true => Reason::Change,
                    false => self.reason(pool, self.step[thread]),
                };
                let wake = |pool| Wake { at, waker: thread, reason: reason(pool) };
                self.woken[worker] = self.pool_of[worker].map(wake);
            }
            What::Parks | What::Exits if self.depth[thread] == 0 => {
                let wake = self.woken[thread].take()?;
                self.end_in_vain(at, thread, wake)?;
                let (name, waker) = (&self.case.run.threads[thread], self.case.at(wake.at));
                let by = &self.case.run.threads[wake.waker];
                return Some(format!(
                    "worker {thread} ({name}) is woken at {waker} by thread {} ({by}), and no item is \
                     pending for it",
                    wake.waker
                ));
            }
            _ => {}
        }
        match entry.what {
            What::Restricts(_) => self.changes_cpus[thread] = true,
            What::Begins(..) | What::Ends(..) | What::Sleeps => self.changes_cpus[thread] = false,
            _ => {}
        }
        let begins_step = matches!(
            entry.what,
            What::Begins(..)
                | What::Ends(..)
                | What::Starts(_)
                | What::Finishes(_)
                | What::Parks
                | What::Unparked
        );
        if begins_step {
            self.step[thread] = at;
        }
        None
    }

    fn items_of(&mut self, no: usize) -> &mut Items {
        &mut self.items[self.case.queue_of(no)]
    }

    /// An item is pending no longer. `leaves_mark`: not because a worker took it.
    fn take_out(&mut self, no: usize, at: usize, leaves_mark: bool) {
        let items = self.items_of(no);
        // A cancel may end after a later submission has begun, so the count may be short.
        items.pending = items.pending.saturating_sub(1);
        items.pending_until = at;
        if leaves_mark {
            items.taken_out = at;
        }
    }

    /// Why a worker of this pool is woken now, in a step that began at `step`.
    fn reason(&self, pool: usize, step: usize) -> Reason {
        let Pool { serves, scanned } = &self.pools[pool];
        let queues = || self.items.iter().zip(serves).filter(|(_, serves)| **serves);
        let has_item = |items: &Items| items.pending > 0 || items.pending_until >= step;
        if queues().any(|(items, _)| has_item(items)) {
            Reason::Item
        } else if queues().any(|(items, _)| items.taken_out > *scanned) {
            Reason::Mark
        } else {
            Reason::Nothing
        }
    }

    /// A worker parks or ends without having run an item. Returns `Some` if it was woken for
    /// nothing.
    fn end_in_vain(&mut self, at: usize, worker: ThreadId, wake: Wake) -> Option<()> {
        let pool = self.pool_of[worker].expect("a worker");
        let is_surplus =
            |thread: ThreadId| self.depth[thread] > 0 && self.pool_of[thread] == Some(pool);
        let by_watcher = self.case.run.threads[wake.waker] == WATCHER;
        if wake.reason == Reason::Mark && !by_watcher && !(0..self.depth.len()).any(is_surplus) {
            self.pools[pool].scanned = at;
        }
        (wake.reason == Reason::Nothing).then_some(())
    }
}
