//! The targets of uwork's scopes, and whether a group reaches them.
//!
//! | case | figure | at most |
//! |---|---|---|
//! | all but `sleep-40` | p50, p90, p99 | 1.05 x the best rival, and 1.3 x the limit + 50 us |
//! | `sleep-40` | p90, p99 | 0.5 x the best rival |
//! | all | p50, p90, p99 | 1.05 x the scope `system` |
//! | all | CPU time | 1.1 x the best rival |
//! | all, scopes `system`, `numa` and `cache` | p50, p90, p99 | 1.1 x the default scope |

use uwork_rivals::Standing;

use super::cases::SLEEPS;
use super::figures::{CPU, CRITICAL, SOJOURN, Sojourns};
use crate::bench::interleave::{GroupOutcome, Outcome};
use crate::bench::summary::{self, Metric};
use crate::bench::uwork_pool;

const OVER_RIVAL: f64 = 1.05;
const OVER_RIVAL_SLEEPS: f64 = 0.5;
const OVER_RIVAL_CPU: f64 = 1.1;
const OVER_SYSTEM: f64 = 1.05;
const OVER_DEFAULT: f64 = 1.1;
const OVER_LIMIT: f64 = 1.3;
const OVER_LIMIT_US: f64 = 50.0;

/// The scopes whose pods have more CPUs than those of the default scope, or as many.
const WIDE: [&str; 3] = ["system", "numa", "cache"];

/// A line for each figure with a target, and for each wide scope, if uwork's default scope takes part.
pub(super) fn verdicts(group: &GroupOutcome<Sojourns>) -> String {
    let own = |variant| {
        let mut all = group.outcomes.iter();
        all.find(|of| of.names.runner == uwork_pool::RUNNER && of.names.variant == variant)
    };
    let Some(default) = own("default") else { return String::new() };
    let metrics = SOJOURN[..3].iter().chain(&CRITICAL[..3]).chain([&CPU]);
    let verdict = |metric: &Metric| {
        let measured = value(default, metric)?;
        let system = own("system").and_then(|system| value(system, metric));
        let bounds = bounds(group, metric, system);
        let bound = bounds.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(line(metric, measured, bound))
    };
    let wide = WIDE.iter().filter_map(|scope| over_default(scope, own(scope)?, default));
    metrics.filter_map(verdict).chain(wide).collect()
}

/// The percentiles of a wide scope over those of the default scope. None if neither has any.
fn over_default(
    scope: &str,
    of: &Outcome<Sojourns>,
    default: &Outcome<Sojourns>,
) -> Option<String> {
    let over = |metric: &Metric| Some((metric.title, value(of, metric)? / value(default, metric)?));
    let found: Vec<_> = SOJOURN[..3].iter().chain(&CRITICAL[..3]).filter_map(over).collect();
    let most = found.iter().map(|&(_, over)| over).reduce(f64::max)?;
    let verdict = if most <= OVER_DEFAULT { "reached" } else { "missed" };
    let found: Vec<_> = found.iter().map(|(title, over)| format!("{title} {over:.2}")).collect();
    let found = found.join(", ");
    Some(format!("target scope {scope} over default: at most {OVER_DEFAULT}: {found}, {verdict}\n"))
}

/// The bounds of a figure: what each refers to, and its value.
fn bounds(
    group: &GroupOutcome<Sojourns>,
    metric: &Metric,
    system: Option<f64>,
) -> Vec<(String, f64)> {
    let is_cpu = metric.name == CPU.name;
    let sleeps = group.outcomes[0].names.case == SLEEPS;
    let lowest = |standing| {
        let those = group.outcomes.iter().filter(|of| of.standing == Some(standing));
        those.filter_map(|of| value(of, metric)).min_by(f64::total_cmp)
    };
    let times = match (is_cpu, sleeps) {
        (true, _) => Some(OVER_RIVAL_CPU),
        (false, false) => Some(OVER_RIVAL),
        // The median item does not wait for a sleep.
        (false, true) if metric.name == SOJOURN[0].name => None,
        (false, true) => Some(OVER_RIVAL_SLEEPS),
    };
    let rival = lowest(Standing::Pool).zip(times);
    let rival = rival.map(|(value, times)| (format!("{times} x the best rival"), value * times));
    let system = system.filter(|_| !is_cpu);
    let system = system.map(|value| (format!("{OVER_SYSTEM} x system"), value * OVER_SYSTEM));
    let limit = lowest(Standing::Limit).filter(|_| !sleeps).map(|value| {
        let what = format!("{OVER_LIMIT} x the limit + {OVER_LIMIT_US} us");
        (what, value * OVER_LIMIT + OVER_LIMIT_US)
    });
    [rival, system, limit].into_iter().flatten().collect()
}

fn value(outcome: &Outcome<Sojourns>, wanted: &Metric) -> Option<f64> {
    let all = summary::all(outcome);
    let found = all.iter().find(|(metric, _)| metric.name == wanted.name);
    found.map(|(_, figure)| figure.median)
}

fn line(metric: &Metric, measured: f64, (what, bound): &(String, f64)) -> String {
    let verdict = if measured <= *bound { "reached" } else { "missed" };
    let (title, decimals) = (metric.title, metric.decimals);
    format!(
        "target {title}: at most {bound:.decimals$} ({what}): {measured:.decimals$}, {verdict}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contestant::{Names, RatioTo};
    use crate::bench::measured::Measured;

    type Row = (&'static str, &'static str, Option<Standing>, f64);

    const OWN: [Row; 2] = [("uwork", "default", None, 160.0), ("uwork", "system", None, 150.0)];
    const RIVALS: [Row; 3] = [
        ("rayon", "", Some(Standing::Pool), 120.0),
        ("tokio", "", Some(Standing::Pool), 400.0),
        ("limit", "", Some(Standing::Limit), 100.0),
    ];

    fn of(case: &'static str, metric: Metric, rows: &[Row]) -> String {
        let outcome = |&(runner, variant, standing, value): &Row| Outcome {
            names: Names { case, runner, variant: variant.to_owned() },
            standing,
            samples: vec![Sojourns(Measured::new(vec![(metric, value)]))],
        };
        let outcomes = rows.iter().map(outcome).collect();
        let title = String::new();
        verdicts(&GroupOutcome { title, outcomes, ratio_to: RatioTo::FastestRival })
    }

    /// A verdict about the default scope, before that about `system` in the same figure.
    fn beside_system(of_default: &str, metric: Metric) -> String {
        let name = metric.title;
        format!(
            "{of_default}\ntarget scope system over default: at most 1.1: {name} 0.94, reached\n"
        )
    }

    #[test]
    fn the_lowest_bound_decides() {
        let (p90, p99) = (SOJOURN[1], SOJOURN[2]);
        let rival = "target p90 us: at most 126 (1.05 x the best rival): 160, missed";
        let all = [&OWN[..], &RIVALS].concat();
        assert_eq!(of("burst", p90, &all), beside_system(rival, p90));
        let system = "target p90 us: at most 158 (1.05 x system): 160, missed";
        let without_best = [&OWN[..], &RIVALS[1..]].concat();
        assert_eq!(of("burst", p90, &without_best), beside_system(system, p90));
        assert_eq!(
            of("burst", p99, &[&OWN[..1], &RIVALS[1..]].concat()),
            "target p99 us: at most 180 (1.3 x the limit + 50 us): 160, reached\n"
        );
    }

    #[test]
    fn sleeping_items_and_cpu_time_have_bounds_of_their_own() {
        let (p50, p99) = (SOJOURN[0], SOJOURN[2]);
        let all = [&OWN[..], &RIVALS].concat();
        let system = "target p50 us: at most 158 (1.05 x system): 160, missed";
        assert_eq!(of(SLEEPS, p50, &all), beside_system(system, p50));
        let rival = "target p99 us: at most 60 (0.5 x the best rival): 160, missed";
        assert_eq!(of(SLEEPS, p99, &all), beside_system(rival, p99));
        let cpu = "target CPU s: at most 132.000 (1.1 x the best rival): 160.000, missed\n";
        assert_eq!(of("burst", CPU, &[&OWN[..], &RIVALS[..2]].concat()), cpu);
    }

    #[test]
    fn a_wide_scope_is_compared_with_the_default() {
        let wide = [OWN[0], ("uwork", "numa", None, 150.0), ("uwork", "cache", None, 180.0)];
        assert_eq!(
            of("burst", SOJOURN[1], &wide),
            "target scope numa over default: at most 1.1: p90 us 0.94, reached\n\
             target scope cache over default: at most 1.1: p90 us 1.12, missed\n"
        );
        assert_eq!(of("burst", CPU, &wide), "", "no target for the CPU time of a wide scope");
    }

    #[test]
    fn a_group_without_the_default_scope_has_no_verdict() {
        assert_eq!(of("burst", SOJOURN[0], &RIVALS), "");
    }
}
