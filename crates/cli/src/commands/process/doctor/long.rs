//! Items that run on in a queue that moves: the rule, and the workers to which it applies.

use std::collections::HashMap;

use super::{Finding, counted};
use crate::client::{Client, Failure, Row, Table};
use crate::commands::process::time;

/// A run of less than this is never reported.
const RUN_MIN_MS: u64 = 10_000;
/// A run is reported from this multiple of the queue's `run_p99_ns`.
const RUN_P99_MULTIPLE: u64 = 100;

/// The run time from which an item of the queue is reported, in milliseconds: the larger of 10 s and
/// 100 times the `run_p99_ns` of the queue. None while no run of the queue has ended, since nothing
/// is known about its items then.
pub(super) fn limit_ms(run_p99_ns: u64) -> Option<u64> {
    let by_p99 = run_p99_ns.saturating_mul(RUN_P99_MULTIPLE).div_ceil(1_000_000);
    (run_p99_ns > 0).then(|| by_p99.max(RUN_MIN_MS))
}

/// For each queue, the times of the workers that took a batch of it [`RUN_MIN_MS`] ago or longer, in
/// microseconds, the longest first: a process may name a queue in any number of rows.
pub(super) struct Runs(HashMap<String, Vec<u64>>);

/// The long runs of a process.
pub(super) fn runs(client: &mut Client) -> Result<Runs, Failure> {
    let pools = match client.ask("raw pools") {
        // A process of an earlier version.
        Err(Failure::Refused(refused)) if refused.code == "bad-request" => client.ask("pools"),
        answer => answer,
    }?;
    Ok(Runs::of(&Table::parse(pools.split_once("\n\n").map_or("", |(_, workers)| workers))))
}

impl Runs {
    fn of(workers: &Table) -> Runs {
        let mut runs: HashMap<String, Vec<u64>> = HashMap::new();
        for worker in workers.rows() {
            // The time since the worker took the batch: the item itself has run for at most that time.
            let us = worker.number("for_us");
            if us / 1_000 >= RUN_MIN_MS {
                runs.entry(worker.text("queue").to_owned()).or_default().push(us);
            }
        }
        runs.values_mut().for_each(|times| times.sort_unstable_by(|a, b| b.cmp(a)));
        Runs(runs)
    }

    /// The number of runs of a queue that last for this time, and the longest. None without any.
    fn longer(&self, queue: &str, limit_ms: u64) -> Option<(usize, u64)> {
        let times = self.0.get(queue)?;
        let count = times.partition_point(|us| us / 1_000 >= limit_ms);
        times.first().filter(|_| count > 0).map(|&longest| (count, longest))
    }
}

/// The finding about items of a queue that run on, and the run time from which they are reported.
pub(super) fn queue(queue: &Row<'_>, runs: &Runs) -> Option<(Finding, u64)> {
    let (name, run_p99_ns) = (queue.text("name"), queue.number("run_p99_ns"));
    let limit_ms = limit_ms(run_p99_ns)?;
    let (count, longest) = runs.longer(name, limit_ms)?;
    let longest = time(longest.saturating_mul(1_000));
    let finding = Finding::bad(
        format!(
            "queue {name}: {}, for at most {longest}, and 99 % of the runs end within {}",
            counted(count as u64, "item runs on", "items run on"),
            time(run_p99_ns)
        ),
        "the stack shows where the item is; an item with 100 times the work of the others is no fault",
    );
    Some((finding, limit_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_ten_seconds_or_100_times_the_usual_run() {
        assert_eq!(limit_ms(0), None, "no run has ended");
        assert_eq!(limit_ms(1), Some(10_000));
        assert_eq!(limit_ms(100_000_000), Some(10_000));
        assert_eq!(limit_ms(100_000_001), Some(10_001));
        assert_eq!(limit_ms(1_000_000_000), Some(100_000));
        assert!(limit_ms(u64::MAX).is_some());
    }

    /// What is found of a queue `q` with that percentile, if its workers have run for these times.
    fn found(run_p99_ns: u64, for_us: &[u64]) -> Option<(String, u64)> {
        let queues = Table::parse(&format!("name\trun_p99_ns\nq\t{run_p99_ns}\n"));
        let rows = for_us.iter().map(|us| format!("q\t{us}\n")).collect::<String>();
        let workers = Table::parse(&format!("queue\tfor_us\nother\t99000000\n-\t0\n{rows}"));
        let row = queues.rows().next()?;
        queue(&row, &Runs::of(&workers)).map(|(finding, limit_ms)| (finding.what, limit_ms))
    }

    #[test]
    fn an_item_that_runs_on_is_found_by_its_time_and_its_queue() {
        let text = "queue q: 2 items run on, for at most 41s, and 99 % of the runs end within 98us";
        let expected = Some((text.to_owned(), 10_000));
        assert_eq!(found(98_304, &[41_000_000, 10_000_000, 9_999_999]), expected);
        let one =
            found(98_304, &[41_000_000]).map(|(text, _)| text.contains(": 1 item runs on, for "));
        assert_eq!(one, Some(true));
        assert_eq!(found(98_304, &[9_999_999]), None, "less than 10 s");
        assert_eq!(found(1_000_000_000, &[99_999_999]), None, "its runs take a second");
        assert!(found(1_000_000_000, &[100_000_000]).is_some_and(|(_, limit)| limit == 100_000));
        assert_eq!(found(0, &[41_000_000]), None, "nothing is known");
        assert_eq!(found(98_304, &[]), None);
    }

    // Catches: all workers looked at again for each of a hundred thousand rows of one queue.
    #[test]
    fn the_times_of_a_queue_are_looked_up() {
        let workers = (1..=100_000_u64).map(|n| format!("q\t{}\n", n * 1_000_000));
        let table = Table::parse(&format!("queue\tfor_us\n{}", workers.collect::<String>()));
        let runs = Runs::of(&table);
        assert!(runs.0["q"].is_sorted_by(|a, b| a >= b));
        for second in 10..100_000 {
            let expected = Some((100_001 - second as usize, 100_000_000_000));
            assert_eq!(runs.longer("q", second * 1_000), expected);
        }
        assert_eq!((runs.longer("q", 100_000_001), runs.longer("other", 1)), (None, None));
    }
}
