//! The machine that is simulated: a preset, this machine, a notation, a file with one, or a size.

use std::path::Path;

use uwork::topology::Machine;
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::{
    AffinityScope, AffinityScopeChoice, DEFAULT_SHARD_SIZE, Pods, effective_scope,
};
use uwork_policy::topology::Topology;
use uwork_sim::machines::{PRESETS, THIS, machine};

use super::UserError;

/// The sizes of machines in experiments on scale, in CPUs.
pub(super) const SIZES: [usize; 8] = [1, 2, 4, 8, 32, 128, 512, 1024];
/// CPUs of a cache, and caches of a node, as in the machine `numa1024`.
const CACHE_CPUS: usize = 8;
const NODE_CACHES: usize = 8;

/// Those of the sizes that have from `least` to `most` CPUs.
pub(super) fn sizes(least: u16, most: u16) -> Vec<usize> {
    let asked = usize::from(least)..=usize::from(most);
    SIZES.into_iter().filter(|cpus| asked.contains(cpus)).collect()
}

/// The machine of one of these sizes.
pub(super) fn of_size(cpus: usize) -> Result<Topology, UserError> {
    let (cache, node) = (CACHE_CPUS, CACHE_CPUS * NODE_CACHES);
    let notation = if cpus <= cache {
        format!("core:{cpus}")
    } else if cpus <= node {
        format!("llc:{} core:{cache}", cpus / cache)
    } else {
        format!("node:{} llc:{NODE_CACHES} core:{cache}", cpus / node)
    };
    machine(&notation).map_err(|error| UserError(error.to_string()))
}

/// The pods of a queue of this scope.
pub(super) fn pods(machine: &Topology, scope: AffinityScopeChoice) -> Vec<CpuSet> {
    let (online, shard) = (machine.online(), DEFAULT_SHARD_SIZE);
    let scope = effective_scope(machine, scope, AffinityScope::Cache, online, shard).effective;
    Pods::of(machine, scope, shard).pods().to_vec()
}

/// The machine that `--machine` means: a name, a notation, or the path of a file.
pub(super) fn read(text: &str) -> Result<Topology, UserError> {
    if text == THIS {
        let here = Machine::read().map_err(|error| UserError(error.to_string()))?;
        return Ok(here.topology);
    }
    if !Path::new(text).is_file() {
        let here = "is the machine on which the command runs";
        return machine(text).map_err(|error| UserError(format!("{error}; '{THIS}' {here}")));
    }
    let contents =
        std::fs::read_to_string(text).map_err(|error| UserError(format!("{text}: {error}")))?;
    contents
        .parse::<Topology>()
        .map_err(|error| UserError(format!("{text}:{}: {}", error.line(), error.message())))
}

pub(super) fn list() -> Result<(), UserError> {
    say!("{THIS:<12} the machine on which this command runs");
    for preset in PRESETS {
        say!("{:<12} {} ({})", preset.name, preset.about, preset.notation);
    }
    Ok(())
}
