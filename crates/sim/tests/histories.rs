//! Random histories without a violation.

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
    let run = play::play(&script, &machine, None).expect("a script for its machine");
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
