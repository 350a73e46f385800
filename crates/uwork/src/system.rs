//! Ready-made queues, made at first use. They live as long as the process.
//!
//! ```
//! assert_eq!(uwork::system::unbound().spawn(|| 2 + 2).join().unwrap(), 4);
//! ```
//!
//! # Panics
//! All of these panic if no worker thread can be created at first use. Build a queue of your own
//! where that must be handled.

use std::sync::OnceLock;

use crate::queue::{Builder, Queue};

/// The system queues' names, which no other queue may have.
pub(crate) const NAMES: [&str; 4] = ["events", "events_highpri", "events_long", "events_unbound"];

fn get(cell: &'static OnceLock<Queue>, build: impl FnOnce() -> Builder) -> &'static Queue {
    cell.get_or_init(|| {
        build()
            .system()
            .build()
            .unwrap_or_else(|error| panic!("a system queue cannot be made: {error}"))
    })
}

/// Per CPU, for short items (the kernel's `system_percpu_wq`, "events").
pub fn percpu() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    get(&QUEUE, || Queue::builder(NAMES[0]).per_cpu())
}

/// Per CPU, workers with niceness -20 or the nearest allowed (`system_highpri_wq`).
pub fn highpri() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    get(&QUEUE, || Queue::builder(NAMES[1]).per_cpu().highpri())
}

/// Per CPU, for items that may take long (`system_long_wq`).
pub fn long() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    get(&QUEUE, || Queue::builder(NAMES[2]).per_cpu())
}

/// Unbound: the default choice (`system_dfl_wq`, "events_unbound").
pub fn unbound() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    get(&QUEUE, || Queue::builder(NAMES[3]))
}
