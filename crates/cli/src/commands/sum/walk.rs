//! Lists and sorts directories, and queues their entries.
//!
//! The order is that of the paths' bytes, as `LC_ALL=C sort` prints them. Within one directory this
//! is the order of the names if each directory's name ends in `/`: `a-b`, then everything below
//! `a`, then `a0`.
//!
//! The walk matches `find DIR -type f`: symbolic links below DIR are not followed, only regular
//! files are hashed, and file systems mounted below DIR are entered. As with find, `DIR/` yields
//! `DIR/x`, not `DIR//x`.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, OFlags, RawDir};
use rustix::io::Errno;

use super::job::{self, Charge, FILES_PER_ITEM, Job, Shared, Skipped, Work};
use super::read::{self, Warmth};

/// Bytes of directory entries read by one system call.
const LIST_BYTES: usize = 32 * 1024;

/// Files and directories with a common path prefix.
pub(super) struct Listing {
    /// The directory in which the names are opened; `None` for the current directory.
    directory: Option<Directory>,
    /// The prefix of each name in the output.
    prefix: Vec<u8>,
    /// All names, concatenated: a directory with a million files needs only two allocations.
    names: Vec<u8>,
    /// The entries, in output order.
    entries: Vec<Range<usize>>,
    _charge: Charge,
}

struct Directory {
    path: Vec<u8>,
    flags: OFlags,
}

impl Listing {
    /// Files named on the command line, in that order. Symbolic links are followed.
    pub(super) fn of_arguments<'a>(
        shared: &Arc<Shared>,
        paths: impl Iterator<Item = &'a [u8]>,
    ) -> Self {
        let mut names = Vec::new();
        let entries: Vec<_> = paths.map(|path| append(&mut names, &[path])).collect();
        let charge = Charge::new(shared, entries.len());
        Self { directory: None, prefix: Vec::new(), names, entries, _charge: charge }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn name(&self, i: usize) -> &[u8] {
        &self.names[self.entries[i].clone()]
    }

    /// In a directory listing, the name of a directory ends in `/`. The slash gives the right sort
    /// order and marks the entry as a directory.
    fn is_directory(&self, i: usize) -> bool {
        self.directory.is_some() && self.name(i).ends_with(b"/")
    }

    /// Splits the entries into runs of at most `FILES_PER_ITEM` files.
    fn runs(&self) -> Vec<Range<usize>> {
        let mut runs = Vec::new();
        let (mut start, mut files) = (0, 0);
        for i in 0..self.len() {
            files += usize::from(!self.is_directory(i));
            if files == FILES_PER_ITEM {
                runs.push(start..i + 1);
                (start, files) = (i + 1, 0);
            }
        }
        if start < self.len() {
            runs.push(start..self.len());
        }
        runs
    }
}

fn append(names: &mut Vec<u8>, pieces: &[&[u8]]) -> Range<usize> {
    let start = names.len();
    for piece in pieces {
        names.extend_from_slice(piece);
    }
    start..names.len()
}

/// Lists a directory, queues all runs of its entries except the first, and hashes the first run at
/// once: most directories have only one run, and it comes next in the output.
pub(super) fn directory(work: &mut Work<'_>, path: Vec<u8>, named: bool) {
    let mut flags = OFlags::DIRECTORY;
    flags.set(OFlags::NOFOLLOW, !named);
    let (dir, warmth) = match read::open(CWD, &path, flags) {
        Ok(opened) => opened,
        Err(error) => return work.answer.unreadable(&path, &error.into()),
    };
    let outcome = match warmth {
        Warmth::Cached => list(&dir),
        Warmth::Cold => uwork::blocking(|| list(&dir)),
    };
    let List { names, entries, skipped, error } = outcome;
    work.answer.text.tally.skipped = skipped;
    if let Some(error) = error {
        work.answer.unreadable(&path, &io::Error::from(error));
    }
    let mut prefix = path.clone();
    if !prefix.ends_with(b"/") {
        prefix.push(b'/');
    }
    let charge = Charge::new(work.shared, entries.len());
    let listing = Listing {
        directory: Some(Directory { path, flags }),
        prefix,
        names,
        entries,
        _charge: charge,
    };
    let listing = Arc::new(listing);
    let mut runs = listing.runs().into_iter();
    let Some(first) = runs.next() else { return };
    let others: Vec<_> =
        runs.map(|run| job::offer(work.shared, Job::Entries(listing.clone(), run))).collect();
    hash_run(work, dir.as_fd(), &listing, first);
    for other in others {
        work.answer.push(other);
    }
}

/// Hashes one run of entries.
pub(super) fn entries(work: &mut Work<'_>, listing: &Arc<Listing>, run: Range<usize>) {
    let Some(directory) = &listing.directory else {
        return hash_run(work, CWD, listing, run);
    };
    // The directory is opened again for each run. Descriptors kept open since the listing would
    // exceed the limit in a wide tree.
    match read::open(CWD, &directory.path, directory.flags) {
        Ok((dir, _)) => hash_run(work, dir.as_fd(), listing, run),
        Err(error) => work.answer.unreadable(&directory.path, &error.into()),
    }
}

fn hash_run(work: &mut Work<'_>, dir: BorrowedFd<'_>, listing: &Arc<Listing>, run: Range<usize>) {
    // A symbolic link on the command line is followed. A link found below a directory replaced a
    // file after the listing, so it is not followed.
    let flags = if listing.directory.is_some() { OFlags::NOFOLLOW } else { OFlags::empty() };
    for i in run.clone() {
        if work.shared.stopped() {
            return;
        }
        let name = listing.name(i);
        if listing.is_directory(i) {
            let path = [&listing.prefix, &name[..name.len() - 1]].concat();
            let part = job::offer(work.shared, Job::Directory { path, named: false });
            work.answer.push(part);
            continue;
        }
        // Other workers take the remaining files while this worker hashes a long file.
        let (shared, mut rest) = (work.shared, None);
        let outcome = work.hash(dir, name, flags, || {
            if i + 1 < run.end {
                rest = Some(job::offer(shared, Job::Entries(listing.clone(), i + 1..run.end)));
            }
        });
        work.outcome(&listing.prefix, name, outcome);
        if let Some(rest) = rest {
            work.answer.push(rest);
            return;
        }
    }
}

struct List {
    names: Vec<u8>,
    entries: Vec<Range<usize>>,
    skipped: Skipped,
    /// The error that ended the listing early; the entries read before it are kept.
    error: Option<Errno>,
}

/// Lists regular files and directories, sorted.
fn list(dir: &OwnedFd) -> List {
    let mut buffer = Vec::with_capacity(LIST_BYTES);
    let mut names = Vec::new();
    let mut entries = Vec::new();
    let mut skipped = Skipped::default();
    let mut error = None;
    let mut raw = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = raw.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Errno::INTR) => continue,
            Err(errno) => {
                error = Some(errno);
                break;
            }
        };
        let name = entry.file_name();
        let kind = match entry.file_type() {
            // Some file systems do not store the type in the directory entry.
            FileType::Unknown => match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => FileType::RegularFile, // opening it reports the error and the name
            },
            kind => kind,
        };
        let name = name.to_bytes();
        match kind {
            FileType::RegularFile => entries.push(append(&mut names, &[name])),
            FileType::Directory if name != b"." && name != b".." => {
                entries.push(append(&mut names, &[name, b"/"]));
            }
            FileType::Symlink => skipped.links += 1,
            FileType::Fifo => skipped.fifos += 1,
            FileType::Socket => skipped.sockets += 1,
            FileType::CharacterDevice | FileType::BlockDevice => skipped.devices += 1,
            _ => {}
        }
    }
    entries.sort_unstable_by(|a, b| names[a.clone()].cmp(&names[b.clone()]));
    List { names, entries, skipped, error }
}
