//! The progress line: files, bytes and rate. Drawn only if standard error is a terminal.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressState, ProgressStyle};

/// The redraw interval. Workers only count; a separate thread draws.
const REDRAW_EVERY: Duration = Duration::from_millis(100);

/// Statistics. Relaxed, because no other memory is published through them.
#[derive(Default)]
struct Counters {
    files: AtomicU64,
    bytes: AtomicU64,
}

/// The progress line, if it is drawn.
pub(super) struct Progress(Option<(ProgressBar, Arc<Counters>)>);

impl Progress {
    /// A progress line if it is `wanted` and standard error is a terminal.
    pub(super) fn new(wanted: bool) -> Self {
        if !wanted || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let counters = Arc::new(Counters::default());
        let bar = ProgressBar::new_spinner().with_style(style(&counters));
        bar.enable_steady_tick(REDRAW_EVERY);
        Self(Some((bar, counters)))
    }

    /// Counts a finished file.
    pub(super) fn file(&self) {
        if let Some((_, counters)) = &self.0 {
            counters.files.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts bytes that were read.
    pub(super) fn bytes(&self, n: usize) {
        if let Some((_, counters)) = &self.0 {
            counters.bytes.fetch_add(n as u64, Ordering::Relaxed);
        }
    }

    /// Hides the line while `print` runs, because both may write to the same terminal.
    pub(super) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some((bar, _)) => bar.suspend(print),
            None => print(),
        }
    }

    /// Removes the line.
    pub(super) fn finish(&self) {
        if let Some((bar, _)) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

fn style(counters: &Arc<Counters>) -> ProgressStyle {
    let (files, bytes, rate) = (counters.clone(), counters.clone(), counters.clone());
    ProgressStyle::with_template("{spinner} {files} files  {read}  {rate}  {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
        .with_key("files", move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            // A formatting error does not stop the command.
            let _ = write!(out, "{}", HumanCount(files.files.load(Ordering::Relaxed)));
        })
        .with_key("read", move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
            let _ = write!(out, "{}", BinaryBytes(bytes.bytes.load(Ordering::Relaxed)));
        })
        .with_key("rate", move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            let bytes = rate.bytes.load(Ordering::Relaxed) as f64;
            let seconds = state.elapsed().as_secs_f64().max(0.001);
            let _ = write!(out, "{}/s", BinaryBytes((bytes / seconds) as u64));
        })
}
