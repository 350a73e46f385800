//! Runs the contestants of each group in turn: A B C, A B C, A B C.

use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use uwork_rivals::{Sample, Standing};

use super::UserError;
use super::contestant::{Group, Names, RatioTo};

/// The samples of a contestant.
pub(super) struct Outcome<S = Sample> {
    pub(super) names: Names,
    /// `None` for uwork itself.
    pub(super) standing: Option<Standing>,
    pub(super) samples: Vec<S>,
}

/// The outcomes of a group, in the order in which they ran.
pub(super) struct GroupOutcome<S = Sample> {
    pub(super) title: String,
    pub(super) outcomes: Vec<Outcome<S>>,
    pub(super) ratio_to: RatioTo,
}

/// The redraw interval of a single sample, such as a torture of ten minutes.
const REDRAW_EVERY: Duration = Duration::from_secs(1);

/// The time that is left, as far as the samples so far tell.
fn left(state: &ProgressState, out: &mut dyn std::fmt::Write) {
    let _ = match state.pos() {
        0 => write!(out, "{:#} so far", HumanDuration(state.elapsed())),
        _ => write!(out, "{:#} left", HumanDuration(state.eta())),
    };
}

/// Measures everything, and calls `show` after each group. The progress line is drawn only on a
/// terminal, and only between samples, so it does not disturb them. A single sample is compared with no
/// other, and the line shows its time.
pub(super) fn run<S>(
    groups: Vec<Group<S>>,
    show: impl Fn(&GroupOutcome<S>),
) -> Result<Vec<GroupOutcome<S>>, UserError> {
    let runs: usize = groups.iter().map(|group| group.contestants.len() * group.samples).sum();
    let progress = ProgressBar::new(runs as u64);
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg:36} {left}");
    progress.set_style(style.expect("a valid template").with_key("left", left));
    if runs == 1 && !progress.is_hidden() {
        progress.enable_steady_tick(REDRAW_EVERY);
    }
    let run = |group| {
        let outcome = run_group(group, &progress)?;
        progress.suspend(|| show(&outcome));
        Ok(outcome)
    };
    let results = groups.into_iter().map(run).collect();
    progress.finish_and_clear();
    results
}

fn run_group<S>(group: Group<S>, progress: &ProgressBar) -> Result<GroupOutcome<S>, UserError> {
    let mut taken: Vec<Vec<S>> =
        group.contestants.iter().map(|_| Vec::with_capacity(group.samples)).collect();
    for number in 0..group.samples {
        for (contestant, taken) in group.contestants.iter().zip(&mut taken) {
            progress.set_message(contestant.names.spoken());
            taken.push((contestant.measure)(number)?);
            progress.inc(1);
        }
    }
    let outcomes = group
        .contestants
        .into_iter()
        .zip(taken)
        .map(|(contestant, samples)| Outcome {
            names: contestant.names,
            standing: contestant.standing,
            samples,
        })
        .collect();
    Ok(GroupOutcome { title: group.title, outcomes, ratio_to: group.ratio_to })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;
    use crate::bench::contestant::Contestant;

    #[test]
    fn contestants_take_turns() {
        let order = Rc::new(RefCell::new(String::new()));
        let contestant = |runner: &'static str| {
            let order = Rc::clone(&order);
            Contestant {
                names: Names { case: "flood", runner, variant: String::new() },
                standing: Some(Standing::Pool),
                measure: Box::new(move |number| {
                    *order.borrow_mut() += &format!("{runner}{number} ");
                    Ok(Sample {
                        items: 1,
                        wall: Duration::from_secs(1),
                        cpu: Duration::ZERO,
                        latency: None,
                    })
                }),
            }
        };
        let group = Group {
            title: String::new(),
            contestants: vec![contestant("a"), contestant("b")],
            samples: 3,
            ratio_to: RatioTo::FastestRival,
        };
        let results = run(vec![group], |_| ()).unwrap();
        assert_eq!(*order.borrow(), "a0 b0 a1 b1 a2 b2 ");
        assert!(results[0].outcomes.iter().all(|outcome| outcome.samples.len() == 3));
    }
}
