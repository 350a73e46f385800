//! What the README says of scripts, faults and machines.

use uwork_sim::machines::PRESETS;
use uwork_sim::script::Faults;

const DOCUMENT: &str = include_str!("../README.md");

#[test]
fn the_script_of_the_document_runs_without_a_violation() {
    let block = DOCUMENT.split("```text\n").nth(1).expect("a script");
    uwork_sim::assert_holds(block.split("```").next().expect("its end"));
}

#[test]
fn the_document_names_every_machine_and_every_fault() {
    let faults = Faults::NAMES.iter().map(|(name, _)| format!("`{name} "));
    let machines = PRESETS.iter().map(|preset| format!("| `{}` |", preset.name));
    for name in faults.chain(machines) {
        assert!(DOCUMENT.contains(&name), "{name}");
    }
}
