//! `uwork-lab bench workqueue`: the kernel's test_workqueue with its batched mode, on uwork and on
//! other pools.

use std::process::ExitCode;

use uwork_rivals::{Load, Rival, catalogue, joins};

use super::contestant::{Contestant, Group, RatioTo, cpus};
use super::measured::ChildArgs;
use super::options::{self, OptionArgs, Options, count, count_or};
use super::pingpong::{self, Burn};
use super::pipeline::Plan;
use super::{UserError, burner, hold, uwork_pool, verdict};

const PRODUCERS: usize = 8;
const BATCH: usize = 100;
const CASES: [&str; 4] = ["wait", "batch", "flood", "join"];
/// Cases that run only if they are named.
const NAMED: [&str; 1] = [pingpong::CASE];
const SCOPES: [&str; 8] =
    ["default", "cpu", "smt", "cluster", "cache_shard", "cache", "numa", "system"];
const ALL: &str = "all";
/// The default scope with a limit that is always reached, and with limits that nodes do not share.
const LIMITS: [&str; 2] = ["limited", "unshared"];

/// The command line.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Also run the other pools
    #[arg(long)]
    rivals: bool,
    /// Only these cases [default: the first four]: wait (for each item), batch (100 outstanding),
    /// flood (all at once), join (queue an item and join it, on the caller's stack if it has not
    /// started; other pools: rayon), pingpong (1, 2 and 8 submitters that wait for each item, in
    /// every scope, each enqueue timed)
    #[arg(long, value_name = "CASE", num_args = 1.., value_delimiter = ',')]
    case: Vec<String>,
    /// uwork's affinity scopes, or `all`; `limited`: the default scope with a `max_active` of 1;
    /// `unshared`: the default scope without the count that the pods of a node share;
    /// `spawn`, `execute`: the default scope, and a closure for each item, with and without a handle;
    /// `execute-all`, `enqueue-all`: closures without a handle, and items, queued a batch at a time;
    /// not in wait, not with --clock
    /// [default: default, spawn, execute]
    #[arg(long, value_name = "SCOPE", num_args = 1.., value_delimiter = ',')]
    scope: Vec<String>,
    /// Only these runners; `c` is uwork through its C interface
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    runner: Vec<String>,
    /// Also run an ordered queue, compared with the others limited to one worker; not in pingpong
    #[arg(long)]
    ordered: bool,
    /// Also run each case with every enqueue timed, for its percentiles
    #[arg(long)]
    clock: bool,
    /// In pingpong, the number of busy processes of the second half; 0 leaves it out [default: 1]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    beside: Option<String>,
    /// Measure nothing, but flood the queue `bench` until interrupted, for the commands that look
    /// into a process: `uwork ls`, `get`, `set`, `monitor`, `top`, `trace`. `--hold=1000`: beside 999
    /// more queues, `bench#2` and so on, in which an item runs now and then
    #[arg(
        long,
        exclusive = true,
        value_name = "QUEUES",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        allow_hyphen_values = true
    )]
    hold: Option<String>,
    #[command(flatten)]
    options: OptionArgs,
    #[command(flatten)]
    child: ChildArgs,
}

/// Runs the benchmark.
pub(super) fn run(args: Args) -> Result<ExitCode, UserError> {
    if let Some(Burn { threads }) = args.child.order()? {
        return burner::burn(threads).map(|()| ExitCode::SUCCESS);
    }
    if let Some(queues) = &args.hold {
        return hold::run(count("--hold", queues, 1..=100_000)?);
    }
    let selection = Selection::check(&args)?;
    let options = args.options.check(PRODUCERS)?;
    let plan = Plan::new("workqueue", selection.groups(&options)).closed_by(verdict::text);
    // The case `pingpong` chooses the number itself.
    let plan = if selection.pingpong.is_none() { plan.producers(options.producers) } else { plan };
    plan.run(&options.output)
}

/// The validated selection of what runs.
struct Selection {
    cases: Vec<&'static str>,
    /// The variants of uwork's unordered queues.
    variants: Vec<&'static str>,
    own: bool,
    rivals: Vec<Rival>,
    /// The rivals of the case `join`.
    joins: Vec<Rival>,
    ordered: bool,
    clock: bool,
    /// Case `pingpong`, if it is selected.
    pingpong: Option<PingPong>,
}

/// The selection of case `pingpong`.
struct PingPong {
    variants: Vec<&'static str>,
    beside: usize,
}

impl PingPong {
    fn check(args: &Args, own: bool) -> Result<Option<Self>, UserError> {
        let beside = count_or("--beside", &args.beside, 0..=1024, 1)?;
        if !args.case.iter().any(|case| case == pingpong::CASE) {
            return match args.beside {
                Some(_) => Err(UserError("--beside: for --case pingpong only".to_owned())),
                None => Ok(None),
            };
        }
        if args.options.has_producers() {
            let advice = "--producers: --case pingpong has 1, 2 and 8 submitters";
            return Err(UserError(advice.to_owned()));
        }
        let variants = match &args.scope[..] {
            _ if !own => Vec::new(),
            [] => SCOPES.to_vec(),
            scopes => variants(scopes)?,
        };
        Ok(Some(Self { variants, beside }))
    }
}

impl Selection {
    fn check(args: &Args) -> Result<Self, UserError> {
        let rivals = catalogue();
        let mut runners = vec![uwork_pool::RUNNER];
        if cfg!(feature = "all") {
            runners.push(uwork_pool::C);
        }
        runners.extend(rivals.iter().map(|rival| rival.runner));
        runners.dedup();
        let runners = options::names("--runner", &args.runner, &runners)?;
        let wanted =
            |runner| if args.runner.is_empty() { args.rivals } else { runners.contains(&runner) };
        let runs = |runner| args.runner.is_empty() || runners.contains(&runner);
        let all = [&CASES[..], &NAMED].concat();
        let cases = match options::names("--case", &args.case, &all)? {
            none if none.is_empty() => CASES.to_vec(),
            chosen => chosen,
        };
        Ok(Self {
            cases,
            variants: own_variants(&args.scope, &runners)?,
            own: runs(uwork_pool::RUNNER) || runs(uwork_pool::C),
            pingpong: PingPong::check(args, runs(uwork_pool::RUNNER))?,
            rivals: rivals.into_iter().filter(|rival| wanted(rival.runner)).collect(),
            joins: joins().into_iter().filter(|rival| wanted(rival.runner)).collect(),
            ordered: args.ordered,
            clock: args.clock,
        })
    }

    fn groups(&self, options: &Options) -> Vec<Group> {
        let mut groups = Vec::new();
        for clock in [false, true].into_iter().filter(|clock| self.clock || !clock) {
            for ordered in [false, true].into_iter().filter(|ordered| self.ordered || !ordered) {
                // `join` is compared with the joins and with the waits of other pools, so these two
                // cases share a group.
                for cases in [&["wait", "join"][..], &["batch"], &["flood"]] {
                    let cases: Vec<_> =
                        cases.iter().copied().filter(|case| self.cases.contains(case)).collect();
                    if !cases.is_empty() {
                        groups.push(self.group(&cases, ordered, clock, options));
                    }
                }
            }
        }
        if let Some(PingPong { variants, beside }) = &self.pingpong {
            groups.extend(pingpong::groups(variants, &self.rivals, *beside, options));
        }
        groups
    }

    fn group(
        &self,
        cases: &[&'static str],
        ordered: bool,
        clock: bool,
        options: &Options,
    ) -> Group {
        let load = load_of(cases[0], clock, options);
        let variants = if ordered { &["ordered"][..] } else { &self.variants };
        let mut contestants = Vec::new();
        for case in cases.iter().filter(|_| self.own) {
            contestants.extend(uwork_pool::contestants(case, variants, load));
        }
        let theirs = if cases[0] == "join" { "wait" } else { cases[0] };
        let rivals = self.rivals.iter().filter(|rival| rival.can_be_ordered || !ordered);
        contestants.extend(rivals.map(|rival| Contestant::rival(*rival, theirs, load, ordered)));
        if cases.contains(&"join") {
            let joins = self.joins.iter().filter(|rival| rival.can_be_ordered || !ordered);
            contestants.extend(joins.map(|rival| Contestant::rival(*rival, "join", load, ordered)));
        }
        Group {
            title: title(cases, ordered, &load, options),
            contestants,
            samples: options.samples,
            ratio_to: RatioTo::FastestRival,
        }
    }
}

/// The variants of the selected scopes if uwork takes part, and of the C interface if it takes
/// part.
fn own_variants(scopes: &[String], runners: &[&str]) -> Result<Vec<&'static str>, UserError> {
    let only_c = runners.contains(&uwork_pool::C) && !runners.contains(&uwork_pool::RUNNER);
    let mut all = variants(scopes)?;
    if only_c {
        all.clear();
    }
    if runners.contains(&uwork_pool::C) {
        all.push(uwork_pool::C);
    }
    Ok(all)
}

fn variants(scopes: &[String]) -> Result<Vec<&'static str>, UserError> {
    let mut allowed = SCOPES.to_vec();
    allowed.push(ALL);
    allowed.extend(LIMITS);
    allowed.extend(uwork_pool::CLOSURES);
    allowed.extend(uwork_pool::BATCHES);
    let chosen = options::names("--scope", scopes, &allowed)?;
    Ok(match &chosen[..] {
        [] => [&SCOPES[..1], &uwork_pool::CLOSURES].concat(),
        chosen if chosen.contains(&ALL) => {
            let limits = chosen.iter().copied().filter(|name| LIMITS.contains(name));
            SCOPES.into_iter().chain(uwork_pool::CLOSURES).chain(limits).collect()
        }
        chosen => chosen.to_vec(),
    })
}

/// The load of a case.
pub(super) fn load_of(case: &str, clock: bool, options: &Options) -> Load {
    let outstanding = match case {
        "wait" | "join" => 1,
        "batch" => BATCH,
        _ => usize::MAX,
    };
    let items = options.items_of(outstanding);
    Load { producers: options.producers, items, outstanding: outstanding.min(items), clock }
}

/// The description above the table.
pub(super) fn title(cases: &[&str], ordered: bool, load: &Load, options: &Options) -> String {
    let workers = if ordered { 1 } else { cpus() };
    format!(
        "{}{}{}  (producers {}, items each {}, outstanding {}, workers {workers}, samples {})",
        cases.join(" and "),
        if ordered { ", ordered" } else { "" },
        if load.clock { ", each enqueue timed" } else { "" },
        load.producers,
        load.items,
        load.outstanding,
        options.samples
    )
}
