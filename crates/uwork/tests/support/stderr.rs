//! Messages for the log of a process that may end at once.
//!
//! The test harness captures what `eprintln!` prints in a test, in the threads that the test starts
//! and in its forked children, and drops it when the process ends. So these messages go to the
//! descriptor itself.

use std::panic::PanicHookInfo;
use std::sync::Once;

/// Writes a line to descriptor 2.
pub(crate) fn line(text: &str) {
    let text = format!("{text}\n");
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the bytes are live.
        let written = unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(0) => return,
            Ok(written) => rest = &rest[written..],
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {
            }
            Err(_) => return,
        }
    }
}

/// Reports a panic in a forked child of this process with [`line`].
///
/// The hook is installed before the fork: a child that installs it could wait for ever for the lock
/// of the hook, which another thread of its parent may have held.
pub(crate) fn report_panics_of_children() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let (parent, others) = (std::process::id(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            if std::process::id() == parent { others(panic) } else { report(panic) }
        }));
    });
}

fn report(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let (process, name) = (std::process::id(), thread.name().unwrap_or("unnamed"));
    line(&format!("thread '{name}' of the forked child {process}: {panic}"));
}
