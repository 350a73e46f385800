//! The uwork command.
fn main() {}
