//! The first exchange of a connection: the login, the scripts, and what the server says about itself.

use std::io::ErrorKind;

use redis::{Cmd, Value};

use crate::connection::{Connection, Wait};
use crate::fault::Fault;
use crate::nodes::Map;
use crate::scripts;
use crate::server::Server;

/// What a server has said about itself. A server that refuses INFO has said nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Greeting {
    /// Another one is another process.
    pub(crate) run_id: Option<String>,
    /// The history of its data, and the one that it has continued as a new master.
    pub(crate) history: Option<String>,
    pub(crate) continued: Option<String>,
    /// Of a replica: where its master is.
    pub(crate) master: Option<(String, u16)>,
    pub(crate) is_in_cluster: bool,
}

/// What the reply to CLUSTER SLOTS says.
pub(crate) enum Cluster {
    Map(Map),
    None,
    /// The server does not tell.
    Unknown,
}

/// Logs in, loads the scripts, and asks the server about itself.
pub(crate) fn greet(
    connection: &mut Connection,
    server: &Server,
    with_scripts: bool,
    wait: Wait<'_>,
) -> Result<(Greeting, Cluster), Fault> {
    let name = server.name();
    let mut commands = login(server);
    let has_login = server.login().password().is_some();
    if with_scripts {
        commands.extend(scripts::texts().map(|text| words(&["SCRIPT", "LOAD", &text])));
    }
    let needed = commands.len();
    commands.push(words(&["CLUSTER", "SLOTS"]));
    commands.push(words(&["INFO", "server", "replication"]));
    if let Some(client) = server.client().filter(|_| with_scripts) {
        // A user without this right has connections without a name.
        commands.push(words(&["CLIENT", "SETNAME", client]));
    }
    let mut packed = Vec::new();
    commands.iter().for_each(|command| command.write_packed_command(&mut packed));
    let mut first = None;
    let replies = connection.ask_into(&packed, 0..commands.len(), wait, &mut |nth, replies| {
        let reply = replies.value()?;
        if nth == 0 {
            first = Some(reply.clone());
        }
        Ok(reply)
    });
    let replies = replies.map_err(|error| {
        // A server that closes the connection at once may have said why.
        let said = match error.kind() {
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                first.or_else(|| connection.last_words())
            }
            _ => first,
        };
        let refused = said.and_then(|reply| Fault::in_reply(&reply, &name));
        refused.unwrap_or_else(|| Fault::of_connection(&error, &name))
    })?;
    for (nth, reply) in replies[..needed].iter().enumerate() {
        let is_login = nth == 0 && has_login;
        let fault =
            if is_login { Fault::of_login(reply, &name) } else { Fault::in_reply(reply, &name) };
        if let Some(fault) = fault {
            return Err(fault);
        }
    }
    let cluster = cluster(&replies[needed], &server.host());
    let info = text(&replies[needed + 1]);
    if let Some(version) = field(&info, "redis_version").filter(|version| is_too_old(version)) {
        return Err(Fault::of_version(version, &name));
    }
    let mut greeting = greeting(&info);
    greeting.is_in_cluster = matches!(cluster, Cluster::Map(_));
    Ok((greeting, cluster))
}

/// The scripts need functions of Redis 7.0.
fn is_too_old(version: &str) -> bool {
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    major.is_some_and(|major| major < 7)
}

fn words(words: &[&str]) -> Cmd {
    let mut command = Cmd::new();
    words.iter().for_each(|word| {
        command.arg(word);
    });
    command
}

fn login(server: &Server) -> Vec<Cmd> {
    let login = server.login();
    let mut commands = Vec::new();
    if let Some(password) = login.password() {
        commands.push(match login.username() {
            Some(user) => words(&["AUTH", user, password]),
            None => words(&["AUTH", password]),
        });
    }
    if login.db() != 0 {
        commands.push(words(&["SELECT", &login.db().to_string()]));
    }
    commands
}

fn cluster(reply: &Value, host: &str) -> Cluster {
    match (Map::read(reply, host), reply) {
        (Some(map), _) => Cluster::Map(map),
        (None, Value::ServerError(error))
            if error.details().unwrap_or_default().contains("cluster support disabled") =>
        {
            Cluster::None
        }
        _ => Cluster::Unknown,
    }
}

/// The text of a reply to INFO; empty if it is an error.
pub(crate) fn text(reply: &Value) -> String {
    match reply {
        Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        _ => String::new(),
    }
}

/// The value of a field of INFO.
pub(crate) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim_end)
}

fn greeting(info: &str) -> Greeting {
    let owned = |name: &str| field(info, name).map(str::to_owned);
    let master = match field(info, "role") {
        Some("slave") => {
            owned("master_host").zip(field(info, "master_port").and_then(|port| port.parse().ok()))
        }
        _ => None,
    };
    Greeting {
        run_id: owned("run_id"),
        history: owned("master_replid"),
        continued: owned("master_replid2"),
        master,
        is_in_cluster: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::Addresses;
    use crate::connection::Ends;
    use std::io::{self, Write as _};
    use std::net::{Shutdown, TcpListener};
    use std::time::Duration;

    /// What a connection finds at a server that says a text as soon as it is connected to, and closes:
    /// at once, or when it has read all.
    fn refusal(url: &str, says: String, reads: bool) -> Fault {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server =
            Server::new(&url.replace("ADDRESS", &listener.local_addr().unwrap().to_string()));
        let server = server.unwrap();
        let serves = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(says.as_bytes()).unwrap();
            if reads {
                stream.shutdown(Shutdown::Write).unwrap();
                io::copy(&mut stream, &mut io::sink()).unwrap();
            }
        });
        let addresses = Addresses::default();
        let open =
            Connection::open(&server, &addresses, Duration::from_secs(3_600), &Ends::default());
        let mut connection = open.unwrap();
        let limit = Duration::from_secs(3_600);
        let wait = Wait { limit, doubt: limit, ask: &mut || Ok(()) };
        let found = greet(&mut connection, &server, true, wait).map(|_| ());
        drop(connection);
        serves.join().unwrap();
        found.unwrap_err()
    }

    #[test]
    fn the_reason_of_a_server_that_closes_the_connection_is_reported() {
        let said = |words: &str| refusal("redis://ADDRESS", format!("-{words}\r\n"), false).error;
        let denied = said("DENIED Redis is running in protected mode because");
        assert!(denied.to_string().contains("says: DENIED Redis is running"), "{denied}");
        assert_eq!(denied.kind(), crate::ErrorKind::Denied);
        let full = said("ERR max number of clients reached");
        assert!(full.to_string().contains("max number of clients reached"), "{full}");
        assert_eq!(full.kind(), crate::ErrorKind::Busy, "it passes");
        let silent = refusal("redis://ADDRESS", String::new(), false).error;
        assert_eq!(silent.kind(), crate::ErrorKind::Unreachable, "{silent}");
    }

    /// What a connection finds at a server that answers: first with these replies, and INFO with this.
    fn greeted(url: &str, first: &str, info: &str) -> Fault {
        let scripts = "+sha\r\n".repeat(scripts::texts().count());
        let info = format!("${}\r\n{info}\r\n", info.len());
        let replies = format!("{first}{scripts}-ERR cluster support disabled\r\n{info}");
        refusal(url, replies, true)
    }

    #[test]
    fn a_server_that_is_too_old_is_refused_with_its_version() {
        let old = greeted("redis://ADDRESS", "", "redis_version:6.2.14\r\n").error;
        assert!(old.to_string().contains("Redis 6.2.14: 7.0 or newer is needed"), "{old}");
        assert_eq!(old.kind(), crate::ErrorKind::Refused);
        assert!(["5.0.7", "6.2.14"].iter().all(|of| is_too_old(of)));
        assert!(!["7.0.0", "7.2.4", "10.0.0", "unstable"].iter().any(|of| is_too_old(of)));
    }

    #[test]
    fn a_database_that_does_not_exist_is_no_wrong_password() {
        let range = "-ERR DB index is out of range\r\n";
        let text = greeted("redis://ADDRESS/99", range, "").error.to_string();
        assert!(text.ends_with("the server says: ERR DB index is out of range"), "{text}");
        let password = "-ERR AUTH called without any password configured\r\n";
        let text = greeted("redis://:x@ADDRESS", password, "").error.to_string();
        assert!(text.ends_with("check user and password"), "{text}");
    }

    #[test]
    fn a_replica_names_its_master() {
        let info = "# Server\r\nrun_id:a1\r\n# Replication\r\nrole:slave\r\nmaster_host:10.0.0.7\r\n\
                    master_port:6380\r\nmaster_replid:b2\r\nmaster_replid2:c3\r\n";
        let said = greeting(info);
        assert_eq!(said.master, Some(("10.0.0.7".to_owned(), 6_380)));
        assert_eq!(said.run_id.as_deref(), Some("a1"));
        assert_eq!(said.continued.as_deref(), Some("c3"));
        assert!(greeting("role:master\r\n").master.is_none());
        assert!(greeting("").run_id.is_none());
    }
}
