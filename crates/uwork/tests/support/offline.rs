//! CPUs that are taken offline. This affects all processes of a machine, so it happens only where
//! `UWORK_TEST_OFFLINE` is set, as in the virtual machines of `ci/vm.sh`.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use super::left_out::not_here;

/// The variable that permits it.
const VARIABLE: &str = "UWORK_TEST_OFFLINE";

/// A CPU that is offline; the drop brings it back online.
pub(crate) struct Offline(PathBuf);

impl Offline {
    pub(crate) fn take(cpu: u32) -> io::Result<Offline> {
        let path = switch(cpu);
        fs::write(&path, "0")?;
        Ok(Offline(path))
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        fs::write(&self.0, "1").expect("a CPU comes back online");
    }
}

/// Brings a CPU online that another process has taken offline.
pub(crate) fn bring(cpu: u32) {
    fs::write(switch(cpu), "1").expect("a CPU comes online");
}

fn switch(cpu: u32) -> PathBuf {
    PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/online"))
}

/// How many CPUs are enough: on an emulated machine, the kernel takes long to change them.
const MOST: usize = 4;

/// Some of the process's CPUs that can be taken offline, including the last one, which is isolated
/// where any is; or `None`, with a note why `test` is skipped. One test at a time may use them.
///
/// # Panics
/// If it is permitted but impossible: otherwise the test would pass without running.
pub(crate) fn removable(test: &str) -> Option<(Vec<u32>, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    if std::env::var_os(VARIABLE).is_none() {
        not_here(test, format!("{VARIABLE} is not set; it takes CPUs offline, for all processes"));
        return None;
    }
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let cpus = super::machine::cpus().into_iter().skip(1);
    let cpus: Vec<_> = cpus.filter(|&cpu| switch(cpu).exists()).collect();
    let step = cpus.len().div_ceil(MOST).max(1);
    let first = *cpus.first().expect("a CPU beside the first that the kernel can take offline");
    drop(Offline::take(first).unwrap_or_else(|why| panic!("CPU {first} offline: {why}")));
    Some((cpus.into_iter().rev().step_by(step).collect(), turn))
}
