//! The energy of a simulated run: the same tasks with and without saved power, on machines whose
//! power was published.
//!
//! [`activity`] reads from the record of a run when each CPU was busy. [`model`] turns that into
//! joules: power while busy, power while idle by the depth of the idle state, and the energy of
//! leaving a deep state. [`machines`] has the numbers, each with its source. [`experiment`] runs the
//! tasks, and compares.
//!
//! Instructions take no time in the simulator, so each wake is charged a fixed amount of work. The
//! choice of an idle state knows the future, as if each prediction of a governor were right.

pub mod activity;
pub mod experiment;
pub mod machines;
pub mod model;
