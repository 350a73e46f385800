//! The environment's variables, which threads of the library read from copies.
//!
//! `setenv` of the C library may move and free the list through which `getenv` walks; the lock of the
//! standard library keeps only Rust code apart. A program in C can arrange that its own calls do not meet,
//! and not those of threads that it does not know. So all variables are read on the thread that makes the
//! engine, before any thread of the library exists.

use std::ffi::OsString;
use std::sync::OnceLock;

/// All that any crate of the library asks for.
const NAMES: [&str; 10] = [
    "UWORK_BLOCKING",
    "UWORK_CONTROL",
    "UWORK_DEBUG",
    "UWORK_DUMP_SIGNAL",
    "UWORK_POWER_EFFICIENT",
    "UWORK_PWLOCKS",
    "UWORK_STACK",
    "UWORK_WORKERS",
    "XDG_RUNTIME_DIR",
    "RUST_MIN_STACK",
];

/// The values. Set within the lock of `first_use`, as the engine is.
static VALUES: OnceLock<[Option<OsString>; NAMES.len()]> = OnceLock::new();

/// Keeps the values from now on.
pub(crate) fn keep() {
    VALUES.get_or_init(|| NAMES.map(std::env::var_os));
}

/// The value of one of these variables: that of the moment when the engine was made, if it was.
pub fn variable(name: &'static str) -> Option<OsString> {
    let at = NAMES.iter().position(|&known| known == name);
    let at = at.unwrap_or_else(|| panic!("{name} is not in the list"));
    VALUES.get().map_or_else(|| std::env::var_os(name), |values| values[at].clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Catches: a thread of the library that reads the environment beside `setenv` of the program.
    #[test]
    fn a_variable_has_the_value_of_the_moment_when_the_engine_was_made() {
        crate::engine();
        let before = variable("UWORK_PWLOCKS");
        // SAFETY: no code of this process that runs beside reads the environment by the C library.
        unsafe { std::env::set_var("UWORK_PWLOCKS", "another") };
        assert_eq!(variable("UWORK_PWLOCKS"), before);
    }
}
