//! An engine on a virtual machine, for the length of a test.

use std::sync::{Arc, Mutex};

use uwork_engine::host::Report;
use uwork_engine::{Attrs, Config, Engine, Kind, MAX_ACTIVE_DEFAULT, Queue, QueueSpec};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::Flags;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};
use uwork_policy::topology::Topology;

use crate::chance::Chaos;
use crate::host::VirtualHost;
use crate::machine::Machine;
use crate::simulation;

/// The engine on a virtual machine.
pub type VirtualEngine = Engine<VirtualHost>;
/// A queue of that engine.
pub type VirtualQueue = Queue<VirtualHost>;

/// A microsecond in nanoseconds.
pub const US: u64 = 1_000;
/// A millisecond in nanoseconds.
pub const MS: u64 = 1_000 * US;
/// A second in nanoseconds.
pub const SEC: u64 = 1_000 * MS;

/// The panic message of items that panic on purpose.
pub const ON_PURPOSE: &str = "on purpose";

/// The parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The machine, in the notation of topologies.
    pub machine: &'static str,
    /// What is random.
    pub chaos: Chaos,
    /// The seed of every random choice.
    pub seed: u64,
}

impl Setup {
    /// Without chance: first come, first served, no preemption.
    pub fn exact(machine: &'static str) -> Setup {
        Setup { machine, chaos: Chaos::default(), seed: 0 }
    }
}

/// Runs `body` in a thread on CPU 0 of the machine, then ends the workers and waits for them.
///
/// # Panics
/// If a thread or a work item panics, or if the machine deadlocks.
pub fn with_engine<R: Send + 'static>(
    setup: Setup,
    body: impl FnOnce(&Arc<VirtualEngine>) -> R + Send + 'static,
) -> R {
    with_config(setup, |_| {}, body)
}

/// As `with_engine`, with a change to the engine's configuration.
pub fn with_config<R: Send + 'static>(
    setup: Setup,
    change: impl FnOnce(&mut Config),
    body: impl FnOnce(&Arc<VirtualEngine>) -> R + Send + 'static,
) -> R {
    let topology: Topology = setup.machine.parse().expect("a machine");
    let online = topology.online().clone();
    let host = VirtualHost::new(Machine::new(online.clone(), setup.chaos, setup.seed));
    let result = Arc::new(Mutex::new(None));
    let (theirs, place) = (host.clone(), result.clone());
    let mut config = Config::new(topology, online);
    change(&mut config);
    let _main = host.start(&CpuSet::single(0), move || {
        let engine = Engine::new(theirs, config);
        let value = body(&engine);
        engine.retire();
        *place.lock().expect("no panic under this lock") = Some(value);
    });
    simulation::run(&host, &format!("{setup:?}"));
    let is_panic = |report: &Report| match report {
        Report::ItemPanicked { message, .. } => {
            message != ON_PURPOSE && !message.contains("BH queue")
        }
        _ => false,
    };
    if let Some(report) = host.reports().into_iter().find(is_panic) {
        panic!("{setup:?}: {report:?}");
    }
    let value = result.lock().expect("no panic under this lock").take();
    value.expect("the main thread has ended")
}

/// A queue of this kind with default limits.
pub fn spec(name: &str, kind: Kind) -> QueueSpec {
    QueueSpec { name: name.to_owned(), kind, flags: Flags::empty(), max_active: MAX_ACTIVE_DEFAULT }
}

/// Unbound attributes for all CPUs.
pub fn attrs(engine: &VirtualEngine, scope: AffinityScope, strict: bool) -> Attrs {
    let cpumask = engine.config().allowed.clone();
    Attrs { nice: 0, cpumask, scope: AffinityScopeChoice::Explicit(scope), strict }
}

/// Creates a queue. Nothing may preempt the thread while it holds the queue's locks.
pub fn make(engine: &Arc<VirtualEngine>, spec: QueueSpec) -> VirtualQueue {
    engine.host().unpreempted(|| Queue::new(engine, spec)).expect("a queue")
}
