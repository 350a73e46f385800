//! The process that an object works in. A forked child has copies of its parent's objects, without
//! their threads, and with connections that both would write to.

use rustix::rand::{GetRandomFlags, getrandom};
use uwork::foreign::forks;

/// The process that has made an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The calling process.
    pub(crate) fn current() -> Process {
        Process(forks())
    }

    /// The parent of the calling process, if that is a forked child.
    #[cfg(test)]
    pub(crate) fn parent() -> Process {
        Process(u32::MAX)
    }

    /// Whether the caller is a forked child of that process.
    pub(crate) fn is_parent(self) -> bool {
        self != Process::current()
    }
}

/// A number that no other call returns, in any process. It is the system's: a generator of the process
/// would repeat its numbers in forked children.
pub(crate) fn unique() -> u128 {
    let mut bytes = [0; 16];
    match getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(count) if count == bytes.len() => u128::from_ne_bytes(bytes),
        // A sandbox may refuse it.
        _ => fastrand::u128(..) ^ u128::from(std::process::id()),
    }
}
