//! The table of a case: one row for each variant, followed by the targets.

use std::fmt::Write;
use std::time::Duration;

use super::lateness::{MAX, METRICS, RESCUES, Tries};
use super::plan::{Order, READY, TIMER_COMPUTE};
use super::{ready, timer};
use crate::bench::interleave::{GroupOutcome, Outcome};
use crate::bench::summary::{self, Figure, Metric};

const VARIANT_WIDTH: usize = 20;
const FIGURE_WIDTH: usize = 10;

/// The figures of a variant.
struct Row<'a> {
    order: &'a Order,
    figures: Vec<(Metric, Figure)>,
}

impl<'a> Row<'a> {
    fn of(outcome: &'a Outcome<Tries>) -> Self {
        Self { order: &outcome.samples[0].order, figures: summary::all(outcome) }
    }

    fn value(&self, wanted: Metric) -> f64 {
        let found = self.figures.iter().find(|(metric, _)| metric.name == wanted.name);
        found.map_or(f64::NAN, |(_, figure)| figure.median)
    }
}

/// The table, and the verdicts below it.
pub(super) fn table(group: &GroupOutcome<Tries>) -> String {
    let rows: Vec<Row<'_>> = group.outcomes.iter().map(Row::of).collect();
    head(&rows[0].order.case) + &rows.iter().map(line).collect::<String>() + &foot(&rows)
}

/// The description above the table, and the header.
fn head(case: &str) -> String {
    let about = if case == READY { ready::about() } else { timer::about(case == TIMER_COMPUTE) };
    let mut text = format!("\n{case}: {about}\n{:<VARIANT_WIDTH$}", "variant");
    for metric in METRICS {
        let _ = write!(text, "{:>FIGURE_WIDTH$}", metric.title);
    }
    let _ = writeln!(text, "{:>FIGURE_WIDTH$}", "target us");
    text
}

/// The row of a variant.
fn line(row: &Row<'_>) -> String {
    let mut text = format!("{:<VARIANT_WIDTH$}", row.order.variant());
    for (metric, figure) in &row.figures {
        let _ = write!(text, "{:>FIGURE_WIDTH$.*}", metric.decimals, figure.median);
    }
    let _ = writeln!(text, "{:>FIGURE_WIDTH$}", row.order.target().as_micros());
    text
}

/// The targets, and the variants that missed them.
fn foot(rows: &[Row<'_>]) -> String {
    let mut text = String::new();
    let mut targets: Vec<Duration> = rows.iter().map(|row| row.order.target()).collect();
    targets.sort_unstable();
    targets.dedup();
    for target in targets {
        let late_max = target.as_secs_f64() * 1e6;
        let of_this: Vec<&Row<'_>> =
            rows.iter().filter(|row| row.order.target() == target).collect();
        let what = format!("late by at most {} ms", target.as_millis());
        text += &verdict(&what, &of_this, |row| row.value(MAX) <= late_max);
    }
    let all: Vec<&Row<'_>> = rows.iter().collect();
    text += &verdict("no rescues", &all, |row| row.value(RESCUES) == 0.0);
    if rows.iter().any(|row| row.order.spare) {
        text += "+spare: several workers are idle when a try begins; otherwise exactly one is\n";
    }
    text
}

/// A line that lists the variants of `rows` that missed the target.
fn verdict(target: &str, rows: &[&Row<'_>], reached: impl Fn(&Row<'_>) -> bool) -> String {
    let missed: Vec<String> =
        rows.iter().filter(|row| !reached(row)).map(|row| row.order.variant()).collect();
    let count = rows.len();
    match missed.is_empty() {
        true => format!("target {target}: reached by all {count} variant(s)\n"),
        false => {
            let (of, names) = (missed.len(), missed.join(", "));
            format!("target {target}: missed by {of} of {count} variant(s): {names}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::{TIMER_SLEEP, orders};
    use super::*;
    use crate::bench::contestant::{Names, RatioTo};
    use crate::bench::uwork_pool::RUNNER;

    fn shown(late_max_us: [u32; 2], rescues: u32) -> String {
        let orders = orders(TIMER_SLEEP, &["events"], &[1], 7).into_iter();
        let outcome = |(order, max): (Order, u32)| {
            let printed = format!("{{\"late_ns\":[1000,1000,{max}000],\"rescues\":{rescues}}}");
            Outcome {
                names: Names { case: TIMER_SLEEP, runner: RUNNER, variant: order.variant() },
                standing: None,
                samples: vec![Tries::read(&order, &printed, "").expect("figures")],
            }
        };
        table(&GroupOutcome {
            title: String::new(),
            outcomes: orders.zip(late_max_us).map(outcome).collect(),
            ratio_to: RatioTo::Nothing,
        })
    }

    #[test]
    fn the_foot_names_the_variants_that_miss_a_target() {
        let reached = shown([5000, 40], 0);
        assert!(reached.contains(
            "target late by at most 5 ms: reached by all 2 variant(s)\n\
             target no rescues: reached by all 2 variant(s)\n"
        ));
        let missed = shown([40, 5001], 1);
        assert!(missed.contains(
            "target late by at most 5 ms: missed by 1 of 2 variant(s): events+1cpu+spare\n\
             target no rescues: missed by 2 of 2 variant(s): events+1cpu, events+1cpu+spare\n"
        ));
    }

    #[test]
    fn columns_line_up_with_their_titles() {
        let table = shown([40, 5001], 0);
        let of = |start: &str| table.lines().find(|line| line.starts_with(start)).expect("a line");
        let line = of("events+1cpu+spare");
        assert_eq!(line.trim_end().len(), of("variant").len());
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells, ["events+1cpu+spare", "1.0", "5001.0", "5001.0", "3", "0", "5000"]);
    }
}
