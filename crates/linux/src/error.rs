//! The library's error, and the errno of each kind.

use std::fmt;

use uwork_engine::QueueError;

/// A queue could not be made, changed or waited for, or a per-CPU lock not be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(QueueError);

/// The kind of an [`Error`], whose text has the details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A queue's name is empty, too long, or has a control character in it.
    BadName,
    /// A queue with this name exists, or the name is reserved for a system queue.
    NameTaken,
    /// `max_active` is out of range.
    BadMaxActive,
    /// The mask has no CPU that the process may use.
    NoCpu,
    /// Niceness is out of range.
    BadNice,
    /// The attribute or the call does not fit this kind of queue.
    NotForThisKind,
    /// No worker thread could be created.
    NoThread,
    /// Too many pools exist.
    TooManyPools,
    /// Too many queues exist.
    TooManyQueues,
    /// The CPU does not exist or the process may not use it.
    BadCpu,
    /// The caller would wait for itself.
    WouldDeadlock,
    /// The flags exclude each other.
    BadFlags,
    /// The queue drains or was destroyed, or uwork was shut down in this process.
    Refused,
    /// The limit of the call has passed before what it waits for has happened.
    TimedOut,
    /// The capacity of a bounded queue is 0, or more than 2^40 - 1.
    BadCapacity,
    /// No place is free in a bounded queue.
    Full,
    /// A place of a bounded queue was released that is not reserved.
    NotReserved,
    /// A resume of a queue that is not paused.
    NotPaused,
    /// Another holder has the lock, and the call does not wait (`percpu::LockError::Busy`).
    Busy,
    /// A holder of the lock has panicked (`percpu::LockError::Poisoned`).
    Poisoned,
    /// An error that has no kind of its own yet.
    Other,
}

impl ErrorKind {
    /// The errno that the kernel or the C library uses for this error. Never 0.
    ///
    /// ```
    /// let error = uwork::Queue::builder("").build().unwrap_err();
    /// assert_eq!(error.kind(), uwork::ErrorKind::BadName);
    /// assert_eq!(error.kind().errno(), 22); // EINVAL
    /// ```
    pub fn errno(self) -> i32 {
        match self {
            ErrorKind::BadName
            | ErrorKind::BadMaxActive
            | ErrorKind::NoCpu
            | ErrorKind::BadNice
            | ErrorKind::NotForThisKind
            | ErrorKind::BadCpu
            | ErrorKind::BadFlags
            | ErrorKind::NotPaused
            | ErrorKind::BadCapacity
            | ErrorKind::NotReserved
            | ErrorKind::Other => libc::EINVAL,
            ErrorKind::NameTaken => libc::EEXIST,
            // As pthread_create: a later attempt may succeed.
            ErrorKind::NoThread | ErrorKind::Full => libc::EAGAIN,
            ErrorKind::TooManyPools | ErrorKind::TooManyQueues => libc::ENOMEM,
            ErrorKind::WouldDeadlock => libc::EDEADLK,
            ErrorKind::Refused => libc::ESHUTDOWN,
            ErrorKind::TimedOut => libc::ETIMEDOUT,
            ErrorKind::Busy => libc::EBUSY,
            // As pthread_mutex_lock of a robust mutex.
            ErrorKind::Poisoned => libc::EOWNERDEAD,
        }
    }
}

impl Error {
    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match &self.0 {
            QueueError::BadName(_) => ErrorKind::BadName,
            QueueError::NameTaken(_) => ErrorKind::NameTaken,
            QueueError::BadMaxActive(_) => ErrorKind::BadMaxActive,
            QueueError::NoCpu { .. } => ErrorKind::NoCpu,
            QueueError::BadNice(_) => ErrorKind::BadNice,
            QueueError::NotForThisKind(_) => ErrorKind::NotForThisKind,
            QueueError::NoThread(_) => ErrorKind::NoThread,
            QueueError::TooManyPools => ErrorKind::TooManyPools,
            QueueError::TooManyQueues => ErrorKind::TooManyQueues,
            QueueError::BadCpu { .. } | QueueError::NoPart { .. } => ErrorKind::BadCpu,
            QueueError::WouldDeadlock | QueueError::HeldAlready => ErrorKind::WouldDeadlock,
            QueueError::BadFlags(_) => ErrorKind::BadFlags,
            QueueError::Refused | QueueError::ShutDown => ErrorKind::Refused,
            QueueError::TimedOut(_) => ErrorKind::TimedOut,
            QueueError::NotPaused => ErrorKind::NotPaused,
            QueueError::BadCapacity => ErrorKind::BadCapacity,
            QueueError::Full(_) => ErrorKind::Full,
            QueueError::NotReserved => ErrorKind::NotReserved,
            QueueError::Busy => ErrorKind::Busy,
            QueueError::Poisoned => ErrorKind::Poisoned,
            _ => ErrorKind::Other,
        }
    }

    /// Whether the call would have waited for its own caller, a deadlock.
    ///
    /// ```
    /// let queue = uwork::Queue::builder("self-flush").build()?;
    /// let handle = queue.clone();
    /// let outcome = queue.spawn(move || handle.flush()).join().unwrap();
    /// assert!(outcome.unwrap_err().would_deadlock());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    pub fn would_deadlock(&self) -> bool {
        self.kind() == ErrorKind::WouldDeadlock
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

impl From<QueueError> for Error {
    fn from(error: QueueError) -> Error {
        Error(error)
    }
}
