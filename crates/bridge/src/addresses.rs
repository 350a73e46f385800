//! The addresses of names: looked up anew for each connection, with a time limit, and those that have
//! failed last. A resolver that does not answer costs its limit, and the last answer is used.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::process::Process;

/// How long a name with a known answer waits for a newer one: a resolver may hang for seconds behind a
/// network that works again.
const KNOWN_MAX: Duration = Duration::from_millis(900);

/// A name, and the port of its addresses.
type Name = (String, u16);
/// Asks for the addresses of a name, for as long as that takes.
type Resolve = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// What all connections of a consumer or producer know of names.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    resolve: Resolve,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Debug, Default)]
struct State {
    names: HashMap<Name, Lookup>,
    /// When addresses have failed last, also after they had accepted a connection; a success removes
    /// them.
    failed: HashMap<SocketAddr, Instant>,
}

/// One thread at a time looks a name up.
#[derive(Debug, Default)]
struct Lookup {
    /// The process whose thread does so. A fork has none of them.
    runs_in: Option<Process>,
    /// How many have ended.
    ended: u64,
    /// The error of the last one, and the last answer.
    error: Option<(ErrorKind, String)>,
    answer: Vec<SocketAddr>,
}

impl Default for Addresses {
    fn default() -> Addresses {
        Addresses::of(|host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }
}

impl Addresses {
    pub(crate) fn of(resolve: Resolve) -> Addresses {
        Addresses { resolve, state: Arc::default() }
    }

    /// For a forked child: a thread of the parent may have had the lock. It takes none.
    pub(crate) fn of_child(&self) -> Addresses {
        Addresses::of(self.resolve)
    }

    #[cfg(test)]
    pub(crate) fn lock_for_ever(&self) {
        std::mem::forget(self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses of a name, best first: as the resolver orders them, and those that have failed
    /// last. Waits for the resolver for at most `limit`, or for half of it and [`KNOWN_MAX`] if it has
    /// answered before: the rest is for a connection.
    pub(crate) fn find(
        &self,
        host: &str,
        port: u16,
        limit: Duration,
    ) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let name = (host.to_owned(), port);
        let before = self.begin(&name)?;
        let is_known = self.lock().names.get(&name).is_some_and(|of| !of.answer.is_empty());
        let limit = if is_known { (limit / 2).min(KNOWN_MAX) } else { limit };
        let runs = |state: &mut State| state.names.get(&name).is_some_and(|of| of.ended == before);
        let waited = self.state.1.wait_timeout_while(self.lock(), limit, runs);
        let (state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        let Some(lookup) = state.names.get(&name) else { return Ok(Vec::new()) };
        let mut found = lookup.answer.clone();
        if found.is_empty() {
            return Err(match &lookup.error {
                Some((kind, text)) if !waited.timed_out() => io::Error::new(*kind, text.clone()),
                _ if waited.timed_out() => {
                    let text = format!("no answer of the resolver for {host:?} in {limit:?}");
                    io::Error::new(ErrorKind::TimedOut, text)
                }
                _ => io::Error::new(ErrorKind::NotFound, "the name has no address"),
            });
        }
        found.sort_by_key(|address| state.failed.get(address).copied());
        Ok(found)
    }

    /// Begins a lookup unless one runs, and returns how many have ended before.
    fn begin(&self, name: &Name) -> io::Result<u64> {
        let mut state = self.lock();
        let lookup = state.names.entry(name.clone()).or_default();
        let before = lookup.ended;
        if lookup.runs_in == Some(Process::current()) {
            return Ok(before);
        }
        lookup.runs_in = Some(Process::current());
        drop(state);
        let (all, of) = (self.clone(), name.clone());
        let run = move || all.end(&of, (all.resolve)(&of.0, of.1));
        uwork::foreign::start_thread("bridge/lookup", run).map(drop).inspect_err(|_| {
            if let Some(lookup) = self.lock().names.get_mut(name) {
                lookup.runs_in = None;
            }
        })?;
        Ok(before)
    }

    fn end(&self, name: &Name, answer: io::Result<Vec<SocketAddr>>) {
        if let Some(lookup) = self.lock().names.get_mut(name) {
            (lookup.runs_in, lookup.ended) = (None, lookup.ended + 1);
            lookup.error = None;
            match answer {
                Ok(answer) if !answer.is_empty() => lookup.answer = answer,
                Ok(_) => {}
                Err(error) => lookup.error = Some((error.kind(), error.to_string())),
            }
        }
        self.state.1.notify_all();
    }

    /// A connection to an address has failed, or an exchange on it.
    pub(crate) fn has_failed(&self, address: SocketAddr) {
        self.lock().failed.insert(address, Instant::now());
    }

    /// An exchange with an address has succeeded.
    pub(crate) fn works(&self, address: SocketAddr) {
        self.lock().failed.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Longer than any test.
    const LONG: Duration = Duration::from_secs(3_600);

    fn ports(found: io::Result<Vec<SocketAddr>>) -> Vec<u16> {
        found.unwrap().iter().map(SocketAddr::port).collect()
    }

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn an_address_needs_no_resolver_and_those_of_a_name_that_have_failed_come_last() {
        let addresses = Addresses::of(|host, _| match host {
            "three" => Ok([1, 2, 3].map(address).to_vec()),
            _ => Err(ErrorKind::NotFound.into()),
        });
        for literal in ["127.0.0.1", "::1"] {
            assert_eq!(ports(addresses.find(literal, 7, Duration::ZERO)), [7]);
        }
        assert_eq!(ports(addresses.find("three", 0, LONG)), [1, 2, 3]);
        addresses.has_failed(address(1));
        assert_eq!(ports(addresses.find("three", 0, LONG)), [2, 3, 1]);
        addresses.has_failed(address(2));
        assert_eq!(ports(addresses.find("three", 0, LONG)), [3, 1, 2], "the longest ago first");
        addresses.works(address(1));
        assert_eq!(ports(addresses.find("three", 0, LONG)), [1, 3, 2]);
        assert_eq!(addresses.find("none", 0, LONG).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_resolver_that_hangs_costs_its_limit_and_is_asked_once() {
        static GATE: Mutex<()> = Mutex::new(());
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let addresses = Addresses::of(|_, port| {
            ASKED.fetch_add(1, Ordering::Relaxed);
            let _open = GATE.lock().unwrap();
            Ok(vec![address(port)])
        });
        let moment = Duration::from_millis(1);
        let hangs = GATE.lock().unwrap();
        for _ in 0..3 {
            let error = addresses.find("name", 10, moment).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        }
        assert!(ASKED.load(Ordering::Relaxed) <= 1, "its thread may not run yet");
        drop(hangs);
        assert_eq!(ports(addresses.find("name", 10, LONG)), [10]);
        let hangs = GATE.lock().unwrap();
        assert_eq!(ports(addresses.find("name", 10, moment)), [10], "the last answer");
        drop(hangs);
    }
}
