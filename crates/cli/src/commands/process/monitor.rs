//! `uwork monitor`: the counters of the queues at intervals, in the manner of the kernel's
//! `wq_monitor.py`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use regex_lite::Regex;

use super::{MonitorArgs, UserError, interval, print};
use crate::client::{Client, Table};

/// The counters of a queue in the last table: runs, and their time in microseconds.
type Before = HashMap<String, (u64, u64)>;

/// Runs the command. The interval includes the time for the request.
pub(super) fn run(args: &MonitorArgs) -> Result<ExitCode, UserError> {
    let interval = interval(&args.interval)?;
    let names = args.names.iter().map(|name| {
        Regex::new(name)
            .map_err(|error| UserError(format!("'{name}' is no regular expression: {error}")))
    });
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let count = if interval.is_zero() { Some(1) } else { args.count };
    let mut client = Client::connect(&args.process)?;
    let (mut before, mut last, mut shown) = (Before::new(), Instant::now(), 0);
    while count.is_none_or(|count| shown < count) {
        if shown > 0 {
            std::thread::sleep(interval.saturating_sub(last.elapsed()));
        }
        let since = last.elapsed();
        last = Instant::now();
        let table = Table::parse(&client.ask("queues")?);
        let text = render(&table, &names, &mut before, (shown > 0).then_some(since));
        let _ = print(&text)?;
        shown += 1;
    }
    Ok(ExitCode::SUCCESS)
}

/// A table of the queues that match. `since`: the time since the last table, if there was one.
fn render(table: &Table, names: &[Regex], before: &mut Before, since: Option<Duration>) -> String {
    let mut text = format!(
        "{:<25} {:>10} {:>6} {:>6} {:>10} {:>6} {:>10} {:>5} {:>7}\n",
        "", "total", "infl", "pend", "runtime", "busy", "items/s", "full", "p99"
    );
    for row in table.rows() {
        let name = row.text("name");
        let (ran, run_us) = (row.number("ran"), row.number("run_us"));
        let earlier = before.insert(name.to_owned(), (ran, run_us));
        if !names.is_empty() && !names.iter().any(|wanted| wanted.is_match(name)) {
            continue;
        }
        let rate = |now: u64, then: u64| {
            since.map(|since| now.saturating_sub(then) as f64 / since.as_secs_f64().max(1e-6))
        };
        let (ran_before, us_before) = earlier.unwrap_or((ran, run_us));
        let shown =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
        let busy = rate(run_us, us_before).map(|us_per_s| us_per_s / 1e6);
        let _ = writeln!(
            text,
            "{name:<25} {ran:>10} {:>6} {:>6} {:>10} {:>6} {:>10} {:>5} {:>7}",
            row.number("in_flight"),
            row.number("pending"),
            format!("{:.1}", run_us as f64 / 1e6),
            busy.map_or("-".to_owned(), |busy| format!("{busy:.2}")),
            shown(rate(ran, ran_before)),
            row.number("saturated"),
            time(row.number("run_p99_ns")),
        );
    }
    text.push('\n');
    text
}

/// A time in nanoseconds, rounded down, with a unit; 0 is no time.
fn time(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        1..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ => format!("{}s", ns / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "name\tran\tin_flight\tpending\trun_us\tsaturated\trun_p99_ns\n\
        log\t10\t2\t1\t500000\t1\t4096\n\
        io\t5\t0\t0\t7\t0\t0\n";

    #[test]
    fn rates_are_those_since_the_last_table() {
        let mut before = Before::new();
        let first = render(&Table::parse(FIRST), &[], &mut before, None);
        let lines: Vec<Vec<&str>> =
            first.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["log", "10", "2", "1", "0.5", "-", "-", "1", "4us"]);
        let second = FIRST.replace("log\t10\t2\t1\t500000", "log\t30\t0\t0\t1500000");
        let second = render(&Table::parse(&second), &[], &mut before, Some(Duration::from_secs(2)));
        let lines: Vec<Vec<&str>> =
            second.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["log", "30", "0", "0", "1.5", "0.50", "10", "1", "4us"]);
    }

    #[test]
    fn queues_are_chosen_by_regular_expressions() {
        let names = [Regex::new("^i").unwrap()];
        let text = render(&Table::parse(FIRST), &names, &mut Before::new(), None);
        assert!(text.contains("io ") && !text.contains("log "), "{text}");
    }

    #[test]
    fn an_interval_is_a_number_of_seconds() {
        assert_eq!(interval("0.5").unwrap(), Duration::from_millis(500));
        for wrong in ["", "-1", "NaN", "inf", "1s", "86401"] {
            let text = interval(wrong).unwrap_err().0;
            assert!(text.ends_with("(allowed: 0 to 86400)"), "{text}");
        }
    }
}
