//! The passage of time: which items are runnable, which runs count as running, and the verdict.

use uwork_policy::blocking::Tier;

use super::pool::Pool;
use super::rules::{EXPOSED_NS, SCAN_NS};
use super::{Group, NEVER, Oracle, Pending, PoolNo, Stance, State};
use crate::machine::ThreadId;

impl Oracle {
    /// The state does not change from `now` to `until`.
    pub fn pass(
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
