//! Validation of the benchmarks' common options: ranges of numbers, and names.

use std::ops::RangeInclusive;

use super::UserError;
use super::pipeline::Output;

const PRODUCERS: RangeInclusive<usize> = 1..=1024;
const ITEMS: RangeInclusive<usize> = 1..=10_000_000;
const SAMPLES: RangeInclusive<usize> = 1..=1000;
/// A flood holds all items of all producers in memory at once, up to a few hundred bytes each in
/// some runners.
const MAX_ITEMS_IN_ALL: usize = 20_000_000;

/// Numbers are read as text, so that the message for a bad number states the allowed range.
#[derive(clap::Args)]
pub(super) struct OptionArgs {
    /// Smaller sizes and fewer samples, for a quick check
    #[arg(long)]
    quick: bool,
    /// Number of submitting threads
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    producers: Option<String>,
    /// Items per producer [default: 200000; 20000 if each item is waited for; --quick: half]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    items: Option<String>,
    /// Runs of each runner; the median is reported [default: 5; --quick: 3]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    samples: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// The validated options.
pub(super) struct Options {
    pub(super) quick: bool,
    pub(super) producers: usize,
    /// Overrides the default of every case.
    pub(super) items: Option<usize>,
    pub(super) samples: usize,
    pub(super) output: Output,
}

impl OptionArgs {
    /// Whether the number of submitting threads is given.
    pub(super) fn has_producers(&self) -> bool {
        self.producers.is_some()
    }

    pub(super) fn check(self, default_producers: usize) -> Result<Options, UserError> {
        let producers = count_or("--producers", &self.producers, PRODUCERS, default_producers)?;
        let items = self.items.map(|text| count("--items", &text, ITEMS)).transpose()?;
        let samples = samples_or(&self.samples, if self.quick { 3 } else { 5 })?;
        let options = Options { quick: self.quick, producers, items, samples, output: self.output };
        let in_all = producers.saturating_mul(options.items_of(usize::MAX));
        if in_all > MAX_ITEMS_IN_ALL {
            return Err(UserError(format!(
                "--producers {producers} with {} items each makes {in_all} items: \
                 at most {MAX_ITEMS_IN_ALL} in all are allowed",
                options.items_of(usize::MAX)
            )));
        }
        Ok(options)
    }
}

impl Options {
    /// Items per producer if up to `outstanding` items are in flight.
    pub(super) fn items_of(&self, outstanding: usize) -> usize {
        let full = if outstanding == 1 { 20_000 } else { 200_000 };
        self.items.unwrap_or(if self.quick { full / 2 } else { full })
    }
}

pub(super) fn count(
    flag: &str,
    text: &str,
    allowed: RangeInclusive<usize>,
) -> Result<usize, UserError> {
    match text.parse() {
        Ok(value) if allowed.contains(&value) => Ok(value),
        _ => Err(UserError(format!(
            "{flag} '{text}': a number from {} to {} is allowed",
            allowed.start(),
            allowed.end()
        ))),
    }
}

/// As `count`, with a default if the option is missing.
pub(super) fn count_or(
    flag: &str,
    given: &Option<String>,
    allowed: RangeInclusive<usize>,
    default: usize,
) -> Result<usize, UserError> {
    given.as_ref().map_or(Ok(default), |text| count(flag, text, allowed))
}

/// The value of `--samples`, or the default.
pub(super) fn samples_or(given: &Option<String>, default: usize) -> Result<usize, UserError> {
    count_or("--samples", given, SAMPLES, default)
}

/// Checks that each name is allowed. Returns the names without duplicates, in the order of
/// `allowed`.
pub(super) fn names<'a>(
    flag: &str,
    given: &[String],
    allowed: &[&'a str],
) -> Result<Vec<&'a str>, UserError> {
    if let Some(unknown) = given.iter().find(|name| !allowed.contains(&name.as_str())) {
        return Err(UserError(format!(
            "{flag} '{unknown}' does not exist: allowed are {}",
            allowed.join(", ")
        )));
    }
    Ok(allowed.iter().copied().filter(|name| given.iter().any(|g| g == name)).collect())
}

/// The given names as in [`names`], or all allowed names if none is given.
pub(super) fn names_or_all<'a>(
    flag: &str,
    given: &[String],
    allowed: &[&'a str],
) -> Result<Vec<&'a str>, UserError> {
    let chosen = names(flag, given, allowed)?;
    Ok(if chosen.is_empty() { allowed.to_vec() } else { chosen })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_outside_their_range_are_refused_with_the_range() {
        for text in ["0", "-1", "1025", "eight", "", "99999999999999999999"] {
            let UserError(line) = count("--producers", text, PRODUCERS).unwrap_err();
            assert_eq!(line, format!("--producers '{text}': a number from 1 to 1024 is allowed"));
        }
        assert_eq!(count("--producers", "8", PRODUCERS).unwrap(), 8);
    }

    #[test]
    fn names_are_deduplicated_and_in_the_fixed_order() {
        let given = ["flood", "wait", "flood"].map(str::to_owned);
        assert_eq!(
            names("--case", &given, &["wait", "batch", "flood"]).unwrap(),
            ["wait", "flood"]
        );
    }

    #[test]
    fn without_names_all_are_selected() {
        let all = ["wait", "batch"];
        assert_eq!(names_or_all("--case", &[], &all).unwrap(), all);
        assert_eq!(names_or_all("--case", &["batch".to_owned()], &all).unwrap(), ["batch"]);
        assert!(names_or_all("--case", &["flood".to_owned()], &all).is_err());
    }
}
