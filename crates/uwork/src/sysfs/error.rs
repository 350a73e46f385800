//! Why an attribute could not be read or written.

use std::fmt;

use uwork_linux::Error as QueueError;

/// The most queues that a message names.
const NAMED_MAX: usize = 32;

/// See [`get`](super::get) and [`set`](super::set). Prints as one line that names the permitted
/// values.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Nothing exists at this path.
    NoSuchPath {
        /// The path.
        path: String,
        /// The names that exist in that directory.
        allowed: Vec<String>,
    },
    /// The tree has no such queue.
    NoSuchQueue {
        /// The path.
        path: String,
        /// The queue's name in it.
        queue: String,
        /// The queues in the tree.
        allowed: Vec<String>,
    },
    /// The queue exists, and was built without the flag [`SYSFS`](crate::Flags::SYSFS).
    WithoutSysfs {
        /// The path.
        path: String,
        /// The queue's name in it.
        queue: String,
    },
    /// The path names a directory where an attribute is needed, or the reverse.
    WrongKind {
        /// The path.
        path: String,
        /// Whether it is a directory.
        is_directory: bool,
    },
    /// The attribute cannot be written.
    ReadOnly {
        /// The path.
        path: String,
    },
    /// The text is not a value of this attribute.
    BadValue {
        /// The path.
        path: String,
        /// The text.
        value: String,
        /// The permitted values.
        allowed: String,
    },
    /// The engine refused the value.
    Refused {
        /// The path.
        path: String,
        /// The reason.
        error: QueueError,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoSuchPath { path, allowed } if allowed.is_empty() => {
                write!(f, "{path:?}: no such attribute, and none beside it")
            }
            Error::NoSuchPath { path, allowed } => {
                write!(f, "{path:?}: no such attribute; there are {}", allowed.join(", "))
            }
            Error::NoSuchQueue { path, queue, allowed } => {
                write!(f, "{path:?}: there is no queue {queue:?} here; ")?;
                match allowed.as_slice() {
                    [] => write!(f, "there is none with the flag SYSFS"),
                    [one] => write!(f, "there is {one}"),
                    few if few.len() <= NAMED_MAX => {
                        write!(f, "there are {}", few.join(", "))
                    }
                    many => {
                        let (named, more) = (&many[..NAMED_MAX], many.len() - NAMED_MAX);
                        write!(f, "there are {} and {more} more", named.join(", "))
                    }
                }
            }
            Error::WithoutSysfs { path, queue } => write!(
                f,
                "{path:?}: the queue {queue:?} has no attributes here, because it was built without \
                 `sysfs()`, the flag SYSFS; `uwork get` reads them from outside"
            ),
            Error::WrongKind { path, is_directory: true } => {
                write!(f, "{path:?}: a directory, which has no value; it can be listed")
            }
            Error::WrongKind { path, is_directory: false } => {
                write!(f, "{path:?}: an attribute and not a directory; it can be read")
            }
            Error::ReadOnly { path } => write!(f, "{path:?}: can only be read"),
            Error::BadValue { path, value, allowed } => {
                write!(f, "{path:?}: {value:?} is not a value of it; allowed are {allowed}")
            }
            Error::Refused { path, error } => write!(f, "{path:?}: {error}"),
        }
    }
}

impl std::error::Error for Error {}
