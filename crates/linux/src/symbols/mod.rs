//! Names of functions and of positions in them.

use std::collections::HashMap;

#[cfg_attr(feature = "symbols", path = "resolved.rs")]
#[cfg_attr(not(feature = "symbols"), path = "unresolved.rs")]
mod lookup;

use lookup::Apart;
pub(crate) use lookup::{Held, hold};
#[cfg(feature = "symbols")]
pub(crate) use lookup::{Place, frames};

/// A resolver that looks each function up once, and has one thread for all of them. Not to be used in a
/// child that is forked meanwhile.
pub fn names() -> impl FnMut(usize) -> Option<String> {
    let mut known: HashMap<usize, Option<String>> = HashMap::new();
    let mut apart = Apart::new();
    move |address| known.entry(address).or_insert_with(|| apart.name(address)).clone()
}

/// The function at this address. Reads the program's file at first use: milliseconds, and memory
/// for the symbols found. Takes locks of its own; call it without any of the engine's held.
pub fn name(address: usize) -> Option<String> {
    Apart::new().name(address)
}
