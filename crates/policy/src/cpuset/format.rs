//! The kernel's text formats of a CPU set: the list (`0-3,8`) and the hexadecimal mask (`1,0000000f`).

use std::fmt;
use std::str::FromStr;

use super::{CpuSet, MAX_CPUS};

/// Why a text is not a CPU set. Prints as one line that names the offending part and what is allowed.
///
/// ```
/// # use uwork_policy::cpuset::CpuSet;
/// let error = "0-3,x".parse::<CpuSet>().unwrap_err();
/// assert_eq!(error.to_string(), "'x' is not a CPU number (allowed: a list such as 0-3,8 of numbers below 8192)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuSetError {
    /// A part of a list is not a number.
    NotANumber(String),
    /// A CPU number is not below [`MAX_CPUS`].
    OutOfRange(String),
    /// A range runs backwards.
    Backwards(String),
    /// The `:used/group` behind a range is not of that form, or `used` is not in `1..=group`.
    BadStride(String),
    /// A part of a mask is not a group of 1 to 8 hexadecimal digits.
    NotHex(String),
}

impl fmt::Display for CpuSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber(part) => write!(
                f,
                "'{part}' is not a CPU number (allowed: a list such as 0-3,8 of numbers below {MAX_CPUS})"
            ),
            Self::OutOfRange(part) => {
                write!(f, "CPU {part} is out of range (allowed: 0 to {})", MAX_CPUS - 1)
            }
            Self::Backwards(part) => {
                write!(f, "the range '{part}' runs backwards (allowed: LOW-HIGH)")
            }
            Self::BadStride(part) => write!(
                f,
                "'{part}' is not a stride (allowed: LOW-HIGH:USED/GROUP with USED from 1 to GROUP)"
            ),
            Self::NotHex(part) => write!(
                f,
                "'{part}' is not a mask (allowed: groups of 1 to 8 hexadecimal digits with commas between)"
            ),
        }
    }
}

impl std::error::Error for CpuSetError {}

/// The list format: `0-3,8,10-11`, and `0-15:2/4` for the first two of every four. Blank text is
/// the empty set, as in the kernel's files.
impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let text = text.trim();
        let mut set = CpuSet::new();
        if !text.is_empty() {
            for part in text.split(',') {
                insert_part(&mut set, part.trim())?;
            }
        }
        Ok(set)
    }
}

fn insert_part(set: &mut CpuSet, part: &str) -> Result<(), CpuSetError> {
    let (range, stride) = match part.split_once(':') {
        Some((range, stride)) => (range, Some(stride)),
        None => (part, None),
    };
    let (low, high) = match range.split_once('-') {
        Some((low, high)) => (number(low)?, number(high)?),
        None => (number(range)?, number(range)?),
    };
    if low > high {
        return Err(CpuSetError::Backwards(range.to_owned()));
    }
    let (used, group) = match stride {
        Some(stride) => {
            parse_stride(stride).ok_or_else(|| CpuSetError::BadStride(part.to_owned()))?
        }
        None => (1, 1),
    };
    set.extend((low..=high).filter(|cpu| (cpu - low) % group < used));
    Ok(())
}

fn parse_stride(text: &str) -> Option<(u32, u32)> {
    let (used, group) = text.split_once('/')?;
    let (used, group) = (number(used).ok()?, number(group).ok()?);
    (1..=group).contains(&used).then_some((used, group))
}

fn number(text: &str) -> Result<u32, CpuSetError> {
    // Not left to `u32::from_str` alone: it takes a leading '+'.
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(CpuSetError::NotANumber(text.to_owned()));
    }
    match text.parse() {
        Ok(cpu) if cpu < MAX_CPUS => Ok(cpu),
        _ => Err(CpuSetError::OutOfRange(text.to_owned())),
    }
}

impl CpuSet {
    /// Parses the hexadecimal mask format of `/proc/irq/*/smp_affinity` and `taskset`: groups of
    /// 32 bits, most significant first, with commas between; one `0x` in front is accepted.
    ///
    /// # Errors
    /// If a group is not 1 to 8 hexadecimal digits, or a CPU is not below [`MAX_CPUS`].
    ///
    /// ```
    /// # use uwork_policy::cpuset::CpuSet;
    /// assert_eq!(CpuSet::parse_mask("1,0000000f").unwrap().to_string(), "0-3,32");
    /// assert_eq!(CpuSet::parse_mask("0xff").unwrap().to_string(), "0-7");
    /// ```
    pub fn parse_mask(text: &str) -> Result<Self, CpuSetError> {
        let text = text.trim();
        let digits = text.strip_prefix("0x").unwrap_or(text);
        let mut set = CpuSet::new();
        for (group, base) in digits.rsplit(',').zip((0u32..).step_by(32)) {
            let valid =
                (1..=8).contains(&group.len()) && group.bytes().all(|b| b.is_ascii_hexdigit());
            let bits = match u32::from_str_radix(group, 16) {
                Ok(bits) if valid => bits,
                _ => return Err(CpuSetError::NotHex(group.to_owned())),
            };
            for bit in (0..32).filter(|bit| bits & (1 << bit) != 0) {
                if base + bit >= MAX_CPUS {
                    return Err(CpuSetError::OutOfRange((base + bit).to_string()));
                }
                set.insert(base + bit);
            }
        }
        Ok(set)
    }
}

/// The list format, shortest form: `0-3,8,10-11`. The empty set prints as nothing.
impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut comma = "";
        while let Some(low) = cpus.next() {
            let mut high = low;
            while let Some(next) = cpus.next_if(|&next| next == high + 1) {
                high = next;
            }
            match low == high {
                true => write!(f, "{comma}{low}")?,
                false => write!(f, "{comma}{low}-{high}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}
