//! Every pool runs every item exactly once, under loads of each shape. The driver itself checks the
//! counts after the pool has ended.

use uwork_rivals::{Load, catalogue, joins};

fn load(items: usize, outstanding: usize) -> Load {
    Load { producers: 3, items, outstanding, clock: false }
}

#[test]
fn every_pool_runs_every_item_once() {
    for rival in catalogue().into_iter().chain(joins()) {
        for load in [load(200, 1), load(2_050, 100), load(5_000, 5_000)] {
            let sample = rival.measure(2, &load);
            assert_eq!(sample.items, 3 * load.items as u64, "{} {}", rival.runner, rival.variant);
            assert!(sample.latency.is_none());
        }
    }
}

#[test]
fn pools_that_can_be_ordered_run_with_one_worker() {
    for rival in catalogue().into_iter().filter(|rival| rival.can_be_ordered) {
        rival.measure(1, &load(2_050, 100));
    }
}

#[test]
fn a_clocked_load_has_percentiles_in_order() {
    for rival in catalogue() {
        let sample = rival.measure(2, &Load { clock: true, ..load(1_000, 100) });
        let latency = sample.latency.expect("clocked");
        let rising = [latency.p50_ns, latency.p90_ns, latency.p95_ns, latency.p99_ns];
        assert!(rising.is_sorted() && rising[0] > 0, "{}: {rising:?}", rival.runner);
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<_> = catalogue().iter().map(|rival| (rival.runner, rival.variant)).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
#[should_panic(expected = "an empty load")]
fn an_empty_load_is_refused() {
    catalogue()[0].measure(1, &load(0, 1));
}
