//! The scheduler: which thread gets which CPU.
//!
//! A normal thread that is ready takes a CPU that is free, or else one that a thread of the idle
//! class holds. A thread of the idle class gets a CPU only if no normal thread can use it. So it
//! loses its CPU in the instant in which a normal thread becomes ready there, and gets the CPU in
//! the instant in which the last normal thread leaves it.

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
        self.no_choice_until = 0;
    }

    /// The CPU time that a yield of the executing thread takes.
    pub fn yield_ns(&self) -> u64 {
        if self.current_thread().is_idle_class { IDLE_YIELD_NS } else { 0 }
    }

    /// Whether no normal thread holds this CPU.
    pub(super) fn is_idle(&self, cpu: u32) -> bool {
        self.cpus[cpu as usize].is_none_or(|id| self.threads[id].is_idle_class)
    }

    /// Takes the CPU from a burning thread, which continues once a CPU is free.
    pub(super) fn evict(&mut self, id: ThreadId) {
        let thread = &mut self.threads[id];
        self.cpus[thread.cpu as usize] = None;
        thread.doing = Doing::Ready;
        thread.keeps_cpu = false;
        // The end event of the interrupted burn is void.
        thread.pause += 1;
        thread.burn = thread.burns_until - self.now;
        thread.burnt -= thread.burn;
        self.push_ready(id);
        self.record(id, What::Evicted);
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
                thread.burns_since = self.now;
                self.cpus[cpu as usize] = Some(id);
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

    /// A ready thread of this class, and a free CPU for it.
    fn choose(&mut self, idle_class: bool) -> Option<Choice> {
        let is_free = |cpu: u32| self.cpus[cpu as usize].is_none();
        let mut startable = self.ready.iter().enumerate().filter_map(|(at, &id)| {
            let thread = &self.threads[id];
            if thread.is_idle_class != idle_class {
                return None;
            }
            let last = thread.cpu;
            let stays = thread.cpus.contains(last) && is_free(last);
            let first = if stays { last } else { thread.cpus.iter().find(|&cpu| is_free(cpu))? };
            Some((at, first))
        });
        if !self.chaos.drawn_order {
            return startable.next();
        }
        let startable: Vec<Choice> = startable.collect();
        if startable.is_empty() {
            return None;
        }
        let &(at, _) = self.chance.pick(&startable);
        let cpus = &self.threads[self.ready[at]].cpus;
        let free: Vec<u32> = cpus.iter().filter(|&cpu| self.cpus[cpu as usize].is_none()).collect();
        Some((at, *self.chance.pick(&free)))
    }

    /// A normal thread that is ready, and a CPU taken from a thread of the idle class.
    fn choose_over_idle_class(&mut self) -> Option<Choice> {
        let holder_of = |thread: &Thread| -> Option<ThreadId> {
            let mut holders = thread.cpus.iter().filter_map(|cpu| self.cpus[cpu as usize]);
            holders.find(|&id| self.threads[id].is_idle_class)
        };
        let choice = self.ready.iter().enumerate().find_map(|(at, &id)| {
            let thread = &self.threads[id];
            let holder = if thread.is_idle_class { None } else { holder_of(thread) };
            holder.map(|holder| (at, holder))
        });
        let (at, holder) = choice?;
        let cpu = self.threads[holder].cpu;
        // The evicted thread goes to the end of the list, so `at` stays valid.
        self.evict(holder);
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
            let holders: Vec<ThreadId> =
                thread.cpus.iter().filter_map(|cpu| self.cpus[cpu as usize]).collect();
            for id in holders {
                let holder = &mut self.threads[id];
                if pays && holder.shields > 0 {
                    continue;
                }
                let slice_ends = holder.burns_since + slice;
                if !burns && !pays || slice_ends <= self.now {
                    let cpu = holder.cpu;
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
