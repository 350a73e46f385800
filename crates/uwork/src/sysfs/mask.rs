//! CPU masks as the kernel writes them: hexadecimal, the highest CPU first, a comma after each 32
//! bits.

use uwork_linux::engine;
use uwork_policy::cpuset::CpuSet;

/// Bits in a group.
const GROUP: u32 = 32;

/// The mask of a machine with `nr_cpus` possible CPUs (the kernel's `%*pb`).
pub(super) fn format(mask: &CpuSet, nr_cpus: u32) -> String {
    let groups = nr_cpus.max(1).div_ceil(GROUP);
    let group = |group: u32| {
        let bits = (0..GROUP).filter(|bit| mask.contains(group * GROUP + bit));
        let value = bits.fold(0_u32, |value, bit| value | 1 << bit);
        // The first group has as many digits as its CPUs need.
        let width = (nr_cpus.max(1) - group * GROUP).min(GROUP).div_ceil(4) as usize;
        format!("{value:0width$x}")
    };
    (0..groups).rev().map(group).collect::<Vec<_>>().join(",")
}

/// Parses the output of [`format()`], and shorter forms of it. `None` for anything else, and for
/// CPUs that are not possible.
pub(super) fn parse(text: &str, nr_cpus: u32) -> Option<CpuSet> {
    // A prefix and spaces are of `taskset`'s format, not of the kernel's.
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b',') {
        return None;
    }
    let mask = CpuSet::parse_mask(text).ok()?;
    mask.last().is_none_or(|cpu| cpu < nr_cpus).then_some(mask)
}

/// A description of the masks that can be written.
pub(super) fn allowed() -> String {
    let allowed = super::format_mask(&engine().cpus().allowed);
    format!("hexadecimal masks with CPUs of {allowed} in them")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().expect("a list of CPUs")
    }

    #[test]
    fn masks_have_the_kernels_format() {
        assert_eq!(format(&set("0-1"), 2), "3");
        assert_eq!(format(&set("0"), 12), "001");
        assert_eq!(format(&set("0,31"), 32), "80000001");
        assert_eq!(format(&set("0,32"), 33), "1,00000001");
        assert_eq!(format(&set("4-7,64"), 72), "01,00000000,000000f0");
        assert_eq!(format(&CpuSet::new(), 64), "00000000,00000000");
    }

    #[test]
    fn written_masks_can_be_read() {
        for (cpus, nr) in [("0-1", 2), ("0", 12), ("0,31", 32), ("0,32", 33), ("4-7,64", 72)] {
            assert_eq!(parse(&format(&set(cpus), nr), nr), Some(set(cpus)), "{cpus}");
        }
        assert_eq!(parse("F0", 8), Some(set("4-7")));
        assert_eq!(parse("0", 8), Some(CpuSet::new()));
        for wrong in ["", "g", "0x3", "-1", "+1", "1,", ",1", "123456789", "100", "1,0"] {
            assert_eq!(parse(wrong, 8), None, "{wrong:?}");
        }
    }
}
