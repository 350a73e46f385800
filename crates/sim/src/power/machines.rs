//! Machines with a published power, in watts.
//!
//! **The board** is that of the energy model which the authors of energy-aware scheduling published
//! for ARM's CoreTile Express (TC2): D. Eggemann, "arm: topology: Define TC2 energy and provide it
//! to the scheduler", linux-kernel, July 2014, patch 06 of "sched: Energy cost model for
//! energy-aware scheduling". It has power of a core and of a cluster for each frequency, in units of
//! its own, and the energy of a wake of a cluster (A7 6, A15 210) and of a core (A15 5; the
//! `wu_energy` of its idle states). TC2 has 2 A15 and 3 A7; here each cluster has 4 cores, and the
//! cluster's power is unchanged. The power of an idle cluster (all cores in WFI) is from a later
//! version of the same table, in the kernels for Android 3.18 and 4.4 (`idle_states_cluster_a7`),
//! which no longer has the energies. The idle states' times, the power coefficients and the voltages
//! that fix the unit are in Linux, `arch/arm/boot/dts/arm/vexpress-v2p-ca15_a7.dts`.
//!
//! **The socket** has the times of Linux, `drivers/idle/intel_idle.c` (`skx_cstates`, and
//! `skx_idle_state_table_update` for a package that does not sleep). The powers are those of a Xeon
//! Silver 4114 with 10 cores in two papers: J. Haj-Yahya et al., "AgileWatts", arXiv 2203.02550,
//! table of core states, and G. Antoniou et al., "AgilePkgC", arXiv 2204.10466, table of package
//! states. They are cited from the literature and were not measured again, nor compared with the
//! papers' full text.
//!
//! The table says of the energy of a wake only that it is to be shifted left by 10. Here its unit is
//! therefore the table's unit of power for 1,024 us, the period of the scheduler's averages. Then
//! the A15's is 2.4 times and the A7's 0.16 times the energy that follows from the shortest sleep
//! that is worth it ([`break_even_j`]). For the socket no energy of a wake was found; there it is
//! that one.

use super::activity::Overhead;
use super::model::{Domain, Watts, break_even_j};

/// A machine whose energy can be computed.
#[derive(Clone, Debug)]
pub struct Powered {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// The machine in the notation of topologies.
    pub notation: &'static str,
    /// Its power domains, which have all of its CPUs.
    pub domains: Vec<Domain>,
    /// Its three weakest numbers.
    pub weakest: [Weak; 3],
}

/// A number of a model, for which the evidence is weak.
#[derive(Clone, Copy, Debug)]
pub struct Weak {
    /// What it is, and why it is weak.
    pub about: &'static str,
    /// Multiplies it.
    pub scale: fn(&mut Powered, &mut Overhead, f64),
}

/// The work of a wake and of a run on a CPU of capacity 1024, beyond the item's own: interrupt,
/// scheduler, idle governor and library. Measured by `uwork-lab bench power` on a virtual machine
/// (`docs/performance.md`, "Power"): numbers of another machine, so they are weak everywhere.
pub const OVERHEAD: Overhead = Overhead { wake_ns: 25_000, run_ns: 3_000 };

const fn us(us: u64) -> u64 {
    us * 1_000
}

/// Which of the published frequencies the CPUs of the board have, from 0 for the lowest, as a
/// governor chooses it for a load of a few percent, to [`FREQUENCIES`] - 1.
pub type Frequency = usize;
/// How many frequencies are published of each cluster.
pub const FREQUENCIES: usize = 8;

/// A cluster of the board at one frequency: capacity, then power of the cluster and of a core in the
/// units of the table.
#[derive(Clone, Copy)]
struct Point(u32, f64, f64);

/// 350, 400, 500 MHz, and so on to 1 GHz.
const A7: [Point; FREQUENCIES] = [
    Point(150, 2_967.0, 187.0),
    Point(172, 2_792.0, 275.0),
    Point(215, 2_810.0, 334.0),
    Point(258, 2_815.0, 407.0),
    Point(301, 2_919.0, 447.0),
    Point(344, 2_847.0, 549.0),
    Point(387, 3_917.0, 761.0),
    Point(430, 4_905.0, 1_024.0),
];
/// 500 MHz to 1.2 GHz, in steps of 100 MHz.
const A15: [Point; FREQUENCIES] = [
    Point(426, 7_920.0, 2_021.0),
    Point(512, 8_165.0, 2_312.0),
    Point(597, 8_172.0, 2_756.0),
    Point(682, 8_195.0, 3_125.0),
    Point(768, 8_265.0, 3_524.0),
    Point(853, 8_446.0, 3_846.0),
    Point(938, 11_426.0, 5_177.0),
    Point(1_024, 15_200.0, 6_997.0),
];

/// 146.6 mW are 1024 units. By its coefficient, a core of the A7 cluster needs 133 uW for each MHz
/// and square volt; that is 146.6 mW at 1 GHz and 1.05 V, the regulator's highest voltage. The
/// coefficient of the A15 gives a unit that is 1.3 times as large. All energies of the board are
/// proportional to this number, and no percentage depends on it.
const WATTS_PER_UNIT: f64 = 0.1466 / 1024.0;
/// See the module.
const JOULES_PER_UNIT_OF_A_WAKE: f64 = WATTS_PER_UNIT * 1_024e-6;

/// What of a cluster does not depend on its frequency, in the units of the table.
struct Cluster {
    name: &'static str,
    cpus: std::ops::Range<usize>,
    idle: f64,
    asleep: f64,
    least_sleep_ns: u64,
    wake: f64,
    core_wake: f64,
}

fn cluster(of: Cluster, Point(capacity, common, cpu): Point) -> Domain {
    let Cluster { name, cpus, idle, asleep, least_sleep_ns, wake, core_wake } = of;
    let watts = |active: f64, idle: f64, asleep: f64| Watts {
        active: active * WATTS_PER_UNIT,
        idle: idle * WATTS_PER_UNIT,
        asleep: asleep * WATTS_PER_UNIT,
    };
    Domain {
        name,
        cpus,
        capacity,
        // The table has no idle power of a core: a single core cannot be switched off. So it
        // "sleeps" in every gap, and each wake costs.
        cpu_w: watts(cpu, 0.0, 0.0),
        common_w: watts(common, idle, asleep),
        cpu_sleep_ns: 0,
        common_sleep_ns: least_sleep_ns,
        cpu_wake_j: core_wake * JOULES_PER_UNIT_OF_A_WAKE,
        common_wake_j: wake * JOULES_PER_UNIT_OF_A_WAKE,
    }
}

/// The board: 4 Cortex-A7 and 4 Cortex-A15.
#[must_use]
pub fn board(frequency: Frequency) -> Powered {
    let a7 = Cluster {
        name: "A7",
        cpus: 0..4,
        idle: 25.0,
        asleep: 10.0,
        least_sleep_ns: us(2_500),
        wake: 6.0,
        core_wake: 0.0,
    };
    let a15 = Cluster {
        name: "A15",
        cpus: 4..8,
        idle: 70.0,
        asleep: 25.0,
        least_sleep_ns: us(2_000),
        wake: 210.0,
        core_wake: 5.0,
    };
    Powered {
        name: "board",
        about: "4 Cortex-A7 and 4 Cortex-A15, after ARM's TC2",
        notation: "cluster:1 core:4 capacity:430 + cluster:1 core:4",
        domains: vec![cluster(a7, A7[frequency]), cluster(a15, A15[frequency])],
        weakest: [
            Weak {
                about: "the energy of a wake: published, but its unit is not stated",
                scale: scale_wakes,
            },
            Weak {
                about: "the power of an idle cluster: 1 part in 200 of the active one, so small \
                        that it was hard to measure",
                scale: |machine, _, factor| {
                    for domain in &mut machine.domains {
                        domain.common_w.idle *= factor;
                        domain.common_w.asleep *= factor;
                    }
                },
            },
            WORK,
        ],
    }
}

fn scale_wakes(machine: &mut Powered, _: &mut Overhead, factor: f64) {
    for domain in &mut machine.domains {
        domain.cpu_wake_j *= factor;
        domain.common_wake_j *= factor;
    }
}

const WORK: Weak = Weak {
    about: "the work of a wake and of a run: measured on another machine",
    scale: |_, work, factor| {
        work.wake_ns = (work.wake_ns as f64 * factor) as u64;
        work.run_ns = (work.run_ns as f64 * factor) as u64;
    },
};

/// Cores of the socket.
const SOCKET_CORES: usize = 10;

/// The socket of a server, with package C-states.
#[must_use]
pub fn socket() -> Powered {
    // Core: active at the base frequency, in C1, in C6.
    let cpu_w = Watts { active: 4.0, idle: 1.44, asleep: 0.1 };
    // Package and memory without the cores: 49.5 W with all cores in C1, 12.5 W in PC6.
    let cores = SOCKET_CORES as f64;
    let awake = 49.5 - cores * cpu_w.idle;
    let common_w = Watts { active: awake, idle: awake, asleep: 12.5 - cores * cpu_w.asleep };
    let (cpu_sleep_ns, common_sleep_ns) = (us(276), us(600));
    Powered {
        name: "socket",
        about: "Xeon Silver 4114, 10 cores, package C-states",
        notation: "package:1 core:10",
        domains: vec![Domain {
            name: "package",
            cpus: 0..SOCKET_CORES,
            capacity: 1024,
            cpu_w,
            common_w,
            cpu_sleep_ns,
            common_sleep_ns,
            cpu_wake_j: break_even_j(cpu_w, cpu_sleep_ns),
            // The cores sleep before the package does, so only the rest of the time counts.
            common_wake_j: break_even_j(common_w, common_sleep_ns - cpu_sleep_ns),
        }],
        weakest: [
            Weak {
                about: "the energy of a wake: derived, no publication was found",
                scale: scale_wakes,
            },
            Weak {
                about: "the power of the sleeping package: depends on the memory in the machine",
                scale: |machine, _, factor| {
                    machine.domains.iter_mut().for_each(|d| d.common_w.asleep *= factor);
                },
            },
            WORK,
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domains_have_all_cpus_and_sleep_costs_less_than_idling() {
        for machine in (0..FREQUENCIES).map(board).chain([socket()]) {
            let cpus = crate::machines::machine(machine.notation).expect("a machine").cpus().len();
            let mut next = 0;
            for domain in &machine.domains {
                assert_eq!(domain.cpus.start, next);
                next = domain.cpus.end;
                for watts in [domain.cpu_w, domain.common_w] {
                    assert!(watts.active >= watts.idle && watts.idle >= watts.asleep);
                }
            }
            assert_eq!(next, cpus, "{}", machine.name);
        }
    }
}
