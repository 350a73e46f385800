//! The progress line of a command that may take more than a few seconds: what it does and for how
//! long. On standard error, and only if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The redraw interval, at which the elapsed time moves.
const REDRAW_EVERY: Duration = Duration::from_millis(200);

/// The line, which disappears with this value.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A line for this number of steps; without one if it is not known.
    pub(crate) fn new(steps: Option<usize>) -> Self {
        let (bar, template) = match steps {
            Some(steps) => {
                (ProgressBar::new(steps as u64), "{bar:30} {pos}/{len} done, {elapsed}; now {msg}")
            }
            None => (ProgressBar::new_spinner(), "{spinner} {msg}, {elapsed}"),
        };
        bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
        if !bar.is_hidden() {
            bar.enable_steady_tick(REDRAW_EVERY);
        }
        Self(bar)
    }

    /// Shows what is done now.
    pub(crate) fn begin(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// A step is done.
    pub(crate) fn done(&self) {
        self.0.inc(1);
    }

    /// Hides the line while `print` runs, because both may write to the same terminal.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
