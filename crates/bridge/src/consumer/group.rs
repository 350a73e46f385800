//! The consumer groups of a shard's streams.

use redis::Value;

use super::link::Link;
use crate::fault::{Fault, Remedy};
use crate::wire::Wire;

/// Creates the groups that do not exist, from the first entry of their streams on, so that jobs
/// pushed before count too. The consumer becomes a member of all groups, so that [`Stat`] shows it
/// before its first job.
///
/// [`Stat`]: crate::Stat
pub(super) fn make_groups(link: &Link, wire: &mut Wire) -> Result<(), Fault> {
    let group = &link.shared.config.group;
    for (name, _) in &link.streams {
        // The question first: a server without memory refuses to create even what exists.
        let question = redis::cmd("XPENDING").arg(&**name).arg(group).clone();
        match wire.ask_one(question) {
            Err(Fault { remedy: Remedy::MakeGroup, .. }) => {}
            answer => {
                answer?;
                join(link, wire, name)?;
                continue;
            }
        }
        let mut command = redis::cmd("XGROUP");
        command.arg("CREATE").arg(&**name).arg(group).arg("0").arg("MKSTREAM");
        let reply = wire.ask(&[command])?.pop().unwrap_or_default();
        // Another consumer may have created it meanwhile.
        let exists = matches!(&reply, Value::ServerError(error) if error.code() == "BUSYGROUP");
        if let Some(fault) = Fault::in_reply(&reply, &wire.name()).filter(|_| !exists) {
            return Err(fault);
        }
        join(link, wire, name)?;
    }
    Ok(())
}

/// Makes the consumer a member of a group. A server that refuses it, for example without memory,
/// makes it one with its first job.
fn join(link: &Link, wire: &mut Wire, name: &str) -> Result<(), Fault> {
    let config = &link.shared.config;
    let mut command = redis::cmd("XGROUP");
    command.arg("CREATECONSUMER").arg(name).arg(&config.group).arg(&link.shared.consumer);
    wire.ask(&[command]).map(drop)
}
