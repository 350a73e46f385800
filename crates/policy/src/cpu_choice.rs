//! Which CPU an item is queued for when the caller named a node.

use crate::cpuset::CpuSet;
use crate::topology::Topology;

/// The result of [`choose_node`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChoice {
    /// Queue for this CPU.
    Cpu(u32),
    /// No usable node: treat the item as if no node had been named.
    Unbound,
}

/// The CPU for an item that should run near a NUMA node: the submitter's own CPU when it is on that
/// node, else the node's first CPU, both among those that are `usable`. The result is
/// [`NodeChoice::Unbound`] if no node is named, if it is unknown, or if it has no usable CPU.
/// ```
/// use uwork_policy::cpu_choice::{NodeChoice, choose_node};
///
/// let machine = "node:2 core:4".parse().unwrap();
/// let usable = "0-3,5-7".parse().unwrap();
/// assert_eq!(choose_node(6, Some(1), &machine, &usable), NodeChoice::Cpu(6));
/// assert_eq!(choose_node(0, Some(1), &machine, &usable), NodeChoice::Cpu(5));
/// assert_eq!(choose_node(0, Some(9), &machine, &usable), NodeChoice::Unbound);
/// ```
#[must_use]
pub fn choose_node(
    local: u32,
    node: Option<u32>,
    topology: &Topology,
    usable: &CpuSet,
) -> NodeChoice {
    let Some(node) = node else {
        return NodeChoice::Unbound;
    };
    if topology.cpu(local).is_some_and(|cpu| cpu.node == node && usable.contains(local)) {
        return NodeChoice::Cpu(local);
    }
    // Not `node_cpus`, which allocates: this is the submit path.
    let first = topology.cpus().iter().find(|cpu| cpu.node == node && usable.contains(cpu.id));
    first.map_or(NodeChoice::Unbound, |cpu| NodeChoice::Cpu(cpu.id))
}
