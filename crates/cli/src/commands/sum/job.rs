//! The jobs of the work items, and their results.
//!
//! Each item returns a list of parts, which together form its section of the output: finished
//! text, handles of items that it queued, and jobs that it did not queue. A directory's item
//! returns its entries; a long run of entries returns a first piece and an item for the rest. The
//! results form a tree whose leaves, from left to right, are the output. `output` walks the tree.
//! Items share nothing else but a few counters.
//!
//! Memory is bounded as follows. An item that is queued ahead of the output counts as the files
//! that it stands for, and a listed directory counts as its entries until they are hashed. When the
//! total reaches `HELD_MAX`, jobs are not queued but returned as `Part::Later`; `output` starts
//! them shortly before their turn. Sorting needs one whole directory in memory at a time.

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

/// Files in one item. 64 files of about 5 us each hide the cost of an item and of opening its
/// directory (about 2 us), and are few enough that the last items of a tree keep all CPUs busy.
pub(super) const FILES_PER_ITEM: usize = if cfg!(test) { 3 } else { 64 };

/// The size of one read. A file that fills the buffer is long; the remaining files of its item then
/// go to another item.
const BUFFER_BYTES: usize = 128 * 1024;

/// Maximum number of files and entries that wait for their turn in the output: about 10 MiB of
/// names and lines.
const HELD_MAX: usize = if cfg!(test) { 8 } else { 1 << 16 };

/// The cost of a directory that is not listed yet.
const DIRECTORY_COST: usize = if cfg!(test) { 2 } else { 64 };

/// The state that all items of a run share.
pub(super) struct Shared {
    pub(super) queue: Queue,
    pub(super) algorithm: Algorithm,
    /// Lines end with NUL, and names are not escaped (`-z`).
    pub(super) zero: bool,
    pub(super) progress: Progress,
    /// How much is held in memory. Relaxed, because a stale value only shifts the bound.
    held: AtomicUsize,
    /// Set once the output cannot be written any more, and never cleared. Relaxed, because an item
    /// that reads it late only does some useless work.
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

    /// Makes all items end early; their results are then incomplete.
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

/// A share of `Shared::held`, given back on drop.
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

/// A part of the output, in output order.
pub(super) enum Part {
    Text(Text),
    /// An item that was queued; it waits, runs or has finished.
    Started(JoinHandle<Vec<Part>>, Charge),
    /// A job that is not queued, because too much already waits for its turn.
    Later(Job),
}

/// Finished text.
#[derive(Default)]
pub(super) struct Text {
    /// For standard output.
    pub(super) lines: Vec<u8>,
    /// For standard error, printed after the lines.
    pub(super) complaints: String,
    pub(super) tally: Tally,
}

/// The counts that determine the exit code and the closing reports.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Tally {
    pub(super) matched: u64,
    pub(super) mismatched: u64,
    pub(super) unreadable: u64,
    pub(super) skipped: Skipped,
}

/// Entries below directories that are neither regular files nor directories, by kind.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Skipped {
    pub(super) links: u64,
    pub(super) fifos: u64,
    pub(super) sockets: u64,
    pub(super) devices: u64,
}

impl Skipped {
    fn counts(&mut self) -> [&mut u64; 4] {
        [&mut self.links, &mut self.fifos, &mut self.sockets, &mut self.devices]
    }

    /// The counts in words, or `None` if nothing was skipped.
    pub(super) fn spoken(mut self) -> Option<String> {
        let words = [
            ("symbolic link", "symbolic links"),
            ("fifo", "fifos"),
            ("socket", "sockets"),
            ("device", "devices"),
        ];
        let counts = self.counts().into_iter().zip(words).filter(|(n, _)| **n > 0);
        let parts: Vec<String> = counts
            .map(|(n, (one, many))| format!("{n} {}", if *n == 1 { one } else { many }))
            .collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl Tally {
    pub(super) fn add(&mut self, mut other: Self) {
        self.matched += other.matched;
        self.mismatched += other.mismatched;
        self.unreadable += other.unreadable;
        for (sum, more) in self.skipped.counts().into_iter().zip(other.skipped.counts()) {
            *sum += *more;
        }
    }
}

/// The job of one item.
pub(super) enum Job {
    /// List a directory and queue its entries. A directory that the user named may be a symbolic
    /// link.
    Directory { path: Vec<u8>, named: bool },
    /// Hash files of a listing, and queue the directories among them.
    Entries(Arc<Listing>, Range<usize>),
    /// Check lines of a checksum file.
    Check(Arc<Check>, Range<usize>),
    /// Hash standard input. Never started ahead of its turn: of two such jobs, the first in the
    /// output order must receive the bytes.
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

    /// Runs the job on the calling thread.
    pub(super) fn run(self, shared: &Arc<Shared>) -> Vec<Part> {
        thread_local! {
            /// One buffer per worker, reused by all its items.
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

/// Queues a job, or returns it as `Part::Later` if too much already waits for its turn.
pub(super) fn offer(shared: &Arc<Shared>, job: Job) -> Part {
    if shared.held() >= HELD_MAX {
        return Part::Later(job);
    }
    let charge = Charge::new(shared, job.cost());
    let handle = shared.queue.spawn({
        let shared = shared.clone();
        move || {
            // Many directories may be queued before any of them is listed, so the worker checks the
            // bound again before it lists one more. The bound is twice as high here, because
            // otherwise all directories that were queued last would be deferred.
            if matches!(job, Job::Directory { .. }) && shared.held() >= 2 * HELD_MAX {
                return vec![Part::Later(job)];
            }
            job.run(&shared)
        }
    });
    Part::Started(handle, charge)
}

/// Queues a job whose turn is near, regardless of `HELD_MAX`.
pub(super) fn start(shared: &Arc<Shared>, job: Job) -> Part {
    let charge = Charge::new(shared, job.cost());
    let handle = shared.queue.spawn({
        let shared = shared.clone();
        move || job.run(&shared)
    });
    Part::Started(handle, charge)
}

/// The result of an item under construction.
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

    /// Reports a file or a directory that could not be read.
    pub(super) fn unreadable(&mut self, path: &[u8], error: &io::Error) {
        self.text.complaints.push_str(&names::complaint(path, error));
        self.text.tally.unreadable += 1;
    }

    fn finish(mut self) -> Vec<Part> {
        self.parts.push(Part::Text(self.text));
        self.parts
    }
}

/// The state of a running item: its hasher, its buffer and its result so far.
pub(super) struct Work<'a> {
    pub(super) shared: &'a Arc<Shared>,
    buffer: &'a mut [u8],
    hasher: Hasher,
    /// The read mode, kept from file to file, because the files of an item are usually on one file
    /// system.
    reads: Reads,
    pub(super) answer: Answer,
}

impl Work<'_> {
    /// Hashes the file `name` in `dir`. If the file is long, calls `when_long` once before it
    /// hashes the file.
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

    /// Hashes a file by the name on the command line; `-` is standard input.
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
        // The lock prevents two items from each reading a part of the input.
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
                // Doubles the kernel's read-ahead. This is only a hint, so an error does not
                // matter.
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

    /// Appends the line `HASH  NAME`, or an error message for standard error. The name is `prefix`
    /// followed by `name`.
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
