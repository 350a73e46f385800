//! The answer to `metrics`: the library's counters, and those of crates built on it.

use uwork_linux::latest::Latest;

/// The last line of the format.
const END: &str = "# EOF\n";

static SOURCES: Latest<Vec<fn() -> String>> = Latest::empty();

/// Adds a source to the answer of the request `metrics`: metrics in the text format of OpenMetrics,
/// under names of their own, without the format's last line. It is called on the socket's thread for
/// each request and must not block. A second call with the same function changes nothing.
///
/// ```
/// uwork::control::add_metrics(|| "# TYPE app_jobs gauge\napp_jobs 7\n".to_owned());
/// assert!(uwork::control::answer("metrics").ends_with("\napp_jobs 7\n# EOF\n"));
/// ```
pub fn add_metrics(source: fn() -> String) {
    let is_known = |known: &Vec<fn() -> String>| {
        known.iter().any(|&known| std::ptr::fn_addr_eq(known, source))
    };
    SOURCES.replace(|known| match known {
        Some(known) if is_known(known) => known.clone(),
        known => known.into_iter().flatten().copied().chain([source]).collect(),
    });
}

/// All metrics.
pub(super) fn all() -> String {
    let mut text = crate::counters().to_openmetrics();
    if let Some(sources) = SOURCES.get() {
        text.truncate(text.len() - END.len());
        sources.iter().for_each(|source| text += &source());
        text += END;
    }
    text
}
