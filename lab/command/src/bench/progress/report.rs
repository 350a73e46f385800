//! The table of a case: one row for each variant, followed by the targets.

use std::fmt::Write;
use std::time::Duration;

use super::lateness::{MAX, METRICS, P50, P99, RESCUES, TRIES};
use super::plan::{READY, TIMER_COMPUTE};
use super::{Row, ready, timer};

const VARIANT_WIDTH: usize = 20;
const FIGURE_WIDTH: usize = 10;

/// The description above the table, and the header.
pub(super) fn head(case: &str) -> String {
    let about = if case == READY { ready::about() } else { timer::about(case == TIMER_COMPUTE) };
    let mut text = format!("\n{case}: {about}\n{:<VARIANT_WIDTH$}", "variant");
    for metric in METRICS {
        let _ = write!(text, "{:>FIGURE_WIDTH$}", metric.title);
    }
    let _ = writeln!(text, "{:>FIGURE_WIDTH$}", "target us");
    text
}

/// The row of a variant.
pub(super) fn line(row: &Row) -> String {
    let mut text = format!("{:<VARIANT_WIDTH$}", row.order.variant());
    for metric in [P50, P99, MAX, TRIES, RESCUES] {
        let _ = write!(text, "{:>FIGURE_WIDTH$.*}", metric.decimals, row.value(metric));
    }
    let _ = writeln!(text, "{:>FIGURE_WIDTH$}", row.order.target().as_micros());
    text
}

/// The targets, and the variants that missed them.
pub(super) fn foot(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut targets: Vec<Duration> = rows.iter().map(|row| row.order.target()).collect();
    targets.sort_unstable();
    targets.dedup();
    for target in targets {
        let late_max = target.as_secs_f64() * 1e6;
        let of_this: Vec<&Row> = rows.iter().filter(|row| row.order.target() == target).collect();
        let what = format!("late by at most {} ms", target.as_millis());
        text += &verdict(&what, &of_this, |row| row.value(MAX) <= late_max);
    }
    let all: Vec<&Row> = rows.iter().collect();
    text += &verdict("no rescues", &all, |row| row.value(RESCUES) == 0.0);
    if rows.iter().any(|row| row.order.spare) {
        text += "+spare: several workers are idle when a try begins; otherwise exactly one is\n";
    }
    text
}

/// A line that lists the variants of `rows` that missed the target.
fn verdict(target: &str, rows: &[&Row], reached: impl Fn(&Row) -> bool) -> String {
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
    use crate::bench::progress::lateness::Tries;

    fn rows(late_max_us: [u32; 2], rescues: u32) -> Vec<Row> {
        let orders = orders(TIMER_SLEEP, &["events"], &[1], 7).into_iter();
        let row = |(order, max)| {
            let mut tries = Tries::default();
            let printed = format!("{{\"late_ns\":[1000,1000,{max}000],\"rescues\":{rescues}}}");
            tries.add(&printed, "").expect("figures");
            Row { order, tries }
        };
        orders.zip(late_max_us).map(row).collect()
    }

    #[test]
    fn the_foot_names_the_variants_that_miss_a_target() {
        let reached = foot(&rows([5000, 40], 0));
        assert!(reached.starts_with(
            "target late by at most 5 ms: reached by all 2 variant(s)\n\
             target no rescues: reached by all 2 variant(s)\n"
        ));
        let missed = foot(&rows([40, 5001], 1));
        assert!(missed.starts_with(
            "target late by at most 5 ms: missed by 1 of 2 variant(s): events+1cpu+spare\n\
             target no rescues: missed by 2 of 2 variant(s): events+1cpu, events+1cpu+spare\n"
        ));
    }

    #[test]
    fn columns_line_up_with_their_titles() {
        let (head, rows) = (head(TIMER_SLEEP), rows([40, 5001], 0));
        let header = head.lines().last().expect("a header");
        let line = line(&rows[1]);
        assert_eq!(line.trim_end().len(), header.len());
        let cells: Vec<_> = line.split_whitespace().collect();
        assert_eq!(cells, ["events+1cpu+spare", "1.0", "5001.0", "5001.0", "3", "0", "5000"]);
    }
}
