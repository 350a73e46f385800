//! Operations on the whole: CPUs taken away, drains, changes of scopes, the end of the engine.

use std::sync::atomic::Ordering;

use uwork_engine::{Cpus, Shutdown};
use uwork_policy::cpuset::CpuSet;

use super::{History, OVER_NS, with_oracle};
use crate::setup::{MS, SEC};

/// How much longer a shutdown may take than its limit and the time of destructors.
const SHUTDOWN_LATE_NS: u64 = 100 * MS;

impl History {
    /// CPUs will be taken away.
    pub fn expect_changes_of_cpus(&self) {
        self.takes_cpus.store(true, Ordering::Relaxed);
    }

    /// An administrator: takes CPUs away and gives them back, changes the scopes of queues, drains queues.
    pub fn administrate(&self) {
        for _ in 0..1 + self.below(3) {
            let pause = if self.below(2) == 0 { self.brief() * 4 } else { self.long() };
            self.host().doze(pause);
            let queue = &self.queues[self.below(self.queues.len() as u64) as usize];
            match self.below(3) {
                0 if self.takes_cpus.load(Ordering::Relaxed) => self.take_cpus(),
                1 => {
                    self.note("drains queue", usize::MAX, queue.no as u64);
                    with_oracle(self.host(), |oracle, _| oracle.begin_drain(queue.no));
                    queue.queue.drain().expect("not inside of an item");
                    with_oracle(self.host(), |oracle, _| oracle.end_drain(queue.no));
                }
                _ => {
                    self.note("changes the scope of queue", usize::MAX, queue.no as u64);
                    queue.change_scope(&self.engine);
                }
            }
        }
    }

    /// Takes some CPUs away for a time.
    fn take_cpus(&self) {
        let all = self.engine.config().allowed.clone();
        let left: CpuSet = all.iter().filter(|_| self.below(2) == 0).collect();
        let set = |allowed: CpuSet| {
            let cpus = Cpus { unbound_cpumask: allowed.clone(), allowed, cpu_limit: None };
            self.host().unpreempted(|| self.engine.set_cpus(cpus))
        };
        self.note("takes CPUs away; left", usize::MAX, left.len() as u64);
        with_oracle(self.host(), |oracle, _| oracle.begin_change());
        // Without any CPU left the engine refuses the change.
        let changed = set(left);
        self.host().doze(if self.below(2) == 0 { self.brief() * 4 } else { self.long() });
        if changed {
            let _ = set(all);
        }
        with_oracle(self.host(), |oracle, _| oracle.end_change());
        self.note("gives the CPUs back", usize::MAX, 0);
    }

    /// Ends the engine while others use it. It returns in time, whatever destructors do.
    pub fn shut_down(&self) {
        self.host().doze(self.long() / 4);
        with_oracle(self.host(), |oracle, _| oracle.over = true);
        let how = if self.below(3) == 0 { Shutdown::Drain } else { Shutdown::Cancel };
        let limit = [0, 10 * MS, 10 * SEC][self.below(3) as usize];
        self.end(how, limit);
    }

    /// Ends what a first shutdown has left.
    pub fn shut_down_for_good(&self) {
        assert!(self.end(Shutdown::Cancel, OVER_NS), "not over: {}", self.engine.dump());
    }

    fn end(&self, how: Shutdown, limit_ns: u64) -> bool {
        self.note("shutdown", 0, limit_ns);
        let began = self.host().time();
        let report = self.engine.shutdown(how, limit_ns).expect("not inside of an item");
        let took = self.host().time() - began;
        let max = limit_ns + SHUTDOWN_LATE_NS + self.in_destructors.load(Ordering::Relaxed);
        assert!(took <= max, "{how:?}, {limit_ns}: took {took} ns, more than {max}");
        report.is_complete()
    }

    /// Waits until everything is over that will be without help.
    pub fn wait_until_idle(&self) {
        let (begin, mut step) = (self.host().time(), MS);
        let is_over = || {
            let is_empty = with_oracle(self.host(), |oracle, _| oracle.is_empty());
            let armed = self.armed.lock().expect("no panic under this lock");
            is_empty
                && armed.iter().all(|job| !job.item.is_pending())
                && self.queues.iter().all(|known| known.queue.is_idle())
        };
        while !is_over() {
            assert!(self.host().time() - begin < OVER_NS, "not over: {}", self.engine.dump());
            self.host().doze(step);
            step = (2 * step).min(SEC);
        }
    }
}
