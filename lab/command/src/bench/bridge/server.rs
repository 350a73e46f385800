//! A redis-server for the benchmark, on a port of the loopback interface that belongs to it.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::group::Group;
use super::proxy::Proxy;
use crate::UserError;
use crate::bench::address::Address;

/// A server that lives and does not listen within this time has failed to start.
const START_MAX: Duration = Duration::from_secs(600);
const TRY_AGAIN: Duration = Duration::from_millis(10);

/// Flags of a server that has each command on the disk before its reply.
const LOG: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

pub(super) struct Redis {
    child: Child,
    address: Address,
    folder: PathBuf,
    flags: Vec<String>,
    /// The port of a node for the others of its cluster.
    bus: Option<Address>,
    /// Clients of a node reach it through this, and so do its replicas.
    proxy: Option<Proxy>,
    /// A library that the server loads before all others.
    preload: Option<PathBuf>,
}

impl Redis {
    /// Starts a server; with `log` each command is on the disk before its reply.
    pub(super) fn start(log: bool) -> Result<Redis, UserError> {
        let flags: &[&str] = if log { &LOG } else { &[] };
        Redis::start_with(flags.iter().map(|&flag| flag.to_owned()).collect(), None)
    }

    /// Starts a server with a log that loads this library before all others.
    pub(super) fn start_preloaded(library: Option<PathBuf>) -> Result<Redis, UserError> {
        Redis::start_with(LOG.map(str::to_owned).into(), library)
    }

    /// Starts a node for a cluster, with a proxy whose port the node announces as its own if that
    /// `has_proxy`.
    pub(super) fn start_node(timeout_ms: u32, has_proxy: bool) -> Result<Redis, UserError> {
        let (address, bus) = (reserve()?, reserve()?);
        let proxy = if has_proxy { Some(Proxy::to(address.port())?) } else { None };
        let (port, timeout) = (bus.port().to_string(), timeout_ms.to_string());
        let announced = proxy.as_ref().map_or(0, Proxy::port).to_string();
        let flags = ["--cluster-enabled", "yes", "--cluster-port", &port, "--cluster-node-timeout"];
        let at_once = ["--repl-diskless-sync-delay", "0", "--appendonly", "yes"];
        let flags = flags.into_iter().chain([timeout.as_str()]).chain(at_once);
        let flags = flags.chain(["--cluster-announce-port", &announced]);
        let flags = flags.map(str::to_owned).collect();
        let mut node = Redis::start_at(address, flags, None)?;
        (node.bus, node.proxy) = (Some(bus), proxy);
        Ok(node)
    }

    fn start_with(flags: Vec<String>, preload: Option<PathBuf>) -> Result<Redis, UserError> {
        Redis::start_at(reserve()?, flags, preload)
    }

    fn start_at(
        address: Address,
        flags: Vec<String>,
        preload: Option<PathBuf>,
    ) -> Result<Redis, UserError> {
        let fail = |error: std::io::Error| UserError(format!("redis-server: {error}"));
        let name = format!("uwork-bench-bridge-{}-{}", std::process::id(), address.port());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).map_err(fail)?;
        let child = spawn(address.port(), &folder, &flags, preload.as_deref())?;
        let mut redis = Redis { child, address, folder, flags, bus: None, proxy: None, preload };
        redis.wait()?;
        Ok(redis)
    }

    /// Kills the server and starts it again on its files.
    pub(super) fn restart(&mut self) -> Result<(), UserError> {
        self.kill();
        self.child = spawn(self.port(), &self.folder, &self.flags, self.preload.as_deref())?;
        self.wait()
    }

    /// Kills the server.
    pub(super) fn kill(&mut self) {
        // Fails only if the server has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops the server's process: its connections exist, and it answers nothing.
    pub(super) fn pause(&self) {
        Group::of(self.child.id()).pause();
    }

    /// Ends a pause.
    pub(super) fn resume(&self) {
        Group::of(self.child.id()).resume();
    }

    fn wait(&mut self) -> Result<(), UserError> {
        let begun = Instant::now();
        while begun.elapsed() < START_MAX {
            if TcpStream::connect(self.address.socket()).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(UserError(format!("redis-server has ended: {status}")));
            }
            thread::sleep(TRY_AGAIN);
        }
        Err(UserError(format!("redis-server does not listen on port {} in time", self.port())))
    }

    pub(super) fn port(&self) -> u16 {
        self.address.port()
    }

    /// The port for the other nodes of its cluster; 0 without a cluster.
    pub(super) fn bus_port(&self) -> u16 {
        self.bus.as_ref().map_or(0, Address::port)
    }

    /// The proxy of a node that has one.
    pub(super) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.address.socket())
    }

    /// A connection that waits while the server loads its files.
    pub(super) fn connect(&self) -> Result<redis::Connection, UserError> {
        let begun = Instant::now();
        loop {
            let answer = redis::Client::open(self.url()).and_then(|client| {
                let mut connection = client.get_connection()?;
                redis::cmd("PING").exec(&mut connection)?;
                Ok(connection)
            });
            match answer {
                Ok(connection) => return Ok(connection),
                Err(error) if begun.elapsed() > START_MAX => {
                    return Err(UserError(format!("redis-server: {error}")));
                }
                Err(_) => thread::sleep(TRY_AGAIN),
            }
        }
    }

    /// The CPU time of the server so far.
    pub(super) fn cpu(&self) -> Duration {
        Group::of(self.child.id()).cpu()
    }
}

fn reserve() -> Result<Address, UserError> {
    Address::reserve().map_err(|error| UserError(format!("no port: {error}")))
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The server holds nothing worth keeping.
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn spawn(
    port: u16,
    folder: &Path,
    flags: &[String],
    preload: Option<&Path>,
) -> Result<Child, UserError> {
    let mut command = Command::new("redis-server");
    if let Some(library) = preload {
        command.env("LD_PRELOAD", library);
    }
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    command.arg("--dir").arg(folder).args(flags);
    super::group::lead(&mut command);
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    started.map_err(|error| {
        UserError(format!("redis-server: {error}; it is needed: apt-get install -y redis-server"))
    })
}
