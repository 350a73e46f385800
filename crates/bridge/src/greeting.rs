//! The first exchange of a connection: the login, the scripts, and what the server says about itself.

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
    let has_login = !commands.is_empty();
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
    let replies = connection.ask(&packed, commands.len(), wait);
    let replies = replies.map_err(|error| Fault::of_connection(&error, &name))?;
    for (nth, reply) in replies[..needed].iter().enumerate() {
        let is_login = nth == 0 && has_login;
        let fault =
            if is_login { Fault::of_login(reply, &name) } else { Fault::in_reply(reply, &name) };
        if let Some(fault) = fault {
            return Err(fault);
        }
    }
    let cluster = cluster(&replies[needed], &server.host());
    let mut greeting = greeting(&text(&replies[needed + 1]));
    greeting.is_in_cluster = matches!(cluster, Cluster::Map(_));
    Ok((greeting, cluster))
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
