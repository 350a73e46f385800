//! What a program can choose before uwork starts.

use std::fmt;

use crate::BlockingTier;
use crate::linux::{Options, OptionsBy, set_options};

/// Choices for the whole process that hold from the start: how waits are noticed that nobody declares.
///
/// To be installed before uwork is used for anything else, by `main` for instance: the first queue,
/// [`dump`](fn@crate::dump), [`sysfs`](crate::sysfs) or any other call that needs the pools starts uwork
/// with the defaults. [`set_reporter`](crate::set_reporter), [`Machine::read`](crate::topology::Machine::read)
/// and, outside of items, [`blocking`](crate::blocking) and [`watchdog::touch`](crate::watchdog::touch) do not.
/// A library had better leave this to the program that it is part of.
///
/// Environment variables come before what is chosen here: who runs a program knows the machine.
///
/// ```standalone_crate
/// use uwork::{BlockingTier, Setup, SetupError};
///
/// Setup::new().blocking_tier(BlockingTier::Sampling).install()?;
/// let blocking = uwork::dump().blocking;
/// println!("{}: {}", blocking.tier, blocking.reason);
/// assert_eq!(Setup::new().install(), Err(SetupError::InstalledAlready));
/// # Ok::<(), SetupError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is chosen until it is installed"]
pub struct Setup {
    options: Options,
}

impl Setup {
    /// The defaults.
    pub fn new() -> Setup {
        Setup::default()
    }

    /// How a pool is to learn that an item waits without saying so. By default, and where the system
    /// refuses what is asked for, the best way that there is: events, then sampling, then none
    /// (declared). `UWORK_BLOCKING` comes before it.
    ///
    /// What is in use, and why, is in [`dump`](fn@crate::dump), and a
    /// [`Report::BlockingTier`](crate::Report::BlockingTier) tells where it is not what was asked for.
    pub fn blocking_tier(mut self, tier: BlockingTier) -> Setup {
        self.options.blocking_tier = Some(tier);
        self
    }

    /// Lets uwork start like this. Starts nothing.
    ///
    /// # Errors
    /// uwork has started, or another setup was installed; nothing is changed then.
    pub fn install(self) -> Result<(), SetupError> {
        set_options(self.options).map_err(|by| match by {
            OptionsBy::Setup => SetupError::InstalledAlready,
            OptionsBy::Default => SetupError::StartedAlready,
        })
    }
}

/// A [`Setup`] came too late. Prints as one line that says what is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// uwork has started with the defaults.
    StartedAlready,
    /// Another setup was installed.
    InstalledAlready,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetupError::StartedAlready => {
                "uwork has started already; a setup is allowed before its first use only"
            }
            SetupError::InstalledAlready => {
                "a setup was installed already; one is allowed in a process"
            }
        })
    }
}

impl std::error::Error for SetupError {}
