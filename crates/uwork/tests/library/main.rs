//! The promises of the library, one file for each behaviour. All are one program, because each
//! program costs a link.
//!
//! Tests run concurrently in one process. Tests of process-wide state (environment, limits,
//! reporter, count of panics, freezing, shutdown, the choice of a mode) run in a process of their
//! own: `support::child`. Separate programs are only for tests that fork, that count allocations,
//! or that take CPUs of the machine offline.

mod attributes;
mod bad_input;
mod blocking;
mod blocking_bounds;
mod blocking_faults;
mod blocking_standby;
mod blocking_stopped;
mod bounded;
mod combine;
mod counters;
mod creators;
mod declarations;
mod descriptors;
mod dump_api;
mod every_cpu;
mod execute;
mod forward_progress;
mod futures;
mod futures_load;
mod generic_items;
mod golden;
mod guard;
mod halves;
mod idle;
mod inside_items;
mod left_out;
mod on_stack;
mod pause;
mod percpu;
mod percpu_work;
mod porting;
mod power;
mod probes;
mod query;
mod ring;
mod scope;
mod semantics_admission;
mod semantics_cancel;
mod semantics_delayed;
mod semantics_drain;
mod semantics_flags;
mod semantics_flush;
mod semantics_flush_dependency;
mod semantics_freeze;
mod semantics_ordered;
mod semantics_queueing;
mod semantics_rcu;
mod semantics_running;
mod setup;
mod shared_items;
mod shutdown;
mod spans;
mod static_items;
#[path = "../support/mod.rs"]
mod support;
mod sysfs;
mod thread_states;
mod threads;
mod timers_at_once;
mod unblock;
mod unpinned;
mod watchdog;
mod workers_max;
