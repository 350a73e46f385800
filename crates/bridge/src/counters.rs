//! What a consumer counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of a consumer, from its start on. `uwork bridge stat` has those of all consumers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Jobs that were acknowledged.
    pub done: u64,
    /// Attempts that failed and are tried again.
    pub retries: u64,
    /// Jobs that became dead letters.
    pub dead: u64,
    /// Jobs taken over from other consumers.
    pub reclaimed: u64,
    /// Jobs that another consumer took over from this one.
    pub lost: u64,
    /// Jobs that completed although an earlier run of them had begun: they ran twice.
    pub duplicates: u64,
    /// Jobs that came back to the stream: at the end, or because they could not run.
    pub handed_back: u64,
    /// Exchanges with a server that failed.
    pub faults: u64,
    /// Jobs held now: fetched and not acknowledged.
    pub held: u64,
}

macro_rules! tally {
    ($($name:ident),*) => {
        /// The counters as they are counted.
        #[derive(Debug, Default)]
        pub(crate) struct Tally { $($name: AtomicU64),* }

        impl Tally {
            $(pub(crate) fn $name(&self, count: u64) {
                self.$name.fetch_add(count, Ordering::Relaxed);
            })*

            pub(crate) fn read(&self, held: u64) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* held }
            }
        }
    };
}

tally!(done, retries, dead, reclaimed, lost, duplicates, handed_back, faults);

impl Counters {
    /// Each counter with its name.
    pub(crate) fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("done", self.done),
            ("retries", self.retries),
            ("dead", self.dead),
            ("reclaimed", self.reclaimed),
            ("lost", self.lost),
            ("duplicates", self.duplicates),
            ("handed_back", self.handed_back),
            ("faults", self.faults),
        ]
    }
}

/// The counters of consumers in the text format of OpenMetrics, without its last line.
pub(crate) fn to_openmetrics(consumers: &[(String, Counters)]) -> String {
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, suffix: &str, value: &dyn Fn(&Counters) -> u64| {
        text += &format!("# TYPE uwork_bridge_consumer_{name} {kind}\n");
        for (consumer, counters) in consumers {
            let consumer = consumer.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let value = value(counters);
            text += &format!(
                "uwork_bridge_consumer_{name}{suffix}{{consumer=\"{consumer}\"}} {value}\n"
            );
        }
    };
    for (nth, (name, _)) in Counters::default().named().iter().enumerate() {
        add(name, "counter", "_total", &|counters| counters.named()[nth].1);
    }
    add("held", "gauge", "", &|counters| counters.held);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_written_for_openmetrics() {
        let tally = Tally::default();
        tally.done(3);
        tally.retries(1);
        let text = to_openmetrics(&[("a\"b".to_owned(), tally.read(7))]);
        assert!(text.contains("uwork_bridge_consumer_done_total{consumer=\"a\\\"b\"} 3\n"));
        assert!(text.ends_with("uwork_bridge_consumer_held{consumer=\"a\\\"b\"} 7\n"));
    }
}
