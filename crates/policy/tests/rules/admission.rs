//! The share of `max_active` that a node gets.

use proptest::prelude::*;
use uwork_policy::admission::{MIN_ACTIVE_DEFAULT, default_min_active, node_max_active};

// Catches: rounding down, a minimum or maximum that is not kept, an overflow.
#[test]
fn a_node_gets_its_share_within_bounds() {
    // max_active, min_active, CPUs of the node, CPUs in all, limit
    let table = [
        (1024, 8, 32, 32, 1024),
        (1024, 8, 16, 32, 512),
        (1024, 8, 1, 128, 8),
        (1024, 8, 2, 128, 16),
        (16, 8, 1, 2, 8),
        (16, 1, 1, 2, 8),
        (17, 1, 1, 2, 9),
        (10, 1, 1, 3, 4),
        (10, 1, 2, 3, 7),
        (3, 3, 1, 2, 3),
        (3, 2, 1, 2, 2),
        (1, 1, 1, 4, 1),
        (5, 9, 1, 5, 5),
        (5, 0, 0, 4, 1),
        (5, 3, 0, 4, 3),
        (0, 0, 0, 0, 1),
        (4, 2, 0, 0, 2),
        (u32::MAX, 1, 1 << 13, 1 << 13, u32::MAX),
        (u32::MAX, 1, u32::MAX, 1, u32::MAX),
    ];
    for (max, min, node, total, limit) in table {
        assert_eq!(node_max_active(max, min, node, total), limit, "{max} {min} {node}/{total}");
    }
}

// Catches: a default above the limit, or one that is always the limit.
#[test]
fn the_default_minimum_is_eight_or_the_limit() {
    let table = [(1, 1), (7, 7), (8, 8), (9, 8), (2048, 8)];
    for (max, min) in table {
        assert_eq!(default_min_active(max), min);
    }
    assert_eq!(MIN_ACTIVE_DEFAULT, 8);
}

proptest! {
    /// The shares of all nodes of a machine. No share is below the minimum or above the limit, and
    /// together they reach the limit. With the least minimum they exceed the limit by less than one
    /// for each node.
    #[test]
    fn shares_of_all_nodes(
        max in 1..=2048_u32,
        min in 0..=2048_u32,
        nodes in prop::collection::vec(0..=64_u32, 1..8),
    ) {
        let total: u32 = nodes.iter().sum();
        prop_assume!(total > 0);
        let limits = |min| nodes.iter().map(move |&cpus| node_max_active(max, min, cpus, total));
        for limit in limits(min) {
            prop_assert!((min.min(max).max(1)..=max).contains(&limit));
        }
        prop_assert!(limits(min).sum::<u32>() >= max);
        prop_assert!(limits(0).sum::<u32>() < max + nodes.len() as u32);
        // A node with more CPUs never gets a smaller share.
        for (a, limit) in nodes.iter().zip(limits(min)) {
            for (b, other) in nodes.iter().zip(limits(min)) {
                prop_assert!(a > b || limit <= other);
            }
        }
    }
}
