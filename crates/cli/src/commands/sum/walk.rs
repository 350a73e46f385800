//! Directories: listed, sorted, their entries queued.
//!
//! The order is that of the paths' bytes, as `LC_ALL=C sort` would put them. Within one directory that is the order
//! of the names where a directory's name ends in `/`: `a-b`, then all below `a`, then `a0`.
//!
//! As `find DIR -type f` does: symbolic links below DIR are not followed, what is no regular file is skipped, file
//! systems mounted below are entered. As there, `DIR/` gives `DIR/x` and not `DIR//x`.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, FileType, OFlags, RawDir};
use rustix::io::Errno;

use super::job::{self, Charge, FILES_PER_ITEM, Job, Shared, Work};
use super::read::{self, Warmth};

/// Bytes of directory entries in one system call.
const LIST_BYTES: usize = 32 * 1024;

/// Files and directories with a common path prefix.
pub(super) struct Listing {
    /// Where the names are looked up; none for the current directory.
    directory: Option<Directory>,
    /// Goes before each name in the output.
    prefix: Vec<u8>,
    /// All names, one after the other: a directory with a million files costs two allocations.
    names: Vec<u8>,
    /// In the order of the output.
    entries: Vec<Range<usize>>,
    _charge: Charge,
}

struct Directory {
    path: Vec<u8>,
    flags: OFlags,
}

impl Listing {
    /// Files that the user named, in that order, symbolic links followed.
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

    /// In a listing of a directory, the names of directories end in `/`, which sorts them and marks them.
    fn is_directory(&self, i: usize) -> bool {
        self.directory.is_some() && self.name(i).ends_with(b"/")
    }

    /// Cuts the entries into runs of at most `FILES_PER_ITEM` files.
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

/// Lists a directory, queues all runs of its entries but the first, and hashes that one right away: most directories
/// have no more, and it is the next one in the output.
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
    let List { names, entries, error } = outcome;
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

/// Hashes a run of entries.
pub(super) fn entries(work: &mut Work<'_>, listing: &Arc<Listing>, run: Range<usize>) {
    let Some(directory) = &listing.directory else {
        return hash_run(work, CWD, listing, run);
    };
    // Opened anew for each run: kept open from the listing on, a wide tree would run out of file descriptors.
    match read::open(CWD, &directory.path, directory.flags) {
        Ok((dir, _)) => hash_run(work, dir.as_fd(), listing, run),
        Err(error) => work.answer.unreadable(&directory.path, &error.into()),
    }
}

fn hash_run(work: &mut Work<'_>, dir: BorrowedFd<'_>, listing: &Arc<Listing>, run: Range<usize>) {
    // A link on the command line is meant; one below a directory got there after the listing.
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
        // While this worker hashes a long file, others take the files after it.
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
    /// What ended the listing early; the entries until then count.
    error: Option<Errno>,
}

/// Regular files and directories, sorted.
fn list(dir: &OwnedFd) -> List {
    let mut buffer = Vec::with_capacity(LIST_BYTES);
    let mut names = Vec::new();
    let mut entries = Vec::new();
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
            // Some file systems do not keep the type in the directory.
            FileType::Unknown => match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                Err(_) => FileType::RegularFile, // opening it will tell, and name it
            },
            kind => kind,
        };
        let name = name.to_bytes();
        match kind {
            FileType::RegularFile => entries.push(append(&mut names, &[name])),
            FileType::Directory if name != b"." && name != b".." => {
                entries.push(append(&mut names, &[name, b"/"]));
            }
            _ => {}
        }
    }
    entries.sort_unstable_by(|a, b| names[a.clone()].cmp(&names[b.clone()]));
    List { names, entries, error }
}
