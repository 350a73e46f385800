//! The mode of this process. Chosen once, at the first use.

use std::ffi::OsString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use uwork_engine::host::{Host, Report};
use uwork_linux::environment::variable;
use uwork_linux::rseq::Rseq;
use uwork_linux::topology::Machine;
use uwork_linux::{current_cpu, engine, first_use, options};
use uwork_policy::percpu::{Choice, Mode, Wishes, choose};

use crate::forks;

/// The environment variable that asks for a mode.
const VARIABLE: &str = "UWORK_PWLOCKS";

/// Whether a program was built without the choice.
static FIXED: AtomicBool = AtomicBool::new(false);

/// For programs that are built without the choice (`CONFIG_PWLOCKS=n` in kernel code): the mode is
/// 0, and the variable is not read. Without effect after the choice.
pub fn fix_local() {
    // Relaxed: called before the program has threads.
    FIXED.store(true, Ordering::Relaxed);
}

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
        let chosen = match FIXED.load(Ordering::Relaxed) {
            true => decide(None, Some(Mode::Local)),
            false => decide(variable(VARIABLE), options().percpu_mode),
        };
        if chosen.choice.is_invalid {
            let Choice { mode, reason, .. } = chosen.choice.clone();
            engine().host().report(Report::PerCpuMode { mode, reason });
        }
        chosen
    })
}

fn decide(variable: Option<OsString>, program: Option<Mode>) -> Chosen {
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
/// call, chooses it: a `Setup` is too late then.
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

/// Whether a function for the data of `cpu` that the caller runs now is called from another CPU:
/// never in mode 0, where it runs on that CPU. A hint, as the caller may be moved (the kernel's
/// `pw_is_cpu_remote`).
pub fn is_cpu_remote(cpu: u32) -> bool {
    mode() != Mode::Local && current_cpu() != cpu
}
