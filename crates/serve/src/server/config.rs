//! What a server is told when it starts.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use uwork::ScopeChoice;

/// How a thread is told that something was handed to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Notify {
    /// By ending the wait that the thread has declared.
    #[default]
    Light,
    /// By a signal, whatever the thread does.
    Signal,
}

/// Who receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Receiver {
    /// Each thread receives for its own connections, and has a part of the keys.
    #[default]
    Shared,
    /// One thread more receives for all connections and has no keys.
    Dedicated,
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
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// Threads that have keys: 1 to [`Config::THREADS_MAX`].
    pub threads: usize,
    /// How threads are told of what was handed to them.
    pub notify: Notify,
    /// Who receives.
    pub receiver: Receiver,
    /// How threads wait for sockets.
    pub io: Io,
    /// Where heavy commands run.
    pub scope: ScopeChoice,
    /// Connections at once.
    pub clients_max: usize,
    /// Bytes of one request: up to 1 GiB.
    pub request_max: usize,
    /// Bytes of keys, values, requests and replies.
    pub memory_max: usize,
    /// A connection of which nothing is received, and to which nothing is sent, for so long is closed; `None` leaves it
    /// open.
    pub idle_max: Option<Duration>,
    /// What is in flight when the server stops has so long to be answered.
    pub drain_max: Duration,
    /// Bytes that the system keeps for each connection to send; `None` leaves it to the system.
    pub send_buffer: Option<usize>,
    /// As `send_buffer`, for what was received.
    pub receive_buffer: Option<usize>,
}

impl Config {
    /// Threads at most.
    pub const THREADS_MAX: usize = 256;
    /// Redis' own port.
    pub const PORT: u16 = 6379;
}

impl Default for Config {
    /// Loopback, a thread for every second CPU, 10,000 clients, requests of 64 MiB, 1 GiB of memory.
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Self::PORT),
            // The rest is for the system's part of the network, for the workers, and for clients on this machine.
            threads: (cpus / 2).clamp(1, Self::THREADS_MAX),
            notify: Notify::default(),
            receiver: Receiver::default(),
            io: Io::default(),
            scope: ScopeChoice::Default,
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
