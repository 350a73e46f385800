//! Whether the machine lets uwork detect waits, and use its CPUs.

use std::fs;

use uwork::topology::Machine;

use super::Finding;

pub(super) fn findings() -> Vec<Finding> {
    let mut findings = Vec::new();
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    let paranoid: Option<i32> = paranoid.and_then(|text| text.trim().parse().ok());
    findings.push(match paranoid {
        Some(level) if level > 2 => Finding::bad(
            format!(
                "kernel.perf_event_paranoid is {level}: records of context switches are refused"
            ),
            "sysctl kernel.perf_event_paranoid=2 permits them; samples replace them",
        ),
        Some(level) => Finding::good(format!(
            "kernel.perf_event_paranoid is {level}: context switches can be recorded"
        )),
        None => Finding::bad(
            "this kernel has no performance events".to_owned(),
            "sleeping items are found by standbys and samples; declare known waits with `blocking`",
        ),
    });
    match Machine::read() {
        Ok(machine) => {
            findings.push(match &machine.quota {
                Some(quota) if quota.cpus_rounded_up() < machine.allowed.len() as u64 => {
                    Finding::bad(
                        format!(
                            "the control group's quota is {} of {} CPUs",
                            quota.cpus_rounded_up(),
                            machine.allowed.len()
                        ),
                        "raise cpu.max of the group, or restrict its cpuset to as many CPUs",
                    )
                }
                _ => Finding::good(format!(
                    "{} CPUs without a quota below that",
                    machine.allowed.len()
                )),
            });
            let notes = machine.notes.iter();
            findings
                .extend(notes.map(|note| {
                    Finding::bad(note.clone(), "`uwork topology` shows what was read")
                }));
        }
        Err(error) => findings.push(Finding::bad(
            error.to_string(),
            "mount /sys and /proc: without them uwork assumes equal CPUs",
        )),
    }
    findings
}
