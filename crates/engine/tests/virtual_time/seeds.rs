//! Seeds of random histories, which the environment can choose.

use std::ops::Range;
use std::panic::catch_unwind;

/// The number in this variable of the environment.
pub(crate) fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number is wanted")))
}

/// Runs the histories of these seeds on two threads. Returns the seeds that fail.
pub(crate) fn failures(seeds: Range<u64>, run: fn(u64)) -> Vec<u64> {
    let half = |odd: u64| {
        let seeds = seeds.clone().filter(move |seed| seed % 2 == odd);
        let fails = move |&seed: &u64| catch_unwind(|| run(seed)).is_err();
        std::thread::spawn(move || seeds.filter(fails).collect::<Vec<_>>())
    };
    let halves = [half(0), half(1)];
    halves.into_iter().flat_map(|half| half.join().expect("it catches")).collect()
}
