//! The state that all threads of a server share: configuration, statistics, and the threads'
//! addresses.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Instant;

use uwork::Queue;
use uwork::task::Notify;

use super::config::{Config, ForeignKeys, Receiver, Replies};
use super::failure::Failure;
use super::handover::Item;
use super::post::Post;
use super::roster::Roster;
use super::shard::Shard;
use crate::keyspace::{Budget, Keyspace};

/// The state that all threads share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// The port that the server listens on.
    pub(crate) port: u16,
    pub(crate) budget: Arc<Budget>,
    /// The queue for `DIGEST`.
    pub(crate) heavy: Queue,
    pub(crate) posts: Vec<Post>,
    /// By thread: its keys. A dedicated receiver has none.
    shards: Vec<Shard>,
    pub(crate) figures: Vec<Figures>,
    /// Number of digests that workers still have to compute.
    pub(crate) digests: AtomicUsize,
    pub(crate) clients: AtomicUsize,
    pub(crate) connections_ever: AtomicU64,
    ids: AtomicU64,
    pub(crate) roster: Roster,
    pub(crate) driver: &'static str,
    pub(crate) refused: AtomicU64,
    /// Number of threads that still have connections, plus connections in flight between threads.
    pub(crate) busy: AtomicUsize,
    /// The server has ended, so digests are no longer needed.
    pub(crate) is_over: AtomicBool,
    /// The failure of a server thread.
    pub(crate) failure: Failure,
    /// Ensures a single warning about HTTP.
    http: Once,
    started: Instant,
    hasher: RandomState,
}

/// Statistics of one thread, which is their only writer.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Figures {
    pub(crate) requests: AtomicU64,
    pub(crate) handovers: AtomicU64,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        port: u16,
        heavy: Queue,
        posts: Vec<Post>,
        driver: &'static str,
    ) -> Self {
        let threads = posts.len();
        let budget = Arc::new(Budget::new(config.memory_max));
        Self {
            port,
            shards: (0..threads).map(|_| Shard::new(&budget)).collect(),
            budget,
            heavy,
            figures: std::iter::repeat_with(Figures::default).take(threads).collect(),
            posts,
            digests: AtomicUsize::new(0),
            clients: AtomicUsize::new(0),
            connections_ever: AtomicU64::new(0),
            ids: AtomicU64::new(1),
            roster: Roster::default(),
            driver,
            refused: AtomicU64::new(0),
            busy: AtomicUsize::new(threads),
            is_over: AtomicBool::new(false),
            failure: Failure::default(),
            http: Once::new(),
            started: Instant::now(),
            hasher: RandomState::new(),
            config,
        }
    }

    /// Milliseconds since the server started, plus one, because time 0 means that a key has
    /// expired.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 1
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// The thread that owns keys with this hash.
    #[inline]
    pub(crate) fn owner(&self, hash: u64) -> usize {
        // Hash tables use the highest and the lowest bits, so the owner is chosen by the middle
        // bits.
        let middle = (hash >> 16) & 0xffff_ffff;
        let shard = (middle * self.config.threads as u64) >> 32;
        shard as usize + self.receivers()
    }

    /// Number of threads that precede the threads with keys: 1 with a dedicated receiver, otherwise
    /// 0.
    pub(crate) fn receivers(&self) -> usize {
        usize::from(self.config.receiver == Receiver::Dedicated)
    }

    /// Whether threads execute operations on foreign keys themselves.
    #[inline]
    pub(crate) fn operates_in_place(&self) -> bool {
        self.config.foreign_keys == ForeignKeys::InPlace && self.config.receiver == Receiver::Shared
    }

    /// The keys of the thread.
    #[inline]
    pub(crate) fn shard(&self, thread: usize) -> &Shard {
        &self.shards[thread]
    }

    /// Operates on the keys of another thread, unless their lock stays held.
    #[inline]
    pub(crate) fn operate_in_place<R>(
        &self,
        owner: usize,
        operate: impl FnOnce(&mut Keyspace) -> R,
    ) -> Option<R> {
        let visited = self.shards[owner].try_operate(operate)?;
        if visited.expires_earlier {
            // The lock is released.
            self.posts[owner].wake();
        }
        Some(visited.outcome)
    }

    /// Whether the threads that execute requests also send the replies.
    pub(crate) fn lends_rounds(&self) -> bool {
        self.config.receiver == Receiver::Dedicated && self.config.replies != Replies::Returned
    }

    /// The thread that gets the next connection.
    pub(crate) fn thread_of_connection(&self) -> usize {
        let number = self.connections_ever.fetch_add(1, Ordering::Relaxed);
        match self.config.receiver {
            Receiver::Dedicated => 0,
            Receiver::Shared => (number % self.posts.len() as u64) as usize,
        }
    }

    /// A number for a new connection.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Puts the item into the thread's inbox and notifies the thread.
    pub(crate) fn hand_over(&self, thread: usize, item: Item) {
        self.posts[thread].handover(item, Notify::Signal);
    }

    /// As `hand_over`, but without a notification: the thread finds the item when it next checks
    /// its inbox.
    pub(crate) fn hand_over_quietly(&self, thread: usize, item: Item) {
        self.posts[thread].handover(item, Notify::None);
    }

    /// Sends a finished item to its destination.
    pub(crate) fn return_item(&self, mut item: Item) {
        let body = item.as_mut().body();
        match body.sink.take() {
            Some(sink) => sink.give_back(self, item),
            None => self.hand_over(body.home, item),
        }
    }

    /// Submits the digest to a worker.
    pub(crate) fn digest(&self, item: Item) {
        self.digests.fetch_add(1, Ordering::Relaxed);
        if let Some(mut item) = self.heavy.enqueue::<_, 0>(item).into_refused() {
            // The queue is shut down.
            self.digests.fetch_sub(1, Ordering::Relaxed);
            item.as_mut().body().refuse_digest();
            self.return_item(item);
        }
    }

    /// Warns once, on standard error, that a client speaks HTTP.
    pub(crate) fn tell_of_http(&self, from: Option<SocketAddr>) {
        self.http.call_once(|| {
            let from = from.map_or_else(String::new, |address| format!(" from {address}"));
            eprintln!(
                "uwork-lab serve: POST or Host:{from} is HTTP, maybe an attack by way of a browser: closed; \
                 more of these are not told"
            );
        });
    }

    /// The number of keys of all threads.
    pub(crate) fn keys(&self) -> usize {
        self.shards.iter().map(Shard::len).sum()
    }

    /// The number of keys of all threads that have a deadline.
    pub(crate) fn expiring(&self) -> usize {
        self.shards.iter().map(Shard::expiring).sum()
    }
}
