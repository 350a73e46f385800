//! The records of benchmarks, as `uwork-lab` writes them.

use serde_json::Value;

/// A figure: the median of its samples.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) bench: String,
    pub(super) case: String,
    pub(super) runner: String,
    pub(super) variant: String,
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) value: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) samples: u64,
    /// The number of submitting threads, where the benchmark has that choice.
    pub(super) producers: Option<u64>,
    /// Machine and build, as pairs of a title and a value.
    pub(super) origin: Vec<(&'static str, String)>,
}

/// The fields of a record that say where it comes from, with their titles.
const ORIGIN: [(&str, &str); 7] = [
    ("cpu_model", "CPU"),
    ("cpus", "CPUs in use"),
    ("kernel", "Kernel"),
    ("version", "uwork"),
    ("commit", "Commit"),
    ("profile", "Profile"),
    ("rustc", "Compiler"),
];

/// The records of a file. The error says what is wrong.
pub(super) fn parse(text: &str) -> Result<Vec<Record>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    let Value::Array(records) = value else { return Err("no array of records".to_owned()) };
    let numbered = records.iter().enumerate();
    numbered
        .map(|(at, record)| {
            read(record).ok_or_else(|| format!("element {at} is no record of a benchmark"))
        })
        .collect()
}

fn read(record: &Value) -> Option<Record> {
    let text = |name: &str| record.get(name)?.as_str().map(str::to_owned);
    // A number that is infinite or none is null in JSON; such a record has nothing to show.
    let number = |name: &str| record.get(name)?.as_f64();
    let shown = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let origin =
        ORIGIN.iter().filter_map(|&(field, title)| Some((title, shown(record.get(field)?)?)));
    Some(Record {
        bench: text("bench")?,
        case: text("case")?,
        runner: text("runner")?,
        variant: text("variant")?,
        metric: text("metric")?,
        unit: text("unit")?,
        value: number("value")?,
        min: number("min")?,
        max: number("max")?,
        samples: record.get("samples")?.as_u64()?,
        producers: record.get("producers").and_then(Value::as_u64),
        origin: origin.collect(),
    })
}

impl Record {
    /// The contestant: runner and variant.
    pub(super) fn contestant(&self) -> String {
        format!("{} {}", self.runner, self.variant).trim_end().to_owned()
    }

    /// Whether a higher value is better, as of a rate.
    pub(super) fn higher_is_better(&self) -> bool {
        self.unit.ends_with("/s") && self.metric != "wakeups_per_s"
            || self.metric.starts_with("within_")
    }

    /// The role of the runner: uwork itself, a limit or a kernel's queue rebuilt, or a rival.
    pub(super) fn role(&self) -> &'static str {
        match self.runner.as_str() {
            "uwork" | "c" | "light" => "uwork",
            "bare" | "limit" | "kernel-locked" | "kernel-deferred" => "limit",
            _ => "rival",
        }
    }
}

/// Distinct values in the order of their first occurrence.
pub(super) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    values.fold(Vec::new(), |mut seen, value| {
        if !seen.contains(&value) {
            seen.push(value);
        }
        seen
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A record for tests.
    pub(in super::super) fn record(case: &str, runner: &str, metric: &str, value: f64) -> Record {
        let text = format!(
            "[{{\"bench\":\"workqueue\",\"case\":\"{case}\",\"runner\":\"{runner}\",\"variant\":\"\",\
             \"metric\":\"{metric}\",\"unit\":\"items/s\",\"value\":{value},\"min\":{value},\
             \"max\":{value},\"samples\":5,\"cpus\":2,\"kernel\":\"6.1\",\"commit\":null}}]"
        );
        parse(&text).unwrap().remove(0)
    }

    #[test]
    fn unknown_facts_about_the_origin_are_left_out() {
        let read = record("flood", "rayon", "items_per_s", 5.0);
        assert_eq!(read.origin, [("CPUs in use", "2".to_owned()), ("Kernel", "6.1".to_owned())]);
        assert_eq!((read.contestant().as_str(), read.role()), ("rayon", "rival"));
    }

    #[test]
    fn the_error_says_which_element_is_wrong() {
        assert_eq!(parse("{}").unwrap_err(), "no array of records");
        assert_eq!(parse("[{}]").unwrap_err(), "element 0 is no record of a benchmark");
        assert!(parse("").unwrap_err().starts_with("no JSON: "));
    }
}
