//! The actions of signals.

/// Sets every signal to its default, as a daemon does when it begins.
pub(crate) fn set_all_to_default() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: no handler. Refused for the signals whose action cannot be set.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}
