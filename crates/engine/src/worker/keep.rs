//! The CPU to which a worker of a saving pool keeps although its pod has others: one that is awake
//! (README.md of the pool).

use uwork_policy::cpuset::CpuSet;
use uwork_policy::saving::wake_beside_other_work;

use super::Worker;
use crate::words::host::{Cpus, Host, Places};
use crate::words::sync::Link;

/// The CPU, and the value of the process's CPUs for which it was chosen.
pub(super) type KeepsTo = (Option<u32>, Link<Cpus>);
pub(super) const KEEPS_TO_NONE: KeepsTo = (None, Link(std::ptr::null_mut()));

impl<H: Host> Worker<H> {
    /// Before this worker of a saving pool parks: moves it to the CPU that is to wake for the pool's
    /// timers if it will be the keeper, or permits it all CPUs of its pod again.
    ///
    /// The keeper may change before the worker is on the idle stack. Then another worker keeps to
    /// a CPU until it is picked, or the new keeper wakes an idle CPU once.
    pub(super) fn choose_cpu_to_sleep_on(&self) {
        let (pool, engine) = (self.pool(), &*self.engine);
        let keeper = pool.lock().keeper;
        if keeper.is_some_and(|keeper| keeper != self.slot) {
            return self.leave_kept_cpu();
        }
        let cpu = pool.cpu_to_sleep_on(engine, engine.host().current_cpu());
        let (kept, placed) = self.keeps_to.get();
        let cpus = Link(std::ptr::from_ref(engine.cpus()).cast_mut());
        // A change of the CPUs has permitted it all of its pod meanwhile.
        let kept = kept.filter(|_| std::ptr::eq(placed.0, cpus.0));
        if cpu != kept {
            let (own, one) = (pool.spec().places(), cpu.map(CpuSet::single));
            let places = one.as_ref().map_or(own, |one| Places { cpus: one, ..own });
            self.slot().go_to(engine, places);
        }
        self.keeps_to.set((cpu, cpus));
    }

    /// Lets this worker use all CPUs of its pod again.
    pub(super) fn leave_kept_cpu(&self) {
        if self.keeps_to.replace(KEEPS_TO_NONE).0.is_some() {
            self.slot().go_to(&self.engine, self.pool().spec().places());
        }
    }

    /// The worker has been restricted to the CPU of the thread that woke it. It stays there until it
    /// parks: beside that thread, the system might move it to an idle CPU.
    ///
    /// A worker that wakes by itself may choose a CPU to sleep on after it was restricted, and so
    /// arrive elsewhere. This moves it to the waker's CPU.
    pub(super) fn keep_to_cpu_of_waker(&self) {
        let (engine, slot) = (&*self.engine, self.slot());
        let cpu = slot.restricted_to();
        let one = CpuSet::single(cpu);
        slot.lift_restriction(engine, Places { cpus: &one, ..self.pool().spec().places() });
        self.keeps_to.set((Some(cpu), Link(std::ptr::from_ref(engine.cpus()).cast_mut())));
    }

    /// When this worker, the keeper, wakes for the window that ends then.
    pub(super) fn wake_for_timer(&self, end: u64) -> u64 {
        match self.keeps_to.get().0 {
            Some(_) => wake_beside_other_work(end, self.pool().slack_of_next_wake()),
            None => end,
        }
    }
}
