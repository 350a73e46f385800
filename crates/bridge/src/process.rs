//! The process that an object works in. A forked child has copies of its parent's objects, without
//! their threads, and with connections that both would write to.

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
