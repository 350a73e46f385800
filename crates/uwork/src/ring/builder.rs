//! What a reactor is made with.

use std::io;

use super::reactor::Reactor;

const ENTRIES_DEFAULT: u32 = 256;
const ENTRIES_MAX: u32 = 32_768;
const BUFFERS_MAX: u16 = 32_768;
const BUFFER_SIZE_MAX: u32 = 1 << 24;

/// Options of a [`Reactor`], from [`Reactor::builder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    pub(super) entries: u32,
    /// How many buffers of how many bytes, if any.
    pub(super) buffers: Option<(u16, u32)>,
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder { entries: ENTRIES_DEFAULT, buffers: None }
    }

    /// Operations that can be queued before they are submitted: 1 to 32,768, rounded up to a power of two; 256
    /// unless set. Four times as many completions can wait; more are kept by the kernel.
    pub fn entries(mut self, entries: u32) -> Builder {
        self.entries = entries;
        self
    }

    /// Buffers for what is received: how many (a power of two, at most 32,768), and how many bytes each (at most 16
    /// MiB). None unless set; then [`Reactor::recv_multi`] does not work.
    pub fn buffers(mut self, count: u16, size: u32) -> Builder {
        self.buffers = Some((count, size));
        self
    }

    /// Makes the reactor of the calling thread, which is registered for task work if it was not.
    ///
    /// # Errors
    /// `InvalidInput` for numbers that are not allowed, or a thread that has a reactor; `PermissionDenied` or
    /// `Unsupported` (`ENOSYS`) where the system does not allow io_uring; `InvalidInput` from the kernel before
    /// Linux 6.1; no memory or no descriptor left.
    ///
    /// # Panics
    /// If the thread's destructors have run.
    pub fn build(self) -> io::Result<Reactor> {
        let refuse = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        if !(1..=ENTRIES_MAX).contains(&self.entries) {
            return refuse(format!("{} entries: 1 to {ENTRIES_MAX} are allowed", self.entries));
        }
        if let Some((count, size)) = self.buffers {
            if !count.is_power_of_two() || count > BUFFERS_MAX {
                return refuse(format!(
                    "{count} buffers: a power of two up to {BUFFERS_MAX} is allowed"
                ));
            }
            if !(1..=BUFFER_SIZE_MAX).contains(&size) {
                return refuse(format!(
                    "buffers of {size} bytes: 1 to {BUFFER_SIZE_MAX} are allowed"
                ));
            }
        }
        Reactor::new(&self)
    }
}
