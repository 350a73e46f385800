//! The production engine in virtual time, on the machines of the crate `uwork-sim`.
//!
//! These tests use only the engine's public interface, and the engine does not depend on them.
//!
//! `liveness` runs random histories on queues of all kinds under the simulator's oracle, which fails
//! a history in which a runnable item waits for too long. `UWORK_SIM_FIRST=N` begins with that seed.
//!
//! `open` runs open loops under an oracle of work conservation.
//!
//! The same seed gives the same run. A failure prints its seed; `UWORK_SIM_SEED=N` runs that seed
//! alone, and `UWORK_SIM_SEEDS=N` changes the number of seeds.

mod admission;
mod at_once;
mod blocked;
mod blocked_beside;
mod cap;
mod contexts;
mod cpu_account;
mod cpus;
mod deadlock;
mod deferrable;
mod delayed;
mod delayed_items;
mod displaced;
mod disposal;
mod drain;
mod dump;
mod faults;
mod flush_item;
mod flush_until;
mod freeze;
mod golden;
mod grace;
mod hogs;
mod idle;
mod idle_class;
mod idle_end;
mod inside;
mod ledger;
mod liveness;
mod off_cpu;
mod open;
mod pause;
mod permits;
mod placement;
mod progress;
mod random;
mod records;
mod rescue;
mod saving;
mod saving_cpus;
mod seeds;
mod shards;
mod shutdown;
mod standby;
mod user_code;
mod waker;
mod watchdog;
mod wide;
mod world;

use uwork_sim::{
    chance, conservation, histories, host, item, machine, oracle, plan, setup, simulation,
};
