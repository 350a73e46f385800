//! Random histories without a violation.

use std::collections::BTreeMap;

use uwork_sim::script::Faults;
use uwork_sim::{check, draw, machines, play};

/// Histories of one run of the tests; `UWORK_SIM_SEEDS=N` runs more, from `UWORK_SIM_FIRST=N` on.
const SEEDS: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number is wanted")))
}

/// The violations of this seed's history.
fn violations(seed: u64) -> Vec<check::Violation> {
    let script = draw::draw(seed);
    let machine = machines::machine(&script.machine).expect("a notation");
    let run = play::play(&script, &machine).expect("a script for its machine");
    check::check(&script, &machine, &run)
}

#[test]
fn no_checker_finds_a_violation() {
    let first = number("UWORK_SIM_FIRST").unwrap_or(0);
    let seeds = number("UWORK_SIM_SEEDS").unwrap_or(SEEDS);
    let half = |odd: u64| {
        let seeds = (first..first + seeds).filter(move |seed| seed % 2 == odd);
        let wrong = |seed| Some((seed, violations(seed))).filter(|(_, found)| !found.is_empty());
        std::thread::spawn(move || seeds.filter_map(wrong).collect::<Vec<_>>())
    };
    let halves = [half(0), half(1)];
    let wrong: Vec<_> =
        halves.into_iter().flat_map(|half| half.join().expect("it does not panic")).collect();
    for (seed, violations) in wrong.iter().take(20) {
        for violation in violations {
            println!("seed {seed}: {violation}");
        }
    }
    assert!(wrong.is_empty(), "{} histories have violations", wrong.len());
}

#[test]
fn each_fault_occurs_in_drawn_histories() {
    let mut occurred: BTreeMap<&str, u64> = BTreeMap::new();
    for script in (0..300).map(draw::draw) {
        let machine = machines::machine(&script.machine).expect("a notation");
        let run = play::play(&script, &machine).expect("a script for its machine");
        run.faults
            .into_iter()
            .for_each(|(name, times)| *occurred.entry(name).or_default() += times);
        // These are no events: the choices and the latencies of the whole history.
        for name in ["order", "wake_ns", "spawn_ns"] {
            *occurred.entry(name).or_default() += script.faults.get(name);
        }
    }
    for (name, _) in Faults::NAMES {
        assert!(occurred.get(name).is_some_and(|&times| times > 0), "{name}: {occurred:?}");
    }
}

/// The flush has nothing to wait for; the checker took it for one that returns early.
#[test]
fn a_flush_of_an_item_from_its_own_run_returns() {
    uwork_sim::assert_holds(
        "\
        machine core:2
        queue q percpu
        item a q: burn 5us; flush a; burn 5us
        thread: queue a
        ",
    );
}

/// A submitter leaves a wake to the watcher, and is kept from its CPU until another worker has taken
/// its item. The watcher then woke a worker in vain.
#[test]
fn a_wake_that_is_left_to_the_watcher_is_given_up_if_the_item_is_gone() {
    uwork_sim::assert_holds(
        "\
        machine core:4
        seed 724100
        fault preempt 5
        fault early 10
        fault jump 50
        fault wake_ns 50000
        fault spawn_ns 20000
        fault memory 4
        queue q0 ordered
        queue q1 dedicated
        item i17 q0: burn 1us; sleep 16us
        item i66 q0: burn 32us; sleep 8us
        item i139 q1:
        item i165 q1:
        item i179 q1: burn 64us
        thread: queue i165; queue i66 1
        thread: queue i17; doze 64us; queue i179 0; queue i139
        ",
    );
}

/// Drawn histories hardly ever have so many runs on a node at once.
#[test]
fn a_node_has_its_share_of_the_limit() {
    let items = (0..20).map(|item| format!("item i{item} q: sleep 1ms\n")).collect::<String>();
    let steps = (0..20).map(|item| format!("queue i{item} 0; ")).collect::<String>();
    uwork_sim::assert_holds(&format!(
        "machine node:2 core:2\nqueue q unbound strict max_active=12\n{items}thread: {steps}\n"
    ));
}
