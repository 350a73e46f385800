//! Ready-made queues with the kernel's names, made at first use. They live as long as the process.
//!
//! ```
//! assert_eq!(uwork::system::dfl().spawn(|| 2 + 2).join().unwrap(), 4);
//! ```
//!
//! | queue | name | kind | for |
//! |---|---|---|---|
//! | [`percpu`] | `events` | per-CPU | short items |
//! | [`highpri`] | `events_highpri` | per-CPU, niceness -20 | short items that cannot wait |
//! | [`long`] | `events_long` | per-CPU | items that may take long |
//! | [`dfl`] | `events_unbound` | unbound | the default choice |
//! | [`dfl_long`] | `events_dfl_long` | unbound | long items |
//! | [`freezable`] | `events_freezable` | per-CPU, freezable | |
//! | [`power_efficient`] | `events_power_efficient` | per-CPU, or unbound to save power | |
//! | [`freezable_power_efficient`] | `events_freezable_pwr_efficient` | both | |
//! | [`bh`] | `events_bh` | BH | short items that never wait |
//! | [`bh_highpri`] | `events_bh_highpri` | BH, niceness -20 | |
//!
//! The queues for long items are separate, so that a flush of the others does not wait for long
//! items.
//!
//! # Panics
//! All of these panic if no worker thread can be created at first use. To handle that error, build
//! a queue of your own.

use std::sync::OnceLock;

use uwork_linux::first_use;

use crate::builder::Builder;
use crate::queue::Queue;

/// The system queues' names, which no other queue may have.
pub(crate) const NAMES: [&str; 10] = [
    "events",
    "events_highpri",
    "events_long",
    "events_unbound",
    "events_dfl_long",
    "events_freezable",
    "events_power_efficient",
    "events_freezable_pwr_efficient",
    "events_bh",
    "events_bh_highpri",
];

fn get(cell: &'static OnceLock<Queue>, build: impl FnOnce() -> Builder) -> &'static Queue {
    first_use::once(cell, || {
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
pub fn dfl() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    get(&QUEUE, || Queue::builder(NAMES[3]))
}

/// Unbound, for items that may take long (`system_dfl_long_wq`).
pub fn dfl_long() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    get(&QUEUE, || Queue::builder(NAMES[4]))
}

/// Per CPU and freezable (`system_freezable_wq`).
pub fn freezable() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    get(&QUEUE, || Queue::builder(NAMES[5]).per_cpu().freezable())
}

/// Per CPU, or unbound if the process saves power (`system_power_efficient_wq`).
pub fn power_efficient() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    get(&QUEUE, || Queue::builder(NAMES[6]).power_efficient())
}

/// [`power_efficient`] and freezable (`system_freezable_power_efficient_wq`).
pub fn freezable_power_efficient() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    get(&QUEUE, || Queue::builder(NAMES[7]).power_efficient().freezable())
}

/// One context on each CPU, for items that never wait (`system_bh_wq`).
pub fn bh() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    get(&QUEUE, || Queue::builder(NAMES[8]).bh())
}

/// [`bh`] with niceness -20 or the nearest allowed (`system_bh_highpri_wq`).
pub fn bh_highpri() -> &'static Queue {
    static QUEUE: OnceLock<Queue> = OnceLock::new();
    get(&QUEUE, || Queue::builder(NAMES[9]).bh().highpri())
}
