//! The process's limit of open descriptors, which bounds the number of clients.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::config::Config;

/// Descriptors for anything but connections: those of the process, and a few for each thread.
const OTHERS: u64 = 32;
const OTHERS_OF_THREAD: u64 = 4;

/// How many clients there can be, and, where that is fewer than wanted, why. Raises the limit if it may.
pub(crate) fn provide(config: &Config) -> (usize, Option<String>) {
    let others = OTHERS + OTHERS_OF_THREAD * config.threads as u64;
    let wanted = config.clients_max as u64 + others;
    let before = getrlimit(Resource::Nofile);
    if before.current.is_none_or(|current| current >= wanted) {
        return (config.clients_max, None);
    }
    let most = before.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = Rlimit { current: Some(most), maximum: before.maximum };
    let have = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => most,
        Err(_) => before.current.unwrap_or(wanted),
    };
    if have >= wanted {
        return (config.clients_max, None);
    }
    let clients = have.saturating_sub(others).max(1);
    let note = format!(
        "{} clients need {wanted} open descriptors, and {have} are allowed: at most {clients} clients \
         (ulimit -n raises the limit)",
        config.clients_max
    );
    (clients as usize, Some(note))
}
