//! The mode of this process. Chosen once, at the first use.

use std::sync::OnceLock;

use uwork_linux::first_use;
use uwork_linux::rseq::Rseq;
use uwork_linux::topology::Machine;
use uwork_linux::{engine, options};

use super::forks;
use uwork_engine::host::{Host, Report};
use uwork_policy::percpu::{Choice, Mode, Wishes, choose};

/// The environment variable that asks for a mode.
const VARIABLE: &str = "UWORK_PWLOCKS";

/// The mode and the rseq area that were chosen.
pub(super) struct Chosen {
    pub(super) choice: Choice,
    pub(super) rseq: Rseq,
}

/// The choice, made by the first call.
pub(super) fn chosen() -> &'static Chosen {
    static CHOSEN: OnceLock<Chosen> = OnceLock::new();
    if let Some(chosen) = CHOSEN.get() {
        return chosen;
    }
    // The engine must exist first: a report needs it.
    engine();
    forks::include();
    first_use::once(&CHOSEN, || {
        let chosen = decide(options().percpu_mode);
        if chosen.choice.is_invalid {
            let Choice { mode, reason, .. } = chosen.choice.clone();
            engine().host().report(Report::PerCpuMode { mode, reason });
        }
        chosen
    })
}

fn decide(program: Option<Mode>) -> Chosen {
    let variable = std::env::var_os(VARIABLE);
    let variable = variable.as_ref().map(|value| value.to_string_lossy());
    let (rseq, sections) = Rseq::new();
    let wishes = Wishes {
        variable: variable.as_deref().map(|text| (VARIABLE, text)),
        program,
        isolated: Machine::read().map(|machine| machine.isolated).unwrap_or_default(),
        sections_refused: sections.err(),
    };
    Chosen { choice: choose(&wishes), rseq }
}

/// The mode of this process's per-CPU locks. The first use of per-CPU data, at the latest this
/// call, chooses it: a [`Setup`](crate::Setup) is too late then.
///
/// ```
/// println!("mode {}: {}", uwork::percpu::mode(), uwork::percpu::reason());
/// ```
pub fn mode() -> Mode {
    chosen().choice.mode
}

/// The reason for the mode: which source asked for it, and what was refused.
pub fn reason() -> &'static str {
    &chosen().choice.reason
}
