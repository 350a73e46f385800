//! The line on the terminal that shows how far it is: files, bytes, rate. Only where stderr is a terminal.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressState, ProgressStyle};

/// How often the line is drawn anew. Workers only count; a thread of its own draws.
const REDRAW_EVERY: Duration = Duration::from_millis(100);

/// Statistics only, so Relaxed: no other memory is published through them.
#[derive(Default)]
struct Counters {
    files: AtomicU64,
    bytes: AtomicU64,
}

/// The progress line, or nothing at all.
pub(super) struct Progress(Option<(ProgressBar, Arc<Counters>)>);

impl Progress {
    /// A progress line if it is `wanted` and there is a terminal to draw it on.
    pub(super) fn new(wanted: bool) -> Self {
        if !wanted || !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let counters = Arc::new(Counters::default());
        let bar = ProgressBar::new_spinner().with_style(style(&counters));
        bar.enable_steady_tick(REDRAW_EVERY);
        Self(Some((bar, counters)))
    }

    /// Counts a file that is done.
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

    /// Calls `print` with the line out of the way: both may go to the same terminal.
    pub(super) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        match &self.0 {
            Some((bar, _)) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the line away.
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
            // A line that cannot be drawn is no reason to stop.
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
