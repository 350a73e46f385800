//! Builds without debug assertions, and models: nothing is recorded. See `checked.rs`.

use super::Rank;

/// See `checked.rs`.
#[derive(Clone, Copy, Debug)]
pub struct Holding;

impl Holding {
    /// See `checked.rs`.
    pub const NOTHING: Holding = Holding;
}

/// See `checked.rs`.
#[inline(always)]
pub fn exchange(holding: Holding) -> Holding {
    holding
}

#[derive(Clone, Copy)]
pub(super) struct Ranked;

pub(super) struct Held;

impl Ranked {
    #[inline(always)]
    pub(super) fn new(_: Rank) -> Ranked {
        Ranked
    }

    #[inline(always)]
    pub(super) fn take(self) -> Held {
        Held
    }
}

#[inline(always)]
pub(crate) fn take_all(_: bool) {}

#[inline(always)]
pub(crate) fn item_detached() {}

#[inline(always)]
pub(crate) fn item_attached() {}

#[inline(always)]
pub(crate) fn item_moves(_: impl FnOnce() -> bool, _: bool) {}

/// See `checked.rs`.
#[inline(always)]
pub fn assert_nothing_held(_: &str) {}

#[inline(always)]
pub(crate) fn assert_may_wake() {}
