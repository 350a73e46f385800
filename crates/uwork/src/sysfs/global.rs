//! The attributes that belong to no queue.

use std::time::Duration;

use uwork_engine::{Housekeeping, POOL_WORKERS_LIMIT};
use uwork_linux::engine;
use uwork_policy::scope::AffinityScope;

use super::definition::{Definition, ValueType, Written};
use super::{format_mask, mask, nr_cpus, seconds};
use crate::watchdog;

/// The folder of the kernel's module parameters.
pub(super) const PARAMETERS: &str = "module/parameters";

/// The one thing that these attributes belong to.
pub(super) struct Process;

fn nothing() -> String {
    "none".to_owned()
}

fn numbers() -> String {
    format!("0 to {}", u32::MAX)
}

/// Parses a number up to `max` and passes it on.
fn number(text: &str, max: u32, set: impl FnOnce(u32)) -> Written {
    let number = text.parse().ok().filter(|&number: &u32| number <= max).ok_or(None)?;
    set(number);
    Ok(())
}

/// Changes a value that all queues share.
fn keep_house(change: impl Fn(&mut Housekeeping)) -> Written {
    engine().set_housekeeping(change).map_err(Some)
}

fn set_cpumask(text: &str) -> Written {
    let mask = mask::parse(text, nr_cpus()).ok_or(None)?;
    if !mask.intersects(&engine().cpus().allowed) {
        return Err(None);
    }
    keep_house(|settings| settings.cpumask = Some(mask.clone()))
}

fn scope_names() -> String {
    AffinityScope::ALL.map(|scope| scope.name()).join(", ")
}

fn set_default_scope(text: &str) -> Written {
    let scope = AffinityScope::ALL.into_iter().find(|scope| scope.name() == text).ok_or(None)?;
    keep_house(|settings| settings.default_scope = scope)
}

fn set_power_efficient(text: &str) -> Written {
    let saves = match text {
        "1" | "y" | "Y" | "on" => true,
        "0" | "n" | "N" | "off" => false,
        _ => return Err(None),
    };
    keep_house(|settings| settings.power_efficient = saves)
}

fn requested_cpumask() -> String {
    let settings = engine().housekeeping();
    format_mask(settings.cpumask.as_ref().unwrap_or(&engine().cpus().unbound_cpumask))
}

fn set_watchdog(text: &str) -> Written {
    let is_allowed = |time: &Duration| time.is_zero() || *time >= Duration::from_millis(1);
    watchdog::set_thresh(seconds::parse(text).filter(is_allowed).ok_or(None)?);
    Ok(())
}

/// Sorted by folder and name.
pub(super) const GLOBALS: [Definition<Process>; 10] = [
    Definition {
        folder: "",
        name: "cpumask",
        value_type: ValueType::CpuMask,
        unit: "",
        doc: "The CPUs that unbound queues use",
        allowed: mask::allowed,
        get: |_| Some(format_mask(&engine().cpus().unbound_cpumask)),
        set: Some(|_, text| set_cpumask(text)),
    },
    Definition {
        folder: "",
        name: "cpumask_isolated",
        value_type: ValueType::CpuMask,
        unit: "",
        doc: "The CPUs that are isolated",
        allowed: nothing,
        get: |_| Some(format_mask(engine().config().topology.isolated())),
        set: None,
    },
    Definition {
        folder: "",
        name: "cpumask_requested",
        value_type: ValueType::CpuMask,
        unit: "",
        doc: "The CPUs for unbound queues before isolated and forbidden ones were left out",
        allowed: nothing,
        get: |_| Some(requested_cpumask()),
        set: None,
    },
    Definition {
        folder: PARAMETERS,
        name: "cache_shard_size",
        value_type: ValueType::Number,
        unit: "cores",
        doc: "Cores in a pod of the scope cache_shard",
        allowed: numbers,
        get: |_| Some(engine().housekeeping().cache_shard_size.to_string()),
        set: Some(|_, text| {
            let size = text.parse().map_err(|_| None)?;
            keep_house(|settings| settings.cache_shard_size = size)
        }),
    },
    Definition {
        folder: PARAMETERS,
        name: "cpu_intensive_thresh_us",
        value_type: ValueType::Number,
        unit: "microseconds of CPU time",
        doc: "A run on a per-CPU queue that has used so much while items wait no longer counts as running; 0: never",
        allowed: numbers,
        get: |_| Some((engine().cpu_intensive_thresh() / 1_000).to_string()),
        set: Some(|_, text| {
            number(text, u32::MAX, |us| engine().set_cpu_intensive_thresh(u64::from(us) * 1_000))
        }),
    },
    Definition {
        folder: PARAMETERS,
        name: "cpu_intensive_warning_thresh",
        value_type: ValueType::Number,
        unit: "runs",
        doc: "The number of such runs from which a function is reported; 0: never",
        allowed: numbers,
        get: |_| Some(engine().cpu_intensive_warning_thresh().to_string()),
        set: Some(|_, text| {
            number(text, u32::MAX, |runs| engine().set_cpu_intensive_warning_thresh(runs.into()))
        }),
    },
    Definition {
        folder: PARAMETERS,
        name: "default_affinity_scope",
        value_type: ValueType::Scope,
        unit: "",
        doc: "The scope of queues that chose none",
        allowed: scope_names,
        get: |_| Some(engine().housekeeping().default_scope.to_string()),
        set: Some(|_, text| set_default_scope(text)),
    },
    Definition {
        folder: PARAMETERS,
        name: "pool_workers_max",
        value_type: ValueType::Number,
        unit: "workers",
        doc: "The most workers of a pool and those that it shares items with; 0: by the queues' limits",
        allowed: || format!("0 to {POOL_WORKERS_LIMIT}"),
        get: |_| Some(engine().pool_workers_max().to_string()),
        set: Some(|_, text| {
            number(text, POOL_WORKERS_LIMIT, |max| engine().set_pool_workers_max(max))
        }),
    },
    Definition {
        folder: PARAMETERS,
        name: "power_efficient",
        value_type: ValueType::Switch,
        unit: "",
        doc: "Whether power-efficient queues save power",
        allowed: || "1, y, Y, on, 0, n, N and off".to_owned(),
        get: |_| Some(if engine().housekeeping().power_efficient { "Y" } else { "N" }.to_owned()),
        set: Some(|_, text| set_power_efficient(text)),
    },
    Definition {
        folder: PARAMETERS,
        name: "watchdog_thresh",
        value_type: ValueType::Seconds,
        unit: "seconds",
        doc: "Work that waits for N seconds while nothing moves is reported as a stall; 0: never",
        allowed: || format!("0, and 0.001 to {}, with up to nine decimals", u32::MAX),
        get: |_| Some(seconds::format(watchdog::thresh())),
        set: Some(|_, text| set_watchdog(text)),
    },
];
