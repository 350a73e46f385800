//! The production engine in virtual time, on one thread of the process.
//!
//! `machine` is a computer as plain state: CPUs, a clock, threads that are ready, busy or asleep.
//! `host` presents it to the engine as its platform, `simulation` runs the threads as coroutines,
//! and `item` has work items that cannot be misused. `setup` puts an engine on a machine for the
//! length of a run.
//!
//! Two checkers know a run only from its trace: `oracle` fails a run in which a runnable item waits
//! for too long, `conservation` one in which an item waits while a CPU idles. `histories` are random
//! operations on queues of all `kinds` under the oracle. `plan` has the arrivals of open loops, and a
//! perfect queue to compare with.
//!
//! `script` has histories as text, `draw` makes one for a seed, `play` runs it and returns the `tape`,
//! `check` has the checkers that know only the tape, and `shrink` makes a failing script small.
//!
//! With `costs`, instructions take time: the engine reports its accesses to cache lines and locks.
//!
//! The same seed gives the same run. The engine does not depend on this crate; its tests do.

pub mod chance;
pub mod check;
pub mod conservation;
pub mod costs;
pub mod draw;
pub mod histories;
pub mod host;
pub mod item;
pub mod kinds;
pub mod machine;
pub mod machines;
pub mod oracle;
pub mod perfetto;
pub mod plan;
pub mod play;
pub mod power;
pub mod script;
pub mod setup;
pub mod shrink;
pub mod simulation;
pub mod tape;
pub mod trace_events;

/// Plays a script, and asserts that no checker finds a violation.
///
/// # Panics
/// The script has an error, or the run a violation.
pub fn assert_holds(text: &str) {
    let script = script::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let machine = machines::machine(&script.machine).unwrap_or_else(|error| panic!("{error}"));
    let run = play::play(&script, &machine).unwrap_or_else(|error| panic!("{error}"));
    let violations = check::check(&script, &machine, &run);
    assert!(violations.is_empty(), "{violations:?}\n{}", run.tape);
}
