//! What the machine counts: entries into idle states and the time in them, context switches of this
//! process's threads, and energy.

use std::fs;
use std::path::{Path, PathBuf};

/// The most idle states of a CPU.
pub(super) const STATES_MAX: usize = 10;

/// The counters of the machine at one moment; a part that it does not have is `None`.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    /// For each idle state, the entries and the microseconds of all CPUs.
    pub(super) idle: Option<Vec<(u64, u64)>>,
    /// Voluntary context switches of the threads of this process: each is a sleep, and so a wake.
    pub(super) sleeps: u64,
    /// Microjoules of all packages, or of the battery.
    pub(super) energy_uj: Option<u64>,
}

impl Counters {
    pub(super) fn now() -> Counters {
        Counters { idle: idle_states(), sleeps: sleeps(), energy_uj: energy() }
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn entries(folder: &str, prefix: &str) -> Vec<PathBuf> {
    let Ok(read) = fs::read_dir(folder) else { return Vec::new() };
    let named = |path: &PathBuf| {
        let rest = path.file_name().and_then(|name| name.to_str()?.strip_prefix(prefix));
        rest.is_some_and(|rest| !rest.is_empty())
    };
    read.filter_map(|entry| Some(entry.ok()?.path())).filter(named).collect()
}

fn idle_states() -> Option<Vec<(u64, u64)>> {
    let mut states: Vec<(u64, u64)> = Vec::new();
    for cpu in entries("/sys/devices/system/cpu", "cpu") {
        for state in 0..STATES_MAX {
            let state_path = cpu.join(format!("cpuidle/state{state}"));
            let Some(usage) = number(&state_path.join("usage")) else { break };
            let time = number(&state_path.join("time"))?;
            if states.len() <= state {
                states.push((0, 0));
            }
            states[state].0 += usage;
            states[state].1 += time;
        }
    }
    (!states.is_empty()).then_some(states)
}

fn sleeps() -> u64 {
    let of = |path: PathBuf| {
        let status = fs::read_to_string(path.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    entries("/proc/self/task", "").into_iter().filter_map(of).sum()
}

/// Packages of RAPL. A package counter wraps; a wrapped one makes the difference negative, and the
/// figure is then left out.
fn energy() -> Option<u64> {
    let packages = entries("/sys/class/powercap", "intel-rapl:");
    let is_package = |path: &PathBuf| {
        path.file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.matches(':').count() == 1)
    };
    let packages: Vec<_> = packages.into_iter().filter(is_package).collect();
    if !packages.is_empty() {
        return packages.iter().map(|path| number(&path.join("energy_uj"))).sum();
    }
    // A battery counts what is left, in microwatt hours.
    let battery = entries("/sys/class/power_supply", "BAT").into_iter().next()?;
    let left = number(&battery.join("energy_now"))?;
    Some(u64::MAX - left.saturating_mul(3_600))
}

/// The figures that this machine does not give, each with the reason.
pub(super) fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    if idle_states().is_none() {
        let path = "/sys/devices/system/cpu/cpu*/cpuidle";
        missing.push(format!("idle entries and residency: {path} does not exist"));
    }
    if energy().is_none() {
        missing.push(
            "joules: /sys/class/powercap has no readable intel-rapl package, and \
             /sys/class/power_supply no battery with energy_now"
                .to_owned(),
        );
    }
    missing
}
