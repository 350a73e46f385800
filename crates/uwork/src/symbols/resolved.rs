//! Names of functions, from the program's debug information or symbol table.

/// The function at this address. Reads the program's file at first use: milliseconds, and memory for
/// what it finds there. Takes locks of its own; without any of the engine's held.
pub(crate) fn name(address: usize) -> Option<String> {
    let mut name = None;
    // It takes an address for one to return to, and looks at the byte before it.
    backtrace::resolve(std::ptr::without_provenance_mut(address.wrapping_add(1)), |symbol| {
        // The outermost one comes last: what was inlined at its first instruction comes before it.
        name = symbol.name().map(|name| format!("{name:#}")).or(name.take());
    });
    name
}
