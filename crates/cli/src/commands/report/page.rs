//! The page: what was measured where, the source documents' tables, and a section for each
//! benchmark.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::lines::{self, Line};
use super::records::{Contents, Record, distinct};
use super::table::table;
use super::{bars, escaped, short, sources};

const STYLE: &str = include_str!("style.css");

/// What each benchmark measures; benchmarks that are not listed have their name only.
const ABOUT: [(&str, &str); 18] = [
    (
        "workqueue",
        "Small work items, as the kernel's test_workqueue submits them: each waited for, in batches, all at once.",
    ),
    ("nested", "Nested fork and join, and futures that yield."),
    ("scope", "Many submitters on one last-level cache."),
    ("blocking", "Items that block undeclared, among short items."),
    ("open", "Items that arrive at planned times, whatever the state of the pool."),
    ("progress", "How late a ready item starts beside an item that occupies a worker."),
    ("percpu", "Cycles of an allocation of 64 bytes, and of what is built on per-CPU locks."),
    ("isolation", "How drains disturb a thread that is alone on its CPU."),
    ("taskwork", "Threads that post work to each other."),
    ("serve", "A RESP server beside redis-server."),
    ("power", "Periodic tasks on an idle machine."),
    ("timers", "The cost of timers while a million are armed, and how late they expire."),
    (
        "golden",
        "The example scenarios of the kernel's document on workqueues: when each item begins and ends.",
    ),
    ("bridge", "Jobs of Redis Streams, beside other job queues."),
    ("guest", "What the library does to its process, and a process to the library."),
    ("queues", "The cost of a queue."),
    ("idle", "Wake-ups without work."),
    ("observe", "The cost of being looked at."),
];

/// Renders the page.
pub(super) fn render(contents: &Contents) -> String {
    let all = &latest(&contents.records);
    let benches = distinct(all.iter().map(|record| record.bench.as_str()));
    let mut body = origins(all) + &left_out(contents);
    let documents = sources::tables(all);
    if !documents.is_empty() {
        let _ = write!(
            body,
            "<section id=\"documents\"><h2>Beside the documents</h2>\
             <p>The tables that uwork started from. Their machines are not this one: compare within a column.</p>\n\
             {documents}</section>\n"
        );
    }
    for bench in &benches {
        body += &section(bench, all);
    }
    let links: String =
        benches.iter().map(|bench| format!("<a href=\"#{0}\">{0}</a> ", escaped(bench))).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>uwork: benchmarks</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<header><h1>uwork: benchmarks</h1><nav>{links}</nav>\
         <p class=\"key\"><span><b class=\"uwork\"></b>uwork</span> <span><b class=\"rival\"></b>rival</span> \
         <span><b class=\"limit\"></b>limit, or the kernel&#39;s queue rebuilt</span> \
         <span><b class=\"mark\"></b>from the least to the greatest sample</span></p></header>\n\
         <main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// The benchmarks that did not run, each with its reason.
fn left_out(contents: &Contents) -> String {
    if contents.left_out.is_empty() {
        return String::new();
    }
    let rows: Vec<Vec<String>> = contents
        .left_out
        .iter()
        .map(|left_out| vec![left_out.step.clone(), left_out.reason.clone()])
        .collect();
    format!("<section id=\"left-out\">{}</section>\n", table("", &["Left out", "reason"], &rows))
}

/// The records without those that a later record of the same figure replaces.
fn latest(all: &[Record]) -> Vec<Record> {
    let key = |r: &Record| {
        let names = [&r.bench, &r.case, &r.runner, &r.variant, &r.metric].map(Clone::clone);
        (names, r.producers)
    };
    let last: HashMap<_, usize> = all.iter().enumerate().map(|(at, r)| (key(r), at)).collect();
    let kept = all.iter().enumerate().filter(|(at, record)| last[&key(record)] == *at);
    kept.map(|(_, record)| record.clone()).collect()
}

/// A table with a column for each machine and build.
fn origins(all: &[Record]) -> String {
    let origins = distinct(all.iter().map(|record| &record.origin));
    let titles = distinct(origins.iter().flat_map(|origin| origin.iter().map(|(title, _)| *title)));
    let value = |origin: &[(&str, String)], title: &str| {
        let found = origin.iter().find(|(known, _)| *known == title);
        found.map_or("-".to_owned(), |(_, value)| value.clone())
    };
    let rows: Vec<Vec<String>> = titles
        .iter()
        .map(|title| {
            let values = origins.iter().map(|origin| value(origin, title));
            std::iter::once((*title).to_owned()).chain(values).collect()
        })
        .collect();
    let mut head = vec!["Machine and build"];
    head.resize(origins.len() + 1, "");
    table("", &head, &rows)
}

fn section(bench: &str, all: &[Record]) -> String {
    let records: Vec<&Record> = all.iter().filter(|record| record.bench == bench).collect();
    let about = ABOUT.iter().find(|(name, _)| *name == bench).map_or("", |(_, about)| about);
    let mut charts = String::new();
    for case in distinct(records.iter().map(|record| record.case.as_str())) {
        let of_case: Vec<&Record> =
            records.iter().copied().filter(|record| record.case == case).collect();
        charts += &lead_chart(case, &of_case);
        charts += &latency_chart(case, &of_case);
        charts += &scaling_chart(case, &of_case);
    }
    format!(
        "<section id=\"{0}\"><h2>{0}</h2><p>{1}</p>\n<div class=\"charts\">\n{charts}</div>\n{2}</section>\n",
        escaped(bench),
        escaped(about),
        everything(&records),
    )
}

/// The first metric of a case, as the benchmark's own tables show it first. If the number of producers
/// was varied, the records with the greatest; and without those that time each enqueue, unless there
/// are no others.
fn lead_chart(case: &str, records: &[&Record]) -> String {
    let Some(lead) = records.first() else { return String::new() };
    let producers = records.iter().map(|record| record.producers).max().flatten();
    let same = |r: &&Record| r.metric == lead.metric && r.producers == producers;
    let (timed, plain): (Vec<_>, Vec<_>) =
        records.iter().copied().filter(same).partition(|r| r.variant.ends_with("+clock"));
    let shown = if plain.is_empty() { timed } else { plain };
    bars::chart(&format!("{case}: {}", lead.metric), &shown)
}

/// Percentiles of a case: one point for each, one line for each contestant.
fn latency_chart(case: &str, records: &[&Record]) -> String {
    let percentile = |record: &Record| -> Option<(String, u32)> {
        let (prefix, rest) = record.metric.split_once("_p").map(|(a, b)| (a.to_owned(), b))?;
        let (digits, _) = rest.split_once('_')?;
        Some((prefix, digits.parse().ok()?))
    };
    let kinds = distinct(records.iter().filter_map(|record| Some(percentile(record)?.0)));
    let chart = |kind: &String| {
        let of_kind: Vec<(&Record, u32)> = records
            .iter()
            .filter_map(|record| {
                percentile(record).filter(|(k, _)| k == kind).map(|p| (*record, p.1))
            })
            .collect();
        let mut points = distinct(of_kind.iter().map(|(_, percent)| *percent));
        points.sort_unstable();
        let unit = of_kind.first().map_or("", |(record, _)| record.unit.as_str());
        let lines = lines_of(&of_kind, &points);
        let titles: Vec<String> = points.iter().map(|percent| format!("p{percent}")).collect();
        lines::chart(&format!("{case}: {kind}"), unit, &titles, &lines)
    };
    kinds.iter().map(chart).collect()
}

/// The first metric over the number of producers.
fn scaling_chart(case: &str, records: &[&Record]) -> String {
    let Some(lead) = records.first() else { return String::new() };
    let of_lead: Vec<(&Record, u64)> = records
        .iter()
        .filter(|record| record.metric == lead.metric)
        .filter_map(|record| Some((*record, record.producers?)))
        .collect();
    let mut points = distinct(of_lead.iter().map(|(_, producers)| *producers));
    points.sort_unstable();
    let titles: Vec<String> = points.iter().map(u64::to_string).collect();
    let title = format!("{case}: {} over producers", lead.metric);
    lines::chart(&title, &lead.unit, &titles, &lines_of(&of_lead, &points))
}

/// A line for each contestant, with its value at each point.
fn lines_of<P: PartialEq + Copy>(records: &[(&Record, P)], points: &[P]) -> Vec<Line> {
    let names = distinct(records.iter().map(|(record, _)| (record.contestant(), record.role())));
    let line = |(name, role): (String, &'static str)| {
        let value = |point: &P| {
            let at = records.iter().find(|(r, p)| p == point && r.contestant() == name);
            at.map(|(record, _)| record.value)
        };
        Line { values: points.iter().map(value).collect(), name, role }
    };
    names.into_iter().map(line).collect()
}

/// All figures of a benchmark, folded away.
fn everything(records: &[&Record]) -> String {
    let rows: Vec<Vec<String>> = records
        .iter()
        .map(|record| {
            vec![
                record.case.clone(),
                record.contestant(),
                record.metric.clone(),
                record.producers.map_or(String::new(), |producers| producers.to_string()),
                short(record.value),
                short(record.min),
                short(record.max),
                record.unit.clone(),
                record.samples.to_string(),
            ]
        })
        .collect();
    let head =
        ["case", "runner", "metric", "producers", "median", "least", "greatest", "unit", "samples"];
    format!("<details><summary>All figures</summary>{}</details>\n", table("", &head, &rows))
}

#[cfg(test)]
mod tests {
    use super::super::records::LeftOut;
    use super::super::records::tests::record;
    use super::*;

    #[test]
    fn the_page_is_complete_in_itself() {
        let mut all = vec![record("wait", "uwork", "items_per_s", 3e5)];
        for (metric, value) in [("enqueue_p50_ns", 40.0), ("enqueue_p99_ns", 200.0)] {
            all.push(Record { unit: "ns".to_owned(), ..record("wait", "uwork", metric, value) });
        }
        let html = render(&Contents { records: all, ..Contents::default() });
        let charts = html.matches("<figure class=\"chart").count();
        assert_eq!(charts, 2, "bars and percentiles: {html}");
        for absent in ["<script", "http:", "https:", "src=", "@import", "url("] {
            assert!(!html.contains(absent), "{absent}");
        }
    }

    #[test]
    fn left_out_steps_are_on_the_page() {
        let left_out = LeftOut { step: "serve".to_owned(), reason: "no <server>".to_owned() };
        let html = render(&Contents { left_out: vec![left_out], ..Contents::default() });
        assert!(html.contains("Left out") && html.contains("no &lt;server&gt;"), "{html}");
    }

    #[test]
    fn a_later_record_replaces_an_earlier_one() {
        let all = [1.0, 2.0].map(|rate| record("wait", "uwork", "items_per_s", rate));
        assert_eq!(latest(&all), all[1..]);
        let other = record("wait", "rayon", "items_per_s", 1.0);
        assert_eq!(latest(&[other.clone(), all[0].clone()]), [other, all[0].clone()]);
    }

    #[test]
    fn a_number_of_producers_that_varies_makes_a_curve() {
        let at = |producers, rate| Record {
            producers: Some(producers),
            ..record("flood", "uwork", "items_per_s", rate)
        };
        let all = [at(1, 1e7), at(2, 2e7), at(4, 3e7)];
        let all: Vec<&Record> = all.iter().collect();
        assert_eq!(scaling_chart("flood", &all).matches("<circle").count(), 3);
        assert_eq!(scaling_chart("flood", &all[..1]), "");
        assert_eq!(lead_chart("flood", &all).matches("<dt>").count(), 1, "the most producers");
    }
}
