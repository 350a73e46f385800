//! What the machine counts: entries into idle states and the time in them, context switches of this
//! process's threads, and energy.

use std::fs;
use std::path::{Path, PathBuf};

/// The most idle states of a CPU.
pub(super) const STATES_MAX: usize = 10;

/// The counters of the machine at one moment; a part that it does not have is `None`.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    /// For each CPU that has idle states, the entries into each and the microseconds in it.
    pub(super) idle: Option<Vec<Vec<(u64, u64)>>>,
    /// Voluntary context switches of the threads of this process: each is a sleep, and so a wake.
    pub(super) sleeps: u64,
    pub(super) energy: Option<Energy>,
}

/// Energy counters, in microjoules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Energy {
    /// Of each package, by RAPL: the energy used, and the largest value of the counter, which then
    /// wraps.
    Packages(Vec<(u64, u64)>),
    /// The energy that is left in the battery.
    Battery(u64),
}

impl Energy {
    /// The energy used since `before`. `None` if the battery was charged or the source has changed.
    pub(super) fn since(&self, before: &Energy) -> Option<u64> {
        match (self, before) {
            (Energy::Packages(after), Energy::Packages(before)) if after.len() == before.len() => {
                let used = |(&(after, max), &(before, _)): (&(u64, u64), &(u64, u64))| {
                    let wrapped = after.checked_sub(before).is_none();
                    after + if wrapped { max } else { 0 } - before
                };
                Some(after.iter().zip(before).map(used).sum())
            }
            (Energy::Battery(after), Energy::Battery(before)) => before.checked_sub(*after),
            _ => None,
        }
    }
}

/// The folder in which a machine describes itself: `/sys`, or another one in tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct System<'a>(pub(super) &'a Path);

impl Counters {
    pub(super) fn now(system: System<'_>) -> Counters {
        let (idle, energy) = (system.idle_states(), system.energy());
        Counters { idle: idle.ok(), sleeps: sleeps(), energy: energy.ok() }
    }
}

impl System<'static> {
    /// This machine.
    pub(super) fn this() -> System<'static> {
        System(Path::new("/sys"))
    }
}

impl System<'_> {
    fn idle_states(self) -> Result<Vec<Vec<(u64, u64)>>, String> {
        let mut all = Vec::new();
        let cpus = self.0.join("devices/system/cpu");
        for cpu in entries(&cpus, "cpu") {
            let folders = (0..STATES_MAX).map(|state| cpu.join(format!("cpuidle/state{state}")));
            let of = |folder: PathBuf| -> Result<(u64, u64), String> {
                Ok((number(&folder.join("usage"))?, number(&folder.join("time"))?))
            };
            let states = folders.take_while(|folder| folder.exists()).map(of);
            let states = states.collect::<Result<Vec<_>, String>>()?;
            if !states.is_empty() {
                all.push(states);
            }
        }
        match all.is_empty() {
            true => Err(format!("{}/cpu*/cpuidle does not exist", cpus.display())),
            false => Ok(all),
        }
    }

    /// By RAPL, or of the battery if that is missing or cannot be read.
    fn energy(self) -> Result<Energy, String> {
        self.packages().or_else(|rapl| self.battery().map_err(|battery| rapl + ", and " + &battery))
    }

    fn packages(self) -> Result<Energy, String> {
        let powercap = self.0.join("class/powercap");
        let is_package = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.matches(':').count() == 1)
        };
        let mut packages = entries(&powercap, "intel-rapl:");
        packages.retain(is_package);
        if packages.is_empty() {
            return Err(format!("{} has no intel-rapl package", powercap.display()));
        }
        let counter = |path: &PathBuf| -> Result<(u64, u64), String> {
            Ok((number(&path.join("energy_uj"))?, number(&path.join("max_energy_range_uj"))?))
        };
        packages.iter().map(counter).collect::<Result<_, String>>().map(Energy::Packages)
    }

    fn battery(self) -> Result<Energy, String> {
        let supplies = self.0.join("class/power_supply");
        let batteries = entries(&supplies, "BAT");
        let none = || format!("{} has no battery", supplies.display());
        let battery = batteries.first().ok_or_else(none)?;
        // In microwatt hours.
        let left = number(&battery.join("energy_now"))?;
        Ok(Energy::Battery(left.saturating_mul(3_600)))
    }

    /// The figures that the machine does not give, or not from the usual source, each with the
    /// reason.
    pub(super) fn missing(self) -> Vec<String> {
        let idle = self.idle_states().err();
        let idle = idle.map(|why| format!("left out: idle entries and residency: {why}"));
        let energy = match self.energy() {
            Ok(Energy::Packages(_)) => None,
            Ok(Energy::Battery(_)) => {
                self.packages().err().map(|why| format!("joules: those of the battery: {why}"))
            }
            Err(why) => Some(format!("left out: joules: {why}")),
        };
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
    const RANGE: &str = "class/powercap/intel-rapl:0/max_energy_range_uj";

    #[test]
    fn the_counters_of_all_cpus_and_packages_are_read() {
        let machine = Machine::new(&IDLE);
        machine.write(PACKAGE, "1000\n");
        machine.write(RANGE, "5000\n");
        machine.write("class/powercap/intel-rapl:1/energy_uj", "500\n");
        machine.write("class/powercap/intel-rapl:1/max_energy_range_uj", "9000\n");
        // A part of package 0, which counts it already.
        machine.write("class/powercap/intel-rapl:0:0/energy_uj", "9\n");
        let counters = Counters::now(machine.system());
        let before = Energy::Packages(vec![(1_000, 5_000), (500, 9_000)]);
        assert_eq!(counters.idle, Some(vec![vec![(3, 100)], vec![(4, 200)]]));
        assert_eq!(counters.energy, Some(before.clone()));
        assert!(machine.missing().is_empty());
        // The counter of package 0 wraps, the other one does not.
        machine.write(PACKAGE, "10\n");
        machine.write("class/powercap/intel-rapl:1/energy_uj", "520\n");
        let after = machine.system().energy().expect("it is there");
        assert_eq!(after.since(&before), Some(4_010 + 20));
    }

    #[test]
    fn a_machine_without_idle_states_and_energy_says_so() {
        let machine = Machine::new(&[("devices/system/cpu/cpu0/online", "1\n")]);
        let counters = Counters::now(machine.system());
        assert_eq!((counters.idle, counters.energy), (None, None));
        let reasons = [
            "left out: idle entries and residency: /sys/devices/system/cpu/cpu*/cpuidle does not \
             exist",
            "left out: joules: /sys/class/powercap has no intel-rapl package, and \
             /sys/class/power_supply has no battery",
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
        let left_out = format!("left out: joules: /sys/{PACKAGE}: ");
        assert!(missing[0].starts_with(&left_out), "{missing:?}");
        // The battery is used, and RAPL's error named.
        machine.write("class/power_supply/BAT0/energy_now", "1000\n");
        let named = format!("joules: those of the battery: /sys/{PACKAGE}: ");
        assert!(machine.missing()[0].starts_with(&named), "{:?}", machine.missing());
        let counters = Counters::now(machine.system());
        assert_eq!(counters.energy, Some(Energy::Battery(1_000 * 3_600)));
        machine.write("devices/system/cpu/cpu1/cpuidle/state0/usage", "many");
        let usage = "/sys/devices/system/cpu/cpu1/cpuidle/state0/usage: \"many\" is no count";
        let left_out = format!("left out: idle entries and residency: {usage}");
        assert_eq!(machine.missing()[0], left_out);
    }

    #[test]
    fn a_battery_counts_down() {
        let energy = "class/power_supply/BAT0/energy_now";
        let machine = Machine::new(&[(energy, "1000\n")]);
        let before = machine.system().energy().expect("a battery");
        machine.write(energy, "998\n");
        let after = machine.system().energy().expect("a battery");
        assert_eq!(after.since(&before), Some(2 * 3_600));
        assert_eq!(before.since(&after), None, "it was charged");
    }
}
