//! The answer to `metrics`: the library's counters, and those of crates built on it.

use std::sync::{Mutex, PoisonError};

/// The last line of the format.
const END: &str = "# EOF\n";

static SOURCES: Mutex<Vec<fn() -> String>> = Mutex::new(Vec::new());

/// Adds a source to the answer of the request `metrics`: metrics in the text format of OpenMetrics,
/// under names of their own, without the format's last line. It is called on the socket's thread for
/// each request and must not block. A second call with the same function changes nothing.
///
/// ```
/// uwork::control::add_metrics(|| "# TYPE app_jobs gauge\napp_jobs 7\n".to_owned());
/// assert!(uwork::control::answer("metrics").ends_with("\napp_jobs 7\n# EOF\n"));
/// ```
pub fn add_metrics(source: fn() -> String) {
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    if !sources.iter().any(|known| std::ptr::fn_addr_eq(*known, source)) {
        sources.push(source);
    }
}

/// All metrics.
pub(super) fn all() -> String {
    let mut text = crate::counters().to_openmetrics();
    // In the child of a fork another thread of the parent's may hold the lock forever.
    if let Ok(sources) = SOURCES.try_lock().map(|sources| sources.clone()) {
        text.truncate(text.len() - END.len());
        sources.iter().for_each(|source| text += &source());
        text += END;
    }
    text
}
