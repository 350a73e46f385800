//! The engine's protocols under loom, with the production types: each over all interleavings, or
//! over all with a bounded number of preemptions.
//!
//! A module is one protocol. Its header says what it proves, within which bounds, how many
//! executions that takes, and which weakenings of the engine it was seen to find.
//!
//! loom explores which thread goes next and which store a load returns. It finds deadlocks, and
//! unordered accesses to a [`crate::sync::Cell`]: every link of every list is one, and so is every
//! counter that a model's items bump. Whole-engine models run the production worker; what they do
//! outside of [`world::World::explored`] is done in one order only.
//!
//! Not explored: more preemptions than the bound; who goes next when a thread relaxes in a wait for
//! a few instructions of another; time, which stands still: a deadline is over from the start or
//! never, a timer expires where the model says so, and the watch has a part only where a model takes its steps;
//! and `membarrier`, which is modelled by a full fence on both sides. And loom leaves out what it takes for the same
//! as something explored, for which it remembers but the last access to each atomic: it finds a
//! load that comes after a store much better than a store that comes after a load. So a model
//! creates last who looks at what the others do, and a model that was not seen to fail when the
//! engine is weakened proves nothing, however many executions it has.

mod host;
mod world;

mod absence;
mod cancel;
mod combine;
mod exchange;
mod exit;
mod expiry;
mod flush;
mod freeze;
mod handle;
mod held;
mod keeper;
mod kick;
mod mayday;
mod node;
mod pending;
mod percpu;
mod pwq;
mod shutdown;
mod slot;
mod task;
mod transfer;
mod underway;
mod whole;
mod wrap;

use std::sync::{Arc, Mutex};

pub(crate) use host::LoomHost;

/// Bounds on the switches away from a thread that could go on.
#[derive(Clone, Copy)]
enum Preemptions {
    Any,
    AtMost(usize),
}

/// Explores `model`, and prints how many executions that took. `LOOM_MAX_PREEMPTIONS` overrides
/// the bound.
fn explore(name: &str, preemptions: Preemptions, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(Mutex::new(0_u64));
    let count = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    if let (None, Preemptions::AtMost(most)) = (builder.preemption_bound, preemptions) {
        builder.preemption_bound = Some(most);
    }
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
