//! What the work items do, and what they give back.
//!
//! Every item answers with a list of parts that stands for its place in the output: text that is ready, items
//! that it queued, and jobs that it left for later. A directory's item is answered by its entries, a long run of
//! entries by a first piece and an item for the rest, and so on: the answers form a tree whose leaves, read from
//! left to right, are the output. `output` reads it; nothing else is shared between items but a few counters.
//!
//! How much is held in memory: each item queued ahead of the output counts as the files it stands for, each listed
//! directory as its entries until they are hashed. From `HELD_MAX` on, jobs are left for later, which
//! `output` then starts shortly before their turn. Only one directory must fit into memory whole, for its sorting.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{Advice, CWD, OFlags};
use uwork::{JoinHandle, Queue};

use super::check::Check;
use super::digest::{Algorithm, Digest, Hasher};
use super::names;
use super::progress::Progress;
use super::read::{self, Reads};
use super::walk::{self, Listing};

/// Files in one item: enough to hide what an item and opening its directory cost (about 2 us) behind 64 files of
/// some 5 us each, few enough that the last items of a tree keep all CPUs busy.
pub(super) const FILES_PER_ITEM: usize = if cfg!(test) { 3 } else { 64 };

/// One read. A file that fills it is long: the rest of its item's files go to another item.
const BUFFER_BYTES: usize = 128 * 1024;

/// Files and entries that may wait for their turn in the output: some 10 MiB of names and lines.
const HELD_MAX: usize = if cfg!(test) { 8 } else { 1 << 16 };

/// What a directory counts for before it is listed.
const DIRECTORY_COST: usize = if cfg!(test) { 2 } else { 64 };

/// What all items of a run share.
pub(super) struct Shared {
    pub(super) queue: Queue,
    pub(super) algorithm: Algorithm,
    /// Lines end with NUL, and names are not escaped (`-z`).
    pub(super) zero: bool,
    pub(super) progress: Progress,
    /// Statistics that steer how far to run ahead: a stale value only moves that bound, so Relaxed.
    held: AtomicUsize,
    /// Nobody reads the output any more. Only ever set; seen late, it costs some work: Relaxed.
    stop: AtomicBool,
}

impl Shared {
    pub(super) fn new(
        queue: Queue,
        algorithm: Algorithm,
        zero: bool,
        progress: Progress,
    ) -> Arc<Self> {
        let (held, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { queue, algorithm, zero, progress, held, stop })
    }

    /// Makes all items end soon; what they answer is incomplete.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

/// A share of `Shared::held`, given back when dropped.
pub(super) struct Charge {
    shared: Arc<Shared>,
    cost: usize,
}

impl Charge {
    pub(super) fn new(shared: &Arc<Shared>, cost: usize) -> Self {
        shared.held.fetch_add(cost, Ordering::Relaxed);
        Self { shared: shared.clone(), cost }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shared.held.fetch_sub(self.cost, Ordering::Relaxed);
    }
}

/// A piece of the output, in its place.
pub(super) enum Part {
    Text(Text),
    /// An item that is queued, runs or has run.
    Started(JoinHandle<Vec<Part>>, Charge),
    /// Not queued yet, because too much waits for its turn already.
    Later(Job),
}

/// Lines that are ready.
#[derive(Default)]
pub(super) struct Text {
    /// For standard output.
    pub(super) lines: Vec<u8>,
    /// For standard error, after the lines.
    pub(super) complaints: String,
    pub(super) tally: Tally,
}

/// What the exit code and the closing warnings are made of.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Tally {
    pub(super) matched: u64,
    pub(super) mismatched: u64,
    pub(super) unreadable: u64,
}

impl Tally {
    pub(super) fn add(&mut self, other: Self) {
        self.matched += other.matched;
        self.mismatched += other.mismatched;
        self.unreadable += other.unreadable;
    }
}

/// What an item is to do.
pub(super) enum Job {
    /// List a directory and queue its entries. One that was named by the user may be a symbolic link.
    Directory { path: Vec<u8>, named: bool },
    /// Hash files of a listing, and queue the directories between them.
    Entries(Arc<Listing>, Range<usize>),
    /// Check lines of a checksum file.
    Check(Arc<Check>, Range<usize>),
    /// Hash standard input. Never started ahead: of two, the first in the order must get the bytes.
    StandardInput,
}

impl Job {
    fn cost(&self) -> usize {
        match self {
            Self::Directory { .. } => DIRECTORY_COST,
            Self::Entries(_, range) | Self::Check(_, range) => range.len(),
            Self::StandardInput => 1,
        }
    }

    /// Does the job on this thread.
    pub(super) fn run(self, shared: &Arc<Shared>) -> Vec<Part> {
        thread_local! {
            /// One per worker, reused by all its items.
            static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER_BYTES]);
        }
        if shared.stopped() {
            return Vec::new();
        }
        BUFFER.with_borrow_mut(|buffer| {
            let hasher = shared.algorithm.hasher();
            let mut work =
                Work { shared, buffer, hasher, reads: Reads::CanRefuse, answer: Answer::default() };
            match self {
                Self::Directory { path, named } => walk::directory(&mut work, path, named),
                Self::Entries(listing, range) => walk::entries(&mut work, &listing, range),
                Self::Check(check, range) => check.run(&mut work, range),
                Self::StandardInput => {
                    let outcome = work.hash_standard_input();
                    work.outcome(b"", b"-", outcome);
                }
            }
            work.answer.finish()
        })
    }
}

/// Queues a job, or leaves it for later when too much waits for its turn.
pub(super) fn offer(shared: &Arc<Shared>, job: Job) -> Part {
    if shared.held() >= HELD_MAX {
        return Part::Later(job);
    }
    let charge = Charge::new(shared, job.cost());
    let handle = shared.queue.spawn({
        let shared = shared.clone();
        move || {
            // Many directories may have been queued while few were listed: look again before listing one more.
            // Twice the bound, or else those queued last would all come back.
            if matches!(job, Job::Directory { .. }) && shared.held() >= 2 * HELD_MAX {
                return vec![Part::Later(job)];
            }
            job.run(&shared)
        }
    });
    Part::Started(handle, charge)
}

/// Queues a job whose turn is near, however much waits.
pub(super) fn start(shared: &Arc<Shared>, job: Job) -> Part {
    let charge = Charge::new(shared, job.cost());
    let handle = shared.queue.spawn({
        let shared = shared.clone();
        move || job.run(&shared)
    });
    Part::Started(handle, charge)
}

/// An item's answer while it is put together.
#[derive(Default)]
pub(super) struct Answer {
    parts: Vec<Part>,
    pub(super) text: Text,
}

impl Answer {
    /// Appends a part after the text so far.
    pub(super) fn push(&mut self, part: Part) {
        if !self.text.lines.is_empty() || self.text.tally != Tally::default() {
            self.parts.push(Part::Text(std::mem::take(&mut self.text)));
        }
        self.parts.push(part);
    }

    /// Names a file or a directory that could not be read.
    pub(super) fn unreadable(&mut self, path: &[u8], error: &io::Error) {
        self.text.complaints.push_str(&names::complaint(path, error));
        self.text.tally.unreadable += 1;
    }

    fn finish(mut self) -> Vec<Part> {
        self.parts.push(Part::Text(self.text));
        self.parts
    }
}

/// An item at work: what it needs to hash a file, and its answer so far.
pub(super) struct Work<'a> {
    pub(super) shared: &'a Arc<Shared>,
    buffer: &'a mut [u8],
    hasher: Hasher,
    /// Kept from file to file: those of an item mostly lie on one file system.
    reads: Reads,
    pub(super) answer: Answer,
}

impl Work<'_> {
    /// Hashes the file `name` in `dir`. Calls `when_long` once if the file is long, before hashing it.
    pub(super) fn hash(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &[u8],
        flags: OFlags,
        when_long: impl FnOnce(),
    ) -> io::Result<Digest> {
        let (file, _) = read::open(dir, name, flags)?;
        self.hash_open(file.as_fd(), when_long)
    }

    /// Hashes a file by the name that the user knows it by; `-` is standard input.
    pub(super) fn hash_named(
        &mut self,
        name: &[u8],
        when_long: impl FnOnce(),
    ) -> io::Result<Digest> {
        match name {
            b"-" => self.hash_standard_input(),
            _ => self.hash(CWD, name, OFlags::empty(), when_long),
        }
    }

    fn hash_standard_input(&mut self) -> io::Result<Digest> {
        // The lock keeps two items from sharing the bytes between them.
        let stdin = io::stdin().lock();
        self.hash_open(stdin.as_fd(), || ())
    }

    fn hash_open(&mut self, file: BorrowedFd<'_>, when_long: impl FnOnce()) -> io::Result<Digest> {
        let mut when_long = Some(when_long);
        let full = self.buffer.len();
        let (shared, hasher) = (self.shared, &mut self.hasher);
        let outcome = read::read_to_end(file, self.buffer, &mut self.reads, |chunk| {
            if chunk.len() == full
                && let Some(when_long) = when_long.take()
            {
                // Doubles the kernel's read-ahead. A hint: where it is refused, nothing is lost.
                let _ = rustix::fs::fadvise(file, 0, None, Advice::Sequential);
                when_long();
            }
            hasher.update(chunk);
            shared.progress.bytes(chunk.len());
            !shared.stopped()
        });
        match outcome {
            Ok(()) => {
                self.shared.progress.file();
                Ok(self.hasher.finish())
            }
            Err(error) => {
                self.hasher.forget();
                Err(error)
            }
        }
    }

    /// Adds a file's line, `HASH  NAME`, or the complaint that takes its place. The name is `prefix` and `name`.
    pub(super) fn outcome(&mut self, prefix: &[u8], name: &[u8], outcome: io::Result<Digest>) {
        let digest = match outcome {
            Ok(digest) => digest,
            Err(error) => return self.answer.unreadable(&[prefix, name].concat(), &error),
        };
        let lines = &mut self.answer.text.lines;
        let escape =
            !self.shared.zero && (names::needs_escape(prefix) || names::needs_escape(name));
        if escape {
            lines.push(b'\\');
        }
        digest.write_hex(lines);
        lines.extend_from_slice(b"  ");
        for part in [prefix, name] {
            match escape {
                true => names::write_escaped(part, lines),
                false => lines.extend_from_slice(part),
            }
        }
        lines.push(if self.shared.zero { 0 } else { b'\n' });
    }
}
