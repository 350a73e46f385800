//! Each checker finds a planted defect of the engine, and a failing script shrinks.

use uwork_engine::host::Cure;
use uwork_sim::check::Violation;
use uwork_sim::script::{Script, parse};
use uwork_sim::shrink::shrink;
use uwork_sim::{check, draw, machines, play};

/// The number of histories within which a checker must find its defect.
const SEARCHED: u64 = 10_000;

fn violations(script: &Script, reverted: Cure) -> Vec<Violation> {
    let machine = machines::machine(&script.machine).expect("a notation");
    let run = play::play(script, &machine, Some(reverted)).expect("a script for its machine");
    check::check(script, &machine, &run)
}

fn finds(checker: &str, script: &Script, reverted: Cure) -> bool {
    violations(script, reverted).iter().any(|violation| violation.checker == checker)
}

/// The first seed whose history fails this checker without this cure.
fn first(checker: &str, reverted: Cure) -> u64 {
    let seed = (0..SEARCHED).find(|&seed| finds(checker, &draw::draw(seed), reverted));
    let seed =
        seed.unwrap_or_else(|| panic!("{checker} does not find that {reverted:?} is reverted"));
    println!("{checker}: without {reverted:?} seed {seed} fails");
    seed
}

#[test]
fn balance_finds_a_cancelled_item_that_is_not_reported() {
    first("balance", Cure::ReportedCancel);
}

#[test]
fn exclusion_finds_two_runs_of_an_item() {
    first("exclusion", Cure::DeferredCollision);
}

#[test]
fn dedup_finds_a_pending_item_that_is_accepted_again() {
    first("dedup", Cure::RefusedDuplicate);
}

#[test]
fn order_finds_an_item_that_overtakes() {
    first("order", Cure::OldestFirst);
}

#[test]
fn limit_finds_more_runs_than_max_active() {
    first("limit", Cure::GivenLimit);
}

#[test]
fn limit_finds_more_runs_on_a_node_than_its_share() {
    // Drawn histories hardly ever have so many runs on a node at once.
    let items = (0..20).map(|item| format!("item i{item} q: sleep 1ms\n")).collect::<String>();
    let steps = (0..20).map(|item| format!("queue i{item} 0; ")).collect::<String>();
    let text = format!(
        "machine node:2 core:2\nqueue q unbound strict max_active=12\n{items}thread: {steps}\n"
    );
    let script = parse(&text).unwrap();
    uwork_sim::assert_holds(&text);
    assert!(finds("limit", &script, Cure::DividedLimit), "{text}");
}

#[test]
fn affinity_finds_an_item_on_another_cpu() {
    first("affinity", Cure::NamedCpu);
}

#[test]
fn flush_finds_a_flush_that_does_not_wait() {
    first("flush", Cure::AwaitedFlush);
}

#[test]
fn cancel_finds_a_run_after_cancel_sync() {
    first("cancel", Cure::AwaitedCancel);
}

#[test]
fn liveness_finds_a_submission_that_settles_nothing() {
    first("liveness", Cure::SettledSubmission);
}

#[test]
fn wakes_finds_a_worker_that_is_woken_for_nothing() {
    first("wakes", Cure::NeededWake);
}

#[test]
fn a_failing_history_shrinks_to_a_few_lines() {
    let seed = first("flush", Cure::AwaitedFlush);
    let fails = |script: &Script| finds("flush", script, Cure::AwaitedFlush);
    let small = shrink(&draw::draw(seed), 3_000, fails);
    let steps: usize = small.threads.iter().map(Vec::len).sum();
    assert!(small.items.len() <= 3 && steps <= 6, "{small}");
    assert!(fails(&parse(&small.to_string()).unwrap()), "{small}");
}

#[test]
fn a_history_without_an_end_is_stopped_at_its_bound() {
    let text = "bound 1s\nqueue q percpu\nitem a q: burn 1us; queue b\nitem b q: sleep 1ms; queue a\nthread: queue a\n";
    let script = parse(text).unwrap();
    let machine = machines::machine(&script.machine).unwrap();
    let run = play::play(&script, &machine, None).unwrap();
    assert_eq!(run.ending, play::Ending::Unending);
    let found = check::check(&script, &machine, &run);
    assert_eq!(found.iter().map(|one| one.checker).collect::<Vec<_>>(), ["liveness"]);
}

/// Also on another machine, and in another build: the figure is `uwork sim check`'s for these seeds.
#[test]
fn a_hundred_seeds_give_the_records_that_they_gave_elsewhere() {
    const DIGEST: u64 = 0x1d1b_1f64_3eb7_a4c1;
    let digest = (0..100).fold(0_u64, |sum, seed| {
        let script = draw::draw(seed);
        let machine = machines::machine(&script.machine).unwrap();
        sum.wrapping_add(play::play(&script, &machine, None).unwrap().tape.digest())
    });
    let changed = "if the engine, the machine or the histories were changed on purpose, set it";
    assert_eq!(digest, DIGEST, "{digest:#018x}: {changed}");
}

#[test]
fn the_same_seed_gives_the_same_tape() {
    for seed in 0..20 {
        let script = draw::draw(seed);
        let machine = machines::machine(&script.machine).unwrap();
        let tape = || play::play(&script, &machine, None).unwrap().tape.to_string();
        assert_eq!(tape(), tape(), "seed {seed}");
    }
}
