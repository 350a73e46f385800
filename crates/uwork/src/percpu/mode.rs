//! Which mode this process is in. Chosen once, by whoever asks for it first.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use uwork_engine::host::{Host, Report};
use uwork_policy::percpu::{Choice, Mode, Wishes, choose};

use crate::linux::engine;
use crate::linux::rseq::Rseq;
use crate::topology::Machine;

/// The environment variable that asks for a mode.
const VARIABLE: &str = "UWORK_PWLOCKS";

/// What was chosen.
pub(super) struct Chosen {
    pub(super) choice: Choice,
    pub(super) rseq: Rseq,
}

/// What the program asked for. Guard for the order of asking and choosing.
static ASKED: Mutex<Option<Mode>> = Mutex::new(None);
static CHOSEN: OnceLock<Chosen> = OnceLock::new();

/// The mode was chosen already; it does not change while a process lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateModeError {
    /// What was asked for.
    pub asked: Mode,
    /// What it is.
    pub mode: Mode,
}

impl fmt::Display for LateModeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LateModeError { asked, mode } = self;
        write!(
            f,
            "per-CPU locks are in mode {mode} since per-CPU data was first used; mode {asked} has to be \
             asked for before that"
        )
    }
}

impl std::error::Error for LateModeError {}

/// Asks for a mode, before it is chosen. The environment comes before the program.
///
/// # Errors
/// It was chosen already, and is another one.
#[allow(dead_code, reason = "for what sets a process up")]
pub(crate) fn ask(asked: Mode) -> Result<(), LateModeError> {
    let mut wish = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    match CHOSEN.get() {
        Some(chosen) if chosen.choice.mode != asked => {
            Err(LateModeError { asked, mode: chosen.choice.mode })
        }
        Some(_) => Ok(()),
        None => {
            *wish = Some(asked);
            Ok(())
        }
    }
}

/// What is, from now on.
pub(super) fn chosen() -> &'static Chosen {
    if let Some(chosen) = CHOSEN.get() {
        return chosen;
    }
    let asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut report = None;
    let chosen = CHOSEN.get_or_init(|| {
        let chosen = decide(*asked);
        if chosen.choice.is_odd {
            let Choice { mode, reason, .. } = chosen.choice.clone();
            report = Some(Report::PerCpuMode { mode, reason });
        }
        chosen
    });
    drop(asked);
    if let Some(report) = report {
        engine().host().report(report);
    }
    chosen
}

fn decide(program: Option<Mode>) -> Chosen {
    let variable = std::env::var_os(VARIABLE);
    let variable = variable.as_ref().map(|value| value.to_string_lossy());
    let (rseq, sections) = Rseq::new();
    let wishes = Wishes {
        variable: variable.as_deref().map(|text| (VARIABLE, text)),
        program,
        isolated: Machine::read().map(|machine| machine.isolated).unwrap_or_default(),
        no_sections: sections.err(),
    };
    Chosen { choice: choose(&wishes), rseq }
}

/// The mode of this process's per-CPU locks. It is chosen by the first call, if not before.
///
/// ```
/// println!("mode {}: {}", uwork::percpu::mode(), uwork::percpu::reason());
/// ```
pub fn mode() -> Mode {
    chosen().choice.mode
}

/// Why it is this mode: who asked, what was refused.
pub fn reason() -> &'static str {
    &chosen().choice.reason
}
