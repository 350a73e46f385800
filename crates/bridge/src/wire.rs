//! A connection to one server: batches of commands out, replies in; made again after a fault.

use std::time::Duration;

use redis::{Cmd, Connection, RedisResult, Value};

use crate::fault::{Fault, Remedy};
use crate::scripts;
use crate::server::Server;

/// A reply that takes longer is a lost connection.
pub(crate) const REPLY_MAX: Duration = Duration::from_secs(10);
/// A server that does not answer within this time is unreachable.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The same two limits for a consumer that ends.
pub(crate) const HURRIED_REPLY_MAX: Duration = Duration::from_secs(5);
pub(crate) const HURRIED_CONNECT_MAX: Duration = Duration::from_secs(2);

/// A connection that is made when it is needed.
pub(crate) struct Wire {
    /// The address from the configuration.
    home: Server,
    /// Where the connection leads: home, or to the node that a node has named.
    server: Server,
    connection: Option<Connection>,
    /// How often a connection was made.
    connects: u64,
    is_hurried: bool,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(server: Server) -> Wire {
        let home = server.clone();
        Wire { home, server, connection: None, connects: 0, is_hurried: false, buffer: Vec::new() }
    }

    /// Waits less from now on: the consumer ends.
    pub(crate) fn hurry(&mut self) {
        self.is_hurried = true;
    }

    pub(crate) fn name(&self) -> String {
        self.server.name()
    }

    pub(crate) fn connects(&self) -> u64 {
        self.connects
    }

    /// Sends commands and returns their replies, error replies included. After a fault it is unknown
    /// which of the commands took effect.
    pub(crate) fn ask(&mut self, commands: &[Cmd]) -> Result<Vec<Value>, Fault> {
        self.ask_within(commands, self.reply_max())
    }

    fn reply_max(&self) -> Duration {
        self.home.limit(if self.is_hurried { HURRIED_REPLY_MAX } else { REPLY_MAX })
    }

    /// As [`Wire::ask`], for commands that block on the server for at most `block`.
    pub(crate) fn ask_blocking(
        &mut self,
        commands: &[Cmd],
        block: Duration,
    ) -> Result<Vec<Value>, Fault> {
        self.ask_within(commands, block + self.home.limit(REPLY_MAX))
    }

    fn ask_within(&mut self, commands: &[Cmd], limit: Duration) -> Result<Vec<Value>, Fault> {
        let answer = self.exchange(commands, limit);
        if let Err(fault) = &answer {
            match &fault.remedy {
                Remedy::Reconnect => self.connection = None,
                Remedy::Move(host, port) => {
                    self.connection = None;
                    self.server.moved_to(host, *port);
                }
                Remedy::Wait | Remedy::MakeGroup | Remedy::Report => {}
            }
        }
        answer
    }

    /// As [`Wire::ask`], for a single command whose error reply is a fault.
    pub(crate) fn ask_one(&mut self, command: Cmd) -> Result<Value, Fault> {
        let mut replies = self.ask(&[command])?;
        let reply = replies.pop().unwrap_or_default();
        Fault::in_reply(&reply, &self.name()).map_or(Ok(reply), Err)
    }

    fn exchange(&mut self, commands: &[Cmd], limit: Duration) -> Result<Vec<Value>, Fault> {
        if self.connection.is_none() {
            let connected = self.connect();
            if connected.is_err() {
                // A node that has gone does not say who has its slots now, and another node does.
                self.server = self.home.clone();
            }
            self.connection = Some(connected?);
            self.connects += 1;
        }
        self.buffer.clear();
        commands.iter().for_each(|command| command.write_packed_command(&mut self.buffer));
        let name = self.server.name();
        // The connection was made above.
        let Some(connection) = &mut self.connection else { return Ok(Vec::new()) };
        let replies = connection
            .set_read_timeout(Some(limit))
            .and_then(|()| exchange(connection, &self.buffer, commands.len()));
        let replies = replies.map_err(|error| {
            let mut fault = Fault::of_client(&error, &name);
            // Replies may still be on their way: this connection is of no further use.
            fault.remedy = Remedy::Reconnect;
            fault
        })?;
        // A buffer that has held a large payload is released.
        self.buffer.shrink_to(1 << 20);
        Fault::of_batch(&replies, &name).map_or(Ok(replies), Err)
    }

    fn connect(&self) -> Result<Connection, Fault> {
        let name = self.server.name();
        let fault = |error| Fault::of_client(&error, &name);
        let connect_max = if self.is_hurried { HURRIED_CONNECT_MAX } else { CONNECT_MAX };
        let connect_max = self.home.limit(connect_max);
        let mut connection =
            self.server.client().get_connection_with_timeout(connect_max).map_err(fault)?;
        connection.set_read_timeout(Some(connect_max)).map_err(fault)?;
        connection.set_write_timeout(Some(self.reply_max())).map_err(fault)?;
        let mut load = redis::pipe();
        scripts::texts().for_each(|text| {
            load.cmd("SCRIPT").arg("LOAD").arg(text);
        });
        let replies = exchange(&mut connection, &load.get_packed_pipeline(), load.len());
        let replies = replies.map_err(fault)?;
        match replies.iter().find_map(|reply| Fault::in_reply(reply, &name)) {
            Some(fault) => Err(fault),
            None => Ok(connection),
        }
    }
}

/// Sends packed commands and reads their replies. It ends at the first reply that does not arrive in
/// time: `req_packed_commands` would wait as long for each of the others.
fn exchange(connection: &mut Connection, packed: &[u8], count: usize) -> RedisResult<Vec<Value>> {
    connection.send_packed_command(packed)?;
    (0..count).map(|_| connection.recv_response()).collect()
}
