//! `uwork report`: the figures of benchmarks as one page that needs no network and no script.

mod bars;
mod lines;
mod page;
mod records;
mod sources;
mod table;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use super::{UserError, print};

/// The command line of `uwork report`.
#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    /// Files that `uwork-lab bench NAME --json FILE` wrote.
    #[arg(value_name = "BENCH.json", required = true)]
    files: Vec<PathBuf>,

    /// The page to write.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

/// Runs `uwork report`.
pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode, UserError> {
    let mut all = records::Contents::default();
    for file in &args.files {
        let text = fs::read_to_string(file)
            .map_err(|error| UserError(format!("{}: {error}", file.display())))?;
        let contents = records::parse(&text).map_err(|reason| {
            UserError(format!(
                "{}: {reason} (allowed: a file that uwork-lab bench NAME --json wrote)",
                file.display()
            ))
        })?;
        all.records.extend(contents.records);
        all.left_out.extend(contents.left_out);
    }
    let page = page::render(&all);
    fs::write(&args.output, page)
        .map_err(|error| UserError(format!("{}: {error}", args.output.display())))?;
    print(&format!("{}\n", args.output.display()))
}

/// A text as content or attribute of an element.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number for people: three digits, with a unit prefix where it is large.
fn short(value: f64) -> String {
    let (scaled, prefix) = match value.abs() {
        size if size >= 1e9 => (value / 1e9, " G"),
        size if size >= 1e6 => (value / 1e6, " M"),
        size if size >= 1e4 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    let decimals = match scaled.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        0.0 => 0,
        _ => 3,
    };
    format!("{scaled:.decimals$}{prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let numbers = [0.0, 0.0123, 1.5, 42.25, 314.4, 9_999.0, 12_345.0, 51_234_567.0, 2e9];
        assert_eq!(
            numbers.map(short),
            ["0", "0.012", "1.50", "42.2", "314", "9999", "12.3 k", "51.2 M", "2.00 G"]
        );
    }

    #[test]
    fn text_cannot_end_its_element() {
        assert_eq!(escaped("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
    }
}
