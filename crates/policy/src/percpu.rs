//! How per-CPU data is locked, and which of the ways a process gets.
//!
//! What was asked for, what the system can do and which CPUs are isolated in; a mode and its reason out.

use std::fmt;
use std::str::FromStr;

use crate::cpuset::CpuSet;

/// How a part of per-CPU data is locked on its own CPU, and reached from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// 0: no locked instruction on one's own CPU; a worker of another CPU does what is wanted there.
    Local,
    /// 1: a spinlock; other CPUs' parts are taken from where one is, and their threads notice nothing.
    Remote,
    /// 2: no locked instruction on one's own CPU; other CPUs' parts are taken from where one is, with an
    /// interrupt of that CPU.
    Asymmetric,
}

impl Mode {
    /// All of them, by number.
    pub const ALL: [Mode; 3] = [Mode::Local, Mode::Remote, Mode::Asymmetric];

    /// Its number, as it is written in `UWORK_PWLOCKS`.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Whether it needs sections that run on one CPU without interruption, or not at all.
    pub fn needs_sections(self) -> bool {
        self != Mode::Remote
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Mode::Local => "local",
            Mode::Remote => "remote",
            Mode::Asymmetric => "asymmetric",
        };
        write!(f, "{} ({name})", self.number())
    }
}

/// A text that names no mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMode(pub String);

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not one of 0, 1, 2", self.0)
    }
}

impl std::error::Error for UnknownMode {}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Mode, UnknownMode> {
        let known = Mode::ALL.into_iter().find(|mode| mode.number().to_string() == text);
        known.ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

/// What a process's mode is decided from.
#[derive(Clone, Debug, Default)]
pub struct Wishes<'a> {
    /// What the environment says, under this name.
    pub variable: Option<(&'a str, &'a str)>,
    /// What the program asked for.
    pub program: Option<Mode>,
    /// The CPUs in the process's view that are isolated.
    pub isolated: CpuSet,
    /// Why there are no sections here, where there are none.
    pub no_sections: Option<String>,
}

/// A mode, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The mode.
    pub mode: Mode,
    /// Who asked for it, and what was refused.
    pub reason: String,
    /// Whether somebody asked for something that was not to be had, or was nothing at all.
    pub is_odd: bool,
}

/// The mode of a process. The environment comes before the program: who runs it knows the machine. Where
/// neither asks, isolated CPUs turn remote access on.
///
/// ```
/// use uwork_policy::percpu::{Mode, Wishes, choose};
/// assert_eq!(choose(&Wishes::default()).mode, Mode::Local);
/// let wishes = Wishes { isolated: "2-3".parse().unwrap(), ..Wishes::default() };
/// let choice = choose(&wishes);
/// assert_eq!(choice.mode, Mode::Remote);
/// assert_eq!(choice.reason, "CPUs 2-3 are isolated");
/// ```
pub fn choose(wishes: &Wishes<'_>) -> Choice {
    // Set to nothing is how a variable is unset where it cannot be removed.
    let variable = wishes.variable.filter(|(_, text)| !text.is_empty());
    let asked = variable.map(|(name, text)| (name, text.parse::<Mode>()));
    let (mode, reason) = match (&asked, wishes.program) {
        (Some((name, Ok(mode))), _) => (*mode, format!("{name}={}", mode.number())),
        (_, Some(mode)) => (mode, "the program asked for it".to_owned()),
        _ if !wishes.isolated.is_empty() => {
            (Mode::Remote, format!("CPUs {} are isolated", wishes.isolated))
        }
        _ => (Mode::Local, "no CPU is isolated".to_owned()),
    };
    let (reason, is_odd) = match asked {
        Some((name, Err(error))) => (format!("{name}={error}; {reason}"), true),
        _ => (reason, false),
    };
    match &wishes.no_sections {
        Some(why) if mode.needs_sections() => Choice {
            mode: Mode::Remote,
            reason: format!("{reason}; {mode} is refused: {why}"),
            is_odd: true,
        },
        _ => Choice { mode, reason, is_odd },
    }
}
