//! Whether the machine lets uwork detect waits, and use its CPUs.

use std::io::{self, ErrorKind};
use std::path::Path;

use uwork::topology::Machine;

use super::Finding;
use crate::peer::read_text;

/// Which users may have records of context switches.
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

pub(super) fn findings() -> Vec<Finding> {
    let has_settings = Path::new(PARANOID).parent().is_some_and(Path::is_dir);
    let mut findings = vec![records(read_text(PARANOID), has_settings)];
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

/// Whether context switches can be recorded. `has_settings`: whether /proc has the kernel's settings.
fn records(paranoid: io::Result<String>, has_settings: bool) -> Finding {
    let level = paranoid.map(|text| text.trim().parse::<i32>().map_err(|_| text));
    let unseen = |why: String| {
        Finding::unseen(
            format!("whether context switches can be recorded: {PARANOID}: {why}"),
            "mount /proc, and let this command open files (ulimit -n)",
        )
    };
    match level {
        Ok(Ok(level)) if level > 2 => Finding::bad(
            format!(
                "kernel.perf_event_paranoid is {level}: records of context switches are refused"
            ),
            "sysctl kernel.perf_event_paranoid=2 permits them; samples replace them",
        ),
        Ok(Ok(level)) => Finding::good(format!(
            "kernel.perf_event_paranoid is {level}: context switches can be recorded"
        )),
        Err(error) if error.kind() == ErrorKind::NotFound && has_settings => Finding::bad(
            "this kernel has no performance events".to_owned(),
            "sleeping items are found by standbys and samples; declare known waits with `blocking`",
        ),
        Ok(Err(text)) => unseen(format!("'{}' is no number", text.trim())),
        Err(error) => unseen(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::process::doctor::Seen;

    // Catches: a command without descriptors that calls the kernel one without performance events.
    #[test]
    fn a_setting_that_cannot_be_read_is_unseen_with_the_reason() {
        let of = |paranoid, has_settings| records(paranoid, has_settings).seen;
        let error = |number| Err(io::Error::from_raw_os_error(number));
        assert_eq!(of(Ok("2\n".to_owned()), true), Seen::Good);
        assert_eq!(of(Ok("3\n".to_owned()), true), Seen::Bad);
        assert_eq!(of(error(libc::ENOENT), true), Seen::Bad, "the kernel has none");
        assert_eq!(of(error(libc::ENOENT), false), Seen::Not, "no /proc");
        assert_eq!(of(Ok("x\n".to_owned()), true), Seen::Not);
        let full = records(error(libc::EMFILE), true);
        assert!(
            full.seen == Seen::Not && full.what.ends_with("Too many open files"),
            "{}",
            full.what
        );
    }
}
