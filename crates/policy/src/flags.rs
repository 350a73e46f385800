//! The flags of a queue, and which of them can be combined.
//!
//! Names and rules are the kernel's (`enum wq_flags`, `alloc_workqueue()`). The numbers are the
//! kernel's too, so a flag word from C can be passed through.

use std::fmt;

bitflags::bitflags! {
    /// The properties of a queue (the kernel's `WQ_*`).
    /// ```
    /// use uwork_policy::flags::Flags;
    /// let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
    /// assert!(flags.contains(Flags::UNBOUND));
    /// assert_eq!(flags.to_string(), "UNBOUND | MEM_RECLAIM");
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u32 {
        /// Items run in queue order, on one context per CPU, and never block.
        const BH = 1 << 0;
        /// Items are not tied to a CPU.
        const UNBOUND = 1 << 1;
        /// The queue takes part in freezing.
        const FREEZABLE = 1 << 2;
        /// The queue makes progress without new threads: it has a rescuer.
        const MEM_RECLAIM = 1 << 3;
        /// The workers have niceness -20, or the nearest value that the process may set.
        const HIGHPRI = 1 << 4;
        /// Items compute for long: their workers do not delay other items.
        const CPU_INTENSIVE = 1 << 5;
        /// The queue's attributes are in the attribute tree.
        const SYSFS = 1 << 6;
        /// Per-CPU by default, unbound when the process saves power.
        const POWER_EFFICIENT = 1 << 7;
        /// Items run on the CPU that queued them.
        const PERCPU = 1 << 8;
        /// Items run one at a time, in queue order.
        const ORDERED = 1 << 17;
        /// Not a kernel flag: items that were pending at a fork also run in the child.
        const FORK_INHERITED = 1 << 23;
        /// Not a kernel flag: each pod has the whole `max_active`, and nodes share nothing. It
        /// exists to measure the cost of the sharing.
        const POD_LIMITS = 1 << 24;
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        bitflags::parser::to_writer(self, f)
    }
}

/// A warning about a queue's flags for its creator. The queue is created all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagsWarning {
    /// Neither PERCPU nor UNBOUND: the queue becomes PERCPU.
    NeitherPerCpuNorUnbound,
    /// Both PERCPU and UNBOUND: the queue becomes UNBOUND.
    BothPerCpuAndUnbound,
}

/// These flags, or this `max_active`, cannot be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagsError {
    /// BH can be combined with HIGHPRI and PERCPU only.
    BhWith(Flags),
    /// A BH queue cannot set `max_active`.
    BhMaxActive(u32),
    /// An ordered queue is unbound, and has a `max_active` of 1.
    OrderedPerCpu,
    /// These bits are not flags.
    Unknown(u32),
}

impl fmt::Display for FlagsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlagsError::BhWith(others) => {
                write!(f, "BH goes with HIGHPRI and PERCPU only, not with {others}")
            }
            FlagsError::BhMaxActive(n) => {
                write!(f, "a BH queue has no max_active; {n} was given, allowed is none")
            }
            FlagsError::OrderedPerCpu => {
                f.write_str("an ordered queue is unbound: PERCPU and ORDERED do not go together")
            }
            FlagsError::Unknown(bits) => {
                write!(
                    f,
                    "0x{bits:x} is no flag; the flags are {}",
                    Flags::all() - Flags::POD_LIMITS
                )
            }
        }
    }
}

impl std::error::Error for FlagsError {}

/// The flags that a queue gets for the requested ones, and a warning if there is one.
///
/// `max_active` is the requested value, if any. `power_efficient` is the process-wide switch.
///
/// # Errors
/// If the flags cannot be combined.
///
/// ```
/// use uwork_policy::flags::{Flags, FlagsWarning, settle};
/// let warned = settle(Flags::empty(), None, false);
/// assert_eq!(warned, Ok((Flags::PERCPU, Some(FlagsWarning::NeitherPerCpuNorUnbound))));
/// let efficient = Flags::PERCPU | Flags::POWER_EFFICIENT;
/// assert_eq!(settle(efficient, None, false), Ok((efficient, None)));
/// let swapped = Flags::UNBOUND | Flags::POWER_EFFICIENT;
/// assert_eq!(settle(efficient, None, true), Ok((swapped, None)));
/// ```
pub fn settle(
    flags: Flags,
    max_active: Option<u32>,
    power_efficient: bool,
) -> Result<(Flags, Option<FlagsWarning>), FlagsError> {
    let unknown = flags.bits() & !Flags::all().bits();
    if unknown != 0 {
        return Err(FlagsError::Unknown(unknown));
    }
    if flags.contains(Flags::BH) {
        let others = flags - (Flags::BH | Flags::HIGHPRI | Flags::PERCPU);
        if !others.is_empty() {
            return Err(FlagsError::BhWith(others));
        }
        return match max_active {
            None => Ok((flags | Flags::PERCPU, None)),
            Some(n) => Err(FlagsError::BhMaxActive(n)),
        };
    }
    if flags.contains(Flags::ORDERED) {
        if flags.contains(Flags::PERCPU) {
            return Err(FlagsError::OrderedPerCpu);
        }
        return Ok((flags | Flags::UNBOUND, None));
    }
    let (flags, warning) = match (flags.contains(Flags::PERCPU), flags.contains(Flags::UNBOUND)) {
        (false, false) => (flags | Flags::PERCPU, Some(FlagsWarning::NeitherPerCpuNorUnbound)),
        (true, true) => (flags - Flags::PERCPU, Some(FlagsWarning::BothPerCpuAndUnbound)),
        _ => (flags, None),
    };
    if flags.contains(Flags::POWER_EFFICIENT) && power_efficient {
        return Ok(((flags - Flags::PERCPU) | Flags::UNBOUND, warning));
    }
    Ok((flags, warning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_flag_bit_is_an_error() {
        let draining = Flags::from_bits_retain(1 << 16) | Flags::UNBOUND;
        assert_eq!(settle(draining, None, false), Err(FlagsError::Unknown(1 << 16)));
        assert!(
            FlagsError::Unknown(1 << 16)
                .to_string()
                .starts_with("0x10000 is no flag; the flags are BH | ")
        );
    }

    #[test]
    fn bh_rejects_flags_that_block_or_migrate() {
        let bh = Flags::BH;
        assert_eq!(settle(bh, None, false), Ok((bh | Flags::PERCPU, None)));
        assert_eq!(settle(bh | Flags::HIGHPRI, None, true).unwrap().1, None);
        assert_eq!(settle(bh, Some(0), false), Err(FlagsError::BhMaxActive(0)));
        assert_eq!(
            settle(bh | Flags::UNBOUND, None, false),
            Err(FlagsError::BhWith(Flags::UNBOUND))
        );
        assert!(settle(bh | Flags::MEM_RECLAIM, None, false).is_err());
        assert_eq!(settle(bh, Some(1), false), Err(FlagsError::BhMaxActive(1)));
    }

    #[test]
    fn unbound_wins_over_per_cpu() {
        let both = Flags::PERCPU | Flags::UNBOUND | Flags::FREEZABLE;
        let settled = (Flags::UNBOUND | Flags::FREEZABLE, Some(FlagsWarning::BothPerCpuAndUnbound));
        assert_eq!(settle(both, None, false), Ok(settled));
    }

    #[test]
    fn ordered_is_unbound() {
        let ordered = Flags::ORDERED | Flags::UNBOUND;
        assert_eq!(settle(Flags::ORDERED, Some(1), false), Ok((ordered, None)));
        assert_eq!(
            settle(Flags::ORDERED | Flags::PERCPU, None, false),
            Err(FlagsError::OrderedPerCpu)
        );
    }

    #[test]
    fn error_messages_list_what_is_allowed() {
        let text = FlagsError::BhWith(Flags::UNBOUND | Flags::SYSFS).to_string();
        assert_eq!(text, "BH goes with HIGHPRI and PERCPU only, not with UNBOUND | SYSFS");
    }
}
