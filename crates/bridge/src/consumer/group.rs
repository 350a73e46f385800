//! The consumer groups of a shard's streams.

use redis::Value;

use super::link::Link;
use crate::fault::{Fault, Remedy};
use crate::wire::Wire;

/// Creates the groups that do not exist, from the first entry of their streams on, so that jobs
/// pushed before count too.
pub(super) fn make_groups(link: &Link, wire: &mut Wire) -> Result<(), Fault> {
    let group = &link.shared.config.group;
    for (name, _) in &link.streams {
        // The question first: a server without memory refuses to create even what exists.
        let question = redis::cmd("XPENDING").arg(&**name).arg(group).clone();
        match wire.ask_one(question) {
            Err(Fault { remedy: Remedy::MakeGroup, .. }) => {}
            answer => {
                answer?;
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
    }
    Ok(())
}
