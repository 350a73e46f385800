//! What the watchdog and a dump read: every pool, pwq and run, one after the other.

use crate::engine::Engine;
use crate::words::host::Host;

/// See the module.
pub(crate) struct Survey<'a, H: Host> {
    pub(super) engine: &'a Engine<H>,
}

impl<H: Host> Clone for Survey<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Host> Copy for Survey<'_, H> {}

impl<'a, H: Host> Survey<'a, H> {
    pub(crate) fn of(engine: &'a Engine<H>) -> Survey<'a, H> {
        Survey { engine }
    }
}
