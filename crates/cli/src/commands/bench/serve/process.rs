//! Servers as processes of their own, which do not outlive the benchmark.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::super::UserError;

/// A server that has not answered by then has not started.
const START_MAX: Duration = Duration::from_secs(10);
/// Between two tries.
const TRY_AGAIN: Duration = Duration::from_millis(20);

/// A server to measure.
pub(super) enum Which {
    Redis,
    /// With these flags.
    Uwork(Vec<String>),
}

impl Which {
    /// The fixed name.
    pub(super) fn runner(&self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Uwork(_) => "uwork",
        }
    }
}

/// Whether there is a redis-server.
pub(super) fn check() -> Result<(), UserError> {
    super::client::installed("redis-server", "redis-server")
}

/// A running server. Dropping it ends it.
pub(super) struct ServerProcess {
    child: Child,
    address: SocketAddr,
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
        let mut address = free_address().map_err(fail)?;
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
        // SAFETY: between fork and exec only this one system call is made.
        unsafe {
            command.pre_exec(|| {
                // However the benchmark ends, its servers do.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = command.stdin(Stdio::null()).spawn().map_err(fail)?;
        if let Some(out) = child.stdout.take() {
            let mut lines = BufReader::new(out).lines().map_while(Result::ok);
            let listening = lines.find_map(|line| line.strip_prefix("listening on ")?.parse().ok());
            // It says why on standard error.
            let said = || UserError("uwork serve has not started".to_owned());
            address = listening.ok_or_else(said)?;
        }
        let server = Self { child, address, what };
        server.wait_for_start()?;
        Ok(server)
    }

    fn wait_for_start(&self) -> Result<(), UserError> {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            if TcpStream::connect(self.address).is_ok() {
                return Ok(());
            }
            thread::sleep(TRY_AGAIN);
        }
        Err(UserError(format!("{} does not listen on {} by now", self.what, self.address)))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn what(&self) -> &'static str {
        self.what
    }

    /// CPU time that it has used so far, of all its threads.
    pub(super) fn cpu_time(&self) -> Result<Duration, UserError> {
        let mut clock = 0;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both are live; the process is a child that was not waited for, so it is no other.
        let failed = unsafe {
            libc::clock_getcpuclockid(self.child.id().cast_signed(), &raw mut clock) != 0
                || libc::clock_gettime(clock, &raw mut time) != 0
        };
        if failed {
            return Err(UserError(format!("{} has ended meanwhile", self.what)));
        }
        // Neither is negative.
        Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Nothing of it is worth keeping. It fails only for one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that nobody listens on at present.
fn free_address() -> std::io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}
