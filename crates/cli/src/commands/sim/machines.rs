//! The machine that is simulated: a preset, this machine, a notation, or a file with one.

use std::path::Path;

use uwork::topology::Machine;
use uwork_policy::topology::Topology;
use uwork_sim::machines::{PRESETS, THIS, machine};

use super::UserError;

/// The machine that `--machine` means: a name, a notation, or the path of a file.
pub(super) fn read(text: &str) -> Result<Topology, UserError> {
    if text == THIS {
        let here = Machine::read().map_err(|error| UserError(error.to_string()))?;
        return Ok(here.topology);
    }
    if !Path::new(text).is_file() {
        let here = "is the machine on which the command runs";
        return machine(text).map_err(|error| UserError(format!("{error}; '{THIS}' {here}")));
    }
    let contents =
        std::fs::read_to_string(text).map_err(|error| UserError(format!("{text}: {error}")))?;
    contents
        .parse::<Topology>()
        .map_err(|error| UserError(format!("{text}:{}: {}", error.line(), error.message())))
}

pub(super) fn list() -> Result<(), UserError> {
    say!("{THIS:<12} the machine on which this command runs");
    for preset in PRESETS {
        say!("{:<12} {} ({})", preset.name, preset.about, preset.notation);
    }
    Ok(())
}
