//! `uwork monitor`: the counters of the queues at intervals, in the manner of the kernel's
//! `wq_monitor.py`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use regex_lite::Regex;

use super::{MonitorArgs, UserError, interval, time};
use crate::client::{Client, Failure, Table};
use crate::commands::{reader_goes_within, written};

/// The counters of a queue in the last table: runs, and their time in microseconds.
type Before = HashMap<String, (u64, u64)>;

/// The columns after the name: title and width.
const COLUMNS: [(&str, usize); 16] = [
    ("total", 10),
    ("infl", 6),
    ("pend", 6),
    ("CPUtime", 9),
    ("CPUitsv", 7),
    ("CMW", 6),
    ("mayday", 6),
    ("rescued", 7),
    ("runtime", 9),
    ("busy", 6),
    ("items/s", 9),
    ("full", 4),
    ("stolen", 8),
    ("wait", 6),
    ("wait99", 6),
    ("run99", 6),
];

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
        if shown > 0 && reader_goes_within(interval.saturating_sub(last.elapsed())) {
            break;
        }
        let since = last.elapsed();
        last = Instant::now();
        let table = queues(&mut client, &args.names)?;
        let text = render(&table, &names, &mut before, (shown > 0).then_some(since));
        if !written(text.as_bytes())? {
            break;
        }
        shown += 1;
    }
    Ok(ExitCode::SUCCESS)
}

/// The queues. If they are too many for an answer, those that a single name chooses, as far as it is
/// plain text.
fn queues(client: &mut Client, names: &[String]) -> Result<Table, UserError> {
    let refused = match client.ask("queues") {
        Ok(answer) => return Ok(Table::parse(&answer)),
        Err(Failure::Refused(refused)) => refused,
        Err(gone) => return Err(gone.into()),
    };
    match part(names) {
        Some(part) => Ok(Table::parse(&client.ask(&format!("queues {part}"))?)),
        None => {
            Err(UserError(format!("{} (allowed here: one name, or a part of it)", refused.reason)))
        }
    }
}

/// A text that is in every name which the regular expression matches.
fn part(names: &[String]) -> Option<&str> {
    let [name] = names else { return None };
    let plain = name.trim_start_matches('^').trim_end_matches('$');
    let is_plain = |c: char| c.is_alphanumeric() || "-_/:#! ".contains(c);
    (!plain.is_empty() && plain.chars().all(is_plain)).then_some(plain)
}

/// A table of the queues that match. `since`: the time since the last table, if there was one.
fn render(table: &Table, names: &[Regex], before: &mut Before, since: Option<Duration>) -> String {
    let mut text = line("", &COLUMNS.map(|(title, _)| title.to_owned()));
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
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let number = |column: &str| row.number(column).to_string();
        let seconds = |us: u64| format!("{:.1}", us as f64 / 1e6);
        let values = [
            ran.to_string(),
            number("in_flight"),
            number("pending"),
            seconds(row.number("cpu_us")),
            number("cpu_intensive"),
            number("replaced"),
            number("maydays"),
            number("rescued"),
            seconds(run_us),
            shown(rate(run_us, us_before).map(|us_per_s| us_per_s / 1e6), 2),
            shown(rate(ran, ran_before), 0),
            number("saturated"),
            number("stolen"),
            time(row.number("wait_p50_ns")),
            time(row.number("wait_p99_ns")),
            time(row.number("run_p99_ns")),
        ];
        text += &line(name, &values);
    }
    text.push('\n');
    text
}

fn line(name: &str, values: &[String; COLUMNS.len()]) -> String {
    let mut line = format!("{name:<25}");
    for (value, (_, width)) in values.iter().zip(COLUMNS) {
        // Writing to a string does not fail.
        let _ = write!(line, " {value:>width$}");
    }
    line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "name\tran\tin_flight\tpending\trun_us\tsaturated\trun_p99_ns\tcpu_us\t\
        cpu_intensive\treplaced\tstolen\tmaydays\trescued\twait_p50_ns\twait_p99_ns\n\
        log\t10\t2\t1\t500000\t1\t4096\t400000\t3\t4\t5\t6\t7\t1024\t98304\n\
        io\t5\t0\t0\t7\t0\t0\t0\t0\t0\t0\t0\t0\t0\t0\n";

    #[test]
    fn rates_are_those_since_the_last_table() {
        let mut before = Before::new();
        let first = render(&Table::parse(FIRST), &[], &mut before, None);
        let columns = |text: &str, line: usize| {
            let words = text.lines().nth(line).unwrap().split_whitespace();
            words.map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            columns(&first, 0).split(' ').count() + 1,
            columns(&first, 1).split(' ').count()
        );
        assert_eq!(columns(&first, 1), "log 10 2 1 0.4 3 4 6 7 0.5 - - 1 5 1us 98us 4us");
        let second = FIRST.replace("log\t10\t2\t1\t500000", "log\t30\t0\t0\t1500000");
        let second = render(&Table::parse(&second), &[], &mut before, Some(Duration::from_secs(2)));
        assert_eq!(columns(&second, 1), "log 30 0 0 0.4 3 4 6 7 1.5 0.50 10 1 5 1us 98us 4us");
    }

    #[test]
    fn queues_are_chosen_by_regular_expressions() {
        let names = [Regex::new("^i").unwrap()];
        let text = render(&Table::parse(FIRST), &names, &mut Before::new(), None);
        assert!(text.contains("io ") && !text.contains("log "), "{text}");
    }

    #[test]
    fn a_plain_name_is_a_part_of_every_match() {
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            part(&names).map(str::to_owned)
        };
        assert_eq!(of(&["^disk-1$"]).as_deref(), Some("disk-1"));
        assert_eq!(of(&["disk"]).as_deref(), Some("disk"));
        assert_eq!((of(&["di.k"]), of(&["^"]), of(&[]), of(&["a", "b"])), (None, None, None, None));
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
