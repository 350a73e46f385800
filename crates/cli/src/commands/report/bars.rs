//! A chart of bars: the contestants of a case, by one metric. It is made of text and boxes, so that it fits
//! every width.

use std::fmt::Write as _;

use super::records::Record;
use super::{escaped, short};

/// The chart of records that share everything but the contestant. Best first; the mark in a bar
/// spans the samples.
pub(super) fn chart(title: &str, records: &[&Record]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let higher = first.higher_is_better();
    let mut sorted = records.to_vec();
    sorted.sort_by(
        |a, b| if higher { b.value.total_cmp(&a.value) } else { a.value.total_cmp(&b.value) },
    );
    let longest = records.iter().map(|record| record.max).fold(f64::MIN_POSITIVE, f64::max);
    let percent = |value: f64| (value / longest * 100.0).clamp(0.0, 100.0);
    let better = if higher { "higher is better" } else { "lower is better" };
    let mut html = format!(
        "<figure class=\"chart bars\"><figcaption>{} <small>{}, {better}</small></figcaption><dl>\n",
        escaped(title),
        escaped(&first.unit),
    );
    for record in sorted {
        let (low, high) = (percent(record.min), percent(record.max));
        let _ = writeln!(
            html,
            "<dt>{}</dt><dd title=\"{} samples, {} to {}\"><i class=\"{}\" style=\"width:{:.1}%\"></i>\
             <u style=\"left:{low:.1}%;width:{:.1}%\"></u></dd><dd class=\"value\">{}</dd>",
            escaped(&record.contestant()),
            record.samples,
            short(record.min),
            short(record.max),
            record.role(),
            percent(record.value),
            high - low,
            short(record.value),
        );
    }
    html + "</dl></figure>\n"
}

#[cfg(test)]
mod tests {
    use super::super::records::tests::record;
    use super::*;

    #[test]
    fn the_best_comes_first_and_the_longest_bar_is_full() {
        let [slow, fast] = [("bare", 5.0), ("uwork", 10.0)]
            .map(|(runner, rate)| record("flood", runner, "items_per_s", rate));
        let html = chart("flood", &[&slow, &fast]);
        let at = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}: {html}"));
        assert!(at("<dt>uwork</dt>") < at("<dt>bare</dt>"));
        assert!(
            at("class=\"uwork\" style=\"width:100.0%\"")
                < at("class=\"limit\" style=\"width:50.0%\"")
        );
        assert!(html.contains("higher is better"));
    }
}
