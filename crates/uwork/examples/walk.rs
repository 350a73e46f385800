//! Counts the files of a directory tree, one work item for each directory.
//!
//! `cargo run --release --example walk -- DIR`; without DIR, the tree of the current directory.
//! Items queue more items; `drain` waits until none is left.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uwork::Queue;

#[derive(Default)]
struct Totals {
    directories: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    unreadable: AtomicU64,
}

fn visit(queue: &Queue, totals: &Arc<Totals>, directory: PathBuf) {
    let (inner, totals) = (queue.clone(), totals.clone());
    // The handle is dropped without a join; the item still runs.
    drop(queue.spawn(move || {
        // A disk may be slow: meanwhile another worker takes the queued items.
        match uwork::blocking(|| list(&directory, &totals)) {
            Ok(subdirectories) => {
                subdirectories.into_iter().for_each(|path| visit(&inner, &totals, path));
            }
            Err(_) => {
                totals.unreadable.fetch_add(1, Ordering::Relaxed);
            }
        }
    }));
}

/// Counts the directory's files; returns its subdirectories.
fn list(directory: &Path, totals: &Totals) -> std::io::Result<Vec<PathBuf>> {
    let mut subdirectories = Vec::new();
    totals.directories.fetch_add(1, Ordering::Relaxed);
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            subdirectories.push(entry.path());
        } else if kind.is_file() {
            totals.files.fetch_add(1, Ordering::Relaxed);
            let bytes = entry.metadata().map_or(0, |metadata| metadata.len());
            totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }
    Ok(subdirectories)
}

fn main() -> Result<(), uwork::Error> {
    let root = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let queue = Queue::builder("walk").build()?;
    let totals = Arc::new(Totals::default());
    visit(&queue, &totals, PathBuf::from(root));
    queue.drain()?;
    let total = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{} directories, {} files, {} bytes, {} directories unreadable",
        total(&totals.directories),
        total(&totals.files),
        total(&totals.bytes),
        total(&totals.unreadable),
    );
    Ok(())
}
