//! Servers as child processes, which end at the latest with the benchmark.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::UserError;
use crate::bench::address::Address;

/// A server that lives and does not listen within this time has failed to start.
const START_MAX: Duration = Duration::from_secs(600);
/// Interval between two attempts.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// A server to measure.
pub(super) enum Which {
    Redis,
    /// `uwork-lab serve` with these flags.
    Uwork(Vec<String>),
}

impl Which {
    /// The fixed name in records.
    pub(super) fn runner(&self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Uwork(_) => "uwork",
        }
    }
}

/// Checks that redis-server is installed.
pub(super) fn check() -> Result<(), UserError> {
    super::client::installed("redis-server", "redis-server")
}

/// A running server. Dropping it ends the server.
pub(super) struct ServerProcess {
    child: Child,
    address: SocketAddr,
    /// No other process gets the address while the server starts.
    _reserved: Address,
    what: &'static str,
}

impl ServerProcess {
    pub(super) fn start(which: &Which) -> Result<Self, UserError> {
        let what = which.runner();
        let fail = |error: std::io::Error| UserError(format!("cannot start {what}: {error}"));
        let mut command = match which {
            Which::Redis => Command::new("redis-server"),
            Which::Uwork(_) => Command::new(std::env::current_exe().map_err(fail)?),
        };
        let reserved = Address::reserve().map_err(fail)?;
        let mut address = reserved.socket();
        let port = address.port().to_string();
        match which {
            Which::Redis => {
                command.args(["--port", &port, "--bind", "127.0.0.1", "--daemonize", "no"]);
                command.args(["--save", "", "--appendonly", "no", "--dir", "/"]);
                command.stdout(Stdio::null());
            }
            Which::Uwork(flags) => {
                command.args(["serve", "--port", "0"]).args(flags).stdout(Stdio::piped());
            }
        }
        // SAFETY: only this one system call is made between fork and exec.
        unsafe {
            command.pre_exec(|| {
                // The servers end with the benchmark, however it ends.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command.stdin(Stdio::null()).spawn().map_err(fail)?;
        if let Some(out) = child.stdout.take() {
            let mut lines = BufReader::new(out).lines().map_while(Result::ok);
            let listening = lines.find_map(|line| line.strip_prefix("listening on ")?.parse().ok());
            // The server prints the reason on standard error.
            let said = || UserError("uwork-lab serve has not started".to_owned());
            address = listening.ok_or_else(said)?;
        }
        let mut server = Self { child, address, _reserved: reserved, what };
        server.wait_for_start()?;
        Ok(server)
    }

    fn wait_for_start(&mut self) -> Result<(), UserError> {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(UserError(format!("{} has ended: {status}", self.what)));
            }
            thread::sleep(TRY_AGAIN);
        }
        Err(UserError(format!("{} does not listen on {} in time", self.what, self.address)))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn what(&self) -> &'static str {
        self.what
    }

    /// CPU time used so far by all threads of the server.
    pub(super) fn cpu_time(&self) -> Result<Duration, UserError> {
        let mut clock = 0;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both pointers are live. The id is still that of the child, because the child was
        // not waited for.
        let failed = unsafe {
            libc::clock_getcpuclockid(self.child.id().cast_signed(), &raw mut clock) != 0
                || libc::clock_gettime(clock, &raw mut time) != 0
        };
        if failed {
            return Err(UserError(format!("{} has ended unexpectedly", self.what)));
        }
        // Neither is negative.
        Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // The server holds no data worth keeping. `kill` fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
