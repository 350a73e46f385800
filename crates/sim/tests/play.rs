//! What a played script leaves, and how one that fails shrinks.

use uwork_sim::script::{Script, parse};
use uwork_sim::shrink::shrink;
use uwork_sim::{check, draw, machines, play};

/// A stand-in for a violation: a thread's creation has failed.
#[test]
fn a_failing_history_shrinks_to_a_few_lines() {
    let fails = |script: &Script| {
        let machine = machines::machine(&script.machine).expect("a notation");
        let run = play::play(script, &machine).expect("a script for its machine");
        run.faults.get("spawn").is_some_and(|&times| times > 0)
    };
    let drawn = (0..1_000).map(draw::draw).find(fails).expect("one in a thousand has such a fault");
    let small = shrink(&drawn, 3_000, fails);
    let steps: usize = small.threads.iter().map(Vec::len).sum();
    assert!(small.items.len() <= 3 && steps <= 6, "{small}");
    assert!(fails(&parse(&small.to_string()).unwrap()), "{small}");
}

#[test]
fn a_history_without_an_end_is_stopped_at_its_bound() {
    let text = "bound 1s\nqueue q percpu\nitem a q: burn 1us; queue b\nitem b q: sleep 1ms; queue a\nthread: queue a\n";
    let script = parse(text).unwrap();
    let machine = machines::machine(&script.machine).unwrap();
    let run = play::play(&script, &machine).unwrap();
    assert_eq!(run.ending, play::Ending::Unending);
    let found = check::check(&script, &machine, &run);
    assert_eq!(found.iter().map(|one| one.checker).collect::<Vec<_>>(), ["liveness"]);
}

/// Also on another machine, and in another build: the figure is `uwork sim check`'s for these seeds.
#[test]
fn a_hundred_seeds_give_the_records_that_they_gave_elsewhere() {
    const DIGEST: u64 = 0xb0fc_f4a0_a624_c65d;
    let digest = (0..100).fold(0_u64, |sum, seed| {
        let script = draw::draw(seed);
        let machine = machines::machine(&script.machine).unwrap();
        sum.wrapping_add(play::play(&script, &machine).unwrap().tape.digest())
    });
    let changed = "if the engine, the machine or the histories were changed on purpose, set it";
    assert_eq!(digest, DIGEST, "{digest:#018x}: {changed}");
}

#[test]
fn the_same_seed_gives_the_same_tape() {
    for seed in 0..20 {
        let script = draw::draw(seed);
        let machine = machines::machine(&script.machine).unwrap();
        let tape = || play::play(&script, &machine).unwrap().tape.to_string();
        assert_eq!(tape(), tape(), "seed {seed}");
    }
}
