//! Requests and answers: a line in, a line or a counted text out.

use std::fmt::Write as _;
use std::time::Duration;

use super::{metrics, pools, status, trace};
use crate::dump_api::{Names, dump_with};
use crate::sysfs::{Entry, EntryKind, Error, Tree};

/// The protocol's version. It grows when a client of the previous version would fail.
pub const VERSION: u32 = 1;

/// Operators see the queues without the flag SYSFS as well.
const TREE: Tree = Tree { has_every_queue: true };

/// The most parts of a request for stacks. Each part is a survey of all workers.
const PARTS_MAX: usize = 16;

/// The requests, with what they answer.
const REQUESTS: [(&str, &str); 15] = [
    ("help", "this list"),
    ("list [PATH]", "the entries of a folder of the attribute tree: rw, ro or dir, and the name"),
    ("get PATH", "the value of an attribute"),
    ("set PATH VALUE", "change an attribute"),
    ("describe PATH", "type, unit and permitted values of an attribute"),
    (
        "queues [PART]",
        "the queues, or those with PART in the name, and their counters: a table with tabs",
    ),
    ("pools", "every pool, and after an empty line every worker, in the same form"),
    ("metrics", "the counters in the text format of OpenMetrics"),
    ("status", "facts about the process, a name and a value separated by a tab"),
    ("dump [json]", "everything, as the function dump() shows it"),
    (
        "stacks [MS [QUEUE]]",
        "workers in a batch for at least MS (100) milliseconds, with stacks; more MS QUEUE: behind tabs",
    ),
    ("raw REQUEST", "dump, stacks or pools, with addresses where files have names: at once"),
    ("trace on SECONDS", "record for SECONDS (1 to 3600) when items are queued, start and end"),
    ("trace read", "the records since the last time, separated by tabs"),
    ("trace off", "end the trace; its records can still be read"),
];

/// The answer of this process to a request of the control protocol: what a client gets that sends
/// `request` as a line. For programs that offer the protocol in another way, too. Does not panic,
/// whatever the request is. A trace that it starts lasts for its time, as no connection ends it.
pub fn answer(request: &str) -> String {
    answer_to(request, &mut None)
}

/// The same for a client, with the trace that it has begun.
pub(super) fn answer_to(request: &str, begun: &mut Option<trace::Begun>) -> String {
    let words = request.trim_matches(' ');
    let (verb, rest) =
        words.split_once(' ').map_or((words, ""), |(verb, rest)| (verb, rest.trim()));
    match (verb, rest) {
        ("help", "") => text(&help()),
        ("list", path) => outcome(TREE.list(path).map(|entries| listing(&entries))),
        ("get", path) if !path.is_empty() => outcome(TREE.get(path)),
        ("describe", path) if !path.is_empty() => {
            outcome(TREE.describe(path).map(|known| known.to_string()))
        }
        ("set", both) if !both.is_empty() => {
            let (path, value) = both.split_once(' ').unwrap_or((both, ""));
            outcome(TREE.set(path, value.trim()).map(|()| String::new()))
        }
        ("queues", part) => text(&status::queues(part)),
        ("pools", "") => text(&pools::pools(Names::OfFiles)),
        ("metrics", "") => text(&metrics::all()),
        ("status", "") => text(&status::facts()),
        ("dump", "") => text(&crate::dump().to_string()),
        ("dump", "json") => text(&crate::dump().to_json()),
        ("stacks", of) => stacks(of, Names::OfFiles),
        ("raw", request) => raw(request),
        ("trace", "read") => trace::read(),
        ("trace", "off") => trace::stop(),
        ("trace", on) if on.starts_with("on ") => trace::start(on[3..].trim(), begun),
        _ => refusal("bad-request", &format!("{words:?} is no request; there are {}", requests())),
    }
}

pub(super) fn greeting() -> String {
    format!("uwork-control {VERSION} {}\n", std::process::id())
}

/// An answer with a text, of which each line ends with a newline.
pub(super) fn text(text: &str) -> String {
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("ok {}\n{text}{newline}", text.len() + newline.len())
}

/// The answer of a request that failed: a code for programs, and a line for readers.
pub(super) fn refusal(code: &str, reason: &str) -> String {
    let line: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("err {code} {line}\n")
}

fn outcome(outcome: Result<String, Error>) -> String {
    match outcome {
        Ok(value) => text(&value),
        Err(error) => refusal(code_of(&error), &error.to_string()),
    }
}

fn code_of(error: &Error) -> &'static str {
    match error {
        Error::NoSuchPath { .. } | Error::NoSuchQueue { .. } | Error::WithoutSysfs { .. } => {
            "not-found"
        }
        Error::WrongKind { .. } => "wrong-kind",
        Error::ReadOnly { .. } => "read-only",
        Error::BadValue { .. } => "bad-value",
        Error::Refused { .. } => "refused",
    }
}

/// Answers a request without reading the program's files, which takes long on a busy machine. The
/// client reads them, beside the process.
fn raw(request: &str) -> String {
    let (verb, of) = request.split_once(' ').unwrap_or((request, ""));
    match (verb, of.trim()) {
        ("dump", "") => text(&dump_with(Names::OwnOnly).to_string()),
        ("dump", "json") => text(&dump_with(Names::OwnOnly).to_json()),
        ("pools", "") => text(&pools::pools(Names::OwnOnly)),
        ("stacks", of) => stacks(of, Names::OwnOnly),
        _ => refusal("bad-request", &format!("raw is dump, stacks or pools, and not {request:?}")),
    }
}

/// Each part of `of` has a time in milliseconds, and perhaps a queue. Tabs are between the parts.
fn stacks(of: &str, named: Names) -> String {
    if of.split('\t').count() > PARTS_MAX {
        return refusal("bad-value", &format!("allowed are {PARTS_MAX} parts with tabs between"));
    }
    let part = |part| match part {
        "" => Some((super::LONG, None)),
        part => {
            let (ms, queue) = part.split_once(' ').map_or((part, None), |(ms, it)| (ms, Some(it)));
            Some((Duration::from_millis(ms.parse().ok()?), queue.map(str::trim)))
        }
    };
    let parts: Option<Vec<(Duration, Option<&str>)>> =
        of.split('\t').map(str::trim).map(part).collect();
    match parts {
        Some(parts) => {
            let all = crate::dump_api::long_runs_of(&parts, named);
            text(&all.iter().map(ToString::to_string).collect::<String>())
        }
        None => refusal("bad-value", "allowed is a number of milliseconds, from 0"),
    }
}

fn listing(entries: &[Entry]) -> String {
    let kind = |entry: &Entry| match entry.kind {
        EntryKind::Directory => "dir",
        EntryKind::ReadOnly => "ro",
        EntryKind::ReadWrite => "rw",
    };
    entries.iter().map(|entry| format!("{}\t{}\n", kind(entry), entry.name)).collect()
}

fn help() -> String {
    REQUESTS.iter().fold(String::new(), |mut text, (request, meaning)| {
        let _ = writeln!(text, "{request:<20} {meaning}");
        text
    })
}

/// The requests' first words.
fn requests() -> String {
    let verbs = REQUESTS.iter().map(|(request, _)| request.split(' ').next().unwrap_or_default());
    let mut verbs: Vec<&str> = verbs.collect();
    verbs.dedup();
    verbs.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_says_how_long_its_text_is() {
        assert_eq!(text(""), "ok 0\n");
        assert_eq!(text("a"), "ok 2\na\n");
        assert_eq!(text("a\nb\n"), "ok 4\na\nb\n");
    }

    #[test]
    fn a_refusal_is_one_line() {
        assert_eq!(refusal("bad-value", "a\nb\r\tc"), "err bad-value a b  c\n");
        for request in ["", " ", "get", "set", "describe", "dump xml", "help me", "GET cpumask"] {
            let answer = answer(request);
            assert!(answer.starts_with("err bad-request "), "{request:?}: {answer}");
            assert!(answer.contains("there are help, list, get, set, "), "{answer}");
            assert_eq!(answer.find('\n'), Some(answer.len() - 1), "{answer:?}");
        }
    }

    #[test]
    fn every_request_of_the_help_is_answered() {
        for (request, _) in REQUESTS {
            let verb = request.split(' ').next().unwrap();
            let whole = match verb {
                "get" | "describe" => format!("{verb} cpumask"),
                "set" => "set module/parameters/pool_workers_max 0".to_owned(),
                "trace" => request.replace("SECONDS", "1"),
                "raw" => "raw stacks".to_owned(),
                _ => verb.to_owned(),
            };
            let answer = answer(&whole);
            let (first, rest) = answer.split_once('\n').unwrap();
            let length = first.strip_prefix("ok ").map(|n| n.parse().unwrap());
            assert_eq!(length, Some(rest.len()), "{whole}: {answer}");
        }
    }

    #[test]
    fn raw_is_for_requests_with_names_of_files() {
        assert!(answer("raw dump").starts_with("ok "));
        assert!(answer("raw  stacks 0 none").starts_with("ok "));
        assert!(answer("raw stacks soon").starts_with("err bad-value "));
        assert!(answer("raw stacks 0 none\tsoon other").starts_with("err bad-value "));
        let none = "stacks of 0 workers\n";
        assert_eq!(answer("raw stacks 0 none\t0 other"), text(&none.repeat(2)));
        let parts = |count| vec!["0 none"; count].join("\t");
        for verb in ["stacks", "raw stacks"] {
            assert_eq!(
                answer(&format!("{verb} {}", parts(PARTS_MAX))),
                text(&none.repeat(PARTS_MAX))
            );
            let refused = answer(&format!("{verb} {}", parts(PARTS_MAX + 1)));
            assert!(refused.starts_with("err bad-value allowed are 16 parts"), "{refused}");
        }
        assert!(answer("raw dump json").starts_with("ok "));
        assert!(answer("raw pools").starts_with("ok "));
        for request in ["raw", "raw get cpumask", "raw dump xml", "raw raw dump"] {
            assert!(answer(request).starts_with("err bad-request "), "{request}");
        }
    }

    #[test]
    fn spaces_around_words_do_not_matter() {
        assert_eq!(answer("  get   cpumask  "), answer("get cpumask"));
        assert_eq!(answer("get workqueue/cpumask"), answer("get cpumask"));
        let answer = answer("set module/parameters/pool_workers_max   x y ");
        assert!(answer.contains("\"x y\" is not a value of it"), "{answer}");
    }
}
