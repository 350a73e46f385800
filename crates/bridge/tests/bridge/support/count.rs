//! Handlers that count the runs of each payload, and lines that a consumer has reported.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use uwork_bridge::{Backoff, Config, Handlers, Reply, Server};

use super::patience::Patience;

#[derive(Clone, Default)]
pub(crate) struct Count(Arc<(Mutex<HashMap<String, u64>>, Condvar)>);

impl Count {
    /// Also after a test has failed in a wait: what the consumer reports at its end must not panic.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, name: impl Into<String>) {
        *self.lock().entry(name.into()).or_default() += 1;
        self.0.1.notify_all();
    }

    pub(crate) fn of(&self, name: &str) -> u64 {
        self.lock().get(name).copied().unwrap_or(0)
    }

    pub(crate) fn distinct(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn sum(&self) -> u64 {
        self.lock().values().sum()
    }

    /// Waits until so many different names were counted.
    pub(crate) fn wait_distinct(&self, count: usize) {
        self.wait(|map| map.len() >= count);
    }

    /// Waits until a name was counted so often.
    pub(crate) fn wait_for(&self, name: &str, count: u64) {
        self.wait(|map| map.get(name).is_some_and(|&n| n >= count));
    }

    /// Waits until the names are as wanted. A test that waits in vain fails with the names it has.
    fn wait(&self, is_reached: impl Fn(&HashMap<String, u64>) -> bool) {
        let mut patience = Patience::new();
        let mut map = self.lock();
        while !is_reached(&map) {
            let waited = self.0.1.wait_timeout(map, patience.turn());
            map = waited.unwrap_or_else(PoisonError::into_inner).0;
            if let Err(hang) = patience.look() {
                let names: Vec<_> = map.iter().take(20).collect();
                panic!("waited in vain: {hang}; {} names: {names:?}", map.len());
            }
        }
    }

    /// A handler that counts payloads.
    pub(crate) fn handlers(&self) -> Handlers {
        let count = self.clone();
        Handlers::new().otherwise(move |job| {
            count.add(String::from_utf8_lossy(job.payload()));
            Ok(Reply::done())
        })
    }

    /// A place for a consumer's reports: each line is counted.
    pub(crate) fn reports(&self) -> impl Fn(&str) + Send + Sync + 'static {
        let count = self.clone();
        move |line| count.add(line)
    }

    /// The lines that were reported, each as often as it was.
    pub(crate) fn lines(&self) -> Vec<String> {
        let map = self.lock();
        map.iter().flat_map(|(line, &count)| vec![line.clone(); count as usize]).collect()
    }

    /// Asserts that the server has refused nothing. That it was slow is no refusal.
    #[track_caller]
    pub(crate) fn assert_nothing_refused(&self) {
        let lines = self.lines();
        assert!(!lines.iter().any(|line| line.contains("the server says")), "{lines:#?}");
    }

    /// Waits for a report with these words.
    pub(crate) fn wait_line(&self, words: &str) -> String {
        let has = |map: &HashMap<String, u64>| map.keys().any(|line| line.contains(words));
        self.wait(has);
        let map = self.lock();
        map.keys().find(|line| line.contains(words)).cloned().unwrap()
    }
}

/// The time since which a consumer has met faults.
pub(crate) struct Since(Instant);

impl Since {
    pub(crate) fn now() -> Since {
        Since(Instant::now())
    }

    /// Asserts that the consumer has paused after its faults: each of its eight purposes waits for
    /// 37 ms at least, and longer from fault to fault. The slower the machine, the fewer.
    #[track_caller]
    pub(crate) fn assert_no_hot_loop(&self, faults: u64) {
        let faults_max = 9 + self.0.elapsed().as_millis() as u64 / 4;
        assert!(faults <= faults_max, "{faults} faults in {:?}: a hot loop", self.0.elapsed());
    }
}

/// Longer than any test: for limits that no busy machine may exceed.
pub(crate) const LONG: Duration = Duration::from_secs(3_600);

/// As [`config`], but the consumer's own heartbeats are never late: the test says which jobs have a
/// dead consumer, by [`Redis::forget_signs_of_life`](super::server::Redis::forget_signs_of_life).
pub(crate) fn config_never_late(server: Server, stream: &str) -> Config {
    let mut config = config(server, stream);
    config.heartbeat = LONG;
    config
}

/// Short times, so that tests take moments.
pub(crate) fn config(server: Server, stream: &str) -> Config {
    let mut config = Config::new(server, stream);
    config.heartbeat = Duration::from_millis(600);
    config.backoff = Backoff { first: Duration::from_millis(10), max: Duration::from_millis(50) };
    config.attempts_max = 3;
    config
}
