//! The counters of a run.

use super::Machine;

/// The counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `wake`, except those that end a park of the watcher.
    pub wakes: u64,
    /// Parks that ended, by a wake or by their deadline, after the thread had slept. Excludes the
    /// watcher.
    pub wake_ups: u64,
    /// The same for the watcher.
    pub looks: u64,
    /// Threads that the engine spawned.
    pub spawns: u64,
    /// How often a thread lost its CPU to another one.
    pub evictions: u64,
    /// Parks of an engine's thread that had run no item since its last park: it searched in vain.
    /// Excludes the watcher.
    pub futile: u64,
}

impl Counts {
    /// The counters without the watcher's, which may check the CPUs at any time.
    pub fn without_scans(self) -> Counts {
        Counts { looks: 0, ..self }
    }
}

impl Machine {
    /// The executing thread begins or ends an item.
    pub fn note_item(&mut self) {
        if let Some(current) = self.current {
            self.threads[current].has_run = true;
        }
    }

    /// The executing thread is about to sleep until a wake.
    pub fn note_park(&mut self) {
        let current = self.current.expect("called from outside of the simulation");
        let has_run = std::mem::take(&mut self.threads[current].has_run);
        let is_futile = !has_run && self.is_worker() && !self.is_watch(current);
        self.counts.futile += u64::from(is_futile);
    }
}

#[cfg(test)]
mod tests {
    use uwork_engine::host::Host;
    use uwork_policy::cpuset::CpuSet;

    use super::*;
    use crate::chance::Chaos;
    use crate::host::{Event, VirtualHost};
    use crate::simulation;

    #[test]
    fn a_park_of_the_engine_is_futile_without_an_item_since_the_last_one() {
        for (name, futile) in [("uw/0", 2), ("uw/watch", 0), ("test", 0)] {
            let cpus = CpuSet::single(0);
            let host = VirtualHost::new(Machine::new(cpus.clone(), Chaos::STEADY, 0));
            let theirs = host.clone();
            let main = move || {
                let event = Event::default();
                for has_run in [true, false, true, false] {
                    if has_run {
                        theirs.machine().note_item();
                    }
                    let _ = theirs.park(&event, Some(theirs.time() + 1));
                }
            };
            host.machine().add_thread(name, &cpus, Box::new(main));
            simulation::run(&host, name);
            assert_eq!(host.counts().futile, futile, "{name}");
        }
    }
}
