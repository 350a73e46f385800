//! Items of bundles: when they go to the sink.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{cpus, modes, on_cpu};
use crate::Bundle;

#[test]
fn a_bundle_goes_to_the_sink_when_it_is_full_or_drained_or_dropped() {
    for mode in modes() {
        for capacity in [1, 2, 7] {
            let sunk = Arc::new(AtomicUsize::new(0));
            let largest = Arc::new(AtomicUsize::new(0));
            let sink = {
                let (sunk, largest) = (sunk.clone(), largest.clone());
                move |items: std::vec::Drain<'_, usize>| {
                    largest.fetch_max(items.len(), Ordering::Relaxed);
                    sunk.fetch_add(items.sum(), Ordering::Relaxed);
                }
            };
            let bundle = Bundle::in_mode(mode, capacity, sink);
            for cpu in cpus() {
                on_cpu(cpu, || (0..10).for_each(|_| bundle.add(1)));
                assert_eq!(bundle.len_on(cpu), 10 % capacity, "mode {mode}");
            }
            let in_bundles = cpus().len() * (10 % capacity);
            assert_eq!(sunk.load(Ordering::Relaxed), 10 * cpus().len() - in_bundles);
            assert_eq!(largest.load(Ordering::Relaxed), capacity);
            assert_eq!(bundle.drain_all().unwrap(), in_bundles);
            assert_eq!(sunk.load(Ordering::Relaxed), 10 * cpus().len());
            assert_eq!(bundle.drain_all().unwrap(), 0);
            bundle.add(5);
            drop(bundle);
            assert_eq!(sunk.load(Ordering::Relaxed), 10 * cpus().len() + 5);
        }
    }
}

#[test]
#[should_panic(expected = "a bundle of 0 items: 1 to 1048576 are allowed")]
fn a_bundle_has_room_for_something() {
    let _ = Bundle::<u8>::new(0, |_| ());
}
