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

/// A benchmark that did not run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LeftOut {
    pub(super) step: String,
    pub(super) reason: String,
}

/// What a file has.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) records: Vec<Record>,
    pub(super) left_out: Vec<LeftOut>,
}

/// The contents of a file. The error says what is wrong.
pub(super) fn parse(text: &str) -> Result<Contents, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("no JSON: {error}"))?;
    let Value::Array(elements) = value else { return Err("no array of records".to_owned()) };
    let mut contents = Contents::default();
    for (at, element) in elements.iter().enumerate() {
        match (read(element), left_out(element)) {
            (Some(record), _) => contents.records.extend(record),
            (None, Some(left_out)) => contents.left_out.push(left_out),
            (None, None) => return Err(format!("element {at} is no record of a benchmark")),
        }
    }
    Ok(contents)
}

fn left_out(element: &Value) -> Option<LeftOut> {
    let text = |name: &str| element.get(name)?.as_str().map(str::to_owned);
    Some(LeftOut { step: text("left_out")?, reason: text("reason")? })
}

/// A record. None in it: it has nothing to show, since a number that is infinite or none is null in
/// JSON.
fn read(record: &Value) -> Option<Option<Record>> {
    let text = |name: &str| record.get(name)?.as_str().map(str::to_owned);
    let is_null = |name: &&str| record.get(name).is_some_and(Value::is_null);
    if text("bench").is_some() && ["value", "min", "max"].iter().any(is_null) {
        return Some(None);
    }
    read_shown(record).map(Some)
}

fn read_shown(record: &Value) -> Option<Record> {
    let text = |name: &str| record.get(name)?.as_str().map(str::to_owned);
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
        parse(&text).unwrap().records.remove(0)
    }

    #[test]
    fn unknown_facts_about_the_origin_are_left_out() {
        let read = record("flood", "rayon", "items_per_s", 5.0);
        assert_eq!(read.origin, [("CPUs in use", "2".to_owned()), ("Kernel", "6.1".to_owned())]);
        assert_eq!((read.contestant().as_str(), read.role()), ("rayon", "rival"));
    }

    #[test]
    fn the_error_says_which_element_is_wrong() {
        let error = |text| parse(text).err().unwrap_or_default();
        assert_eq!(error("{}"), "no array of records");
        assert_eq!(error("[{}]"), "element 0 is no record of a benchmark");
        assert!(error("").starts_with("no JSON: "));
    }

    #[test]
    fn a_record_without_a_number_is_skipped() {
        let of = |value: &str| {
            format!(
                "{{\"bench\":\"idle\",\"case\":\"c\",\"runner\":\"uwork\",\"variant\":\"\",\
                 \"metric\":\"m\",\"unit\":\"1\",\"value\":{value},\"min\":1,\"max\":1,\"samples\":1}}"
            )
        };
        let contents = parse(&format!("[{},{}]", of("null"), of("7"))).expect("a file of figures");
        let values: Vec<f64> = contents.records.iter().map(|record| record.value).collect();
        assert_eq!(values, [7.0]);
        assert!(parse(&format!("[{}]", of("\"7\""))).is_err());
    }

    #[test]
    fn a_benchmark_that_did_not_run_has_its_reason() {
        let contents =
            parse("[{\"left_out\":\"serve\",\"reason\":\"no server\"}]").expect("a file");
        let left_out = LeftOut { step: "serve".to_owned(), reason: "no server".to_owned() };
        assert_eq!((contents.records.len(), contents.left_out), (0, vec![left_out]));
    }
}
