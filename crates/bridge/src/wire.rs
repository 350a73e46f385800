//! A connection to the master of a shard: batches of commands out, replies in; made again after a
//! fault, with whichever server has the master's place by then. The README has the search.

mod doubt;

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use self::doubt::{Doubt, Said};
use crate::connection::{Connection, Ends, Intake, Wait};
use crate::fault::{ErrorKind, Fault, Remedy};
use crate::greeting::{Cluster, Greeting, greet};
use crate::nodes::{Address, Nodes, Place};
use crate::server::Server;

/// A server that is silent for this time has failed. An exchange that makes a connection has it in all: for
/// the lookup of names, the connection, the greeting and the first reply.
pub(crate) const REPLY_MAX: Duration = Duration::from_secs(10);
/// A server that does not answer within this time is unreachable. The lookup of its name and the
/// connection have it together, and then the greeting once more.
pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The same two limits for a consumer that ends.
pub(crate) const HURRIED_REPLY_MAX: Duration = Duration::from_secs(5);
pub(crate) const HURRIED_CONNECT_MAX: Duration = Duration::from_secs(2);
/// A shorter time is worth no connection.
const CONNECT_MIN: Duration = Duration::from_millis(50);
/// The first limit for a connection where others can be asked. It doubles up to the one above.
const CONNECT_FIRST: Duration = Duration::from_secs(1);
/// A server that is silent for this time is doubted: others are asked whether they have its place.
const DOUBT_AFTER: Duration = Duration::from_millis(900);
/// A connection that was not used for this time is made anew: a firewall or a server may have forgotten
/// it, and it would be unknown whether commands on it have arrived. Of a consumer that is a reader without
/// room.
const UNUSED_MAX: Duration = Duration::from_secs(30);

/// Whether a command may be sent on a connection: their numbers.
pub(crate) type MayGo<'a> = dyn Fn(usize, u64) -> bool + 'a;

/// A connection that is made when it is needed.
pub(crate) struct Wire {
    place: Place,
    /// Where the connection leads, or has led last.
    server: Server,
    connection: Option<Connected>,
    /// How often a connection was made.
    connects: u64,
    /// The searches in a row that found no server.
    vain: u32,
    /// The fault that began the present search. Those met in the search belong to it.
    lost: Option<Fault>,
    is_hurried: bool,
    /// When the last exchange ends, whatever it has reached.
    ends: Ends,
    /// Called while a server is silent that is doubted.
    silent: Box<dyn Fn() + Send + Sync>,
    /// The last commands, or a part of them, may have reached the server.
    was_sent: bool,
    buffer: Vec<u8>,
}

/// A connection, and what was known when it was made.
struct Connected {
    connection: Connection,
    made: Instant,
    /// The end of the last exchange.
    used: Instant,
    greeting: Greeting,
    /// The node that the map has named.
    owner: Option<Address>,
}

/// The search for the master in one exchange. Each address is tried once, so nodes that refer to each
/// other end it.
#[derive(Default)]
struct Search {
    tried: Vec<String>,
    /// Where a node has said that the master is.
    next: Option<Address>,
    faults: Vec<Fault>,
}

impl Search {
    fn tries(&mut self, server: &Server) -> bool {
        let name = server.name();
        let is_new = !self.tried.contains(&name);
        if is_new {
            self.tried.push(name);
        }
        is_new
    }

    /// The fault to report: a refusal, which no other server mends, or the first one.
    fn fault(mut self) -> Option<Fault> {
        let refuses =
            |fault: &Fault| matches!(fault.error.kind(), ErrorKind::Denied | ErrorKind::Refused);
        let at = self.faults.iter().position(refuses).unwrap_or(0);
        (!self.faults.is_empty()).then(|| self.faults.swap_remove(at))
    }
}

impl Wire {
    pub(crate) fn new(server: Server) -> Wire {
        let place = server.place().cloned().map(Place::of_this_process);
        let place = place.unwrap_or_else(|| Place::alone(&server));
        Wire {
            place,
            server,
            connection: None,
            connects: 0,
            vain: 0,
            lost: None,
            is_hurried: false,
            ends: Ends::default(),
            silent: Box::new(|| ()),
            was_sent: false,
            buffer: Vec::new(),
        }
    }

    /// What a forked child knows of the servers. All its wires share it.
    pub(crate) fn nodes_of_child(&self) -> Arc<Nodes> {
        self.place.nodes.of_child()
    }

    /// In a forked child: makes a connection of its own when one is needed. The parent's was closed here
    /// at the fork.
    pub(crate) fn leave_parents(&mut self, nodes: Arc<Nodes>) {
        (self.connection, self.place.nodes) = (None, nodes);
    }

    /// For a thread of a consumer: its exchanges end then.
    pub(crate) fn ending_with(self, ends: Ends) -> Wire {
        Wire { ends, ..self }
    }

    /// For a thread that has something which others wait for: the function gives it up.
    pub(crate) fn when_silent(self, silent: impl Fn() + Send + Sync + 'static) -> Wire {
        Wire { silent: Box::new(silent), ..self }
    }

    /// Waits less from now on: the consumer ends.
    pub(crate) fn hurry(&mut self) {
        self.is_hurried = true;
    }

    pub(crate) fn name(&self) -> String {
        self.server.name()
    }

    /// The configured address.
    pub(crate) fn home(&self) -> String {
        self.place.home().name()
    }

    /// Where the master of the configured server is, if that was a replica when it was asked last, and
    /// no further address of the shard is the master's.
    pub(crate) fn master_of_home(&self) -> Option<Address> {
        let name = self.name();
        let is_configured = self.place.alternatives().any(|other| other.name() == name);
        self.place.master_of_home().filter(|_| !is_configured)
    }

    /// Whether the server may have executed the last commands, although they failed as a whole.
    pub(crate) fn was_sent(&self) -> bool {
        self.was_sent
    }

    pub(crate) fn connects(&self) -> u64 {
        self.connects
    }

    /// Sends commands and returns their replies, error replies included. After a fault it is unknown
    /// which of the commands took effect.
    pub(crate) fn ask(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Fault> {
        self.ask_blocking(commands, Duration::ZERO)
    }

    /// The time for an exchange that begins now.
    fn exchange_max(&self) -> Duration {
        let max = self.server.limit(if self.is_hurried { HURRIED_REPLY_MAX } else { REPLY_MAX });
        let left = |by: Instant| by.saturating_duration_since(Instant::now());
        self.ends.at().map_or(max, |by| max.min(left(by)))
    }

    /// As [`Wire::ask`], for commands that block on the server for at most `block`.
    pub(crate) fn ask_blocking(
        &mut self,
        commands: &[Cmd],
        block: Duration,
    ) -> Result<Vec<Value>, Fault> {
        self.ask_into(commands, block, &mut |_, replies| replies.value())
    }

    /// The same, with a function that reads each reply as it arrives. It gets the number of the
    /// command, and returns an error reply as it is.
    pub(crate) fn ask_into(
        &mut self,
        commands: &[Cmd],
        block: Duration,
        intake: &mut Intake<'_>,
    ) -> Result<Vec<Value>, Fault> {
        self.ask_bound(commands, block, &|_, _| true, intake)
    }

    /// The same, with commands that are for one connection only. `may_go` gets the number of a command
    /// and of the connection, as [`Wire::connects`] counts them. What may not go is not sent, and its
    /// reply is nil.
    pub(crate) fn ask_bound(
        &mut self,
        commands: &[Cmd],
        block: Duration,
        may_go: &MayGo<'_>,
        intake: &mut Intake<'_>,
    ) -> Result<Vec<Value>, Fault> {
        let answer = self.exchange(commands, block, may_go, intake);
        match answer {
            Ok(replies) => {
                self.lost = None;
                Ok(replies)
            }
            Err(fault) => {
                if fault.remedy == Remedy::Reconnect {
                    let address = self.address();
                    address.into_iter().for_each(|of| self.place.nodes.addresses.has_failed(of));
                    self.connection = None;
                    self.place.nodes.has_failed(self.name());
                }
                Err(self.of_search(fault))
            }
        }
    }

    /// As [`Wire::ask`], for a single command whose error reply is a fault.
    pub(crate) fn ask_one(&mut self, command: Cmd) -> Result<Value, Fault> {
        let mut replies = self.ask(&[command])?;
        let reply = replies.pop().unwrap_or_default();
        Fault::in_reply(&reply, &self.name()).map_or(Ok(reply), Err)
    }

    /// A failover is one fault, however many servers are asked in it: the first one.
    fn of_search(&mut self, fault: Fault) -> Fault {
        let passes = matches!(fault.error.kind(), ErrorKind::Unreachable | ErrorKind::Busy);
        if !passes || self.place.candidates(&self.server).len() < 2 {
            return fault;
        }
        let first = self.lost.get_or_insert_with(|| fault.clone());
        Fault { remedy: fault.remedy, ..first.clone() }
    }

    fn exchange(
        &mut self,
        commands: &[Cmd],
        block: Duration,
        may_go: &MayGo<'_>,
        intake: &mut Intake<'_>,
    ) -> Result<Vec<Value>, Fault> {
        let is_useless =
            |of: &Connected| of.used.elapsed() >= UNUSED_MAX || of.connection.is_over();
        if self.was_left() || self.connection.as_ref().is_some_and(is_useless) {
            self.connection = None;
        }
        self.was_sent = false;
        let mut limit = self.exchange_max();
        if limit.is_zero() {
            return Err(Fault::of_silence(&self.name()));
        }
        let mut search = Search::default();
        let mut replies = vec![Value::Nil; commands.len()];
        let mut left: Vec<usize> = (0..commands.len()).collect();
        loop {
            if self.connection.is_none() {
                let (begun, most) = (Instant::now(), self.exchange_max());
                self.connect(&mut search, most / 2)?;
                limit = most.saturating_sub(begun.elapsed());
            } else {
                search.tries(&self.server);
            }
            left.retain(|&nth| may_go(nth, self.connects));
            let name = self.name();
            let answers = self.send(commands, &left, block + limit, block, intake)?;
            if let Some(fault) = Fault::of_batch(&answers, &name) {
                return Err(fault);
            }
            // What was redirected had no effect, and the rest had one.
            let (mut moved, mut redirection) = (Vec::new(), None);
            for (nth, answer) in left.into_iter().zip(answers) {
                let fault = Fault::in_reply(&answer, &name);
                match fault.filter(|fault| fault.target().is_some()) {
                    Some(fault) => {
                        moved.push(nth);
                        redirection = Some(fault);
                    }
                    None => replies[nth] = answer,
                }
            }
            let Some(redirection) = redirection else {
                self.vain = 0;
                self.place.nodes.works(&name);
                if let Some(connected) = &mut self.connection {
                    connected.used = Instant::now();
                    let address = connected.connection.address();
                    address.into_iter().for_each(|of| self.place.nodes.addresses.works(of));
                }
                return Ok(replies);
            };
            self.follow(redirection, &mut search)?;
            left = moved;
        }
    }

    /// The address that the connection leads to; None for a path.
    fn address(&self) -> Option<SocketAddr> {
        self.connection.as_ref().and_then(|connected| connected.connection.address())
    }

    /// Whether another connection has left the server of this one since, with a proof.
    fn was_left(&self) -> bool {
        let Some(Connected { made, greeting, owner, .. }) = &self.connection else { return false };
        let (place, server, ends) = (&self.place, &self.server, &self.ends);
        let (said, owner) = (Said::Here(greeting), owner.as_ref());
        let doubt = Doubt { place, server, said, owner, ends };
        place.nodes.has_failed_since(&server.name(), *made) && doubt.is_replaced()
    }

    /// Leaves the server for the one that it has named. Fails if that one was tried.
    fn follow(&mut self, redirection: Fault, search: &mut Search) -> Result<(), Fault> {
        let Some((host, port)) = redirection.target() else { return Err(redirection) };
        let to = self.server.at(&host, port);
        self.connection = None;
        if search.tried.contains(&to.name()) {
            self.place.nodes.has_failed(self.name());
            let found = std::mem::take(search).fault();
            return Err(found.unwrap_or(Fault { remedy: Remedy::Reconnect, ..redirection }));
        }
        let address = (to.host(), port);
        if let Some(slot) = self.place.slot {
            self.place.nodes.moved(slot, address.clone());
        }
        search.next = Some(address);
        Ok(())
    }

    /// Sends the commands with these numbers to the connected server. It may be silent for `limit`.
    fn send(
        &mut self,
        commands: &[Cmd],
        numbers: &[usize],
        limit: Duration,
        block: Duration,
        intake: &mut Intake<'_>,
    ) -> Result<Vec<Value>, Fault> {
        self.buffer.clear();
        numbers.iter().for_each(|&nth| commands[nth].write_packed_command(&mut self.buffer));
        let name = self.server.name();
        // The connection was made before.
        let Some(Connected { connection, greeting, owner, .. }) = &mut self.connection else {
            return Ok(Vec::new());
        };
        let (place, server, ends) = (&self.place, &self.server, &self.ends);
        let (said, owner) = (Said::Here(greeting), owner.as_ref());
        let doubt = Doubt { place, server, said, owner, ends };
        let ask = &mut || {
            (self.silent)();
            doubt.ask()
        };
        let wait = Wait { limit, doubt: block + DOUBT_AFTER, ask };
        self.was_sent = true;
        let replies = connection.ask_into(&self.buffer, numbers.iter().copied(), wait, intake);
        // A buffer that has held a large payload is released.
        self.buffer.shrink_to(1 << 20);
        // Replies may still be on their way: this connection is of no further use.
        replies.map_err(|error| Fault::of_connection(&error, &name))
    }

    /// Connects to the first server that answers, of those that may have the shard's keys: for twice the
    /// limit of a connection, or twice `most`.
    fn connect(&mut self, search: &mut Search, most: Duration) -> Result<(), Fault> {
        let begun = Instant::now();
        let connect_max = if self.is_hurried { HURRIED_CONNECT_MAX } else { CONNECT_MAX };
        let connect_max = self.server.limit(connect_max).min(most);
        loop {
            let mut limit = connect_max.saturating_sub(begun.elapsed());
            if limit < CONNECT_MIN {
                break;
            }
            let named = search.next.take();
            let named = named.map(|(host, port)| self.server.at(&host, port));
            let candidates = self.place.candidates(&self.server);
            let is_choice = named.is_some() || candidates.len() > 1;
            let mut servers = named.into_iter().chain(candidates);
            let Some(server) = servers.find(|server| search.tries(server)) else { break };
            if is_choice {
                let first = CONNECT_FIRST.saturating_mul(1 << self.vain.min(8));
                // Patience is for the server that is wanted, and not for those that may know it.
                let is_wanted = self
                    .place
                    .owner()
                    .is_none_or(|(host, port)| self.server.at(&host, port).name() == server.name());
                limit = limit.min(if is_wanted { self.server.limit(first) } else { first });
            }
            match self.open(&server, limit) {
                Ok(Some(connected)) => {
                    self.server = server;
                    self.connects += 1;
                    self.connection = Some(connected);
                    return Ok(());
                }
                // It has other streams.
                Ok(None) => {}
                Err(fault) => {
                    if let Some(to) = fault.target() {
                        search.next = Some((server.at(&to.0, to.1).host(), to.1));
                    }
                    self.place.nodes.has_failed(server.name());
                    search.faults.push(Fault { remedy: Remedy::Reconnect, ..fault });
                }
            }
        }
        self.vain = self.vain.saturating_add(1);
        let found = std::mem::take(search).fault();
        Err(found.unwrap_or_else(|| Fault::of_silence(&self.name())))
    }

    /// A connection to a server that may have the shard's keys; None if the server has others.
    fn open(&self, server: &Server, limit: Duration) -> Result<Option<Connected>, Fault> {
        let (nodes, name) = (&self.place.nodes, server.name());
        let fault = |error: io::Error| Fault::of_connection(&error, &name);
        let (place, owner, ends) = (&self.place, self.place.owner(), &self.ends);
        let opened = Connection::open(server, &nodes.addresses, limit, ends);
        let mut connection = opened.map_err(fault)?;
        let said = Said::Before(nodes.said(&name), Cell::default());
        let doubt = Doubt { place, server, said, owner: owner.as_ref(), ends };
        let ask = &mut || {
            (self.silent)();
            doubt.ask()
        };
        let wait = Wait { limit, doubt: DOUBT_AFTER, ask };
        let address = connection.address();
        let greeted = greet(&mut connection, server, true, wait).inspect_err(|fault| {
            // Its name may have another address, which is asked in the next round.
            if fault.error.kind() == ErrorKind::Unreachable {
                address.into_iter().for_each(|of| nodes.addresses.has_failed(of));
            }
        });
        let (greeting, cluster) = greeted?;
        match cluster {
            Cluster::Map(map) => nodes.learn(map),
            Cluster::None => nodes.is_single(name.clone()),
            Cluster::Unknown => {}
        }
        nodes.greeted(name.clone(), greeting.clone());
        if !self.place.may_have_keys(server, greeting.is_in_cluster) {
            return Ok(None);
        }
        match greeting.master.clone().filter(|_| !greeting.is_in_cluster) {
            // As a node of a cluster would say it.
            Some((host, port)) => Err(Fault::of_replica(&host, port, &name)),
            None => {
                let (made, owner) = (Instant::now(), place.owner());
                Ok(Some(Connected { connection, made, used: made, greeting, owner }))
            }
        }
    }
}

#[cfg(test)]
mod tests;
