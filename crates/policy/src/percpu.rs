//! How per-CPU data is locked, and which mode a process gets.
//!
//! The requests, the system's abilities and the isolated CPUs go in; a mode and its reason come
//! out.

use std::fmt;
use std::str::FromStr;

use crate::cpuset::CpuSet;

/// How a CPU's part of per-CPU data is locked on its own CPU, and accessed from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// 0: no locked instruction on the own CPU. For another CPU's part, a worker on that CPU
    /// performs the operation.
    Local,
    /// 1: a spinlock. A thread accesses other CPUs' parts from its own CPU, without disturbing the
    /// threads there.
    Remote,
    /// 2: no locked instruction on the own CPU. A thread accesses other CPUs' parts from its own
    /// CPU, with an interrupt of the other CPU.
    Asymmetric,
}

impl Mode {
    /// All modes, by number.
    pub const ALL: [Mode; 3] = [Mode::Local, Mode::Remote, Mode::Asymmetric];

    /// The mode's number, as it is written in `UWORK_PWLOCKS`.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The mode's name, which `UWORK_PWLOCKS` accepts too.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Local => "local",
            Mode::Remote => "remote",
            Mode::Asymmetric => "asymmetric",
        }
    }

    /// Whether the mode needs restartable sections: code that runs on one CPU without interruption,
    /// or not at all.
    pub fn needs_sections(self) -> bool {
        self != Mode::Remote
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.number(), self.name())
    }
}

/// A text that does not name a mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMode(pub String);

impl fmt::Display for UnknownMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not one of 0 (local), 1 (remote), 2 (asymmetric)", self.0)
    }
}

impl std::error::Error for UnknownMode {}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Mode, UnknownMode> {
        let is_it = |mode: &Mode| mode.name() == text || mode.number().to_string() == text;
        let known = Mode::ALL.into_iter().find(is_it);
        known.ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

/// The inputs of the decision on a process's mode.
#[derive(Clone, Debug, Default)]
pub struct Wishes<'a> {
    /// The environment variable: its name and its text.
    pub variable: Option<(&'a str, &'a str)>,
    /// The mode that the program requested.
    pub program: Option<Mode>,
    /// The isolated CPUs among those that the process sees.
    pub isolated: CpuSet,
    /// Why restartable sections are unavailable, if they are.
    pub sections_refused: Option<String>,
}

/// A mode and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The mode.
    pub mode: Mode,
    /// Which source requested the mode, and what was refused.
    pub reason: String,
    /// Whether a request was refused or was invalid.
    pub is_invalid: bool,
}

/// The mode of a process. The environment overrides the program, because the user who starts the
/// program knows the machine. If neither requests a mode, isolated CPUs select remote access.
/// ```
/// use uwork_policy::percpu::{Mode, Wishes, choose};
/// assert_eq!(choose(&Wishes::default()).mode, Mode::Local);
/// let wishes = Wishes { isolated: "2-3".parse().unwrap(), ..Wishes::default() };
/// let choice = choose(&wishes);
/// assert_eq!(choice.mode, Mode::Remote);
/// assert_eq!(choice.reason, "CPUs 2-3 are isolated");
/// ```
pub fn choose(wishes: &Wishes<'_>) -> Choice {
    // An empty variable counts as unset: some launchers can set a variable but not remove it.
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
    let (reason, is_invalid) = match asked {
        Some((name, Err(error))) => (format!("{name}={error}; {reason}"), true),
        _ => (reason, false),
    };
    match &wishes.sections_refused {
        Some(why) if mode.needs_sections() => Choice {
            mode: Mode::Remote,
            reason: format!("{reason}; {mode} is refused: {why}"),
            is_invalid: true,
        },
        _ => Choice { mode, reason, is_invalid },
    }
}
