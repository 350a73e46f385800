//! Where the master of a shard may be: the one owner of what is known about addresses. All
//! connections of a consumer or producer share it. It has the configured servers, the last map of
//! their cluster, and which addresses have failed. It decides which to ask, best first, and never
//! forgets a configured server.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::Value;

use crate::addresses::Addresses;
use crate::greeting::Greeting;
use crate::process::Process;
use crate::server::Server;

/// The shortest interval between two questions about a silent server.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Host and port. An empty host is that of the node that has named the address.
pub(crate) type Address = (String, u16);

/// The place of a shard among the configured servers.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) nodes: Arc<Nodes>,
    /// The number of the configured server.
    pub(crate) home: usize,
    /// The slot of the shard's keys, if they are known.
    pub(crate) slot: Option<u16>,
}

impl Place {
    /// The place of a server that knows no others.
    pub(crate) fn alone(server: &Server) -> Place {
        Place { nodes: Nodes::new(std::slice::from_ref(server), 1), home: 0, slot: None }
    }

    /// The same place. In a forked child of the process that has made it the child knows what is
    /// configured and no more.
    pub(crate) fn of_this_process(self) -> Place {
        let is_parents = self.nodes.process.is_parent();
        Place { nodes: if is_parents { self.nodes.of_child() } else { self.nodes }, ..self }
    }

    pub(crate) fn home(&self) -> &Server {
        &self.nodes.seeds[self.home]
    }

    /// Where the master of the home is, if the home has said that it is a replica. In a cluster any
    /// node will do as the home.
    pub(crate) fn master_of_home(&self) -> Option<Address> {
        let state = self.nodes.lock();
        let greeting = state.greetings.get(&self.home().name());
        let greeting = greeting.filter(|greeting| !greeting.is_in_cluster);
        greeting.and_then(|greeting| greeting.master.clone())
    }

    /// The node that the last map names.
    pub(crate) fn owner(&self) -> Option<Address> {
        self.nodes.lock().map.owner(self.slot?).cloned()
    }

    /// Further addresses of the home: they are given when there are more servers than shards.
    pub(crate) fn alternatives(&self) -> impl Iterator<Item = &Server> {
        let (home, shards) = (self.home, self.nodes.shards);
        let seeds = self.nodes.seeds.iter().enumerate();
        let is_other = move |nth: usize| nth != home && nth % shards == home % shards;
        seeds.filter(move |(nth, _)| is_other(*nth)).map(|(_, server)| server)
    }

    /// The configured addresses of the shard's master and its replicas, but this one.
    pub(crate) fn others(&self, but: &Server) -> impl Iterator<Item = &Server> {
        let name = but.name();
        std::iter::once(self.home()).chain(self.alternatives()).filter(move |at| at.name() != name)
    }

    /// All servers that may know the master, best first: the node of the map, the last one, the home,
    /// then the others. Those that have failed come last, the longest ago first.
    pub(crate) fn candidates(&self, last: &Server) -> Vec<Server> {
        let (home, state) = (self.home(), self.nodes.lock());
        let mut found = Vec::new();
        if let Some((host, port)) = self.slot.and_then(|slot| state.map.owner(slot)) {
            found.push(home.at(host, *port));
        }
        found.extend([last.clone(), home.clone()]);
        found.extend(self.alternatives().cloned());
        let is_cluster = !state.map.is_empty();
        if is_cluster || !state.single.contains(&home.name()) {
            // Servers without a cluster have other streams.
            let seeds = self.nodes.seeds.iter();
            found.extend(seeds.filter(|seed| !state.single.contains(&seed.name())).cloned());
        }
        found.extend(state.map.nodes.iter().map(|(host, port)| home.at(host, *port)));
        let mut seen = HashSet::new();
        found.retain(|server| seen.insert(server.name()));
        found.sort_by_key(|server| state.failed.get(&server.name()).copied());
        found
    }

    /// Whether a server that has greeted so has another in its place: its address leads to another
    /// process, or a further address of the shard is a master that continues its data.
    pub(crate) fn has_changed(&self, server: &Server, before: &Greeting) -> bool {
        let state = self.nodes.lock();
        let now = |server: &Server| state.greetings.get(&server.name());
        let is_another = |now: &Greeting| now.run_id.is_some() && now.run_id != before.run_id;
        let continues = |now: &Greeting| {
            now.master.is_none() && now.continued.is_some() && now.continued == before.history
        };
        (before.run_id.is_some() && now(server).is_some_and(is_another))
            || self.others(server).filter_map(now).any(continues)
    }

    /// Whether another address of the shard has said last that it is a master. It has the place of a
    /// server that has said nothing at all.
    pub(crate) fn has_master_beside(&self, server: &Server) -> bool {
        let state = self.nodes.lock();
        let said = |other: &Server| state.greetings.get(&other.name());
        let is_master = |now: &Greeting| now.run_id.is_some() && now.master.is_none();
        self.others(server).filter_map(said).any(is_master)
    }

    /// Whether the address of a server that is silent while it is being connected to has answered another
    /// connection as another process than `before`: the silent one was there when this one was made.
    pub(crate) fn leads_elsewhere(&self, server: &Server, before: Option<&Greeting>) -> bool {
        let run_before = before.and_then(|before| before.run_id.as_ref());
        let now = self.nodes.said(&server.name());
        now.is_some_and(|now| now.run_id.is_some() && now.run_id.as_ref() != run_before)
    }

    /// Whether a server may have the shard's keys. A configured server of another shard may, if both
    /// are in a cluster.
    pub(crate) fn may_have_keys(&self, server: &Server, is_in_cluster: bool) -> bool {
        let name = server.name();
        let is_other_seed = self.nodes.seeds.iter().any(|seed| seed.name() == name)
            && self.home().name() != name
            && !self.alternatives().any(|other| other.name() == name);
        !is_other_seed || is_in_cluster || !self.nodes.lock().map.is_empty()
    }
}

/// What all connections of a consumer or producer know of addresses.
#[derive(Debug)]
pub(crate) struct Nodes {
    /// As configured.
    seeds: Vec<Server>,
    shards: usize,
    pub(crate) addresses: Addresses,
    /// Where it was made. In a forked child a thread of the parent may have the locks, for ever.
    process: Process,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    map: Map,
    /// When servers have failed last, by name; a success removes it.
    failed: HashMap<String, Instant>,
    /// Configured servers that are in no cluster.
    single: HashSet<String>,
    /// What servers have said last, by name.
    greetings: HashMap<String, Greeting>,
    /// When servers were asked for the one that has the place of a silent server.
    asked: Option<Instant>,
}

impl Nodes {
    pub(crate) fn new(servers: &[Server], shards: u32) -> Arc<Nodes> {
        Nodes::with(servers, shards, Addresses::default())
    }

    pub(crate) fn with(servers: &[Server], shards: u32, addresses: Addresses) -> Arc<Nodes> {
        let shards = (shards as usize).max(1);
        let (seeds, process) = (servers.to_vec(), Process::current());
        Arc::new(Nodes { seeds, shards, addresses, process, state: Mutex::default() })
    }

    /// For a forked child of the process that has made this: what is configured. It takes no lock.
    pub(crate) fn of_child(&self) -> Arc<Nodes> {
        let (seeds, shards, process) = (self.seeds.clone(), self.shards, Process::current());
        let addresses = self.addresses.of_child();
        Arc::new(Nodes { seeds, shards, addresses, process, state: Mutex::default() })
    }

    /// As a forked child has it, whose parent's other threads had all locks.
    #[cfg(test)]
    pub(crate) fn inherited(mut self: Arc<Nodes>) -> Arc<Nodes> {
        Arc::get_mut(&mut self).unwrap().process = Process::parent();
        std::mem::forget(self.lock());
        self.addresses.lock_for_ever();
        self
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        !self.lock().map.is_empty()
    }

    pub(crate) fn has_failed(&self, name: String) {
        self.lock().failed.insert(name, Instant::now());
    }

    pub(crate) fn has_failed_since(&self, name: &str, time: Instant) -> bool {
        self.lock().failed.get(name).is_some_and(|failed| *failed > time)
    }

    pub(crate) fn works(&self, name: &str) {
        self.lock().failed.remove(name);
    }

    /// A server has said that it is in no cluster.
    pub(crate) fn is_single(&self, name: String) {
        self.lock().single.insert(name);
    }

    /// A node has sent its map. One without slots has nothing to say.
    pub(crate) fn learn(&self, map: Map) {
        if !map.is_empty() {
            self.lock().map = map;
        }
    }

    /// A node has said MOVED.
    pub(crate) fn moved(&self, slot: u16, to: Address) {
        self.lock().map.moved(slot, to);
    }

    /// What a server has said last of its identity and its role.
    pub(crate) fn said(&self, name: &str) -> Option<Greeting> {
        self.lock().greetings.get(name).cloned()
    }

    /// A server has told its identity and its role.
    pub(crate) fn greeted(&self, name: String, greeting: Greeting) {
        self.lock().greetings.insert(name, greeting);
    }

    /// Whether servers may be asked now for the one that has the place of a silent server.
    pub(crate) fn may_ask(&self) -> bool {
        let mut state = self.lock();
        let may = state.asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
        if may {
            state.asked = Some(Instant::now());
        }
        may
    }
}

/// The map of a cluster, as a node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Map {
    /// First and last slot, and their master.
    ranges: Vec<(u16, u16, Address)>,
    /// Slots that have moved since.
    moved: HashMap<u16, Address>,
    /// All nodes.
    nodes: Vec<Address>,
}

impl Map {
    /// The reply of a node at `host` to CLUSTER SLOTS; None if it is none.
    pub(crate) fn read(reply: &Value, host: &str) -> Option<Map> {
        let Value::Array(rows) = reply else { return None };
        let mut map = Map::default();
        for row in rows {
            let Value::Array(row) = row else { return None };
            let [Value::Int(first), Value::Int(last), nodes @ ..] = &row[..] else { return None };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            for (nth, node) in nodes.iter().enumerate() {
                let Some(address) = address(node, host) else { continue };
                if nth == 0 {
                    map.ranges.push((first, last, address.clone()));
                }
                if !map.nodes.contains(&address) {
                    map.nodes.push(address);
                }
            }
        }
        Some(map)
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.moved.is_empty()
    }

    fn owner(&self, slot: u16) -> Option<&Address> {
        let in_range = |(first, last, _): &&(u16, u16, Address)| (*first..=*last).contains(&slot);
        let of_range = || self.ranges.iter().find(in_range).map(|(_, _, owner)| owner);
        self.moved.get(&slot).or_else(of_range)
    }

    fn moved(&mut self, slot: u16, to: Address) {
        if !self.nodes.contains(&to) {
            self.nodes.push(to.clone());
        }
        self.moved.insert(slot, to);
    }
}

/// The address of a node. A node that does not know its host has the one of the node that was asked;
/// `?` stands for a name that is not configured.
fn address(node: &Value, host: &str) -> Option<Address> {
    let Value::Array(node) = node else { return None };
    let [at, Value::Int(port), ..] = &node[..] else { return None };
    let port = u16::try_from(*port).ok().filter(|port| *port > 0)?;
    let name = match at {
        Value::BulkString(name) => String::from_utf8(name.clone()).ok()?,
        _ => String::new(),
    };
    match name.as_str() {
        "?" => None,
        "" => Some((host.to_owned(), port)),
        _ => Some((name, port)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(port: u16) -> Server {
        Server::new(&format!("redis://10.0.0.1:{port}")).unwrap()
    }

    fn place(ports: &[u16], shards: u32, home: usize) -> Place {
        let servers: Vec<Server> = ports.iter().map(|&port| server(port)).collect();
        Place { nodes: Nodes::new(&servers, shards), home, slot: Some(7) }
    }

    fn ports(place: &Place, last: u16) -> Vec<u16> {
        let of = |server: &Server| server.name().rsplit_once(':').unwrap().1.parse().unwrap();
        place.candidates(&server(last)).iter().map(of).collect()
    }

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)])
    }

    fn map(rows: Vec<(i64, i64, Vec<Value>)>) -> Map {
        let row = |(first, last, nodes): (i64, i64, Vec<Value>)| {
            Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
        };
        Map::read(&Value::Array(rows.into_iter().map(row).collect()), "10.0.0.1").unwrap()
    }

    #[test]
    fn all_seeds_and_all_nodes_of_the_map_are_asked_and_failed_ones_last() {
        let place = place(&[1, 2], 1, 0);
        assert_eq!(ports(&place, 1), [1, 2]);
        place.nodes.learn(map(vec![(0, 100, vec![node("10.0.0.1", 3), node("", 4)])]));
        assert_eq!(ports(&place, 1), [3, 1, 2, 4]);
        place.nodes.has_failed("10.0.0.1:3".to_owned());
        place.nodes.has_failed("10.0.0.1:1".to_owned());
        assert_eq!(ports(&place, 1), [2, 4, 3, 1]);
        place.nodes.works("10.0.0.1:3");
        assert_eq!(ports(&place, 1), [3, 2, 4, 1]);
        place.nodes.moved(7, ("10.0.0.1".to_owned(), 4));
        assert_eq!(ports(&place, 1)[0], 4);
        place.nodes.learn(Map::default());
        assert_eq!(ports(&place, 1)[0], 4, "a node without slots changes nothing");
    }

    #[test]
    fn a_server_is_replaced_by_another_process_or_by_a_master_that_continues_its_data() {
        let place = place(&[1, 2], 1, 0);
        let said = |run: &str, history: &str, continued: &str| Greeting {
            run_id: Some(run.to_owned()),
            history: Some(history.to_owned()),
            continued: Some(continued.to_owned()),
            ..Greeting::default()
        };
        let before = said("a", "h", "0");
        assert!(!place.has_changed(&server(1), &before));
        let replica = Greeting { master: Some((String::new(), 1)), ..said("b", "h", "0") };
        place.nodes.greeted("10.0.0.1:2".to_owned(), replica);
        assert!(!place.has_changed(&server(1), &before));
        place.nodes.greeted("10.0.0.1:2".to_owned(), said("b", "i", "h"));
        assert!(place.has_changed(&server(1), &before));
        place.nodes.greeted("10.0.0.1:2".to_owned(), said("b", "i", "other"));
        assert!(!place.has_changed(&server(1), &before));
        place.nodes.greeted("10.0.0.1:1".to_owned(), said("c", "h", "0"));
        assert!(place.has_changed(&server(1), &before));
        assert!(!place.has_changed(&server(1), &Greeting::default()), "it has said nothing");
    }

    #[test]
    fn a_server_that_has_said_nothing_is_left_where_its_address_answers_as_another_process() {
        let place = place(&[1], 1, 0);
        let name = "10.0.0.1:1";
        let said = |run: &str| Greeting { run_id: Some(run.to_owned()), ..Greeting::default() };
        assert!(!place.leads_elsewhere(&server(1), None));
        place.nodes.greeted(name.to_owned(), said("a"));
        assert!(place.leads_elsewhere(&server(1), None));
        let before = place.nodes.said(name);
        assert!(!place.leads_elsewhere(&server(1), before.as_ref()));
        place.nodes.greeted(name.to_owned(), said("b"));
        assert!(place.leads_elsewhere(&server(1), before.as_ref()));
        place.nodes.greeted(name.to_owned(), Greeting::default());
        assert!(!place.leads_elsewhere(&server(1), before.as_ref()), "it does not tell");
    }

    #[test]
    fn a_server_that_has_said_nothing_is_left_for_another_address_that_is_a_master() {
        for (silent, other) in [(1, 2), (2, 1)] {
            let place = place(&[1, 2], 1, 0);
            let name = format!("10.0.0.1:{other}");
            assert!(!place.has_master_beside(&server(silent)));
            let master = Greeting { run_id: Some("a".to_owned()), ..Greeting::default() };
            let replica = Greeting { master: Some((String::new(), silent)), ..master.clone() };
            place.nodes.greeted(name.clone(), replica);
            assert!(!place.has_master_beside(&server(silent)));
            place.nodes.greeted(name, master);
            assert!(place.has_master_beside(&server(silent)));
            assert!(!place.has_master_beside(&server(other)));
        }
    }

    #[test]
    fn a_server_of_another_shard_is_asked_only_in_a_cluster() {
        let place = place(&[1, 2], 2, 0);
        assert_eq!(ports(&place, 1), [1, 2], "it may be one");
        assert!(!place.may_have_keys(&server(2), false) && place.may_have_keys(&server(2), true));
        place.nodes.is_single("10.0.0.1:1".to_owned());
        assert_eq!(ports(&place, 1), [1]);
    }

    #[test]
    fn more_servers_than_shards_are_further_addresses_of_the_same() {
        let place = place(&[1, 2, 3, 4], 2, 1);
        place.nodes.is_single("10.0.0.1:2".to_owned());
        assert_eq!(ports(&place, 2), [2, 4]);
        assert!(place.may_have_keys(&server(4), false));
        assert!(!place.may_have_keys(&server(3), false));
    }

    #[test]
    fn a_node_without_a_name_is_left_out_and_one_without_a_host_has_that_of_the_asked_one() {
        let map = map(vec![(0, 5, vec![node("?", 1)]), (6, 9, vec![node("", 2)])]);
        assert_eq!(map.owner(3), None);
        assert_eq!(map.owner(7), Some(&("10.0.0.1".to_owned(), 2)));
        assert_eq!(map.owner(10), None);
    }
}
