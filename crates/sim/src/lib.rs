//! The production engine in virtual time, on one thread of the process.
//!
//! `machine` is a computer as plain state: CPUs, a clock, threads that are ready, busy or asleep.
//! `host` presents it to the engine as its platform, `simulation` runs the threads as coroutines,
//! and `item` has work items that cannot be misused. `setup` puts an engine on a machine for the
//! length of a run.
//!
//! Two checkers know a run only from its trace: `oracle` fails a run in which a runnable item waits
//! for too long, `conservation` one in which an item waits while a CPU idles. `histories` are random
//! operations on queues of all `kinds` under the oracle.
//!
//! The same seed gives the same run. The engine does not depend on this crate; its tests do.

pub mod chance;
pub mod conservation;
pub mod histories;
pub mod host;
pub mod item;
pub mod kinds;
pub mod machine;
pub mod oracle;
pub mod setup;
pub mod simulation;
