//! The scheduler: which thread gets which CPU.
//!
//! A normal thread that is ready takes a CPU that is free, or else one that a thread of the idle
//! class holds. A thread of the idle class gets a CPU only if no normal thread can use it. So it
//! loses its CPU in the instant in which a normal thread becomes ready there, and gets the CPU in
//! the instant in which the last normal thread leaves it.

use std::borrow::Cow;

use uwork_policy::cpuset::CpuSet;

use crate::tape::What;

use super::{Doing, Machine, Next, Thread, ThreadId};

/// The limit on dispatches at one instant. Beyond it, the threads run in a livelock.
const DISPATCHES_AT_ONE_TIME_MAX: u64 = 100_000;
/// The CPU time of a yield of a thread of the idle class: such a thread may poll, and the clock must
/// advance all the same.
pub const IDLE_YIELD_NS: u64 = 10_000;

/// A ready thread, by its index in the list, and a CPU for it.
type Choice = (usize, u32);

impl Machine {
    /// From now on, the executing thread belongs to the idle class. It continues at its next pause
    /// under the rules of that class.
    pub fn join_idle_class(&mut self) {
        let current = self.current.expect("called from outside of the simulation");
        self.threads[current].is_idle_class = true;
        self.holders.set(self.threads[current].cpu, current, true);
        self.no_choice_until = 0;
    }

    /// See [`VirtualHost::claim_real_time`](crate::host::VirtualHost::claim_real_time).
    pub fn claim_real_time(&mut self) {
        let current = self.current.expect("called from outside of the simulation");
        self.threads[current].is_real_time = true;
    }

    /// Whether the executing thread says that it has a real-time policy.
    pub fn is_real_time(&self) -> bool {
        self.current_thread().is_real_time
    }

    /// The CPU time that a yield of the executing thread takes.
    pub fn yield_ns(&self) -> u64 {
        if self.current_thread().is_idle_class { IDLE_YIELD_NS } else { 0 }
    }

    /// Whether no normal thread holds this CPU.
    pub(super) fn is_idle(&self, cpu: u32) -> bool {
        self.holders.is_free(cpu) || self.holders.idle_class().contains(cpu)
    }

    /// Takes the CPU from a burning thread, which continues once a CPU is free.
    pub(super) fn evict(&mut self, id: ThreadId) {
        let thread = &mut self.threads[id];
        self.holders.clear(thread.cpu);
        thread.doing = Doing::Ready;
        thread.keeps_cpu = false;
        // The end event of the interrupted burn is void.
        thread.pause += 1;
        thread.burn = thread.burns_until - self.now;
        thread.burnt -= thread.burn;
        self.push_ready(id);
        self.record(id, What::Evicted);
        self.counts.evictions += 1;
        self.note_switch(id);
    }

    /// The next thread to execute. Advances the clock when no thread can.
    pub fn dispatch(&mut self) -> Next {
        loop {
            if let Some(id) = self.continuing.pop_front() {
                self.count_dispatch();
                self.threads[id].doing = Doing::Running;
                self.current = Some(id);
                return Next::Run(id);
            }
            while let Some((at, cpu)) = self.next_choice() {
                let id = self.ready.remove(at).expect("chosen from the list");
                self.count_dispatch();
                let thread = &mut self.threads[id];
                thread.cpu = cpu;
                thread.is_woken = false;
                thread.delayed += thread.ready_since.take().map_or(0, |since| self.now - since);
                thread.burns_since = self.now;
                self.holders.set(cpu, id, thread.is_idle_class);
                let switch_ns = self.bill.as_mut().map_or(0, |bill| bill.switch_ns(cpu, id));
                let burn = std::mem::take(&mut thread.burn) + switch_ns;
                if burn > 0 {
                    self.record(id, What::Burns(burn));
                }
                let thread = &mut self.threads[id];
                if burn == 0 {
                    thread.doing = Doing::Running;
                    self.current = Some(id);
                    return Next::Run(id);
                }
                thread.doing = Doing::Burning;
                thread.keeps_cpu = false;
                thread.burnt += burn;
                thread.is_sliced = false;
                thread.burns_until = self.now + burn;
                self.add_event(self.now + burn, id);
            }
            if self.next_event().is_some_and(|at| at > self.bound_ns) {
                return Next::Over;
            }
            if !self.advance() {
                let done = self.threads.iter().all(|thread| thread.doing == Doing::Gone);
                return if done { Next::Done } else { Next::Stuck };
            }
        }
    }

    fn count_dispatch(&mut self) {
        self.dispatches += 1;
        self.dispatches_now += 1;
        assert!(
            self.dispatches_now < DISPATCHES_AT_ONE_TIME_MAX,
            "time stands still: the threads only let each other go first"
        );
        assert!(self.dispatches < self.dispatches_max, "no end: a thread polls for ever");
    }

    /// Normal threads first: on a free CPU, on one of the idle class, then by time slices.
    ///
    /// The search is long where many threads wait for few CPUs. So a search in vain is remembered.
    fn next_choice(&mut self) -> Option<Choice> {
        if self.ready.is_empty() || self.now < self.no_choice_until {
            return None;
        }
        self.no_choice_until = u64::MAX;
        let choice = self
            .choose(false)
            .or_else(|| self.choose_over_idle_class())
            .or_else(|| self.choose_by_eviction())
            .or_else(|| self.choose(true));
        if choice.is_some() {
            self.no_choice_until = 0;
        }
        choice
    }

    /// The CPUs that a ready thread may get now.
    fn cpus_for<'a>(&self, thread: &'a Thread) -> Cow<'a, CpuSet> {
        match self.only_cpu_for(thread) {
            Some(cpu) => Cow::Owned(CpuSet::single(cpu)),
            None => Cow::Borrowed(&thread.cpus),
        }
    }

    /// The CPU of an evicted thread that stays there.
    fn only_cpu_for(&self, thread: &Thread) -> Option<u32> {
        let stays = self.chaos.stays_on_cpu && !thread.is_woken;
        Some(thread.cpu).filter(|&cpu| stays && thread.cpus.contains(cpu))
    }

    /// A ready thread of this class, and a free CPU for it.
    fn choose(&mut self, idle_class: bool) -> Option<Choice> {
        if self.holders.free().is_empty() {
            return None;
        }
        if self.chaos.drawn_order {
            return self.draw(idle_class);
        }
        self.ready.iter().enumerate().find_map(|(at, &id)| {
            let thread = &self.threads[id];
            if thread.is_idle_class != idle_class {
                return None;
            }
            let last = thread.cpu;
            let stays = thread.cpus.contains(last) && self.holders.is_free(last);
            let cpus = || self.cpus_for(thread);
            let cpu = if stays { last } else { cpus().first_common(self.holders.free())? };
            Some((at, cpu))
        })
    }

    /// As `choose`, with the thread and its CPU drawn.
    fn draw(&mut self, idle_class: bool) -> Option<Choice> {
        let count = self.startable(idle_class).count();
        if count == 0 {
            return None;
        }
        let nth = self.chance.below(count as u64) as usize;
        let (at, id) = self.startable(idle_class).nth(nth)?;
        let free = self.cpus_for(&self.threads[id]).and(self.holders.free());
        let cpu = free.iter().nth(self.chance.below(free.len() as u64) as usize)?;
        Some((at, cpu))
    }

    /// The ready threads of this class for which a CPU is free, by their indices in the list.
    fn startable(&self, idle_class: bool) -> impl Iterator<Item = (usize, ThreadId)> {
        let ready = self.ready.iter().copied().enumerate();
        ready.filter(move |&(_, id)| {
            let thread = &self.threads[id];
            thread.is_idle_class == idle_class
                && self.cpus_for(thread).intersects(self.holders.free())
        })
    }

    /// A normal thread that is ready, and a CPU taken from a thread of the idle class.
    fn choose_over_idle_class(&mut self) -> Option<Choice> {
        let held = self.holders.idle_class();
        if held.is_empty() {
            return None;
        }
        let (at, cpu) = self.ready.iter().enumerate().find_map(|(at, &id)| {
            let thread = &self.threads[id];
            let cpus = || self.cpus_for(thread);
            let cpu = if thread.is_idle_class { None } else { cpus().first_common(held) };
            cpu.map(|cpu| (at, cpu))
        })?;
        // The evicted thread goes to the end of the list, so `at` stays valid.
        self.evict(self.holders.of(cpu).expect("held by the idle class"));
        Some((at, cpu))
    }

    /// With time slices: a ready thread, and a CPU taken from a burning thread. A thread that has
    /// instructions to execute gets a CPU at once; a burning thread gets one after a slice. Where
    /// instructions take time, every thread does.
    fn choose_by_eviction(&mut self) -> Option<Choice> {
        let slice = self.chaos.slice_ns;
        if slice == 0 {
            return None;
        }
        let pays = self.bill.is_some();
        for at in 0..self.ready.len() {
            let thread = &self.threads[self.ready[at]];
            if thread.is_idle_class {
                continue;
            }
            let burns = thread.burn > 0;
            let only = self.only_cpu_for(thread);
            let mut next = only.or(thread.cpus.first());
            while let Some(cpu) = next {
                let cpus = &self.threads[self.ready[at]].cpus;
                next = if only.is_some() { None } else { cpus.at_or_after(cpu + 1) };
                let Some(id) = self.holders.of(cpu) else { continue };
                let holder = &mut self.threads[id];
                if pays && holder.shields > 0 {
                    continue;
                }
                let slice_ends = holder.burns_since + slice;
                if !burns && !pays || slice_ends <= self.now {
                    self.evict(id);
                    return Some((at, cpu));
                }
                self.no_choice_until = self.no_choice_until.min(slice_ends);
                if !holder.is_sliced && slice_ends < holder.burns_until {
                    holder.is_sliced = true;
                    self.add_event(slice_ends, id);
                }
            }
        }
        None
    }
}
