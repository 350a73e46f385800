//! What all threads of a server share: settings, figures, and the way to each other.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::Instant;

use uwork::Queue;
use uwork::task::Notify;

use super::config::{Config, Receiver};
use super::failure::Failure;
use super::handover::Item;
use super::post::Post;
use super::roster::Roster;
use crate::keyspace::Budget;

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) config: Config,
    /// The port that was taken.
    pub(crate) port: u16,
    pub(crate) budget: Arc<Budget>,
    /// For `DIGEST`.
    pub(crate) heavy: Queue,
    pub(crate) posts: Vec<Post>,
    pub(crate) figures: Vec<Figures>,
    /// That workers have to make.
    pub(crate) digests: AtomicUsize,
    pub(crate) clients: AtomicUsize,
    pub(crate) connections_ever: AtomicU64,
    ids: AtomicU64,
    pub(crate) roster: Roster,
    pub(crate) driver: &'static str,
    pub(crate) refused: AtomicU64,
    /// Threads that have connections still.
    pub(crate) busy: AtomicUsize,
    /// Nobody waits for digests any more.
    pub(crate) is_over: AtomicBool,
    /// Of a thread.
    pub(crate) failure: Failure,
    /// Whether people were told of HTTP.
    http: Once,
    started: Instant,
    hasher: RandomState,
}

/// What one thread has done; it alone writes it.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Figures {
    pub(crate) keys: AtomicUsize,
    pub(crate) expiring: AtomicUsize,
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
        Self {
            port,
            budget: Arc::new(Budget::new(config.memory_max)),
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

    /// Milliseconds since the server started, and one: no key expires at zero.
    pub(crate) fn now(&self) -> u64 {
        self.started.elapsed().as_millis() as u64 + 1
    }

    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(key);
        hasher.finish()
    }

    /// The thread that owns keys of this hash.
    #[inline]
    pub(crate) fn owner(&self, hash: u64) -> usize {
        // Neither the highest bits nor the lowest: those are what a table looks at.
        let middle = (hash >> 16) & 0xffff_ffff;
        let shard = (middle * self.config.threads as u64) >> 32;
        shard as usize + self.receivers()
    }

    /// Threads in front of those that own keys.
    pub(crate) fn receivers(&self) -> usize {
        usize::from(self.config.receiver == Receiver::Dedicated)
    }

    /// Whether those who carry requests out send the replies.
    pub(crate) fn lends_rounds(&self) -> bool {
        self.config.receiver == Receiver::Dedicated
    }

    /// The thread of the next connection.
    pub(crate) fn thread_of_connection(&self) -> usize {
        let number = self.connections_ever.fetch_add(1, Ordering::Relaxed);
        match self.config.receiver {
            Receiver::Dedicated => 0,
            Receiver::Shared => (number % self.posts.len() as u64) as usize,
        }
    }

    /// A connection's number.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives the item to the thread, which will find it in its inbox.
    pub(crate) fn hand_over(&self, thread: usize, item: Item) {
        self.posts[thread].handover(item, Notify::Signal);
    }

    /// As `hand_over`, for a thread that will look into its inbox when it next has something to do.
    pub(crate) fn hand_over_quietly(&self, thread: usize, item: Item) {
        self.posts[thread].handover(item, Notify::None);
    }

    /// Sends an item that is done to where it is waited for.
    pub(crate) fn return_item(&self, mut item: Item) {
        let body = item.as_mut().body();
        match body.sink.take() {
            Some(sink) => sink.give_back(self, item),
            None => self.hand_over(body.home, item),
        }
    }

    /// Has a worker make the digest.
    pub(crate) fn digest(&self, item: Item) {
        self.digests.fetch_add(1, Ordering::Relaxed);
        if let Some(mut item) = self.heavy.enqueue::<_, 0>(item).into_refused() {
            // The process shuts its queues down.
            self.digests.fetch_sub(1, Ordering::Relaxed);
            item.as_mut().body().refuse_digest();
            self.return_item(item);
        }
    }

    /// Tells people, once, that somebody speaks HTTP to the server.
    pub(crate) fn tell_of_http(&self, from: Option<SocketAddr>) {
        self.http.call_once(|| {
            let from = from.map_or_else(String::new, |address| format!(" from {address}"));
            eprintln!(
                "uwork serve: POST or Host:{from} is HTTP, maybe an attack by way of a browser: closed; \
                 more of these are not told"
            );
        });
    }

    /// Keys of all threads.
    pub(crate) fn keys(&self) -> usize {
        self.figures.iter().map(|figures| figures.keys.load(Ordering::Acquire)).sum()
    }
}
