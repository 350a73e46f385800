//! Queues of every kind, as seen by the engine and by the oracle.

use std::sync::Arc;

use uwork_engine::{Kind, MAX_ACTIVE_DEFAULT, QueueSpec};
use uwork_policy::flags::Flags;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice, Pods};

use crate::histories::with_oracle;
use crate::oracle::{Oracle, PoolNo, PoolRules, QueueNo, QueueRules};
use crate::setup::{VirtualEngine, VirtualQueue, attrs, make, spec};

/// A queue of a history.
pub struct Known {
    /// The engine's handle.
    pub queue: VirtualQueue,
    /// Its number in the oracle.
    pub no: QueueNo,
    /// Whether its items run in BH context.
    pub is_bh: bool,
    /// Whether its limit can be changed.
    pub tunable: bool,
    name: String,
    flags: Flags,
    is_unbound: bool,
}

impl Known {
    /// Gives an unbound queue another affinity scope. Does nothing to a queue of another kind.
    pub fn change_scope(&self, engine: &VirtualEngine) {
        if !self.is_unbound {
            return;
        }
        let host = engine.host();
        let scope = *host.machine().chance.pick(&AffinityScope::ALL);
        with_oracle(host, |oracle, _| oracle.begin_change());
        let changed = host.unpreempted(|| {
            self.queue.change_attrs(|attrs| attrs.scope = AffinityScopeChoice::Explicit(scope))
        });
        let kind = self.queue.kind();
        with_oracle(host, |oracle, _| {
            if changed.is_ok() {
                let pools = pools_of(engine, oracle, &self.name, &kind, self.flags);
                oracle.set_pools(self.no, pools);
            }
            oracle.end_change();
        });
    }
}

/// A random kind for the engine, and flags.
fn any_kind(engine: &VirtualEngine) -> (Kind, Flags) {
    let (kind, scope, strict) = {
        let chance = &mut engine.host().machine().chance;
        (chance.below(14), *chance.pick(&AffinityScope::ALL), chance.below(2) == 0)
    };
    let unbound = || Kind::Unbound(attrs(engine, scope, strict));
    let ordered = || Kind::Ordered(attrs(engine, AffinityScope::System, strict));
    match kind {
        0..3 => (Kind::PerCpu, Flags::empty()),
        3 => (Kind::PerCpu, Flags::HIGHPRI),
        4 => (Kind::PerCpu, Flags::CPU_INTENSIVE),
        5 => (Kind::PerCpu, Flags::FREEZABLE),
        6 => (Kind::PerCpu, Flags::MEM_RECLAIM),
        7..9 => (unbound(), Flags::empty()),
        9 => (unbound(), Flags::FREEZABLE | Flags::MEM_RECLAIM),
        10 => (ordered(), Flags::empty()),
        11 => (ordered(), Flags::MEM_RECLAIM),
        12 => (Kind::PerCpu, Flags::BH | Flags::PERCPU),
        _ => (Kind::Dedicated(attrs(engine, AffinityScope::System, false)), Flags::empty()),
    }
}

/// Creates a queue of any kind, and registers it with the oracle.
pub fn make_queue(engine: &Arc<VirtualEngine>, at: usize) -> Known {
    let (kind, flags) = any_kind(engine);
    let is_bh = flags.contains(Flags::BH);
    let tunable = matches!(kind, Kind::PerCpu | Kind::Unbound(_)) && !is_bh;
    let limits = [1, 2, 3, MAX_ACTIVE_DEFAULT];
    let max_active = match tunable {
        true => *engine.host().machine().chance.pick(&limits),
        false => MAX_ACTIVE_DEFAULT,
    };
    let name = format!("q{at}");
    let unbound = matches!(kind, Kind::Unbound(_));
    let queue = make(engine, QueueSpec { flags, max_active, ..spec(&name, kind.clone()) });
    let no = with_oracle(engine.host(), |oracle, _| {
        let pools = pools_of(engine, oracle, &name, &kind, flags);
        oracle.add_queue(QueueRules {
            pools,
            max_active: if tunable { max_active } else { 1 },
            limit_in_all: unbound || matches!(kind, Kind::Ordered(_)),
            freezable: flags.contains(Flags::FREEZABLE),
            intensive: flags.contains(Flags::CPU_INTENSIVE),
            has_old_pools: false,
        })
    });
    Known { queue, no, is_bh, tunable, name, flags, is_unbound: unbound }
}

/// The pool of each CPU. Queues with the same attributes have the same pools.
fn pools_of(
    engine: &VirtualEngine,
    oracle: &mut Oracle,
    name: &str,
    kind: &Kind,
    flags: Flags,
) -> Vec<PoolNo> {
    let config = engine.config();
    let cpus = config.allowed.len() as u32;
    let mut pool = |rules: PoolRules| {
        oracle.pool_labelled(&rules.label).unwrap_or_else(|| oracle.add_pool(rules))
    };
    let one =
        PoolRules { label: String::new(), target: 1, single: false, per_cpu: false, shared: false };
    match kind {
        Kind::PerCpu => {
            let single = flags.contains(Flags::BH);
            let class = flags & (Flags::BH | Flags::HIGHPRI);
            let of = |cpu| PoolRules {
                label: format!("CPU {cpu} {class:?}"),
                single,
                per_cpu: true,
                ..one.clone()
            };
            (0..cpus).map(|cpu| pool(of(cpu))).collect()
        }
        Kind::Dedicated(_) => {
            let rules = PoolRules { label: format!("dedicated {name}"), single: true, ..one };
            vec![pool(rules); cpus as usize]
        }
        Kind::Unbound(attrs) | Kind::Ordered(attrs) => {
            let scope = match attrs.scope {
                AffinityScopeChoice::Explicit(scope) => scope,
                AffinityScopeChoice::Default => unreachable!("a scope was drawn"),
            };
            let pods = Pods::of(&config.topology, scope, config.cache_shard_size);
            let all: Vec<_> = pods.restricted(&config.allowed).map(|(_, pod)| pod).collect();
            let strict = attrs.strict;
            let pods_share = !strict && all.len() > 1;
            let of = |cpu| {
                let at = all.iter().position(|pod| pod.contains(cpu)).expect("it is allowed");
                let target = if pods_share { cpus } else { all[at].len() as u32 };
                let pod = if pods_share { all.len() } else { at };
                // The CPUs of a pod have a pool each, and share their work in any case.
                let shared = target > 1;
                let label = format!("unbound, strict {strict}, pod {pod} of {all:?}");
                PoolRules { label, target, shared, ..one.clone() }
            };
            (0..cpus).map(|cpu| pool(of(cpu))).collect()
        }
    }
}
