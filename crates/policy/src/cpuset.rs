//! A set of CPU numbers, in memory and in the kernel's two text formats.
//!
//! Masks are values here: every set operation returns a new set, and nothing is shared. The text
//! formats are in `format`, so this file deals with bits only.

mod format;

pub use format::CpuSetError;

use std::fmt;

/// One more than the largest CPU number that a [`CpuSet`] may hold. This is Linux's own maximum;
/// the limit keeps a typing mistake in a mask from allocating gigabytes.
pub const MAX_CPUS: u32 = 8_192;

const BITS: u32 = u64::BITS;

/// A set of CPU numbers below [`MAX_CPUS`].
///
/// Prints and parses in the kernel's list format. The order of `Ord` is total but has no other
/// meaning; it exists so that masks can be keys.
/// ```
/// use uwork_policy::cpuset::CpuSet;
///
/// let mask: CpuSet = "0-3,8,10-11".parse().unwrap();
/// assert_eq!(mask.len(), 7);
/// assert!(mask.contains(8));
/// assert_eq!(mask.to_string(), "0-3,8,10-11");
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct CpuSet {
    /// Bit `c % 64` of word `c / 64` is CPU `c`. The last word is never zero, so that equal sets
    /// have equal words.
    words: Vec<u64>,
}

impl CpuSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The set of one CPU.
    ///
    /// # Panics
    /// If `cpu` is not below [`MAX_CPUS`].
    ///
    /// ```
    /// # use uwork_policy::cpuset::CpuSet;
    /// assert_eq!(CpuSet::single(5).to_string(), "5");
    /// ```
    #[must_use]
    pub fn single(cpu: u32) -> Self {
        let mut set = Self::new();
        set.insert(cpu);
        set
    }

    /// CPUs 0 to `n - 1`.
    ///
    /// # Panics
    /// If `n` is above [`MAX_CPUS`].
    ///
    /// ```
    /// # use uwork_policy::cpuset::CpuSet;
    /// assert_eq!(CpuSet::first_n(70).to_string(), "0-69");
    /// assert!(CpuSet::first_n(0).is_empty());
    /// ```
    #[must_use]
    pub fn first_n(n: u32) -> Self {
        assert!(n <= MAX_CPUS, "{n} CPUs: at most {MAX_CPUS} are supported");
        let mut words = vec![u64::MAX; (n / BITS) as usize];
        if !n.is_multiple_of(BITS) {
            words.push((1 << (n % BITS)) - 1);
        }
        Self { words }
    }

    /// Adds a CPU; true if it was not in the set before.
    ///
    /// # Panics
    /// If `cpu` is not below [`MAX_CPUS`].
    pub fn insert(&mut self, cpu: u32) -> bool {
        assert!(cpu < MAX_CPUS, "CPU {cpu}: CPU numbers are below {MAX_CPUS}");
        let (word, bit) = position(cpu);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let added = self.words[word] & bit == 0;
        self.words[word] |= bit;
        added
    }

    /// Removes a CPU; true if it was in the set.
    pub fn remove(&mut self, cpu: u32) -> bool {
        let present = self.contains(cpu);
        if present {
            let (word, bit) = position(cpu);
            self.words[word] &= !bit;
            self.normalise();
        }
        present
    }

    /// Whether the CPU is in the set; false for numbers that no set may hold.
    #[must_use]
    pub fn contains(&self, cpu: u32) -> bool {
        let (word, bit) = position(cpu);
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Whether the set has no CPU.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The number of CPUs in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.words.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// The CPUs, in ascending order.
    ///
    /// ```
    /// # use uwork_policy::cpuset::CpuSet;
    /// let set: CpuSet = [9, 1, 64].into_iter().collect();
    /// assert_eq!(set.iter().collect::<Vec<_>>(), [1, 9, 64]);
    /// ```
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.words.iter().zip(0u32..).flat_map(|(&word, index)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let cpu = index * BITS + rest.trailing_zeros();
                    rest &= rest - 1;
                    cpu
                })
            })
        })
    }

    /// The lowest CPU.
    #[must_use]
    pub fn first(&self) -> Option<u32> {
        self.at_or_after(0)
    }

    /// The highest CPU.
    #[must_use]
    pub fn last(&self) -> Option<u32> {
        let word = self.words.last()?;
        Some((self.words.len() as u32 - 1) * BITS + word.ilog2())
    }

    /// The CPUs that are in both sets.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        Self::from_words(words.collect())
    }

    /// The CPUs that are in either set.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let (long, short) = match self.words.len() >= other.words.len() {
            true => (self, other),
            false => (other, self),
        };
        let mut words = long.words.clone();
        for (word, more) in words.iter_mut().zip(&short.words) {
            *word |= more;
        }
        Self { words }
    }

    /// The CPUs that are in this set and not in the other.
    #[must_use]
    pub fn and_not(&self, other: &Self) -> Self {
        let mut words = self.words.clone();
        for (word, less) in words.iter_mut().zip(&other.words) {
            *word &= !less;
        }
        Self::from_words(words)
    }

    /// Whether every CPU of this set is also in `of`.
    #[must_use]
    pub fn is_subset(&self, of: &Self) -> bool {
        self.words.len() <= of.words.len()
            && self.words.iter().zip(&of.words).all(|(a, b)| a & !b == 0)
    }

    /// Whether the sets have a CPU in common.
    #[must_use]
    pub fn intersects(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// The lowest CPU that is in both sets.
    ///
    /// ```
    /// use uwork_policy::cpuset::CpuSet;
    ///
    /// let (a, b): (CpuSet, CpuSet) = ("0-3,70".parse().unwrap(), "4-99".parse().unwrap());
    /// assert_eq!(a.first_common(&b), Some(70));
    /// assert_eq!(b.first_common(&CpuSet::single(3)), None);
    /// ```
    #[must_use]
    pub fn first_common(&self, other: &Self) -> Option<u32> {
        let common = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        let (word, index) = common.zip(0u32..).find(|&(word, _)| word != 0)?;
        Some(index * BITS + word.trailing_zeros())
    }

    /// The lowest CPU of the set from this one on.
    #[must_use]
    pub fn at_or_after(&self, cpu: u32) -> Option<u32> {
        let start = (cpu / BITS) as usize;
        let mut word = self.words.get(start)? & (u64::MAX << (cpu % BITS));
        let mut index = start;
        while word == 0 {
            index += 1;
            word = *self.words.get(index)?;
        }
        Some(index as u32 * BITS + word.trailing_zeros())
    }

    fn from_words(words: Vec<u64>) -> Self {
        let mut set = Self { words };
        set.normalise();
        set
    }

    fn normalise(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

fn position(cpu: u32) -> (usize, u64) {
    ((cpu / BITS) as usize, 1 << (cpu % BITS))
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::new();
        set.extend(cpus);
        set
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}
