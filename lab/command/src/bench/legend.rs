//! The legend below a table: one line for each special term that occurs in it.

use super::interleave::GroupOutcome;
use super::summary::{self, Sampled};

/// A term and its meaning. The term must equal a column's title or a runner, or a part of a
/// variant.
pub(super) type Word = (&'static str, &'static str);

/// The lines for those terms that occur in this group's table.
pub(super) fn below<S: Sampled>(group: &GroupOutcome<S>, words: &[Word]) -> String {
    let occurs = |word: &str| {
        group.outcomes.iter().any(|outcome| {
            let names = &outcome.names;
            names.runner == word
                || names.variant.contains(word)
                || summary::all(outcome).iter().any(|(metric, _)| metric.title == word)
        })
    };
    let known = words.iter().filter(|(word, _)| occurs(word));
    known.map(|(word, meaning)| format!("{word}: {meaning}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::contestant::{Names, RatioTo};
    use crate::bench::interleave::Outcome;
    use crate::bench::summary::{Figure, Metric, RATE};

    struct Caused;

    impl Sampled for Caused {
        fn figures(_samples: &[Self]) -> Vec<(Metric, Figure)> {
            let caused = Metric { name: "n", unit: "n", title: "caused", decimals: 0 };
            vec![(RATE, Figure::single(1.0)), (caused, Figure::single(0.0))]
        }
    }

    #[test]
    fn only_words_that_occur_are_explained() {
        let outcome = |runner, variant: &str| Outcome {
            names: Names { case: "once", runner, variant: variant.to_owned() },
            standing: None,
            samples: vec![Caused],
        };
        let group = GroupOutcome {
            title: String::new(),
            outcomes: vec![outcome("uwork", "mode0+c"), outcome("bare", "")],
            ratio_to: RatioTo::FastestRival,
        };
        let words =
            [("+c", "C"), ("mode", "M"), ("caused", "X"), ("stuck", "S"), ("bare", "B"), ("b", "")];
        assert_eq!(below(&group, &words), "+c: C\nmode: M\ncaused: X\nbare: B\n");
    }
}
