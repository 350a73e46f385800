//! Why a per-CPU lock was not taken.

use std::fmt;

use uwork_engine::QueueError;
use uwork_engine::percpu::Recursion;
use uwork_linux::Error;

/// A lock was not taken, or was taken and its data is poisoned.
///
/// As an [`Error`], by `?` for example, the text is the same. The guard of a poisoned part is then
/// dropped, which releases the lock and leaves the poison. To use the data as it is, call
/// [`LockError::into_guard`] first.
///
/// ```
/// use uwork::ErrorKind;
/// use uwork::percpu::PerCpu;
///
/// fn add(numbers: &PerCpu<u64>) -> Result<u64, uwork::Error> {
///     let mut number = numbers.lock_local()?;
///     *number += 1;
///     Ok(*number)
/// }
///
/// let numbers = PerCpu::new(|_cpu| 0);
/// assert_eq!(add(&numbers)?, 1);
/// let held = numbers.lock(0)?;
/// assert_eq!(uwork::Error::from(numbers.lock(0).unwrap_err()).kind(), ErrorKind::WouldDeadlock);
/// # drop(held);
/// # Ok::<(), uwork::Error>(())
/// ```
pub enum LockError<G> {
    /// A thread panicked while it held the guard of this CPU's part. The lock is taken; this is its
    /// guard.
    Poisoned(G),
    /// Another holder has the lock. Returned by the `try` functions only.
    Busy,
    /// The CPU does not exist, or the caller holds the lock already.
    Failed(Error),
}

impl<G> LockError<G> {
    /// The guard of a poisoned part, for a caller that can repair the data.
    ///
    /// # Errors
    /// The error has no guard; it is returned.
    pub fn into_guard(self) -> Result<G, LockError<G>> {
        match self {
            LockError::Poisoned(guard) => Ok(guard),
            other => Err(other),
        }
    }

    /// Whether the caller holds the lock already. Also true in a thread at the same address as an
    /// ended thread that did not drop its [`Guard`](crate::Guard).
    pub fn would_deadlock(&self) -> bool {
        matches!(self, LockError::Failed(error) if error.would_deadlock())
    }
}

impl<G> From<Error> for LockError<G> {
    fn from(error: Error) -> LockError<G> {
        LockError::Failed(error)
    }
}

impl<G> From<LockError<G>> for Error {
    fn from(error: LockError<G>) -> Error {
        match error {
            LockError::Poisoned(_) => QueueError::Poisoned.into(),
            LockError::Busy => QueueError::Busy.into(),
            LockError::Failed(error) => error,
        }
    }
}

impl<G> From<Recursion> for LockError<G> {
    fn from(_: Recursion) -> LockError<G> {
        LockError::Failed(recursion())
    }
}

/// The error of a caller that already holds the lock that it asks for.
pub(super) fn recursion() -> Error {
    QueueError::HeldAlready.into()
}

impl<G> fmt::Debug for LockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockError({self})")
    }
}

impl<G> fmt::Display for LockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::Poisoned(_) => QueueError::Poisoned.fmt(f),
            LockError::Busy => QueueError::Busy.fmt(f),
            LockError::Failed(error) if error.would_deadlock() => {
                f.write_str("the caller holds the lock of this CPU's part already")
            }
            LockError::Failed(error) => error.fmt(f),
        }
    }
}

impl<G> std::error::Error for LockError<G> {}
