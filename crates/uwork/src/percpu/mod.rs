//! Data for each CPU: fast local access, and access from other CPUs.
//!
//! Each CPU's part has a lock of its own. On its own CPU it is taken without a locked instruction,
//! in two of three modes. The modes differ in how other CPUs' parts are accessed, and which threads
//! that disturbs. The project's guide says which mode suits which program, the README of
//! `uwork-percpu` why each of them gives exclusion.
//!
//! - [`PerCpu`]: a value for each CPU
//! - [`PerCpuWork`]: a function for one CPU's data, run on that CPU or in the calling thread,
//!   depending on the mode
//! - [`Cache`]: objects, with a magazine for each CPU
//! - [`Bundle`]: items that are collected for each CPU and handed on in bulk
//! - [`Counter`]: a number that all threads add to
//!
//! The process has one mode. In order of precedence, the environment (`UWORK_PWLOCKS=0`, `1` or
//! `2`), the program ([`Setup::percpu_mode`](crate::Setup::percpu_mode)), or isolated CPUs, which
//! select mode 1, decide it. It is chosen when the first of these objects is made or [`mode`] is
//! called, and then stays. The program must choose earlier: a setup is refused as soon as uwork has
//! started, with the first queue for instance.
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

mod work;

#[doc(inline)]
pub use uwork_percpu::{
    Bundle, Cache, CacheInUse, CacheStats, Cached, Counter, Guard, LockError, Mode, PerCpu,
    is_cpu_remote, mode, reason,
};
pub use work::PerCpuWork;
