//! The server: threads that own connections and keys. They execute requests for other threads' keys
//! in place, or hand them over.

mod config;
mod connection;
mod descriptors;
mod dispatch;
mod driver;
mod failure;
mod handover;
mod help;
mod info;
mod listener;
mod post;
mod reactor;
mod roster;
mod round;
mod session;
mod shard;
mod shared;
mod sink;
mod slab;
mod spare;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver as Inlet, Sender};
use std::thread::JoinHandle;

use uwork::task::{self, Delivery};

pub use config::{Config, ForeignKeys, Io, Notify, Receiver, Replies, Spares};
use driver::Driver;
use driver::epoll::Epoll;
use driver::ring::Ring;
use failure::ThreadGuard;
use post::Post;
use reactor::Reactor;
use shared::Shared;

/// Why a server could not start.
#[derive(Debug)]
pub struct StartError {
    what: String,
    source: Option<io::Error>,
}

impl StartError {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), source: None }
    }

    fn of(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self { what: what.into(), source: Some(source.into()) }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// A running server. Dropping it stops it, as [`Server::stop`] does.
///
/// ```
/// use std::io::{Read, Write};
/// use uwork_serve::{Config, Server};
///
/// let config = Config { address: "127.0.0.1:0".parse()?, threads: 2, ..Config::default() };
/// let server = Server::start(config)?;
/// let mut client = std::net::TcpStream::connect(server.address())?;
/// client.write_all(b"SET a 1\r\nINCR a\r\nQUIT\r\n")?;
/// let mut replies = String::new();
/// client.read_to_string(&mut replies)?;
/// assert_eq!(replies, "+OK\r\n:2\r\n+OK\r\n");
/// server.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    /// `None` once it has stopped.
    running: Option<Running>,
    address: SocketAddr,
    notes: Vec<String>,
}

struct Running {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("threads", &self.threads.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// Starts a server. It accepts connections when this returns.
    ///
    /// Raises the process's limit on open descriptors as far as needed and permitted.
    ///
    /// # Errors
    /// A setting is outside the range that [`Config`] permits, the server cannot listen on the
    /// address, or the system refuses a thread or a resource that a thread waits with.
    pub fn start(config: Config) -> Result<Self, StartError> {
        check(&config)?;
        let (clients_max, note) = descriptors::provide(&config);
        let mut notes: Vec<String> = note.into_iter().collect();
        let config = Config { clients_max, ..config };
        let refused = |error| StartError::of(format!("cannot listen on {}", config.address), error);
        let listener = listener::listen(&config).map_err(refused)?;
        let address = listener::address(&listener).map_err(refused)?;
        // Not by the port: the kernel may assign it again while the queue of a server that has ended
        // still lives.
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("serve-digest-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let heavy = uwork::Queue::builder(&name).affinity_scope(config.scope).freezable().build();
        let heavy = heavy.map_err(|error| StartError::new(format!("no queue: {error}")))?;

        let (waiting, threads) = spawn(&config, reactor::threads(&config), listener)?;
        let driver = waiting.first().map_or("", |(ready, _)| ready.driver);
        let refusals = waiting.iter().filter_map(|(ready, _)| ready.refused.as_ref());
        notes.extend(
            refusals.map(|error| {
                format!("the system refuses io_uring ({error}): waiting with {driver}")
            }),
        );
        let posts = waiting.iter().map(|(ready, _)| ready.post.clone()).collect();
        let shared = Arc::new(Shared::new(config, address.port(), heavy, posts, driver));
        for (_, inlet) in waiting {
            // A send fails only if the thread has ended; `join` reports that.
            let _ = inlet.send(Arc::clone(&shared));
        }
        Ok(Self { running: Some(Running { shared, threads }), address, notes })
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Remarks about this start for the operator: resources that the system refused, and the
    /// substitutes in use.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Registers a function to call once a thread has failed because of a system error or a panic;
    /// calls it at once if a thread has failed already. The server then ends by itself and drops
    /// requests in flight, since a part of the keys is lost. [`Server::stop`] returns the error. A
    /// second call replaces the function of the first.
    ///
    /// The function runs on the failed thread or on the caller's thread, and should only pass a
    /// message on.
    pub fn on_failure(&self, call: impl FnOnce() + Send + 'static) {
        if let Some(Running { shared, .. }) = &self.running {
            shared.failure.on(Box::new(call));
        }
    }

    /// Stops the server: accepts no more connections, answers the requests that it has received,
    /// and ends. Waits for that, up to [`Config::drain_max`].
    ///
    /// # Errors
    /// A thread has ended earlier, with this error.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(Running { shared, threads }) = self.running.take() else { return Ok(()) };
        shared.posts.iter().for_each(Post::stop);
        let mut outcome = Ok(());
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("it panicked")));
            outcome = outcome.and(ended);
        }
        // Digests that are still queued then do nothing. The queue must not be dropped by one of
        // its own items, so this waits for them.
        shared.is_over.store(true, Ordering::Relaxed);
        shared.heavy.flush().map_err(io::Error::other)?;
        outcome
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Callers that need the error call `stop`.
        let _ = self.end();
    }
}

fn check(config: &Config) -> Result<(), StartError> {
    const REQUEST_MAX: usize = 1 << 30;
    let allowed = |what: &str, given: usize, from: usize, to: usize| {
        let wrong = || StartError::new(format!("{what} {given}: {from} to {to} are allowed"));
        (from..=to).contains(&given).then_some(()).ok_or_else(wrong)
    };
    allowed("threads", config.threads, 1, Config::THREADS_MAX)?;
    allowed("clients", config.clients_max, 1, 1_000_000)?;
    allowed("bytes of a request", config.request_max, 1024, REQUEST_MAX)?;
    allowed("bytes of memory", config.memory_max, 1 << 20, usize::MAX >> 1)
}

/// A thread whose driver is ready.
struct Ready {
    post: Post,
    driver: &'static str,
    /// Why the thread does not use the configured driver.
    refused: Option<io::Error>,
}

type Waiting = (Ready, Sender<Arc<Shared>>);
type Threads = Vec<JoinHandle<io::Result<()>>>;

/// Starts the threads, which then wait for the shared state.
fn spawn(
    config: &Config,
    count: usize,
    listener: OwnedFd,
) -> Result<(Vec<Waiting>, Threads), StartError> {
    let (mut listener, mut io) = (Some(listener), config.io);
    let (mut waiting, mut threads) = (Vec::new(), Vec::new());
    for index in 0..count {
        let (ready, is_ready) = mpsc::channel();
        let (inlet, outlet) = mpsc::channel();
        let (notify, listener) = (config.notify, listener.take());
        let body = move || begin(index, io, notify, listener, &ready, &outlet);
        let name = format!("serve/{index}");
        let thread = std::thread::Builder::new().name(name).spawn(body);
        threads.push(thread.map_err(|error| StartError::of("no thread", error))?);
        let ready = is_ready.recv().map_err(|_| StartError::new("a thread has ended at once"))?;
        let ready = ready.map_err(|error| StartError::of("a thread cannot wait", error))?;
        if ready.driver == Epoll::NAME {
            io = Io::Epoll;
        }
        waiting.push((ready, inlet));
    }
    Ok((waiting, threads))
}

/// The main function of a server thread.
fn begin(
    index: usize,
    io: Io,
    notify: Notify,
    listener: Option<OwnedFd>,
    ready: &Sender<io::Result<Ready>>,
    outlet: &Inlet<Arc<Shared>>,
) -> io::Result<()> {
    let delivery = match notify {
        Notify::Light => Delivery::Light,
        Notify::Signal => Delivery::Signal,
    };
    let refused = match task::set_delivery(delivery).map_err(io::Error::other) {
        Err(error) => Err(error),
        Ok(()) if io == Io::Epoll => Ok(None),
        Ok(()) => match Ring::new() {
            Ok(driver) => return serve(driver, None, index, listener, ready, outlet),
            Err(error) => Ok(Some(error)),
        },
    };
    match refused.and_then(|refused| Ok((Epoll::new(notify)?, refused))) {
        Ok((driver, refused)) => serve(driver, refused, index, listener, ready, outlet),
        Err(error) => {
            // The starter of the server receives the error.
            let _ = ready.send(Err(error));
            Ok(())
        }
    }
}

fn serve<D: Driver>(
    driver: D,
    refused: Option<io::Error>,
    index: usize,
    listener: Option<OwnedFd>,
    ready: &Sender<io::Result<Ready>>,
    outlet: &Inlet<Arc<Shared>>,
) -> io::Result<()> {
    let _ = ready.send(Ok(Ready { post: Post::current(), driver: D::NAME, refused }));
    // The sender no longer exists: the start of the server has failed.
    let Ok(shared) = outlet.recv() else { return Ok(()) };
    let mut ending = ThreadGuard::of(&shared);
    let outcome = Reactor::new(driver, shared, index, listener).run();
    ending.is_in_order = outcome.is_ok();
    outcome
}
