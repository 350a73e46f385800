//! Deadlocks are found where no way out exists, and nowhere else.

use proptest::collection::vec;
use proptest::prelude::*;
use uwork_policy::deadlock::{cycle, stuck};

#[test]
fn cycles_of_one_two_and_three_nodes_are_found() {
    assert_eq!(cycle(&[vec![0]], 0), Some(vec![0]));
    assert_eq!(cycle(&[vec![1], vec![0]], 1), Some(vec![0, 1]));
    let three = [vec![2], vec![0], vec![1]];
    for from in 0..3 {
        assert_eq!(cycle(&three, from), Some(vec![0, 2, 1]));
    }
}

// Catches: a cycle with a way out that is reported as a deadlock.
#[test]
fn a_wait_with_a_way_out_is_no_deadlock() {
    let waits = [vec![1], vec![0, 2], vec![]];
    assert_eq!(cycle(&waits, 0), None);
    let nobody: [Vec<usize>; 0] = [];
    assert!(stuck(&nobody).is_empty());
}

/// Up to a dozen nodes, most of which wait for one or two others.
fn waits() -> impl Strategy<Value = Vec<Vec<usize>>> {
    (1..12_usize).prop_flat_map(|nodes| vec(vec(0..nodes, 0..3), nodes))
}

proptest! {
    /// Ends every node that can end, in a random order; the nodes that remain are stuck.
    #[test]
    fn exactly_the_nodes_that_never_end_are_stuck(waits in waits(), order in vec(any::<prop::sample::Index>(), 12)) {
        let mut ended = vec![false; waits.len()];
        let mut draws = order.iter().cycle();
        loop {
            let may_end: Vec<usize> = (0..waits.len())
                .filter(|&node| !ended[node])
                .filter(|&node| waits[node].is_empty() || waits[node].iter().any(|&way| ended[way]))
                .collect();
            let Some(draw) = draws.next().filter(|_| !may_end.is_empty()) else { break };
            ended[may_end[draw.index(may_end.len())]] = true;
        }
        let left: Vec<bool> = ended.iter().map(|ended| !ended).collect();
        prop_assert_eq!(stuck(&waits), left);
    }

    #[test]
    fn a_cycle_follows_the_waits_and_begins_with_its_lowest_node(waits in waits()) {
        let stuck = stuck(&waits);
        for node in 0..waits.len() {
            let cycle = cycle(&waits, node);
            prop_assert_eq!(cycle.is_some(), stuck[node]);
            let Some(cycle) = cycle else { continue };
            for (at, &member) in cycle.iter().enumerate() {
                prop_assert!(stuck[member]);
                prop_assert!(waits[member].contains(&cycle[(at + 1) % cycle.len()]));
                prop_assert!(at == 0 || member > cycle[0]);
            }
        }
    }
}
