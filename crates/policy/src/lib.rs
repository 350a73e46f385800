//! The decisions of uwork, separate from the code that carries them out.
//!
//! Nothing here reads a clock, starts a thread, touches a file or shares memory: counters, ids and
//! plain values go in, a decision comes out. The same functions run on real threads, under the
//! model checker and in the simulator.
//!
//! - [`cpuset`]: sets of CPUs and the kernel's text formats for them
//! - [`topology`]: a machine as a plain value, and its one-line notation
//! - [`scope`]: affinity scopes, the pods that they divide a machine into, the default's fallback
//! - [`concurrency`]: when a pool needs one more worker, and when an idle one may retire
//! - [`admission`]: how many items of a queue may be active on a NUMA node
//! - [`blocking`]: how undeclared blocking is detected, and when a blocked worker is replaced
//! - [`samples`]: which workers the watcher samples, and when it counts one out
//! - [`scan`]: when the watcher scans and rests, and what a scan does for a pool
//! - [`arrivals`]: when the items of a list were queued, known from a few of them
//! - [`histogram`]: times in log-linear classes
//! - [`batch`]: how many items a worker takes at once, and what it does with them
//! - [`off_cpu`]: how many workers a pool needs whose items sleep briefly
//! - [`deadlock`]: which of the items that wait for each other can never continue
//! - [`flags`]: the flags of a queue, and which of them can be combined
//! - [`standby`]: what a thread does that runs when a worker has blocked
//! - [`timer`]: where a timer goes in the wheel
//! - [`progress`]: what a pool owes its items and timers after a change
//! - [`percpu`]: how per-CPU data is locked, and which mode a process gets
//! - [`cpu_choice`]: which CPU an item is queued for, and which parked worker is woken

#![forbid(unsafe_code)]
// A forked child may find std's locks of these streams held: see uwork_linux::standard_error.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

pub mod admission;
pub mod arrivals;
pub mod batch;
pub mod blocking;
pub mod concurrency;
pub mod cpu_choice;
pub mod cpuset;
pub mod deadlock;
pub mod flags;
pub mod histogram;
pub mod off_cpu;
pub mod percpu;
pub mod progress;
pub mod samples;
pub mod saving;
pub mod scan;
pub mod scope;
pub mod standby;
pub mod timer;
pub mod topology;
