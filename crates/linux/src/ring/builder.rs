//! The options of a reactor.

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
    /// The number of buffers and their size in bytes, if any.
    pub(super) buffers: Option<(u16, u32)>,
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder { entries: ENTRIES_DEFAULT, buffers: None }
    }

    /// The number of operations that can be queued before they are submitted: 1 to 32,768, rounded
    /// up to a power of two; 256 by default. Four times as many completions can wait in the ring;
    /// the kernel keeps further ones.
    pub fn entries(mut self, entries: u32) -> Builder {
        self.entries = entries;
        self
    }

    /// Receive buffers: their number (a power of two, at most 32,768), and the size of each in
    /// bytes (at most 16 MiB). None by default; without them [`Reactor::recv_multi`] does not work.
    pub fn buffers(mut self, count: u16, size: u32) -> Builder {
        self.buffers = Some((count, size));
        self
    }

    /// Makes the reactor of the calling thread, and registers the thread for task work if
    /// necessary.
    ///
    /// # Errors
    /// `InvalidInput` for numbers out of range, for a thread that has a reactor already, and before
    /// Linux 6.1; `PermissionDenied` or `Unsupported` (`ENOSYS`) where the system does not permit
    /// io_uring; the system's error where no memory or no descriptor is left.
    ///
    /// # Panics
    /// If the thread's thread-local destructors have run.
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
