//! The last lines of `uwork-lab bench workqueue`: which runners are pools and which are limits, and
//! how uwork compares with the fastest other pool of each case. A reader needs nothing that is above
//! them.

use std::fmt::Write;

use uwork_rivals::Standing;

use super::contestant::cpus;
use super::interleave::{GroupOutcome, Outcome};
use super::summary::{self, Sampled};
use super::uwork_pool::{CLOSURES, HALVES, RUNNER};

/// A line of the verdict: its title, uwork's variant, the case, and what is measured.
const LINES: [(&str, &str, &str, &str); 6] = [
    ("wait", "default", "wait", "one item at a time, each waited for"),
    ("batch", "default", "batch", "100 items at a time"),
    ("flood", "default", "flood", "all items at once"),
    ("closures", CLOSURES[1], "flood", "the same with closures, without handles"),
    ("handles", CLOSURES[0], "flood", "the same with closures, a handle for each"),
    ("join", HALVES, "join", "two halves, by uwork::join and by the other's join"),
];

/// The legend and the verdict; nothing if uwork or the other pools did not run.
pub(super) fn text<S: Sampled>(results: &[GroupOutcome<S>]) -> String {
    let outcomes: Vec<&Outcome<S>> = results.iter().flat_map(|group| &group.outcomes).collect();
    let rows: Vec<Row> = LINES.iter().filter_map(|line| Row::of(&outcomes, *line)).collect();
    match rows.is_empty() {
        true => String::new(),
        false => legend(&outcomes) + &verdict(&rows),
    }
}

/// The runners by their standing.
fn legend<S: Sampled>(outcomes: &[&Outcome<S>]) -> String {
    let runners = |standing: Option<Standing>| {
        let mut names: Vec<&str> = Vec::new();
        for outcome in outcomes.iter().filter(|outcome| outcome.standing == standing) {
            if !names.contains(&outcome.names.runner) {
                names.push(outcome.names.runner);
            }
        }
        names.join(", ")
    };
    let kinds = [
        (
            None,
            "this library: items of the program, and closures with (spawn) and without handles (execute)",
        ),
        (Some(Standing::Pool), "other pools in use"),
        (Some(Standing::Shape), "the kernel's queue rebuilt, for comparison: no usable pool"),
        (Some(Standing::Limit), "the limit, a bare list for each CPU or for all: no usable pool"),
    ];
    let mut text = "\nrunners\n".to_owned();
    for (standing, what) in kinds {
        let names = runners(standing);
        if !names.is_empty() {
            // Writing to a string cannot fail, here and below.
            let _ = writeln!(text, "  {names}: {what}");
        }
    }
    text
}

/// uwork beside the fastest other pool.
struct Row {
    title: &'static str,
    /// Of the medians.
    ratio: f64,
    /// The least and the greatest ratio of two samples of one round.
    range: (f64, f64),
    rounds: usize,
    what: &'static str,
    rival: String,
}

impl Row {
    fn of<S: Sampled>(
        outcomes: &[&Outcome<S>],
        (title, variant, case, what): (&'static str, &str, &str, &'static str),
    ) -> Option<Self> {
        let of_case = || outcomes.iter().copied().filter(|outcome| outcome.names.case == case);
        let own = of_case().find(|o| o.names.runner == RUNNER && o.names.variant == variant)?;
        // Ordered queues and timed enqueues are other variants of a rival, too.
        let plain = of_case().filter(|outcome| outcome.names.variant.is_empty());
        let rival = summary::fastest(plain, Standing::Pool)?;
        let rate = |outcome: &Outcome<S>, round: usize| {
            S::figures(&outcome.samples[round..=round]).first().map(|(_, figure)| figure.median)
        };
        let rounds = own.samples.len().min(rival.samples.len());
        let ratios = (0..rounds).filter_map(|round| Some(rate(own, round)? / rate(rival, round)?));
        let range = ratios.fold((f64::MAX, f64::MIN), |(least, greatest), ratio| {
            (least.min(ratio), greatest.max(ratio))
        });
        let ratio = summary::lead_median(own) / summary::lead_median(rival);
        Some(Self { title, ratio, range, rounds, what, rival: rival.names.runner.to_owned() })
    }

    /// Whether the ratio is on both sides of 1.
    fn is_open(&self) -> bool {
        self.range.0 < 1.0 && self.range.1 > 1.0
    }
}

fn verdict(rows: &[Row]) -> String {
    let rounds = rows.iter().map(|row| row.rounds).min().unwrap_or(0);
    let mut text = format!(
        "\nuwork against the fastest other pool on {} CPU(s): its rate over the other's, and in brackets \
         the range of {rounds} rounds\n",
        cpus()
    );
    for row in rows {
        let Row { title, ratio, range: (least, greatest), what, rival, .. } = row;
        let open = if row.is_open() { "; within the noise" } else { "" };
        let _ = writeln!(
            text,
            "  {title:<8} {ratio:>5.2} x  [{least:.2} .. {greatest:.2}]  {what}; against {rival}{open}"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contestant::{Names, RatioTo};
    use crate::bench::measured::Measured;
    use crate::bench::summary::RATE;

    fn outcome(
        case: &'static str,
        (runner, variant): (&'static str, &str),
        standing: Option<Standing>,
        rates: &[f64],
    ) -> Outcome<Measured> {
        Outcome {
            names: Names { case, runner, variant: variant.to_owned() },
            standing,
            samples: rates.iter().map(|&rate| Measured::new(vec![(RATE, rate)])).collect(),
        }
    }

    fn group(outcomes: Vec<Outcome<Measured>>) -> GroupOutcome<Measured> {
        GroupOutcome { title: String::new(), outcomes, ratio_to: RatioTo::FastestRival }
    }

    #[test]
    fn each_case_names_the_fastest_other_pool_and_the_noise() {
        let pool = Some(Standing::Pool);
        let results = [
            group(vec![
                outcome("wait", ("uwork", "default"), None, &[30.0, 20.0, 25.0]),
                outcome("wait", ("tokio", ""), pool, &[10.0, 10.0, 10.0]),
                outcome("wait", ("rayon", ""), pool, &[2.0, 50.0, 2.0]),
                outcome("wait", ("bare", "cpu"), Some(Standing::Limit), &[90.0, 90.0, 90.0]),
            ]),
            group(vec![
                outcome("join", ("uwork", "halves"), None, &[9.0, 11.0, 10.0]),
                outcome("join", ("rayon", ""), pool, &[10.0, 10.0, 10.0]),
            ]),
        ];
        let text = text(&results);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[lines.len() - 2..],
            [
                "  wait      2.50 x  [2.00 .. 3.00]  one item at a time, each waited for; against tokio",
                "  join      1.00 x  [0.90 .. 1.10]  two halves, by uwork::join and by the other's join; \
                 against rayon; within the noise",
            ],
            "{text}"
        );
        assert!(text.contains("\n  tokio, rayon: other pools in use\n"), "{text}");
        assert!(text.contains("\n  bare: the limit"), "{text}");
        assert!(!text.contains("kernel"), "no line for runners that did not run: {text}");
    }

    /// What `make run` prints behind the verdict.
    fn closing() -> String {
        let script = "source ci/tour.sh; tree=$(mktemp -d); sums=/dev/null; verified='by x'; \
            times=('build 1 s'); closing; rmdir \"$tree\"";
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut bash = std::process::Command::new("bash");
        let output = bash.args(["-euc", script]).current_dir(root).output().expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    #[test]
    fn the_last_twelve_lines_of_make_run_begin_with_the_verdict() {
        let both = |(_, variant, case, _): (&str, &'static str, &'static str, &str)| {
            let own = outcome(case, ("uwork", variant), None, &[3.0, 2.0]);
            group(vec![own, outcome(case, ("tokio", ""), Some(Standing::Pool), &[1.0, 1.0])])
        };
        let text = text(&LINES.map(both)) + &closing();
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len() - 12..];
        assert!(last[0].starts_with("uwork against the fastest other pool on "), "{text}");
        for (line, (title, ..)) in last[1..7].iter().zip(LINES) {
            assert!(line.starts_with(&format!("  {title} ")) && line.contains(" x  ["), "{text}");
        }
        assert_eq!(last[7], "", "{text}");
        assert!(last[10].starts_with("uwork sum: 0 files of "), "{text}");
        assert!(last[11].starts_with("times: build 1 s, all "), "{text}");
    }

    #[test]
    fn without_another_pool_there_is_no_verdict() {
        let own = group(vec![outcome("wait", ("uwork", "default"), None, &[1.0])]);
        assert_eq!(text(&[own]), "");
    }

    #[test]
    fn ordered_queues_are_compared_with_nothing() {
        let results = [group(vec![
            outcome("flood", ("uwork", "ordered"), None, &[1.0]),
            outcome("flood", ("tokio", "ordered"), Some(Standing::Pool), &[1.0]),
        ])];
        assert_eq!(text(&results), "");
    }
}
