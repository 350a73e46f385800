//! Names of functions and of positions in them.

use std::collections::HashMap;

#[cfg_attr(feature = "symbols", path = "resolved.rs")]
#[cfg_attr(not(feature = "symbols"), path = "unresolved.rs")]
mod lookup;

pub use lookup::name;
pub(crate) use lookup::{Held, hold};
#[cfg(feature = "symbols")]
pub(crate) use lookup::{Place, frames};

/// A resolver that looks each function up once.
pub fn names() -> impl FnMut(usize) -> Option<String> {
    let mut known: HashMap<usize, Option<String>> = HashMap::new();
    move |address| known.entry(address).or_insert_with(|| name(address)).clone()
}
