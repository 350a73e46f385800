//! The server's configuration.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use uwork::AffinityScopeChoice;

/// How a thread is notified of a hand-over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Notify {
    /// Ends the wait that the thread has declared.
    #[default]
    Light,
    /// Sends a signal, whatever the thread is doing.
    Signal,
}

/// Which thread receives requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Receiver {
    /// Each thread receives for its own connections, and owns a share of the keys.
    #[default]
    Shared,
    /// One additional thread receives for all connections, and owns no keys.
    Dedicated,
}

/// The way of an operation on a key of another thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ForeignKeys {
    /// The thread that received the request executes it under the lock of the owner's keys. It
    /// hands the operation over only if the lock stays held. With [`Receiver::Dedicated`] all
    /// operations are handed over, since the receiver only receives.
    #[default]
    InPlace,
    /// The thread that owns the key executes it.
    HandedOver,
}

/// How the replies of a round reach the client, with a dedicated receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Replies {
    /// The threads with keys send them, and combine their parts without a lock.
    #[default]
    Combined,
    /// The threads with keys send them, and each waits for the connection's lock.
    Locked,
    /// The threads with keys return their parts to the receiver, which sends them.
    Returned,
}

/// Memory that served a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Spares {
    /// Threads keep it for later requests.
    #[default]
    Kept,
    /// Threads free it.
    Freed,
}

/// How threads wait for sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Io {
    /// io_uring, or epoll where the kernel refuses it.
    #[default]
    Auto,
    /// epoll.
    Epoll,
}

/// A server's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on; port 0 selects a free port.
    pub address: SocketAddr,
    /// Threads that own keys: 1 to [`Config::THREADS_MAX`].
    pub threads: usize,
    /// How threads are notified of a hand-over.
    pub notify: Notify,
    /// Which thread receives requests.
    pub receiver: Receiver,
    /// The way of an operation on a key of another thread.
    pub foreign_keys: ForeignKeys,
    /// How replies reach the client with [`Receiver::Dedicated`]; otherwise without effect.
    pub replies: Replies,
    /// What becomes of the memory that served a request.
    pub spares: Spares,
    /// How threads wait for sockets.
    pub io: Io,
    /// The affinity scope of the queue that runs `DIGEST`.
    pub scope: AffinityScopeChoice,
    /// Maximum number of connections.
    pub clients_max: usize,
    /// Maximum size of one request in bytes: up to 1 GiB.
    pub request_max: usize,
    /// Maximum memory for keys, values, requests and replies, in bytes.
    pub memory_max: usize,
    /// A connection without traffic in either direction for this long is closed, at a check twice a
    /// second; `None` disables the timeout.
    pub idle_max: Option<Duration>,
    /// Maximum time to answer requests in flight when the server stops.
    pub drain_max: Duration,
    /// Size of each connection's send buffer in the kernel, in bytes; `None` keeps the system's
    /// default.
    pub send_buffer: Option<usize>,
    /// As `send_buffer`, for the receive buffer.
    pub receive_buffer: Option<usize>,
}

impl Config {
    /// Maximum number of threads.
    pub const THREADS_MAX: usize = 256;
    /// The port that Redis uses.
    pub const PORT: u16 = 6379;
}

impl Default for Config {
    /// Loopback, one thread for every two CPUs, 10,000 clients, requests of 64 MiB, 1 GiB of
    /// memory.
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Self::PORT),
            // The other half serves the kernel's network stack, the workers, and clients on this
            // machine.
            threads: (cpus / 2).clamp(1, Self::THREADS_MAX),
            notify: Notify::default(),
            receiver: Receiver::default(),
            foreign_keys: ForeignKeys::default(),
            replies: Replies::default(),
            spares: Spares::default(),
            io: Io::default(),
            scope: AffinityScopeChoice::Default,
            clients_max: 10_000,
            request_max: 64 << 20,
            memory_max: 1 << 30,
            idle_max: None,
            drain_max: Duration::from_secs(5),
            send_buffer: None,
            receive_buffer: None,
        }
    }
}
