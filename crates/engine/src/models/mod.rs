//! The engine's protocols under loom: each over all interleavings, or over all with a bounded
//! number of preemptions, with the production types.
//!
//! A module is one protocol. Its header says what it proves, within which bounds, how many
//! executions that takes, and which weakening of the engine makes it fail.
//!
//! loom knows nothing of the costs and everything of the orders: it explores which thread goes next
//! and which store a load returns, finds deadlocks, and finds unordered accesses to a
//! [`crate::sync::Cell`], of which every link of every list is one.

mod host;

mod whole;

use std::sync::{Arc, Mutex};

/// The bounds of one model.
struct Bounds {
    /// Switches away from a thread that could go on; `None`: as many as there are.
    preemptions: Option<usize>,
}

/// Explores `model`, and says how many executions that took.
fn explore(name: &str, bounds: Bounds, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(Mutex::new(0_u64));
    let count = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = bounds.preemptions;
    let began = std::time::Instant::now();
    builder.check(move || {
        *count.lock().unwrap() += 1;
        model();
    });
    let bound = bounds.preemptions.map_or("any number of".to_owned(), |most| format!("at most {most}"));
    println!(
        "{name}: {} executions, {bound} preemptions, {:.1} s",
        executions.lock().unwrap(),
        began.elapsed().as_secs_f64(),
    );
}
