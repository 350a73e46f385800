//! `INFO`: statistics of the server, in the sections of Redis.

use std::sync::atomic::Ordering;

use super::session::{line, now};
use super::shared::Shared;
use crate::resp::Args;
use crate::resp::reply::{self, Version};

type Figures = fn(&Shared, &mut String);

const SECTIONS: [(&str, Figures); 7] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("Keyspace", keyspace),
];

/// Replies with the requested sections, or with all of them.
pub(super) fn reply(args: Args<'_>, shared: &Shared, version: Version, out: &mut Vec<u8>) {
    let wants = |section: &str| {
        let names = [section, "all", "default", "everything"];
        let is_one =
            |arg: &[u8]| names.iter().any(|name| arg.eq_ignore_ascii_case(name.as_bytes()));
        args.is_empty() || args.iter().any(is_one)
    };
    let mut text = String::new();
    for (section, figures) in SECTIONS {
        if wants(section) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            text.push_str(&format!("# {section}\r\n"));
            figures(shared, &mut text);
        }
    }
    reply::verbatim(out, version, &text);
}

/// The Redis version whose replies these are. Clients infer the available commands from it.
const REDIS_VERSION: &str = "7.0.15";

fn server(shared: &Shared, text: &mut String) {
    line(text, "redis_version", REDIS_VERSION);
    line(text, "redis_mode", "standalone");
    line(text, "uwork_version", env!("CARGO_PKG_VERSION"));
    line(text, "process_id", std::process::id());
    line(text, "tcp_port", shared.port);
    line(text, "uptime_in_seconds", shared.now() / 1000);
    line(text, "io_threads", shared.config.threads);
    line(text, "multiplexing_api", shared.driver);
    let scope = shared.heavy.affinity_scope().map_or(String::new(), |scope| scope.to_string());
    line(text, "digest_scope", scope);
}

fn clients(shared: &Shared, text: &mut String) {
    line(text, "connected_clients", shared.clients.load(Ordering::Relaxed));
    line(text, "maxclients", shared.config.clients_max);
    // No command blocks.
    line(text, "blocked_clients", 0);
}

fn memory(shared: &Shared, text: &mut String) {
    line(text, "used_memory", shared.budget.used());
    line(text, "maxmemory", shared.budget.limit());
    line(text, "maxmemory_policy", "noeviction");
}

/// There is no persistence, so nothing is loading or saving.
fn persistence(_: &Shared, text: &mut String) {
    for name in ["loading", "rdb_bgsave_in_progress", "aof_enabled", "aof_rewrite_in_progress"] {
        line(text, name, 0);
    }
}

fn replication(_: &Shared, text: &mut String) {
    line(text, "role", "master");
    line(text, "connected_slaves", 0);
}

fn stats(shared: &Shared, text: &mut String) {
    let sum = |figure: fn(&super::shared::Figures) -> u64| -> u64 {
        shared.figures.iter().map(figure).sum()
    };
    line(text, "total_connections_received", now(&shared.connections_ever));
    line(text, "total_commands_processed", sum(|figures| now(&figures.requests)));
    line(text, "rejected_connections", now(&shared.refused));
    line(text, "digests_in_flight", shared.digests.load(Ordering::Relaxed));
    line(text, "handovers", sum(|figures| now(&figures.handovers)));
}

fn keyspace(shared: &Shared, text: &mut String) {
    let (keys, expiring) = (shared.keys(), shared.expiring());
    if keys > 0 {
        line(text, "db0", format_args!("keys={keys},expires={expiring},avg_ttl=0"));
    }
}
