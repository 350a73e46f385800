//! The actions of signals, and the threads that block them.

use std::collections::BTreeMap;

/// Sets every signal to its default, as a daemon does when it begins.
pub(crate) fn set_all_to_default() {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: no handler. Refused for the signals whose action cannot be set.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

pub(crate) fn set_of(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: zeros are a valid value; the set is live.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        signals.iter().for_each(|&signal| _ = libc::sigaddset(&raw mut set, signal));
        set
    }
}

/// Changes the calling thread's mask.
pub(crate) fn change_mask(how: i32, signals: &[i32]) {
    let set = set_of(signals);
    // SAFETY: the set is live.
    assert_eq!(unsafe { libc::pthread_sigmask(how, &raw const set, std::ptr::null_mut()) }, 0);
}

/// The action of a signal: a handler, or one of the system's.
pub(crate) fn action_of(signal: i32) -> libc::sighandler_t {
    // SAFETY: zeros are a valid value; a query, and the structure is live.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal, std::ptr::null(), &raw mut action), 0);
        action.sa_sigaction
    }
}

/// The signals that each thread blocks, by its name and number: bit n - 1 for signal n.
pub(crate) fn blocked_by_threads() -> BTreeMap<(String, String), u64> {
    sets_of_threads("SigBlk:")
}

/// The signals that wait for each thread to take them; as [`blocked_by_threads`].
pub(crate) fn pending_in_threads() -> BTreeMap<(String, String), u64> {
    sets_of_threads("SigPnd:")
}

fn sets_of_threads(kind: &str) -> BTreeMap<(String, String), u64> {
    let threads = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    let line = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map(|line| line.trim().to_owned())
    };
    let sets = threads.filter_map(|thread| {
        // A thread that ends meanwhile has no files any more.
        let path = thread.ok()?.path();
        let text = std::fs::read_to_string(path.join("status")).ok()?;
        let set = u64::from_str_radix(&line(&text, kind)?, 16).expect("a number");
        let number = path.file_name()?.to_string_lossy().into_owned();
        Some(((line(&text, "Name:")?, number), set))
    });
    sets.collect()
}
