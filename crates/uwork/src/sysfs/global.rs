//! The values that belong to no queue.

use uwork_engine::{Housekeeping, POOL_WORKERS_LIMIT};
use uwork_linux::engine;
use uwork_policy::scope::AffinityScope;

use super::{EntryKind, Error, Global, format_mask, mask, nr_cpus, seconds};
use crate::watchdog;

impl Global {
    pub(super) fn read(self) -> String {
        let (config, settings) = (engine().config(), engine().housekeeping());
        let unbound = &engine().cpus().unbound_cpumask;
        match self {
            Global::Cpumask => format_mask(unbound),
            Global::CpumaskRequested => format_mask(settings.cpumask.as_ref().unwrap_or(unbound)),
            Global::CpumaskIsolated => format_mask(config.topology.isolated()),
            Global::DefaultAffinityScope => settings.default_scope.to_string(),
            Global::CacheShardSize => settings.cache_shard_size.to_string(),
            Global::PowerEfficient => if settings.power_efficient { "Y" } else { "N" }.to_owned(),
            Global::CpuIntensiveThreshUs => (engine().cpu_intensive_thresh() / 1_000).to_string(),
            Global::CpuIntensiveWarningThresh => {
                engine().cpu_intensive_warning_thresh().to_string()
            }
            Global::WatchdogThresh => seconds::format(watchdog::thresh()),
            Global::PoolWorkersMax => engine().pool_workers_max().to_string(),
        }
    }

    /// A description of the permitted values; None for read-only values.
    fn allowed(self) -> Option<String> {
        Some(match self {
            Global::CpumaskRequested | Global::CpumaskIsolated => return None,
            Global::Cpumask => mask::allowed(),
            Global::DefaultAffinityScope => {
                let names: Vec<_> = AffinityScope::ALL.iter().map(|scope| scope.name()).collect();
                names.join(", ")
            }
            Global::PowerEfficient => "1, y, Y, on, 0, n, N and off".to_owned(),
            Global::WatchdogThresh => format!("0 to {}, with up to nine decimals", u32::MAX),
            Global::PoolWorkersMax => format!("0 to {POOL_WORKERS_LIMIT}"),
            Global::CacheShardSize
            | Global::CpuIntensiveThreshUs
            | Global::CpuIntensiveWarningThresh => format!("0 to {}", u32::MAX),
        })
    }

    pub(super) fn kind(self) -> EntryKind {
        if self.allowed().is_some() { EntryKind::ReadWrite } else { EntryKind::ReadOnly }
    }

    pub(super) fn write(self, path: &str, value: &str) -> Result<(), Error> {
        let Some(allowed) = self.allowed() else {
            return Err(Error::ReadOnly { path: path.to_owned() });
        };
        let bad = || Error::BadValue { path: path.to_owned(), value: value.to_owned(), allowed };
        let number = |max: u32| value.parse().ok().filter(|&number: &u32| number <= max);
        let set = |change: &dyn Fn(&mut Housekeeping)| {
            let outcome = engine().set_housekeeping(change);
            outcome.map_err(|error| Error::Refused { path: path.to_owned(), error: error.into() })
        };
        match self {
            Global::CpumaskRequested | Global::CpumaskIsolated => {
                return Err(Error::ReadOnly { path: path.to_owned() });
            }
            Global::Cpumask => {
                let usable = mask::parse(value, nr_cpus())
                    .filter(|mask| mask.intersects(&engine().cpus().allowed));
                let mask = usable.ok_or_else(bad)?;
                set(&|settings| settings.cpumask = Some(mask.clone()))?;
            }
            Global::DefaultAffinityScope => {
                let named = |scope: &&AffinityScope| scope.name() == value;
                let scope = *AffinityScope::ALL.iter().find(named).ok_or_else(bad)?;
                set(&|settings| settings.default_scope = scope)?;
            }
            Global::CacheShardSize => {
                let size = number(u32::MAX).ok_or_else(bad)?;
                set(&|settings| settings.cache_shard_size = size)?;
            }
            Global::PowerEfficient => {
                let saves = match value {
                    "1" | "y" | "Y" | "on" => true,
                    "0" | "n" | "N" | "off" => false,
                    _ => return Err(bad()),
                };
                set(&|settings| settings.power_efficient = saves)?;
            }
            Global::WatchdogThresh => {
                watchdog::set_thresh(seconds::parse(value).ok_or_else(bad)?);
            }
            Global::CpuIntensiveThreshUs => {
                let thresh = u64::from(number(u32::MAX).ok_or_else(bad)?) * 1_000;
                engine().set_cpu_intensive_thresh(thresh);
            }
            Global::CpuIntensiveWarningThresh => {
                let thresh = number(u32::MAX).ok_or_else(bad)?;
                engine().set_cpu_intensive_warning_thresh(u64::from(thresh));
            }
            Global::PoolWorkersMax => {
                engine().set_pool_workers_max(number(POOL_WORKERS_LIMIT).ok_or_else(bad)?);
            }
        }
        Ok(())
    }
}
