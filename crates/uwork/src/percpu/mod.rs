//! Data for each CPU: local speed, remote reach.
//!
//! Each CPU's part has a lock of its own. On one's own CPU it is taken without a locked instruction, in two
//! of three modes; how other CPUs' parts are reached, and who is disturbed by that, is what the modes
//! differ in. The project's `docs/percpu.md` says which mode is for whom, and why each of them excludes.
//!
//! - [`PerCpu`]: a value for each CPU
//! - [`PerCpuWork`]: a function for one CPU's data, run there or here as the mode says
//! - [`Cache`]: objects, with a magazine for each CPU
//! - [`Batch`]: items that are collected for each CPU and handed on in bulk
//! - [`Counter`]: a number that everybody adds to
//!
//! The mode is one for the process: what the environment says (`UWORK_PWLOCKS=0`, `1` or `2`), or the program
//! ([`Setup::percpu_mode`](crate::Setup::percpu_mode)), or isolated CPUs, which turn mode 1 on. It is chosen when the
//! first of these is made or [`mode`] is asked for, and stays. The program's word has to come earlier: a setup is
//! refused as soon as uwork has started, with the first queue for instance.
//!
//! ```
//! use uwork::percpu::PerCpu;
//!
//! let counts = PerCpu::new(|_cpu| 0_u64);
//! *counts.lock_local().unwrap() += 1;
//! let mut sum = 0;
//! for cpu in counts.cpus() {
//!     sum += *counts.lock(cpu).unwrap();
//! }
//! assert_eq!(sum, 1);
//! ```

mod batch;
pub(crate) mod cache;
pub(crate) mod calls;
mod counter;
mod data;
mod error;
pub(crate) mod forks;
pub(crate) mod locks;
mod mode;
mod parts;
mod remote;
mod singles;
#[cfg(test)]
mod tests;
mod underway;
mod work;

pub use batch::Batch;
pub use cache::{Cache, CacheInUse, CacheStats, Cached};
pub use counter::Counter;
pub use data::{Guard, PerCpu};
pub use error::LockError;
pub use mode::{mode, reason};
pub use uwork_policy::percpu::Mode;
pub use work::{PerCpuWork, is_cpu_remote};
