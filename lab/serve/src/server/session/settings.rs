//! `CONFIG`: the settings, under their Redis names if Redis has the setting.

use super::{help, is};
use crate::command::check::Refusal;
use crate::command::glob;
use crate::command::table::Command;
use crate::resp::Args;
use crate::resp::reply::{self, Version};
use crate::server::config::{Config, Receiver};
use crate::server::shared::Shared;

pub(super) fn reply(args: Args<'_>, shared: &Shared, version: Version, out: &mut Vec<u8>) {
    let wrong = |name| Refusal::SubcommandArguments(Command::Config, name);
    match args.at(1) {
        name if is(name, "get") && args.len() > 2 => {}
        name if is(name, "get") => return wrong("get").reply(out),
        name if is(name, "help") && args.len() == 2 => return help::reply(Command::Config, out),
        name if is(name, "help") => return wrong("help").reply(out),
        name => return Refusal::Subcommand(Command::Config, name).reply(out),
    }
    let settings = settings(&shared.config, shared.port);
    let patterns = args.from(2);
    // A name given in full is returned in the client's spelling.
    let named = |name: &'static str| {
        let fits = |pattern: &&[u8]| match glob::is_pattern(pattern) {
            true => glob::matches(pattern, name.as_bytes()),
            false => is(pattern, name),
        };
        let pattern = patterns.iter().find(fits)?;
        Some(if glob::is_pattern(pattern) { name.as_bytes() } else { pattern })
    };
    let found = || settings.iter().filter_map(|(name, value)| Some((named(name)?, value)));
    reply::map(out, version, found().count());
    for (name, value) in found() {
        reply::bulk(out, name);
        reply::bulk(out, value.as_bytes());
    }
}

fn settings(config: &Config, port: u16) -> Vec<(&'static str, String)> {
    let bytes = |size: Option<usize>| size.unwrap_or(0).to_string();
    let receiver = match config.receiver {
        Receiver::Shared => "shared",
        Receiver::Dedicated => "dedicated",
    };
    vec![
        ("appendonly", "no".to_owned()),
        ("bind", config.address.ip().to_string()),
        ("databases", "1".to_owned()),
        ("io-threads", config.threads.to_string()),
        ("maxclients", config.clients_max.to_string()),
        ("maxmemory", config.memory_max.to_string()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", port.to_string()),
        ("proto-max-bulk-len", config.request_max.to_string()),
        ("receive-buffer", bytes(config.receive_buffer)),
        ("receiver", receiver.to_owned()),
        ("save", String::new()),
        ("send-buffer", bytes(config.send_buffer)),
        ("timeout", config.idle_max.map_or(0, |time| time.as_secs()).to_string()),
    ]
}
