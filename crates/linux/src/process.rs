//! The process's engine, and the program's choices for it.

use std::sync::{Arc, OnceLock};

use uwork_engine::host::{Host, Report};
use uwork_engine::{Config, Cpus, Engine, POOL_WORKERS_LIMIT};
use uwork_policy::blocking::Tier;
use uwork_policy::percpu::Mode;

use crate::host::Linux;
use crate::topology::Machine;
use crate::{changes, environment, first_use, stack_size};

/// The program's choices. Fixed when the engine is made, or when the mode of per-CPU data is first
/// needed.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How undeclared waits are detected.
    pub blocking_tier: Option<Tier>,
    /// How per-CPU data is locked.
    pub percpu_mode: Option<Mode>,
    /// Whether power-efficient queues save power at first.
    pub power_efficient: Option<bool>,
    /// How many workers a pool may have, together with those that it shares items with, at first.
    pub pool_workers_max: Option<u32>,
    /// The stack of a thread that runs items, in bytes; one of [`STACK_SIZES`](crate::STACK_SIZES).
    pub stack_size: Option<usize>,
}

/// The choices, and their source: the program, or the defaults.
static OPTIONS: OnceLock<(Options, OptionsBy)> = OnceLock::new();

/// The source of the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionsBy {
    /// The program.
    Setup,
    /// The defaults: a use of uwork needed the options before the program set any.
    Default,
}

/// Fixes the options. If they are fixed already, returns their source.
pub fn set_options(options: Options) -> Result<(), OptionsBy> {
    let _making = first_use::making();
    let settled = OPTIONS.set((options, OptionsBy::Setup));
    settled.map_err(|_| OPTIONS.get().map_or(OptionsBy::Default, |&(_, by)| by))
}

/// The options, which are fixed from now on.
pub fn options() -> &'static Options {
    &first_use::once(&OPTIONS, || (Options::default(), OptionsBy::Default)).0
}

static ENGINE: OnceLock<Arc<Engine<Linux>>> = OnceLock::new();

/// The process's engine, if it was made. For calls that do nothing outside of items.
#[inline]
pub fn started() -> Option<&'static Arc<Engine<Linux>>> {
    ENGINE.get()
}

/// The process's engine; made at first use.
#[inline]
pub fn engine() -> &'static Arc<Engine<Linux>> {
    first_use::once(&ENGINE, || {
        environment::keep();
        let options = options();
        let (machine, lack) = Machine::read_watched();
        let mut config = match machine {
            Ok((machine, _)) => {
                let (topology, threads_max) = (machine.topology.clone(), machine.threads_max);
                let Cpus { allowed, unbound_cpumask, cpu_limit } = changes::cpus_of(machine);
                let config = Config::new(topology, allowed);
                Config { unbound_cpumask, cpu_limit, threads_max, ..config }
            }
            // Without sysfs and /proc: as many equal CPUs as the process may use. The standard library
            // would open files to find their number.
            Err(_) => {
                let cpus = Machine::affinity().map_or(1, |cpus| cpus.len() as u32);
                let topology = uwork_policy::topology::Topology::flat(cpus);
                let allowed = topology.possible().clone();
                Config::new(topology, allowed)
            }
        };
        let saves = variable("UWORK_POWER_EFFICIENT", "1, y, Y, on, 0, n, N, off", parse_switch);
        let workers = variable("UWORK_WORKERS", &format!("0 to {POOL_WORKERS_LIMIT}"), |text| {
            text.parse().ok().filter(|&workers| workers <= POOL_WORKERS_LIMIT)
        });
        let stack = variable("UWORK_STACK", stack_size::STACK_SIZES_TEXT, stack_size::parse);
        let refused = [saves.as_ref().err(), workers.as_ref().err(), stack.as_ref().err()];
        let refused: Vec<Report> = refused.into_iter().flatten().cloned().collect();
        if let Some(size) = stack.ok().flatten().or(options.stack_size) {
            stack_size::choose(size);
        }
        crate::thread::note_policy_of_the_process();
        config.nice = crate::thread::nice_of_the_process();
        config.power_efficient = saves.ok().flatten().or(options.power_efficient).unwrap_or(false);
        let engine = Engine::new(Linux::new(options), config);
        if let Some(workers) = workers.ok().flatten().or(options.pool_workers_max) {
            engine.set_pool_workers_max(workers);
        }
        let unread = lack.map(|error| Report::MachineUnread { reason: error.to_string() });
        refused.into_iter().chain(unread).for_each(|report| engine.host().report(report));
        engine
    })
}

/// The value of an environment variable; `None` if it is unset or empty.
///
/// # Errors
/// Another value than those `allowed`: the report that it is ignored.
pub(crate) fn variable<T>(
    variable: &'static str,
    allowed: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Report> {
    let Some(value) = environment::variable(variable).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let value = value.to_string_lossy();
    parse(&value).map(Some).ok_or_else(|| Report::VariableIgnored {
        variable,
        value: value.into_owned(),
        allowed: allowed.to_owned(),
    })
}

/// The kernel's spellings of `workqueue.power_efficient`.
fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "1" | "y" | "Y" | "on" => Some(true),
        "0" | "n" | "N" | "off" => Some(false),
        _ => None,
    }
}
