//! A cluster of masters, each with a replica where that is wanted. A failover happens when the test
//! says so: a node that is slow, on a busy machine, is no dead node.

use redis::Value;
use uwork_bridge::Server;

use super::patience::until;
use super::server::{RESERVED_PORT, Redis};

pub(crate) struct Cluster {
    /// The masters of the beginning, and then their replicas.
    pub(crate) nodes: Vec<Redis>,
    masters: usize,
}

impl Cluster {
    /// Three masters with a third of the slots each, which know each other.
    pub(crate) fn start(name: &str, has_replicas: bool) -> Option<Cluster> {
        const SLOTS: [&str; 3] = ["0 5460", "5461 10922", "10923 16383"];
        let masters = SLOTS.len();
        let mut nodes = Vec::new();
        for nth in 0..masters * if has_replicas { 2 } else { 1 } {
            let patient = ["--cluster-node-timeout", "3600000", "--repl-diskless-sync-delay", "0"];
            let flags = ["--cluster-enabled", "yes", "--cluster-port", RESERVED_PORT];
            let flags = [&flags[..], &patient].concat();
            let node = Redis::start(name, &flags)?;
            node.ask(&format!("CLUSTER SET-CONFIG-EPOCH {}", nth + 1));
            if let Some(slots) = SLOTS.get(nth) {
                node.ask(&format!("CLUSTER ADDSLOTSRANGE {slots}"));
            }
            nodes.push(node);
        }
        let (first, bus) = (nodes[0].port(), nodes[0].flag("--cluster-port"));
        for node in &nodes[1..] {
            node.ask(&format!("CLUSTER MEET 127.0.0.1 {first} {bus}"));
        }
        let cluster = Cluster { nodes, masters };
        for node in &cluster.nodes {
            until("the cluster is ready", || {
                let known = format!("cluster_known_nodes:{}", cluster.nodes.len());
                let info = text(node.ask("CLUSTER INFO"));
                info.contains("cluster_state:ok") && info.contains(&known)
            });
        }
        for nth in masters..cluster.nodes.len() {
            let master = text(cluster.nodes[nth - masters].ask("CLUSTER MYID"));
            cluster.nodes[nth].ask(&format!("CLUSTER REPLICATE {master}"));
        }
        (masters..cluster.nodes.len()).for_each(|nth| cluster.wait_for_replica(nth));
        Some(cluster)
    }

    /// The other node with the slots of this one.
    pub(crate) fn partner(&self, nth: usize) -> usize {
        (nth + self.masters) % self.nodes.len()
    }

    /// Waits until a node is a replica that has all data of its master.
    pub(crate) fn wait_for_replica(&self, nth: usize) {
        until("a node is a replica", || {
            let info = text(self.nodes[nth].ask("INFO replication"));
            info.contains("role:slave") && info.contains("master_link_status:up")
        });
    }

    /// A replica takes its master's place, whatever the master says to it.
    pub(crate) fn promote(&self, nth: usize) {
        self.nodes[nth].ask("CLUSTER FAILOVER TAKEOVER");
        until("the replica is a master", || {
            text(self.nodes[nth].ask("INFO replication")).contains("role:master")
        });
    }

    /// The servers at these nodes.
    pub(crate) fn servers(&self, nodes: &[usize]) -> Vec<Server> {
        nodes.iter().map(|&nth| self.nodes[nth].server()).collect()
    }
}

/// The text of a reply.
pub(crate) fn text(reply: Value) -> String {
    match reply {
        Value::BulkString(text) => String::from_utf8(text).unwrap(),
        Value::VerbatimString { text, .. } => text,
        other => panic!("{other:?}"),
    }
}
