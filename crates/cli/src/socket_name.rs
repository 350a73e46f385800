//! The names of sockets: the process and its PID namespace.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Whether the PID namespace in a socket's name is this process's. `own`: [`own_namespace`].
pub(crate) fn is_here(namespace: Option<u64>, own: Option<u64>) -> bool {
    namespace.is_none() || namespace == own
}

/// A socket without its name yet begins with a dot.
pub(crate) fn is_unnamed(name: &Path) -> bool {
    name.as_os_str().as_bytes().starts_with(b".")
}

/// The process in the name of a socket, and its PID namespace, which sockets of older versions lack.
/// A process has one name of each kind: `01` is no number.
pub(crate) fn process_of(name: &Path) -> Option<(u32, Option<u64>)> {
    let name = name.to_str()?;
    let name = name.strip_prefix('.').or_else(|| name.strip_suffix(".sock"))?;
    let (process, namespace) = match name.split_once('-') {
        Some((process, namespace)) => (process, Some(u64::from_str_radix(namespace, 16).ok()?)),
        None => (name, None),
    };
    let process: u32 = process.parse().ok()?;
    let namespace_text = namespace.map_or(String::new(), |namespace| format!("-{namespace:x}"));
    (format!("{process}{namespace_text}") == name).then_some((process, namespace))
}

/// This process's PID namespace.
pub(crate) fn own_namespace() -> Option<u64> {
    fs::metadata("/proc/self/ns/pid").ok().map(|found| found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_process_and_a_namespace() {
        let of = |name: &str| process_of(Path::new(name));
        assert_eq!(of("4711-effffffc.sock"), Some((4711, Some(0xefff_fffc))));
        assert_eq!(of("4711.sock"), Some((4711, None)));
        assert_eq!(of(".4711-1f"), Some((4711, Some(0x1f))));
        for other in ["x.sock", "1-2-3.sock", "-1.sock", "1-.sock", "4711", ".", "1-x.sock"] {
            assert_eq!(of(other), None, "{other}");
        }
        for other in ["01.sock", "+1.sock", "1-01.sock", "1-+1.sock", "1-1F.sock"] {
            assert_eq!(of(other), None, "{other}: another name of the same process");
        }
    }
}
