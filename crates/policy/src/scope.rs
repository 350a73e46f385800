//! Affinity scopes: how finely the workers of an unbound queue are split over a machine.
//!
//! A scope divides the CPUs into pods ([`Pods`]), which have their own pools of workers. The
//! default scope adapts to machines on which it would give a single pod ([`effective_scope`]). A
//! scope that the user chose explicitly is never changed.

mod pods;

pub use pods::{DEFAULT_SHARD_SIZE, Pods};

use std::fmt;
use std::str::FromStr;

use crate::cpuset::CpuSet;
use crate::topology::Topology;

/// An affinity scope, ordered from the finest to the coarsest.
///
/// ```
/// use uwork_policy::scope::AffinityScope;
///
/// assert!(AffinityScope::Cpu < AffinityScope::Cache);
/// assert_eq!("cache_shard".parse(), Ok(AffinityScope::CacheShard));
/// assert_eq!(AffinityScope::CacheShard.to_string(), "cache_shard");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AffinityScope {
    /// One pod per CPU.
    Cpu,
    /// One pod per physical core: its SMT siblings.
    Smt,
    /// One pod per cluster of cores.
    Cluster,
    /// Pods of a few cores (8 by default) within each last-level cache.
    CacheShard,
    /// One pod per last-level cache.
    Cache,
    /// One pod per NUMA node.
    Numa,
    /// One pod for the whole machine.
    System,
}

impl AffinityScope {
    /// Every scope, finest first.
    pub const ALL: [AffinityScope; 7] = [
        AffinityScope::Cpu,
        AffinityScope::Smt,
        AffinityScope::Cluster,
        AffinityScope::CacheShard,
        AffinityScope::Cache,
        AffinityScope::Numa,
        AffinityScope::System,
    ];

    /// The scope's name in the kernel.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AffinityScope::Cpu => "cpu",
            AffinityScope::Smt => "smt",
            AffinityScope::Cluster => "cluster",
            AffinityScope::CacheShard => "cache_shard",
            AffinityScope::Cache => "cache",
            AffinityScope::Numa => "numa",
            AffinityScope::System => "system",
        }
    }
}

impl fmt::Display for AffinityScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for AffinityScope {
    type Err = AffinityScopeError;

    fn from_str(text: &str) -> Result<Self, AffinityScopeError> {
        let known = AffinityScope::ALL.into_iter().find(|scope| scope.name() == text);
        known.ok_or_else(|| AffinityScopeError { text: text.to_owned() })
    }
}

/// The text names no affinity scope. Prints as one line with the names that are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinityScopeError {
    text: String,
}

impl fmt::Display for AffinityScopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is not an affinity scope (allowed: default", self.text)?;
        for scope in AffinityScope::ALL {
            write!(f, ", {scope}")?;
        }
        write!(f, ")")
    }
}

impl std::error::Error for AffinityScopeError {}

/// The scope that a queue requests: the process-wide default, or one of its own.
/// ```
/// use uwork_policy::scope::{AffinityScope, AffinityScopeChoice};
///
/// assert_eq!("default".parse(), Ok(AffinityScopeChoice::Default));
/// assert_eq!("numa".parse(), Ok(AffinityScopeChoice::Explicit(AffinityScope::Numa)));
/// assert!("socket".parse::<AffinityScopeChoice>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum AffinityScopeChoice {
    /// The process-wide default scope, which adapts to the machine.
    #[default]
    Default,
    /// This scope, on any machine.
    Explicit(AffinityScope),
}

impl fmt::Display for AffinityScopeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AffinityScopeChoice::Default => f.pad("default"),
            AffinityScopeChoice::Explicit(scope) => scope.fmt(f),
        }
    }
}

impl FromStr for AffinityScopeChoice {
    type Err = AffinityScopeError;

    fn from_str(text: &str) -> Result<Self, AffinityScopeError> {
        match text {
            "default" => Ok(AffinityScopeChoice::Default),
            _ => text.parse().map(AffinityScopeChoice::Explicit),
        }
    }
}

/// The scope that a queue really uses, and how it was determined.
///
/// Prints as the kernel's `affinity_scope` file does: `numa`, `default (cache)`, or `default (cache
/// -> cluster)` when the default fell back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EffectiveAffinityScope {
    /// The scope that the queue requested.
    pub choice: AffinityScopeChoice,
    /// The scope that the request means before the machine is considered.
    pub configured: AffinityScope,
    /// The scope in use.
    pub effective: AffinityScope,
}

impl fmt::Display for EffectiveAffinityScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.choice {
            AffinityScopeChoice::Explicit(scope) => write!(f, "{scope}"),
            AffinityScopeChoice::Default if self.configured == self.effective => {
                write!(f, "default ({})", self.configured)
            }
            AffinityScopeChoice::Default => {
                write!(f, "default ({} -> {})", self.configured, self.effective)
            }
        }
    }
}

/// Finds the scope that a queue with this mask really uses.
///
/// An explicit choice is final. While the default scope would give exactly one pod for a mask of
/// several CPUs, it falls back to the next finer scope: the default must not become one pool that
/// all CPUs contend for. The mask is used as given: pass the CPUs that the queue may really use.
/// ```
/// use uwork_policy::scope::{AffinityScope, AffinityScopeChoice, effective_scope};
///
/// let desktop = "llc:1 core:8".parse().unwrap();
/// let all = "0-7".parse().unwrap();
/// let scope = effective_scope(&desktop, AffinityScopeChoice::Default, AffinityScope::Cache, &all, 8);
/// assert_eq!(scope.effective, AffinityScope::Cluster);
/// assert_eq!(scope.to_string(), "default (cache -> cluster)");
/// ```
#[must_use]
pub fn effective_scope(
    topology: &Topology,
    choice: AffinityScopeChoice,
    default: AffinityScope,
    mask: &CpuSet,
    shard_size: u32,
) -> EffectiveAffinityScope {
    if let AffinityScopeChoice::Explicit(scope) = choice {
        return EffectiveAffinityScope { choice, configured: scope, effective: scope };
    }
    let one_pod = |scope: &AffinityScope| {
        Pods::of(topology, *scope, shard_size).restricted(mask).count() == 1
    };
    let mut candidates = AffinityScope::ALL.into_iter().rev().filter(|scope| *scope <= default);
    // A mask of one CPU has one pod in every scope, so the search fails and the default stays.
    let effective = candidates.find(|scope| !one_pod(scope)).unwrap_or(default);
    EffectiveAffinityScope { choice, configured: default, effective }
}

/// The CPUs that a queue may use: its own mask within the process-wide unbound mask, or the whole
/// unbound mask where the two have nothing in common.
///
/// ```
/// use uwork_policy::scope::effective_cpumask;
///
/// let unbound = "0-3".parse().unwrap();
/// assert_eq!(effective_cpumask(&"2-5".parse().unwrap(), &unbound).to_string(), "2-3");
/// assert_eq!(effective_cpumask(&"4-5".parse().unwrap(), &unbound).to_string(), "0-3");
/// ```
#[must_use]
pub fn effective_cpumask(attrs: &CpuSet, unbound: &CpuSet) -> CpuSet {
    let both = attrs.and(unbound);
    match both.is_empty() {
        true => unbound.clone(),
        false => both,
    }
}

/// The CPUs that a pod's workers belong on: the pod within the effective mask, or the whole
/// effective mask where they have no CPU in common.
///
/// ```
/// use uwork_policy::scope::pod_cpumask;
///
/// let (pod, effective) = ("0-3".parse().unwrap(), "2-7".parse().unwrap());
/// assert_eq!(pod_cpumask(&pod, &effective).to_string(), "2-3");
/// assert_eq!(pod_cpumask(&pod, &"4-7".parse().unwrap()).to_string(), "4-7");
/// ```
#[must_use]
pub fn pod_cpumask(pod: &CpuSet, effective: &CpuSet) -> CpuSet {
    let own = pod.and(effective);
    match own.is_empty() {
        true => effective.clone(),
        false => own,
    }
}
