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

/// The folder in which a machine describes itself: `/sys`, or another one in tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct System<'a>(pub(super) &'a Path);

impl Counters {
    pub(super) fn now(system: System<'_>) -> Counters {
        let (idle, energy_uj) = (system.idle_states(), system.energy());
        Counters { idle: idle.ok(), sleeps: sleeps(), energy_uj: energy_uj.ok() }
    }
}

impl System<'static> {
    /// This machine.
    pub(super) fn this() -> System<'static> {
        System(Path::new("/sys"))
    }
}

impl System<'_> {
    fn idle_states(self) -> Result<Vec<(u64, u64)>, String> {
        let mut states: Vec<(u64, u64)> = Vec::new();
        let cpus = self.0.join("devices/system/cpu");
        for cpu in entries(&cpus, "cpu") {
            for state in 0..STATES_MAX {
                let folder = cpu.join(format!("cpuidle/state{state}"));
                if !folder.exists() {
                    break;
                }
                let (usage, time) = (number(&folder.join("usage"))?, number(&folder.join("time"))?);
                if states.len() <= state {
                    states.push((0, 0));
                }
                states[state].0 += usage;
                states[state].1 += time;
            }
        }
        match states.is_empty() {
            true => Err(format!("{}/cpu*/cpuidle does not exist", cpus.display())),
            false => Ok(states),
        }
    }

    /// Of all packages by RAPL, or of the battery. A package counter wraps; a wrapped one makes the
    /// difference negative, and the figure is then left out.
    fn energy(self) -> Result<u64, String> {
        let (powercap, supplies) =
            (self.0.join("class/powercap"), self.0.join("class/power_supply"));
        let is_package = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.matches(':').count() == 1)
        };
        let mut packages = entries(&powercap, "intel-rapl:");
        packages.retain(is_package);
        if !packages.is_empty() {
            return packages.iter().map(|path| number(&path.join("energy_uj"))).sum();
        }
        let batteries = entries(&supplies, "BAT");
        let battery = batteries.first().ok_or_else(|| {
            let (powercap, supplies) = (powercap.display(), supplies.display());
            format!("{powercap} has no intel-rapl package, and {supplies} no battery")
        })?;
        // A battery counts what is left, in microwatt hours.
        let left = number(&battery.join("energy_now"))?;
        Ok(u64::MAX - left.saturating_mul(3_600))
    }

    /// The figures that the machine does not give, each with the reason.
    pub(super) fn missing(self) -> Vec<String> {
        let idle = self.idle_states().err().map(|why| format!("idle entries and residency: {why}"));
        let energy = self.energy().err().map(|why| format!("joules: {why}"));
        idle.into_iter().chain(energy).collect()
    }
}

fn number(path: &Path) -> Result<u64, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let text = text.trim();
    text.parse().map_err(|_| format!("{}: {text:?} is no count", path.display()))
}

/// The files of a folder whose names begin with this prefix and go on, in order.
fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let Ok(read) = fs::read_dir(folder) else { return Vec::new() };
    let named = |path: &PathBuf| {
        let rest = path.file_name().and_then(|name| name.to_str()?.strip_prefix(prefix));
        rest.is_some_and(|rest| !rest.is_empty())
    };
    let mut entries: Vec<_> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    entries.retain(named);
    entries.sort();
    entries
}

fn sleeps() -> u64 {
    let of = |path: PathBuf| {
        let status = fs::read_to_string(path.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<u64>().ok()
    };
    entries(Path::new("/proc/self/task"), "").into_iter().filter_map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new(files: &[(&str, &str)]) -> Machine {
            let machine = Machine(tempfile::tempdir().expect("a folder"));
            files.iter().for_each(|(path, text)| machine.write(path, text));
            machine
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().expect("it is in the folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }

        fn system(&self) -> System<'_> {
            System(self.0.path())
        }

        /// The reasons, without the folder's own path.
        fn missing(&self) -> Vec<String> {
            let root = self.0.path().display().to_string();
            let missing = self.system().missing();
            missing.into_iter().map(|reason| reason.replace(&root, "/sys")).collect()
        }
    }

    const IDLE: [(&str, &str); 4] = [
        ("devices/system/cpu/cpu0/cpuidle/state0/usage", "3\n"),
        ("devices/system/cpu/cpu0/cpuidle/state0/time", "100\n"),
        ("devices/system/cpu/cpu1/cpuidle/state0/usage", "4\n"),
        ("devices/system/cpu/cpu1/cpuidle/state0/time", "200\n"),
    ];
    const PACKAGE: &str = "class/powercap/intel-rapl:0/energy_uj";

    #[test]
    fn the_counters_of_all_cpus_and_packages_are_summed() {
        let machine = Machine::new(&IDLE);
        machine.write(PACKAGE, "1000\n");
        machine.write("class/powercap/intel-rapl:1/energy_uj", "500\n");
        // A part of package 0, which counts it already.
        machine.write("class/powercap/intel-rapl:0:0/energy_uj", "9\n");
        let counters = Counters::now(machine.system());
        assert_eq!((counters.idle, counters.energy_uj), (Some(vec![(7, 300)]), Some(1_500)));
        assert!(machine.missing().is_empty());
    }

    #[test]
    fn a_machine_without_idle_states_and_energy_says_so() {
        let machine = Machine::new(&[("devices/system/cpu/cpu0/online", "1\n")]);
        let counters = Counters::now(machine.system());
        assert_eq!((counters.idle, counters.energy_uj), (None, None));
        let reasons = [
            "idle entries and residency: /sys/devices/system/cpu/cpu*/cpuidle does not exist",
            "joules: /sys/class/powercap has no intel-rapl package, and /sys/class/power_supply no \
             battery",
        ];
        assert_eq!(machine.missing(), reasons);
    }

    #[test]
    fn an_unreadable_counter_is_named() {
        let machine = Machine::new(&IDLE);
        // As a folder, it cannot be read by the superuser either.
        machine.write("class/powercap/intel-rapl:0/energy_uj/file", "");
        let missing = machine.missing();
        assert_eq!(missing.len(), 1);
        assert!(missing[0].starts_with(&format!("joules: /sys/{PACKAGE}: ")), "{missing:?}");
        machine.write("devices/system/cpu/cpu1/cpuidle/state0/usage", "many");
        let usage = "/sys/devices/system/cpu/cpu1/cpuidle/state0/usage: \"many\" is no count";
        assert_eq!(machine.missing()[0], format!("idle entries and residency: {usage}"));
    }

    #[test]
    fn a_battery_counts_down() {
        let energy = "class/power_supply/BAT0/energy_now";
        let machine = Machine::new(&[(energy, "1000\n")]);
        let before = machine.system().energy().expect("a battery");
        machine.write(energy, "998\n");
        let after = machine.system().energy().expect("a battery");
        assert_eq!(after - before, 2 * 3_600);
    }
}
