//! The same facts as JSON.

use serde_json::{Map, Value, json};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::scope::{AffinityScope, AffinityScopeChoice, Pods};

use super::View;
use super::source::Source;

/// One indented JSON object with a trailing line break. CPU sets are strings in list format.
pub(super) fn render(view: &View, choice: Option<AffinityScopeChoice>) -> String {
    let topology = view.source.topology();
    let effective = view.effective(choice.unwrap_or_default());
    let scopes = AffinityScope::ALL.into_iter().filter(|scope| match choice {
        Some(_) => *scope == effective.effective,
        None => true,
    });
    let pods = |scope: AffinityScope| {
        let pods = Pods::of(topology, scope, view.shard_size);
        pods.pods().iter().map(CpuSet::to_string).collect::<Value>()
    };
    let scopes: Map<String, Value> = scopes.map(|scope| (scope.to_string(), pods(scope))).collect();
    let cpus: Vec<Value> = topology.cpus().iter().map(|cpu| {
        json!({
            "id": cpu.id, "core": cpu.core, "cluster": cpu.cluster, "llc": cpu.llc, "node": cpu.node,
            "package": cpu.package, "capacity": cpu.capacity, "isolated": cpu.isolated, "online": cpu.online,
        })
    }).collect();
    let mut object = json!({
        "machine": topology.to_string(),
        "online": topology.online().to_string(),
        "isolated": topology.isolated().to_string(),
        "allowed": view.source.allowed().to_string(),
        "unbound": view.unbound.to_string(),
        "shard_size": view.shard_size,
        "scope": {
            "shown": effective.to_string(),
            "configured": effective.configured.to_string(),
            "effective": effective.effective.to_string(),
        },
        "pods": scopes,
        "cpus": cpus,
    });
    if let Source::Here(machine) = &view.source {
        object["nohz_full"] = json!(machine.nohz_full.to_string());
        object["cgroup_cpuset"] = json!(machine.cgroup_cpuset.as_ref().map(CpuSet::to_string));
        object["quota_cpus"] = json!(machine.quota.map(|quota| quota.cpus()));
        object["threads_max"] = json!(machine.threads_max);
        let blocking = uwork::dump().blocking;
        object["blocking"] = json!({"tier": blocking.tier.name(), "reason": blocking.reason});
        object["notes"] = json!(machine.notes);
    }
    format!("{object:#}\n")
}
