//! Case `pingpong` of `uwork-lab bench workqueue`: submitters that queue a tiny item and wait for
//! it, one after the other, alone and beside busy processes, in each affinity scope.
//!
//! It shows where wakes go: the best CPU for the worker is that of a submitter that waits, unless
//! another program uses it.

use uwork_rivals::{Load, Rival};

use super::burner::Burner;
use super::contestant::{Contestant, Group, RatioTo, cpus};
use super::measured::again;
use super::options::Options;
use super::uwork_pool;
use crate::UserError;

/// The name on the command line. In records, the case also names the number of submitters.
pub(super) const CASE: &str = "pingpong";
/// For each number of submitters: the name of the case alone, and beside busy processes.
const CASES: [(usize, &str, &str); 3] = [
    (1, "pingpong-1", "pingpong-1-beside"),
    (2, "pingpong-2", "pingpong-2-beside"),
    (8, "pingpong-8", "pingpong-8-beside"),
];
/// The variant that ratios refer to. The target is 0.8 of it in each shared scope.
const YARDSTICK: &str = "cpu";

/// The task of a busy process.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Burn {
    pub(super) threads: usize,
}

/// The groups: each number of submitters alone, then beside `beside` busy processes unless that is
/// zero.
pub(super) fn groups(
    variants: &[&'static str],
    rivals: &[Rival],
    beside: usize,
    options: &Options,
) -> Vec<Group> {
    let mut groups = Vec::new();
    for (submitters, alone, busy) in CASES {
        let items = options.items_of(1);
        let load = Load { producers: submitters, items, outstanding: 1, clock: true };
        groups.push(group(alone, load, variants, rivals, 0, options));
        if beside > 0 {
            groups.push(group(busy, load, variants, rivals, beside, options));
        }
    }
    groups
}

fn group(
    case: &'static str,
    load: Load,
    variants: &[&'static str],
    rivals: &[Rival],
    beside: usize,
    options: &Options,
) -> Group {
    let own = uwork_pool::contestants(case, variants, load).into_iter().zip(variants);
    let mut contestants: Vec<Contestant> =
        own.map(|(contestant, variant)| named(contestant, variant)).collect();
    contestants.extend(
        rivals
            .iter()
            .map(|rival| named(Contestant::rival(*rival, case, load, false), rival.variant)),
    );
    let Load { producers, items, .. } = load;
    Group {
        title: format!(
            "{case}  (submitters {producers}, items each {items}, each waited for; busy processes \
             {beside}, CPUs {}, samples {})",
            cpus(),
            options.samples
        ),
        contestants: contestants.into_iter().map(|of| besides(of, beside)).collect(),
        samples: options.samples,
        ratio_to: RatioTo::Variant(YARDSTICK),
    }
}

/// Every enqueue of this case is timed, so no variant says it.
fn named(mut contestant: Contestant, variant: &str) -> Contestant {
    variant.clone_into(&mut contestant.names.variant);
    contestant
}

/// The contestant beside this number of busy processes, each with one thread.
fn besides(contestant: Contestant, processes: usize) -> Contestant {
    let Contestant { names, standing, measure } = contestant;
    let measure = move |number| {
        let start = |_| Burner::start(again("workqueue", &Burn { threads: 1 })?);
        let _busy: Vec<Burner> = (0..processes).map(start).collect::<Result<_, UserError>>()?;
        measure(number)
    };
    Contestant { names, standing, measure: Box::new(measure) }
}
