//! The commands: their names, how many arguments they take, and what they do to one thread's keys.

pub(crate) mod check;
pub(crate) mod glob;
pub(crate) mod operation;
pub(crate) mod table;
