//! Names of functions, from the program's debug information or symbol table.

use std::sync::{Mutex, MutexGuard, PoisonError};

use uwork_engine::host::Frame;

/// Held while names are looked for: what looks for them has a lock that no fork handler knows, and a child
/// would find it held for ever.
static RESOLVES: Mutex<()> = Mutex::new(());

/// See [`hold`].
pub(crate) type Held = MutexGuard<'static, ()>;

/// Nobody looks for names while this is held. Up to some hundred milliseconds if somebody does; without any
/// of the engine's locks held.
pub(crate) fn hold() -> Held {
    RESOLVES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The function at this address. Reads the program's file at first use: milliseconds, and memory for
/// what it finds there. Takes locks of its own; without any of the engine's held.
pub(crate) fn name(address: usize) -> Option<String> {
    let _held = hold();
    let mut name = None;
    // It takes an address for one to return to, and looks at the byte before it.
    backtrace::resolve(std::ptr::without_provenance_mut(address.wrapping_add(1)), |symbol| {
        // The outermost one comes last: what was inlined at its first instruction comes before it.
        name = symbol.name().map(|name| format!("{name:#}")).or(name.take());
    });
    name
}

/// A place in a function, as a stack has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The instruction there is the next to run.
    At(usize),
    /// The instruction before it is a call that is under way.
    ReturnTo(usize),
}

/// The path of a source file, without what only tells where the standard library was built.
fn shortened(file: &str) -> &str {
    let rest = file.strip_prefix("/rustc/").and_then(|rest| rest.split_once('/'));
    rest.map_or(file, |(_, path)| path)
}

/// The functions at a place, innermost first: several where some were inlined, one without a name where
/// nothing is known. As [`name`].
pub(crate) fn frames(place: Place) -> Vec<Frame> {
    let (address, resolved) = match place {
        Place::At(address) => (address, address.wrapping_add(1)),
        Place::ReturnTo(address) => (address, address),
    };
    let _held = hold();
    let mut frames = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut(resolved), |symbol| {
        let file = symbol.filename().map(|file| file.display().to_string());
        let location =
            file.zip(symbol.lineno()).map(|(file, line)| format!("{}:{line}", shortened(&file)));
        let symbol = symbol.name().map(|name| format!("{name:#}"));
        frames.push(Frame { address, symbol, location });
    });
    if frames.is_empty() {
        frames.push(Frame { address, symbol: None, location: None });
    }
    frames
}
