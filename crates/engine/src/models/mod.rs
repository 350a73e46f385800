//! The engine's protocols under loom, with the production types. Each model explores all
//! interleavings, or all with a bounded number of preemptions.
//!
//! A module is one protocol. Its header says what it proves, within which bounds, how many
//! executions that takes, and with which weakenings of the engine the model was seen to fail. The
//! bounds are those of `make loom`; `make test FULL=1` has one preemption fewer in the largest models.
//!
//! loom explores which thread runs next and which store a load returns. It finds deadlocks, and
//! unordered accesses to a [`crate::words::sync::Cell`]: every link of every list is such a cell, and so
//! is every counter that a model's items increment. Whole-engine models run the production worker;
//! their steps outside of [`world::World::explored`] run in one order only.
//!
//! The models do not explore:
//!
//! - more preemptions than the bound;
//! - the choice of the next thread when a thread relaxes, that is, spins for a few instructions of
//!   another;
//! - time, which never advances: a deadline has either passed from the start or never passes, a
//!   timer expires where the model says so, and the watcher acts only where a model takes its
//!   steps;
//! - `membarrier`, which is modelled as a full fence on both sides.
//!
//! loom also skips executions that it considers equal to explored ones, and for that it remembers
//! only the last access to each atomic. It therefore finds a load that comes after a store much
//! better than a store that comes after a load. So a model creates last the thread that reads what
//! the others write. A model that was not seen to fail with a weakened engine proves nothing,
//! however many executions it has.

pub(crate) mod host;
mod world;

mod cancel;
mod combine;
mod deque;
mod exchange;
mod exit;
mod expiry;
mod flush;
mod fork;
mod freeze;
mod handle;
mod held;
mod hooked;
mod in_progress;
mod keeper;
mod kick;
mod mayday;
mod node;
mod not_running;
mod pending;
mod percpu;
mod places;
mod pwq;
mod room;
mod shutdown;
mod slot;
mod standby;
mod task;
mod transfer;
mod whole;
mod wrap;

use std::sync::{Arc, Mutex};

pub(crate) use host::LoomHost;

/// Bounds on the switches away from a thread that could continue.
#[derive(Clone, Copy)]
enum Preemptions {
    Any,
    AtMost(usize),
    /// For models that take minutes: one fewer, unless `LOOM_DEEP` is set, as `make loom` does.
    Deep(usize),
}

impl Preemptions {
    fn bound(self) -> Option<usize> {
        match self {
            Preemptions::Any => None,
            Preemptions::AtMost(most) => Some(most),
            Preemptions::Deep(most) => {
                Some(most - usize::from(std::env::var_os("LOOM_DEEP").is_none()))
            }
        }
    }
}

/// Explores `model`, and prints how many executions that took. `LOOM_MAX_PREEMPTIONS` overrides
/// the bound.
fn explore(name: &str, preemptions: Preemptions, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(Mutex::new(0_u64));
    let count = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = builder.preemption_bound.or(preemptions.bound());
    let bound =
        builder.preemption_bound.map_or("any number of".to_owned(), |n| format!("up to {n}"));
    let began = std::time::Instant::now();
    builder.check(move || {
        *count.lock().unwrap() += 1;
        model();
    });
    let (executions, seconds) = (*executions.lock().unwrap(), began.elapsed().as_secs_f64());
    println!("{name}: {executions} executions, {bound} preemptions, {seconds:.1} s");
}
