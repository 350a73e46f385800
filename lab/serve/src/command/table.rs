//! The table of commands.

/// A command of the server. The order is that of the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Client,
    Commands,
    Config,
    Dbsize,
    Del,
    Digest,
    Echo,
    Exists,
    Expire,
    Flushall,
    Get,
    Hello,
    Incr,
    Incrby,
    Info,
    Mget,
    Mset,
    Ping,
    Quit,
    Select,
    Set,
    Ttl,
}

/// The positions of a command's keys: first, last (negative: counted from the end) and step, as in
/// `COMMAND`.
pub(crate) type Keys = (i64, i64, i64);

/// The properties of a command.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// The number of arguments including the name; if negative, the minimum number.
    pub(crate) arity: i64,
    pub(crate) flags: &'static [&'static str],
    pub(crate) keys: Keys,
    pub(crate) summary: &'static str,
}

const NO_KEYS: Keys = (0, 0, 0);
const ONE_KEY: Keys = (1, 1, 1);
const ALL_KEYS: Keys = (1, -1, 1);
const READ: &[&str] = &["readonly", "fast"];
const WRITE: &[&str] = &["write", "denyoom", "fast"];
const CONNECTION: &[&str] = &["noscript", "loading", "stale", "fast"];

const fn row(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: Keys,
    summary: &'static str,
) -> Row {
    Row { name, arity, flags, keys, summary }
}

/// All commands, sorted by name.
pub(crate) const TABLE: &[Row] = &[
    row("client", -2, CONNECTION, NO_KEYS, "Names and numbers of connections."),
    row("command", -1, CONNECTION, NO_KEYS, "The commands of this server."),
    row("config", -2, CONNECTION, NO_KEYS, "Settings of this server."),
    row("dbsize", 1, READ, NO_KEYS, "The number of keys."),
    row("del", -2, &["write"], ALL_KEYS, "Removes keys."),
    row("digest", 2, &["readonly"], ONE_KEY, "The SHA-256 of a key's value."),
    row("echo", 2, CONNECTION, NO_KEYS, "Returns its argument."),
    row("exists", -2, READ, ALL_KEYS, "Counts which of the keys are there."),
    row("expire", -3, &["write", "fast"], ONE_KEY, "Lets a key go away later."),
    row("flushall", -1, &["write"], NO_KEYS, "Removes all keys."),
    row("get", 2, READ, ONE_KEY, "The value of a key."),
    row("hello", -1, CONNECTION, NO_KEYS, "Chooses the version of the protocol."),
    row("incr", 2, WRITE, ONE_KEY, "Adds one to a number."),
    row("incrby", 3, WRITE, ONE_KEY, "Adds a number to a number."),
    row("info", -1, &["loading", "stale"], NO_KEYS, "Figures of this server."),
    row("mget", -2, READ, ALL_KEYS, "The values of keys."),
    row("mset", -3, &["write", "denyoom"], (1, -1, 2), "Sets keys to values."),
    row("ping", -1, CONNECTION, NO_KEYS, "Answers."),
    row("quit", -1, CONNECTION, NO_KEYS, "Ends the connection."),
    row("select", 2, &["loading", "stale", "fast"], NO_KEYS, "Chooses the only database."),
    row("set", -3, &["write", "denyoom"], ONE_KEY, "Sets a key to a value."),
    row("ttl", 2, READ, ONE_KEY, "How long a key will be there."),
];

/// The command with this name, ignoring ASCII case.
#[inline]
pub(crate) fn find(name: &[u8]) -> Option<Command> {
    /// The longest name, in bytes; it fits a 64-bit word.
    const LEN_MAX: usize = 8;
    if name.len() > LEN_MAX {
        return None;
    }
    let mut word = [0_u8; LEN_MAX];
    for (to, from) in word.iter_mut().zip(name) {
        *to = from.to_ascii_lowercase();
    }
    let command = match &word {
        b"get\0\0\0\0\0" => Command::Get,
        b"set\0\0\0\0\0" => Command::Set,
        b"incr\0\0\0\0" => Command::Incr,
        b"incrby\0\0" => Command::Incrby,
        b"mget\0\0\0\0" => Command::Mget,
        b"mset\0\0\0\0" => Command::Mset,
        b"del\0\0\0\0\0" => Command::Del,
        b"exists\0\0" => Command::Exists,
        b"expire\0\0" => Command::Expire,
        b"ttl\0\0\0\0\0" => Command::Ttl,
        b"ping\0\0\0\0" => Command::Ping,
        b"echo\0\0\0\0" => Command::Echo,
        b"digest\0\0" => Command::Digest,
        b"dbsize\0\0" => Command::Dbsize,
        b"flushall" => Command::Flushall,
        b"info\0\0\0\0" => Command::Info,
        b"config\0\0" => Command::Config,
        b"command\0" => Command::Commands,
        b"client\0\0" => Command::Client,
        b"hello\0\0\0" => Command::Hello,
        b"quit\0\0\0\0" => Command::Quit,
        b"select\0\0" => Command::Select,
        _ => return None,
    };
    // A longer or NUL-padded name can produce the same word, so the lengths are compared too.
    (row_of(command).name.len() == name.len()).then_some(command)
}

/// The table row of the command.
#[inline]
pub(crate) fn row_of(command: Command) -> &'static Row {
    &TABLE[command as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_returns_every_command_of_the_table() {
        for (place, row) in TABLE.iter().enumerate() {
            let found = find(row.name.as_bytes());
            assert_eq!(found.map(|command| command as usize), Some(place), "{}", row.name);
            assert_eq!(find(row.name.to_uppercase().as_bytes()), found);
        }
    }

    #[test]
    fn find_rejects_other_names() {
        for name in [&b""[..], b"ge", b"gett", b"get\0", b"flushalll", b"\0\0\0\0\0\0\0\0"] {
            assert_eq!(find(name), None, "{}", name.escape_ascii());
        }
    }
}
