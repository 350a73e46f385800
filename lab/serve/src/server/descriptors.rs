//! The process's limit on open descriptors, which bounds the number of clients.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::config::Config;

/// Descriptors reserved for other uses than connections: the process itself, and a few for each
/// thread.
const OTHERS: u64 = 32;
const OTHERS_OF_THREAD: u64 = 4;

/// Raises the descriptor limit as far as needed and permitted. Returns the possible number of
/// clients, and the reason if that is less than the configured number.
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
