//! The production engine in virtual time, on one thread of the test process.
//!
//! `machine` is a computer as plain state: CPUs, a clock, threads that are ready, busy or asleep.
//! `host` presents it to the engine as its platform, `simulation` runs the threads as coroutines,
//! and `item` gives tests work items that cannot be misused. All other modules are tests. They use
//! only the engine's public interface, and the engine does not depend on them.
//!
//! `liveness` runs `histories` on queues of all `kinds` under the `oracle`, which fails a history
//! in which a runnable item waits for too long. `UWORK_SIM_FIRST=N` begins with that seed.
//!
//! The same seed gives the same run. A failure prints its seed; `UWORK_SIM_SEED=N` runs that seed
//! alone, and `UWORK_SIM_SEEDS=N` changes the number of seeds.

mod admission;
mod blocked;
mod blocked_beside;
mod cap;
mod contexts;
mod cpus;
mod deadlock;
mod deferrable;
mod delayed;
mod delayed_items;
mod disposal;
mod drain;
mod dump;
mod faults;
mod flush_item;
mod flush_until;
mod freeze;
mod golden;
mod grace;
mod histories;
mod hogs;
mod host;
mod idle;
mod idle_end;
mod inside;
mod item;
mod kinds;
mod ledger;
mod liveness;
mod machine;
mod oracle;
mod permits;
mod placement;
mod progress;
mod random;
mod random_source;
mod rescue;
mod setup;
mod shutdown;
mod simulation;
mod user_code;
mod waker;
mod watchdog;
mod world;
