//! A pipeline of futures: for each file, one future reads it on one queue, counts its words on
//! another, and waits for neither with a thread.
//!
//! `cargo run --release --example pipeline -- FILE..`; without files, those below the current
//! directory that end in `.rs` or `.md`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use uwork::{JoinError, Queue};

type Counts = HashMap<String, u64>;

fn count(text: &str) -> Counts {
    let mut counts = Counts::new();
    for word in text.split(|c: char| !c.is_alphabetic()).filter(|word| word.len() > 3) {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    counts
}

/// One future is one work item: awaiting a handle queues it again when the result is ready.
async fn stderr_of(path: PathBuf, files: Queue, words: Queue) -> Result<Counts, JoinError> {
    let text = files.spawn(move || uwork::blocking(|| std::fs::read(path))).await?;
    let Ok(text) = text else { return Ok(Counts::new()) };
    words.spawn(move || count(&String::from_utf8_lossy(&text))).await
}

fn sources_below(directory: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_source = path.extension().is_some_and(|end| end == "rs" || end == "md");
        if path.is_dir() && !path.is_symlink() && !path.ends_with("target") {
            sources_below(&path, found);
        } else if is_source {
            found.push(path);
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        sources_below(Path::new("."), &mut paths);
    }
    // At most 8 files are read at once; words are counted by as many workers as there are CPUs.
    let files = Queue::builder("files").max_active(8).build()?;
    let words = Queue::builder("words").build()?;

    let futures: Vec<_> = paths
        .into_iter()
        .map(|path| words.spawn_future(stderr_of(path, files.clone(), words.clone())))
        .collect();
    let read = futures.len();
    let mut total = Counts::new();
    for future in futures {
        for (word, count) in future.join()?? {
            *total.entry(word).or_default() += count;
        }
    }

    let mut ranking: Vec<_> = total.into_iter().collect();
    ranking.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    println!("{read} files, {} different words; the most frequent:", ranking.len());
    for (word, count) in ranking.iter().take(5) {
        println!("{count:>8} {word}");
    }
    Ok(())
}
