//! One module per subcommand; each has `Args` and `run`.

pub(crate) mod sim;
pub(crate) mod sum;
pub(crate) mod topology;

use std::fmt;

/// A user error: one line that states what is wrong and which values are allowed. The exit code is
/// 2.
#[derive(Debug)]
pub(crate) struct UserError(pub(crate) String);

impl fmt::Display for UserError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
