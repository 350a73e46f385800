//! What the documents say of scripts and faults.

use uwork_sim::script::Faults;

#[test]
fn the_script_of_the_readme_runs_without_a_violation() {
    let block = include_str!("../README.md").split("```text\n").nth(1).expect("a script");
    uwork_sim::assert_holds(block.split("```").next().expect("its end"));
}

#[test]
fn the_notation_of_scripts_names_every_fault() {
    let notation = include_str!("../src/script/mod.rs");
    let notation = notation.lines().filter(|line| line.starts_with("//!"));
    let notation = notation.collect::<Vec<_>>().join("\n");
    for (name, _) in Faults::NAMES {
        assert!(notation.contains(&format!("`{name} ")), "{name}");
    }
}
