//! The commands: their names, their argument counts, and their effects on the keys of one thread.

pub(crate) mod check;
pub(crate) mod glob;
pub(crate) mod operation;
pub(crate) mod table;
