//! `uwork monitor`: the counters of the queues at intervals, in the manner of the kernel's
//! `wq_monitor.py`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use regex_lite::Regex;
use serde_json::{Value, json};

use super::{MonitorArgs, UserError, interval, time};
use crate::client::{Client, Failure, Row, Table};
use crate::commands::{reader_goes_within, written};
use crate::printable::in_a_line;

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

/// The columns of the answer that are text; all others are numbers.
const TEXTS: [&str; 5] = ["name", "kind", "flags", "scope", "gate"];

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
            if reader_goes_within(interval.saturating_sub(last.elapsed())) {
                break;
            }
            client.renew();
        }
        let since = last.elapsed();
        last = Instant::now();
        let table = queues(&mut client, &args.names)?;
        let samples = samples(&table, &names, &mut before, (shown > 0).then_some(since));
        // Later, a queue that was shown may have ended, and others may come.
        if shown == 0 && samples.is_empty() && !names.is_empty() {
            return Err(none_matches(client.process(), &args.names));
        }
        let text = match args.json {
            true => lines(&samples, SystemTime::now()),
            false => render(&samples),
        };
        if !written(&text)? {
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

fn none_matches(process: u32, names: &[String]) -> UserError {
    UserError(format!(
        "process {process} has no queue whose name matches {} (allowed: the names that `uwork \
         monitor -c 1 {process}` prints)",
        names.join(" or ")
    ))
}

/// A text that is in every name which the regular expression matches.
fn part(names: &[String]) -> Option<&str> {
    let [name] = names else { return None };
    let plain = name.trim_start_matches('^').trim_end_matches('$');
    let is_plain = |c: char| c.is_alphanumeric() || "-_/:#! ".contains(c);
    (!plain.is_empty() && plain.chars().all(is_plain)).then_some(plain)
}

/// A queue of a table.
struct Sample<'a> {
    row: Row<'a>,
    /// Runs per second, and runs at a time, since the last table. None if the queue is new.
    rates: Option<(f64, f64)>,
}

/// The queues that match. `since`: the time since the last table, if there was one. `before` becomes
/// the counters of this table.
fn samples<'a>(
    table: &'a Table,
    names: &[Regex],
    before: &mut Before,
    since: Option<Duration>,
) -> Vec<Sample<'a>> {
    let (mut samples, mut now) = (Vec::new(), Before::new());
    for row in table.rows() {
        let name = row.text("name");
        let (ran, run_us) = (row.number("ran"), row.number("run_us"));
        let earlier = before.get(name).copied();
        now.insert(name.to_owned(), (ran, run_us));
        if !names.is_empty() && !names.iter().any(|wanted| wanted.is_match(name)) {
            continue;
        }
        let rate = |now: u64, then: u64, since: Duration| {
            now.saturating_sub(then) as f64 / since.as_secs_f64().max(1e-6)
        };
        let rates = since.zip(earlier).map(|(since, (ran_before, us_before))| {
            (rate(ran, ran_before, since), rate(run_us, us_before, since) / 1e6)
        });
        samples.push(Sample { row, rates });
    }
    // Queues that are no longer in the table are forgotten: a process may make new ones for ever.
    *before = now;
    samples
}

/// The samples as a table.
fn render(samples: &[Sample<'_>]) -> String {
    let mut text = line("", &COLUMNS.map(|(title, _)| title.to_owned()));
    for Sample { row, rates } in samples {
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let number = |column: &str| row.number(column).to_string();
        let seconds = |us: u64| format!("{:.1}", us as f64 / 1e6);
        let values = [
            number("ran"),
            number("in_flight"),
            number("pending"),
            seconds(row.number("cpu_us")),
            number("cpu_intensive"),
            number("replaced"),
            number("maydays"),
            number("rescued"),
            seconds(row.number("run_us")),
            shown(rates.map(|(_, busy)| busy), 2),
            shown(rates.map(|(items, _)| items), 0),
            number("saturated"),
            number("stolen"),
            time(row.number("wait_p50_ns")),
            time(row.number("wait_p99_ns")),
            time(row.number("run_p99_ns")),
        ];
        text += &line(&in_a_line(row.text("name")), &values);
    }
    text.push('\n');
    text
}

/// The samples as JSON, each on a line: the columns of the answer to `queues`, the time and the
/// rates.
fn lines(samples: &[Sample<'_>], at: SystemTime) -> String {
    let at = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let object = |sample: &Sample<'_>| {
        let mut object = json!({
            "time_s": at.as_millis() as f64 / 1e3,
            "items_per_s": sample.rates.map(|(items, _)| items),
            "busy": sample.rates.map(|(_, busy)| busy),
        });
        for (column, value) in sample.row.cells() {
            let number = value.parse::<u64>().ok().filter(|_| !TEXTS.contains(&column));
            object[column] = number.map_or_else(|| value.into(), Value::from);
        }
        crate::commands::json::line(&object)
    };
    samples.iter().map(object).collect()
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

    fn shown(table: &str, names: &[Regex], before: &mut Before, since: Option<Duration>) -> String {
        render(&samples(&Table::parse(table), names, before, since))
    }

    #[test]
    fn a_sample_as_json_has_every_column_and_the_rates() {
        let (table, mut before) = (Table::parse(FIRST), Before::new());
        let at = UNIX_EPOCH + Duration::from_millis(1_500);
        let objects = |before: &mut Before, since| -> Vec<Value> {
            let text = lines(&samples(&table, &[], before, since), at);
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let first = objects(&mut before, None);
        assert_eq!(
            (first.len(), &first[0]["name"], &first[0]["ran"]),
            (2, &"log".into(), &10.into())
        );
        assert_eq!(first[0]["time_s"], 1.5);
        assert!(first[0]["items_per_s"].is_null() && first[0]["busy"].is_null());
        for (column, _) in table.rows().next().unwrap().cells() {
            assert!(!first[0][column].is_null(), "{column}");
        }
        let second = objects(&mut before, Some(Duration::from_secs(1)));
        assert_eq!((&second[0]["items_per_s"], &second[0]["busy"]), (&0.0.into(), &0.0.into()));
        // A number as a name stays a name.
        let table = Table::parse("name\tran\n7\t1\n");
        let text = lines(&samples(&table, &[], &mut Before::new(), None), at);
        let object: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&object["name"], &object["ran"]), (&"7".into(), &1.into()));
    }

    #[test]
    fn rates_are_those_since_the_last_table() {
        let mut before = Before::new();
        let first = shown(FIRST, &[], &mut before, None);
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
        let second = shown(&second, &[], &mut before, Some(Duration::from_secs(2)));
        assert_eq!(columns(&second, 1), "log 30 0 0 0.4 3 4 6 7 1.5 0.50 10 1 5 1us 98us 4us");
    }

    #[test]
    fn queues_that_have_ended_are_forgotten() {
        let mut before = Before::new();
        let table = |name: &str| Table::parse(&format!("name\tran\n{name}\t7\n"));
        for n in 0..100 {
            let since = (n > 0).then_some(Duration::from_secs(1));
            let table = table(&format!("queue-{n}"));
            assert!(samples(&table, &[], &mut before, since)[0].rates.is_none(), "a new queue");
        }
        assert_eq!(before.keys().collect::<Vec<_>>(), ["queue-99"]);
    }

    #[test]
    fn queues_are_chosen_by_regular_expressions() {
        let names = [Regex::new("^i").unwrap()];
        let text = shown(FIRST, &names, &mut Before::new(), None);
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
