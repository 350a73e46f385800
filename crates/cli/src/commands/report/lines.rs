//! A chart of lines: a metric over a few points, one line for each contestant.

use std::fmt::Write as _;

use super::{escaped, short};

/// A line: its name, its role, and its values; None where it has none.
pub(super) struct Line {
    pub(super) name: String,
    pub(super) role: &'static str,
    pub(super) values: Vec<Option<f64>>,
}

/// Colours of lines in the style.
const COLOURS: usize = 8;
const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 220.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 26.0;

/// The chart, with a logarithmic scale of values and evenly spaced points.
pub(super) fn chart(title: &str, unit: &str, points: &[String], lines: &[Line]) -> String {
    let values =
        || lines.iter().flat_map(|line| line.values.iter().flatten()).filter(|&&v| v > 0.0);
    let (low, high) =
        values().fold((f64::MAX, 0.0_f64), |(low, high), &v| (low.min(v), high.max(v)));
    if points.len() < 2 || high <= 0.0 {
        return String::new();
    }
    let (low, high) = (low.log10().floor(), high.log10().ceil().max(low.log10().floor() + 1.0));
    let x = |at: usize| LEFT + (WIDTH - LEFT - RIGHT) * at as f64 / (points.len() - 1) as f64;
    let y = |value: f64| {
        let share = (value.log10() - low) / (high - low);
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - share)
    };
    let mut svg = format!(
        "<figure class=\"chart lines\"><figcaption>{} <small>{}, logarithmic</small></figcaption>\n\
         <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
        escaped(title),
        escaped(unit),
        escaped(title)
    );
    for power in low as i32..=high as i32 {
        let (value, at) = (10_f64.powi(power), y(10_f64.powi(power)));
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 5.0,
            at + 3.5,
            tick(value),
        );
    }
    for (at, point) in points.iter().enumerate() {
        let anchor = if at + 1 == points.len() { "end" } else { "middle" };
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            x(at),
            HEIGHT - 8.0,
            escaped(point)
        );
    }
    for (number, line) in lines.iter().enumerate() {
        let dots: Vec<(f64, f64)> = (0..points.len())
            .filter_map(|at| line.values[at].filter(|&v| v > 0.0).map(|v| (x(at), y(v))))
            .collect();
        let path: Vec<String> = dots.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let class = class_of(number, line);
        if dots.is_empty() {
            // The scale has no place for zero. The legend has the values.
            continue;
        }
        let _ = writeln!(svg, "<path class=\"line {class}\" d=\"M{}\"/>", path.join("L"));
        for (x, y) in dots {
            let _ =
                writeln!(svg, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\"/>");
        }
    }
    svg.push_str("</svg>\n<ul class=\"legend\">");
    for (number, line) in lines.iter().enumerate() {
        let values: Vec<String> =
            line.values.iter().map(|value| value.map_or("-".to_owned(), short)).collect();
        let _ = write!(
            svg,
            "<li><b class=\"{}\"></b>{} <small>{}</small></li>",
            class_of(number, line),
            escaped(&line.name),
            values.join(" / ")
        );
    }
    svg + "</ul></figure>\n"
}

/// The classes of a line: its colour, its role, and whether the colours begin again with it.
fn class_of(number: usize, line: &Line) -> String {
    let again = if number >= COLOURS { " again" } else { "" };
    format!("c{} {}{again}", number % COLOURS, line.role)
}

/// A power of ten on the axis.
fn tick(value: f64) -> String {
    if value < 1.0 { format!("{value}") } else { short(value).replace(".00", "").replace(".0", "") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_point_for_each_value_and_the_axis_has_powers_of_ten() {
        let line = |name: &str, values: [Option<f64>; 3]| Line {
            name: name.to_owned(),
            role: "uwork",
            values: values.to_vec(),
        };
        let lines =
            [line("a<b", [Some(5.0), None, Some(500.0)]), line("zero", [Some(0.0), None, None])];
        let points = ["p50", "p90", "p99"].map(str::to_owned);
        let svg = chart("latency", "us", &points, &lines);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches("class=\"line").count(), 1, "a path has at least one point");
        assert_eq!(svg.matches("class=\"grid\"").count(), 4, "1, 10, 100, 1000");
        assert!(svg.contains("a&lt;b <small>5.00 / - / 500</small>"), "{svg}");
        assert_eq!(chart("latency", "us", &points[..1], &lines), "", "one point is no curve");
    }
}
