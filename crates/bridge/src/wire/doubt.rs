//! The doubt about a server that is silent: it may be slow, stopped, or cut off without a reset. A slow one must not
//! be left, so only a proof that another server has its place ends the wait before the limit of replies.
//!
//! | asked | proof |
//! |---|---|
//! | in a cluster, two other nodes for the map | it names another node than when the connection was made |
//! | else the same address for its `run_id` | another process is there |
//! | else the further addresses of the shard | a master whose `master_replid2` is the history of the silent server |
//!
//! While it is being connected to, any master at a further address suffices, or another process at its address, if the
//! silence lasts for another 0.5 s.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use crate::connection::{Connection, Ends, Wait};
use crate::greeting::{Cluster, Greeting, greet};
use crate::nodes::{Address, Nodes, Place};
use crate::server::Server;

/// The time for the answer to a question.
const PROBE_MAX: Duration = Duration::from_millis(400);
/// Nodes that are asked at once about one that is silent.
const PROBES: usize = 2;

/// What is known of a silent server.
pub(super) enum Said<'a> {
    /// What it has said on this connection.
    Here(&'a Greeting),
    /// It has said nothing here. What its address had said last when the connection was begun, and
    /// whether its address was found to lead elsewhere. One slow server may answer the question and this
    /// connection at once: its answer here is read before that finding ends the wait.
    Before(Option<Greeting>, Cell<bool>),
}

/// The doubt about a server that is silent: whether another has its place meanwhile. A question of a
/// moment, so that the answer of a server that is only slow is not missed for long.
pub(super) struct Doubt<'a> {
    pub(super) place: &'a Place,
    pub(super) server: &'a Server,
    pub(super) said: Said<'a>,
    /// The node that the map has named when the connection was made, or since it is being made.
    pub(super) owner: Option<&'a Address>,
    /// Of the thread that waits for the server.
    pub(super) ends: &'a Ends,
}

impl Doubt<'_> {
    /// An error if the server was replaced. The connections of a consumer share the answers to the
    /// questions.
    pub(super) fn ask(&self) -> io::Result<()> {
        if self.place.nodes.may_ask() {
            match self.place.nodes.is_cluster() {
                true => self.ask_for_the_map(),
                false => self.ask_for_the_master(),
            }
        }
        match self.is_replaced() {
            true => Err(io::Error::other("silent, and another server has its place now")),
            false => Ok(()),
        }
    }

    /// Whether there is a proof.
    pub(super) fn is_replaced(&self) -> bool {
        match self.place.nodes.is_cluster() {
            true => self.place.owner().as_ref() != self.owner,
            false => match &self.said {
                Said::Here(before) => self.place.has_changed(self.server, before),
                // It is being connected to: nothing is lost if another one is asked.
                Said::Before(before, was_found) => {
                    self.place.has_master_beside(self.server)
                        || (self.place.leads_elsewhere(self.server, before.as_ref())
                            && was_found.replace(true))
                }
            },
        }
    }

    fn ask_for_the_map(&self) {
        let nodes = &self.place.nodes;
        let others = self.place.candidates(self.server).into_iter();
        let others = others.filter(|other| other.name() != self.server.name());
        for other in others.take(PROBES) {
            if let Some((_, Cluster::Map(map))) = probe(&other, nodes, self.ends) {
                return nodes.learn(map);
            }
            nodes.has_failed(other.name());
        }
    }

    /// Asks the server's own address, which may lead to another one, and the further addresses.
    fn ask_for_the_master(&self) {
        let nodes = &self.place.nodes;
        // Best first: one that does not answer has failed, and the next question goes to another one.
        let mut asked = self.place.candidates(self.server);
        asked.retain(|at| self.place.others(self.server).any(|other| other.name() == at.name()));
        asked.insert(0, self.server.clone());
        for server in asked.iter().take(PROBES) {
            match probe(server, nodes, self.ends) {
                Some((greeting, _)) => nodes.greeted(server.name(), greeting),
                None => nodes.has_failed(server.name()),
            }
        }
    }
}

/// What a server says about itself, if it does so at once.
fn probe(server: &Server, nodes: &Nodes, ends: &Ends) -> Option<(Greeting, Cluster)> {
    let mut connection = Connection::open(server, &nodes.addresses, PROBE_MAX, ends).ok()?;
    let wait = Wait { limit: PROBE_MAX, doubt: Duration::MAX, ask: &mut || Ok(()) };
    greet(&mut connection, server, false, wait).ok()
}
