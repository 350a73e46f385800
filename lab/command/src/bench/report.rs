//! The tables of a group, one for each case: a row per contestant, fastest first, with a bar scaled
//! to the fastest.

use std::fmt::Write;

use uwork_rivals::Standing;

use super::contestant::RatioTo;
use super::interleave::{GroupOutcome, Outcome};
use super::summary::{self, Figure, Metric, Sampled};

const BAR_CELLS: usize = 24;
/// A cell that is filled by 0 to 7 eighths.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// The tables, ready to print. The group must have contestants.
pub(super) fn table<S: Sampled>(group: &GroupOutcome<S>) -> String {
    let mut cases: Vec<&str> = Vec::new();
    for case in group.outcomes.iter().map(|outcome| outcome.names.case) {
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    let of_case = |case: &&str| {
        let subtitle = if cases.len() > 1 { format!("\n{case}\n") } else { String::new() };
        subtitle + &table_of(group, case)
    };
    let tables: String = cases.iter().map(of_case).collect();
    format!("\n{}\n{tables}{}", group.title, yardsticks(group))
}

fn table_of<S: Sampled>(group: &GroupOutcome<S>, case: &str) -> String {
    let of_case = group.outcomes.iter().filter(|outcome| outcome.names.case == case);
    let mut ranked: Vec<(&Outcome<S>, Figure)> = of_case.map(|o| (o, summary::lead(o).1)).collect();
    let base = base(group, case).map(summary::lead_median);
    let columns = Columns::of(&ranked, base.is_some());
    ranked.sort_by(|a, b| summary::faster_first::<S>(a.1.median, b.1.median));
    let fastest = ranked.first().map_or(1.0, |(_, rate)| rate.median);
    let of_fastest = |median| if S::LOWER_IS_BETTER { fastest / median } else { median / fastest };

    let mut rows = vec![columns.header()];
    rows.extend(ranked.iter().map(|(outcome, rate)| columns.row(outcome, *rate, base)));
    let mut text = String::new();
    let bars = std::iter::once(String::new())
        .chain(ranked.iter().map(|(_, rate)| bar(of_fastest(rate.median))));
    for (line, bar) in aligned(&rows).into_iter().zip(bars) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", format!("{line}  {bar}").trim_end());
    }
    text
}

/// One line for each figure, in the order in which the contestants ran: for contestants that do
/// different things.
pub(super) fn list<S: Sampled>(group: &GroupOutcome<S>) -> String {
    let figures = group.outcomes.iter().map(|outcome| (outcome, summary::all(outcome)));
    let figures: Vec<_> =
        figures.flat_map(|(o, all)| all.into_iter().map(move |f| (o, f))).collect();
    let has_range = figures.iter().any(|(_, (_, figure))| figure.samples > 1);
    let mut header = vec!["case", "variant", "metric", "median"];
    header.extend(has_range.then_some("[min .. max]"));
    let mut rows = vec![header.into_iter().map(str::to_owned).collect()];
    rows.extend(figures.into_iter().map(|(outcome, (metric, figure))| {
        let (names, decimals) = (&outcome.names, metric.decimals);
        let Figure { median, min, max, .. } = figure;
        let mut row = vec![names.case.to_owned(), names.variant.clone(), metric.title.to_owned()];
        row.push(format!("{median:.decimals$}"));
        row.extend(has_range.then(|| format!("[{min:.decimals$} .. {max:.decimals$}]")));
        row
    }));
    format!("\n{}\n{}\n", group.title, aligned(&rows).join("\n"))
}

/// The contestant that the ratios of a case refer to. A case without a rival of its own is compared
/// with the rivals of the group's other cases.
fn base<'a, S: Sampled>(group: &'a GroupOutcome<S>, case: &str) -> Option<&'a Outcome<S>> {
    match group.ratio_to {
        RatioTo::FastestRival => {
            let of_case = group.outcomes.iter().filter(|outcome| outcome.names.case == case);
            summary::fastest(of_case, Standing::Pool)
                .or_else(|| summary::fastest(&group.outcomes, Standing::Pool))
        }
        RatioTo::Variant(variant) => {
            group.outcomes.iter().find(|outcome| outcome.names.variant == variant)
        }
        RatioTo::Nothing => None,
    }
}

/// The bases of the ratios, and the ratio of the shapes, which are not usable pools but serve for
/// comparison.
fn yardsticks<S: Sampled>(group: &GroupOutcome<S>) -> String {
    let mut text = String::new();
    let mut bases: Vec<String> = Vec::new();
    for base in group.outcomes.iter().filter_map(|outcome| base(group, outcome.names.case)) {
        let name = base.names.spoken();
        if !bases.contains(&name) {
            let is_rival = base.standing == Some(Standing::Pool);
            let what = if is_rival { ", the fastest rival" } else { "" };
            let _ = writeln!(text, "ratio: to {name}{what}");
            bases.push(name);
        }
    }
    let shape = summary::fastest(&group.outcomes, Standing::Shape);
    let compared = shape.and_then(|shape| Some((shape, base(group, shape.names.case)?)));
    if let Some((shape, base)) = compared {
        let ratio = summary::lead_median(shape) / summary::lead_median(base);
        let _ = writeln!(
            text,
            "for comparison, not a usable pool: {} at {ratio:.2}x",
            shape.names.spoken()
        );
    }
    text
}

/// The optional columns of a table.
struct Columns {
    /// The metric that the table is sorted by.
    lead: Metric,
    /// Whether there are ratios.
    ratio: bool,
    /// All other metrics.
    metrics: Vec<Metric>,
}

impl Columns {
    fn of<S: Sampled>(outcomes: &[(&Outcome<S>, Figure)], ratio: bool) -> Self {
        let (lead, _) = summary::lead(outcomes[0].0);
        let mut metrics: Vec<Metric> = Vec::new();
        for (metric, _) in outcomes.iter().flat_map(|(outcome, _)| summary::all(outcome)) {
            if metric.name != lead.name && metrics.iter().all(|known| known.name != metric.name) {
                metrics.push(metric);
            }
        }
        Self { lead, ratio, metrics }
    }

    fn header(&self) -> Vec<String> {
        let mut header = vec!["runner", "variant"];
        header.extend([self.lead.title, "[min .. max]"]);
        header.extend(self.ratio.then_some("ratio"));
        header.extend(self.metrics.iter().map(|metric| metric.title));
        header.into_iter().map(str::to_owned).collect()
    }

    fn row<S: Sampled>(
        &self,
        outcome: &Outcome<S>,
        rate: Figure,
        base: Option<f64>,
    ) -> Vec<String> {
        let names = &outcome.names;
        let mut row = vec![names.runner.to_owned(), names.variant.clone()];
        row.push(scaled(rate.median));
        row.push(format!("[{} .. {}]", scaled(rate.min), scaled(rate.max)));
        row.extend(base.map(|base| format!("{:.2}x", rate.median / base)));
        let figures = summary::all(outcome);
        row.extend(self.metrics.iter().map(|metric| {
            let figure = figures.iter().find(|(other, _)| other.name == metric.name);
            figure.map_or("-".to_owned(), |(_, f)| format!("{:.*}", metric.decimals, f.median))
        }));
        row
    }
}

/// Three digits and a unit prefix: `431 k`, `7.12 M`.
fn scaled(value: f64) -> String {
    let (value, prefix) = match value {
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {prefix}").trim_end().to_owned()
}

/// Pads the columns to their widest cell: names are left-aligned, figures right-aligned.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    const NAMES: [&str; 4] = ["runner", "variant", "case", "metric"];
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let header: Vec<(bool, usize)> = rows[0]
        .iter()
        .enumerate()
        .map(|(column, title)| (NAMES.contains(&title.as_str()), width(column).unwrap_or(0)))
        .collect();
    let line = |row: &Vec<String>| {
        let cells = header.iter().zip(row).map(|((is_name, width), cell)| {
            if *is_name { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect()
}

/// A bar of `part` (0 to 1) of the full length, in eighths of a cell; at least one eighth long.
fn bar(part: f64) -> String {
    let eighths = ((part.clamp(0.0, 1.0) * (BAR_CELLS * 8) as f64).round() as usize).max(1);
    format!("{}{}", "█".repeat(eighths / 8), EIGHTHS[eighths % 8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contestant::Names;
    use crate::bench::measured::Measured;
    use crate::bench::summary::{CPU, RATE};

    #[test]
    fn a_list_has_a_line_for_each_figure_and_a_range_if_there_are_several_samples() {
        let group = |samples: &[f64]| GroupOutcome {
            title: "a title".to_owned(),
            outcomes: vec![Outcome {
                names: Names { case: "arm", runner: "uwork", variant: "in-order".to_owned() },
                standing: None,
                samples: samples
                    .iter()
                    .map(|&value| Measured::new(vec![(RATE, value), (CPU, 0.5)]))
                    .collect(),
            }],
            ratio_to: RatioTo::Nothing,
        };
        assert_eq!(
            list(&group(&[7.0])),
            "\na title\n\
             case  variant   metric       median\n\
             arm   in-order  items/s           7\n\
             arm   in-order  CPU-s/Mitem   0.500\n"
        );
        assert!(list(&group(&[7.0, 9.0])).contains("  [7 .. 9]\n"));
    }

    #[test]
    fn a_case_is_compared_with_rivals_of_its_own_if_it_has_any() {
        let outcome = |case, runner, standing, rate| Outcome {
            names: Names { case, runner, variant: String::new() },
            standing,
            samples: vec![Measured::new(vec![(RATE, rate)])],
        };
        let mut group = GroupOutcome {
            title: String::new(),
            outcomes: vec![
                outcome("wait", "uwork", None, 6.0),
                outcome("join", "uwork", None, 60.0),
                outcome("wait", "rayon", Some(Standing::Pool), 3.0),
            ],
            ratio_to: RatioTo::FastestRival,
        };
        let ratios = |group: &GroupOutcome<Measured>| {
            let text = table(group);
            let words = text.split_whitespace().filter(|word| word.ends_with('x'));
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(ratios(&group), ["2.00x", "1.00x", "20.00x"]);
        group.outcomes.push(outcome("join", "rayon", Some(Standing::Pool), 30.0));
        assert_eq!(ratios(&group), ["2.00x", "1.00x", "2.00x", "1.00x"]);
        let text = table(&group);
        assert_eq!(text.matches("runner  variant").count(), 2, "a table for each case: {text}");
        for base in ["rayon (wait), the fastest rival", "rayon (join), the fastest rival"] {
            assert_eq!(text.matches(base).count(), 1, "{text}");
        }
    }

    #[test]
    fn bars_are_scaled_in_eighths_and_never_empty() {
        assert_eq!(bar(1.0), "█".repeat(BAR_CELLS));
        assert_eq!(bar(0.5), "█".repeat(BAR_CELLS / 2));
        assert_eq!(bar(0.0), "▏");
        assert_eq!(bar(f64::NAN).chars().count(), 1);
    }

    #[test]
    fn figures_have_three_digits_and_a_prefix() {
        let shown = [7.5, 431_200.0, 7_123_000.0, 44_100_000.0].map(scaled);
        assert_eq!(shown, ["7.50", "431 k", "7.12 M", "44.1 M"]);
    }
}
