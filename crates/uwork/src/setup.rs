//! The choices that a program can make before uwork starts.

use std::fmt;

use uwork_linux::{Options, OptionsBy, STACK_SIZES, STACK_SIZES_TEXT, set_options};

use crate::BlockingTier;

/// Choices for the whole process that hold from the start: how undeclared waits are detected, how
/// many workers a pool may have, how large their stacks are, whether power is saved, and how per-CPU
/// data is locked (`percpu_mode`, a method of the feature `percpu`).
///
/// Install it before any other use of uwork, in `main` for instance: the first queue,
/// [`dump`](fn@crate::dump), `sysfs` or any other call that needs the pools starts
/// uwork with the defaults. [`set_reporter`](crate::set_reporter),
/// [`Machine::read`](crate::topology::Machine::read) and, outside of items,
/// [`blocking`](crate::blocking) and [`watchdog::touch`](crate::watchdog::touch) do not. A library
/// should leave this choice to the program that uses it.
///
/// Environment variables take precedence over these choices: the operator of a program knows the
/// machine.
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

    /// How a pool detects that an item waits without declaring it. The default is the best method
    /// available: standby, then events, then sampling, then none (declared waits only). Where the
    /// system refuses the choice, it is the next of these. `UWORK_BLOCKING` takes precedence.
    ///
    /// [`dump`](fn@crate::dump) shows the method in use and the reason. A
    /// [`Report::BlockingTier`](crate::Report::BlockingTier) is issued if it differs from the
    /// choice.
    pub fn blocking_tier(mut self, tier: BlockingTier) -> Setup {
        self.options.blocking_tier = Some(tier);
        self
    }

    /// How [`percpu`](crate::percpu) data is locked, and accessed from other CPUs. The default is
    /// mode 1 if CPUs in the process's view are isolated, else mode 0. `UWORK_PWLOCKS` takes
    /// precedence; where the system does not support modes 0 and 2, it is mode 1.
    ///
    /// [`percpu::mode`](crate::percpu::mode) and [`percpu::reason`](crate::percpu::reason) give the
    /// mode in use and the reason. A [`Report::PerCpuMode`](crate::Report::PerCpuMode) is issued if
    /// it differs from the choice.
    #[cfg(feature = "percpu")]
    pub fn percpu_mode(mut self, mode: crate::percpu::Mode) -> Setup {
        self.options.percpu_mode = Some(mode);
        self
    }

    /// Whether power-efficient queues save power from the start. The default is that they do not.
    /// `UWORK_POWER_EFFICIENT` takes precedence.
    /// [`housekeeping::set_power_efficient`](crate::housekeeping::set_power_efficient) changes it
    /// later.
    pub fn power_efficient(mut self, saves: bool) -> Setup {
        self.options.power_efficient = Some(saves);
        self
    }

    /// How many workers each pool may have, together with the pools that it shares items with; 0, the
    /// default: as many as the limits of its queues allow. More than 65,534 count as 65,534.
    /// `UWORK_WORKERS` takes precedence, and the attribute `module/parameters/pool_workers_max`
    /// changes it later.
    ///
    /// Items wait if all workers of a pool block and it may have no more;
    /// [`Report::WorkersMax`](crate::Report::WorkersMax) is then issued once.
    pub fn pool_workers_max(mut self, workers: u32) -> Setup {
        self.options.pool_workers_max = Some(workers);
        self
    }

    /// The size of the stacks of all threads that run items, in bytes: 128 KiB to 1 TiB. The default
    /// is that of plain threads: `ulimit -s` at the start of the program, 2 MiB if it is unlimited,
    /// and at least `RUST_MIN_STACK`, if that is set. `UWORK_STACK` takes precedence. The static data
    /// of a thread (TLS), which the C library takes from its stack, comes on top.
    ///
    /// Items that help a waiting thread run on the stack of that thread.
    ///
    /// ```standalone_crate
    /// use uwork::{Setup, SetupError};
    /// assert_eq!(Setup::new().stack_size(4096).install(), Err(SetupError::BadStackSize(4096)));
    /// Setup::new().stack_size(64 << 20).install()?;
    /// # Ok::<(), SetupError>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Setup {
        self.options.stack_size = Some(bytes);
        self
    }

    /// Installs these choices for the start of uwork. Does not start it.
    ///
    /// # Errors
    /// The stack size is out of range, uwork has started, or another setup was installed; then nothing
    /// changes.
    pub fn install(self) -> Result<(), SetupError> {
        if let Some(bytes) = self.options.stack_size.filter(|bytes| !STACK_SIZES.contains(bytes)) {
            return Err(SetupError::BadStackSize(bytes));
        }
        set_options(self.options).map_err(|by| match by {
            OptionsBy::Setup => SetupError::InstalledAlready,
            OptionsBy::Default => SetupError::StartedAlready,
        })
    }
}

/// A [`Setup`] was installed too late, or has a bad value. Prints as one line that says what is
/// permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SetupError {
    /// uwork has started with the defaults.
    StartedAlready,
    /// Another setup was installed.
    InstalledAlready,
    /// A stack cannot have this size.
    BadStackSize(usize),
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SetupError::StartedAlready => f.write_str(
                "uwork has started already; a setup is allowed before its first use only",
            ),
            SetupError::InstalledAlready => {
                f.write_str("a setup was installed already; one is allowed in a process")
            }
            SetupError::BadStackSize(bytes) => {
                write!(f, "a stack cannot have {bytes} bytes; allowed are {STACK_SIZES_TEXT}")
            }
        }
    }
}

impl std::error::Error for SetupError {}
