//! Settings with which a server forgets jobs. What INFO says suffices; a server is asked at the start,
//! at each new connection and every minute, the default of
//! [`Config::look_every`](crate::Config::look_every), and each finding is reported when it begins and
//! when it ends. With `strict` a finding refuses the start, and later no job is fetched until it has
//! ended.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::{Cmd, Value};

use crate::consumer::lock;
use crate::fault::{Error, ErrorKind, Fault, Remedy};
use crate::greeting::{field, text};
use crate::report::Reporter;
use crate::wire::Wire;

/// What was found at the servers of a consumer, by their addresses.
#[derive(Default)]
pub(crate) struct Findings(Mutex<HashMap<String, Vec<String>>>);

impl Findings {
    /// Keeps what was found, and returns the lines that have to be said: what is new, and what has
    /// ended.
    pub(crate) fn learn(&self, address: &str, found: Vec<String>) -> Vec<String> {
        let mut all = lock(&self.0);
        let before = all.insert(address.to_owned(), found.clone()).unwrap_or_default();
        let new = found.iter().filter(|line| !before.contains(line));
        let over = before.iter().filter(|line| !found.contains(line));
        let new = new.map(|line| format!("{address}: {line}"));
        new.chain(over.map(|line| format!("{address}: no longer: {line}"))).collect()
    }
}

/// The refusal of a shard's server that may forget jobs, where the configuration is strict: nothing is
/// fetched from it. The same holds for a server that is new or unknown, until it was asked.
#[derive(Default)]
pub(crate) struct Refusal {
    refuses: AtomicBool,
    /// How often a thread has lost its server, and how many of these times are settled.
    doubts: AtomicU64,
    settled: AtomicU64,
}

/// The doubts that a look at the server settles.
pub(crate) struct Doubts(u64);

impl Refusal {
    /// The next connection may lead to another server.
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_doubted(&self) -> bool {
        self.doubts.load(Ordering::Relaxed) != self.settled.load(Ordering::Relaxed)
    }

    /// Those until now. To be called before a look.
    pub(crate) fn doubts(&self) -> Doubts {
        Doubts(self.doubts.load(Ordering::Relaxed))
    }

    /// Begins or ends the refusal, and reports that. Only the reader settles doubts.
    pub(crate) fn set(&self, refuses: bool, until: &Doubts, stream: &str, reporter: &Reporter) {
        self.settled.store(until.0, Ordering::Relaxed);
        if self.refuses.swap(refuses, Ordering::Relaxed) != refuses {
            reporter.say(&match refuses {
                true => {
                    format!("{stream}: no job is fetched until its server forgets none (strict)")
                }
                false => format!("{stream}: jobs are fetched again"),
            });
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.refuses.load(Ordering::Relaxed) || self.is_doubted()
    }
}

/// What was found at a server.
pub(crate) struct Found {
    /// A line for each reason.
    pub(crate) lines: Vec<String>,
    /// The server itself may forget jobs. False if only its configured address is a replica's, as it is
    /// after a failover.
    pub(crate) forgets: bool,
}

/// Asks the server that has a key. `toward` is a command with that key: a node of a cluster redirects
/// it, and answers INFO itself.
pub(crate) fn look(wire: &mut Wire, toward: Cmd) -> Result<Found, Fault> {
    wire.ask(&[toward])?;
    let mut command = redis::cmd("INFO");
    command.arg("memory").arg("persistence").arg("replication");
    let reply = wire.ask(&[command])?.pop().unwrap_or_default();
    let mut lines = match &reply {
        Value::ServerError(_) => vec![UNKNOWN.to_owned()],
        reply => findings(&text(reply)),
    };
    let forgets = !lines.is_empty();
    if let Some((host, port)) = wire.master_of_home() {
        let home = wire.home();
        lines.push(format!("{home} is a replica; give the address of its master, {host}:{port}"));
    }
    Ok(Found { lines, forgets })
}

/// The fault of a start with `strict` at a server with findings.
pub(crate) fn refusal(address: &str, found: &[String]) -> Fault {
    let text = format!("{address}: refused, as strict demands: {}", found.join("; "));
    let error = Error::new(ErrorKind::Refused, text);
    Fault { address: address.to_owned(), remedy: Remedy::Report, error }
}

const UNKNOWN: &str = "whether the server keeps jobs is unknown: the user has no right to INFO; \
                       docs/bridge.md has the ACL rules";

/// What a policy of eviction deletes, and when. One without a limit is a mistake, too: a command sets
/// the limit while jobs are in the server.
fn eviction(info: &str) -> Option<String> {
    let policy = field(info, "maxmemory_policy").filter(|&policy| policy != "noeviction")?;
    let what = match policy.starts_with("volatile") {
        true => "ids within their window, and results",
        false => "streams with all their jobs",
    };
    let when = match field(info, "maxmemory") {
        Some("0") => "once maxmemory is set",
        _ => "when memory runs out",
    };
    Some(format!("maxmemory-policy {policy} deletes {what} {when}; set noeviction"))
}

/// The fields of INFO that the findings need.
const NEEDED: [&str; 3] = ["maxmemory_policy", "aof_enabled", "role"];

/// What INFO says against a server, or does not say.
fn findings(info: &str) -> Vec<String> {
    let mut found = Vec::from_iter(eviction(info));
    let missing: Vec<&str> =
        NEEDED.into_iter().filter(|name| field(info, name).is_none()).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        found.push(format!(
            "whether the server keeps jobs is unknown: INFO does not tell {missing}"
        ));
    }
    if field(info, "aof_enabled") == Some("0") {
        found.push(
            "no append-only file: a restart forgets jobs; set appendonly yes, and appendfsync \
             always if none may be lost"
                .to_owned(),
        );
    }
    if field(info, "role") == Some("slave") {
        let host = field(info, "master_host").unwrap_or("its master");
        found.push(format!("a replica, which takes no job; give the address of {host}"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eviction_a_missing_log_and_a_replica_are_found() {
        let safe = "maxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\nrole:master\r\n";
        assert!(findings(safe).is_empty());
        let evicts = safe.replace("noeviction", "allkeys-lru");
        let found = findings(&evicts);
        assert!(
            found[0].contains("allkeys-lru deletes streams with all their jobs once maxmemory")
        );
        let limited = evicts.replace("maxmemory:0", "maxmemory:1048576");
        assert!(
            findings(&limited)[0].contains("allkeys-lru deletes streams with all their jobs when")
        );
        assert!(findings(&limited.replace("allkeys", "volatile"))[0].contains("ids within"));
        assert!(findings(&safe.replace("maxmemory:0", "maxmemory:1048576")).is_empty());
        assert!(findings(&safe.replace("enabled:1", "enabled:0"))[0].contains("append-only"));
        assert!(findings(&safe.replace("master", "slave"))[0].contains("a replica"));
    }

    // Catches: a server that says nothing, and passes for one that keeps all jobs.
    #[test]
    fn a_server_that_does_not_tell_all_is_a_finding() {
        let unknown = "whether the server keeps jobs is unknown: INFO does not tell ";
        let all = format!("{unknown}maxmemory_policy, aof_enabled, role");
        assert_eq!(findings(""), [all]);
        let found = findings("maxmemory_policy:noeviction\r\nrole:slave\r\n");
        assert_eq!(found[0], format!("{unknown}aof_enabled"));
        assert!(found[1].contains("a replica"), "{found:?}");
    }

    #[test]
    fn a_server_that_was_lost_during_a_look_is_asked_again() {
        let (refusal, reporter) = (Refusal::default(), Reporter::new(|_| {}));
        assert!(!refusal.is_on());
        refusal.doubt();
        let doubts = refusal.doubts();
        refusal.doubt();
        refusal.set(false, &doubts, "jobs", &reporter);
        assert!(refusal.is_on() && refusal.is_doubted());
        refusal.set(true, &refusal.doubts(), "jobs", &reporter);
        assert!(refusal.is_on() && !refusal.is_doubted());
        refusal.set(false, &refusal.doubts(), "jobs", &reporter);
        assert!(!refusal.is_on());
    }

    #[test]
    fn a_finding_is_said_when_it_begins_and_when_it_ends() {
        let findings = Findings::default();
        let found = || vec!["no log".to_owned()];
        assert_eq!(findings.learn("a", found()), ["a: no log"]);
        assert!(findings.learn("a", found()).is_empty());
        assert_eq!(findings.learn("b", found()), ["b: no log"]);
        assert_eq!(findings.learn("a", Vec::new()), ["a: no longer: no log"]);
    }
}
