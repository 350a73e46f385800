//! A machine as a plain value: its CPUs and the groups that they share.
//!
//! The value is independent of its source: the Linux reader, a file in the notation of
//! [`notation`], or a test. It never changes; hotplug creates a new one
//! ([`Topology::with_online`]).

pub mod notation;

use std::collections::BTreeMap;
use std::fmt;

use crate::cpuset::{CpuSet, MAX_CPUS};

/// The capacity of the biggest CPUs of a machine, as in the kernel.
pub const FULL_CAPACITY: u32 = 1024;

/// One CPU (a hardware thread) and the groups it belongs to.
///
/// The ids of a level are unique in the whole machine: two CPUs with the same `core` are SMT
/// siblings, two with the same `llc` share a last-level cache, and so on. A machine without
/// clusters gives every core a cluster of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cpu {
    /// The CPU's number, as the kernel counts.
    pub id: u32,
    /// The physical core: the group of SMT siblings.
    pub core: u32,
    /// The cluster: cores that share something below the last-level cache, often an L2.
    pub cluster: u32,
    /// The last-level cache.
    pub llc: u32,
    /// The NUMA node, as the kernel counts.
    pub node: u32,
    /// The physical package (socket).
    pub package: u32,
    /// Computing capacity, 1 to [`FULL_CAPACITY`]; below that on the small cores of a mixed machine.
    pub capacity: u32,
    /// Excluded from work that is not bound to it (`isolcpus=`, `nohz_full=`, isolated partitions).
    pub isolated: bool,
    /// Whether the CPU is online. A CPU that is possible but offline is still part of the machine.
    pub online: bool,
}

impl Cpu {
    /// An online CPU of full capacity that is a core and a cluster of its own, in LLC, node and
    /// package 0. A starting point for building machines by hand.
    #[must_use]
    pub fn alone(id: u32) -> Self {
        Self {
            id,
            core: id,
            cluster: id,
            llc: 0,
            node: 0,
            package: 0,
            capacity: FULL_CAPACITY,
            isolated: false,
            online: true,
        }
    }
}

/// Why a list of CPUs is not a machine. Prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyError {
    /// There is no CPU, or none that is online.
    NoCpu,
    /// A CPU number is not below [`MAX_CPUS`].
    OutOfRange(u32),
    /// Two CPUs have this number.
    Duplicate(u32),
    /// Threads of one core lie in different groups of a coarser level.
    SplitCore {
        /// The core.
        core: u32,
        /// The level that its threads do not share: `cluster`, `llc`, `node` or `package`.
        level: &'static str,
    },
    /// A capacity is not in `1..=FULL_CAPACITY`.
    Capacity {
        /// The CPU.
        cpu: u32,
        /// The capacity that was given.
        capacity: u32,
    },
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu => write!(f, "a machine needs at least one online CPU"),
            Self::OutOfRange(cpu) => {
                write!(f, "CPU {cpu} is out of range (allowed: 0 to {})", MAX_CPUS - 1)
            }
            Self::Duplicate(cpu) => write!(f, "CPU {cpu} appears twice"),
            Self::SplitCore { core, level } => {
                write!(f, "the threads of core {core} must share their {level}")
            }
            Self::Capacity { cpu, capacity } => {
                write!(f, "CPU {cpu} has capacity {capacity} (allowed: 1 to {FULL_CAPACITY})")
            }
        }
    }
}

impl std::error::Error for TopologyError {}

/// A machine: at least one CPU, sorted by number.
///
/// Prints and parses as text:
///
/// ```
/// use uwork_policy::topology::Topology;
///
/// let server: Topology = "package:2 node:2 core:8 smt:2".parse().unwrap();
/// assert_eq!(server.cpus().len(), 64);
/// assert_eq!(server.node_cpus(1).to_string(), "16-31");
/// assert_eq!(server.to_string(), "package:2 node:2 core:8 smt:2");
/// ```
///
/// # Notation
///
/// `uwork topology --machine`, `uwork sim` and tests use it too. A machine is a line of levels, coarse to
/// fine, each with its count inside the one before:
///
/// | machine | notation |
/// |---|---|
/// | a desktop with 12 cores on one last-level cache | `llc:1 core:12` |
/// | a Grace, 72 cores | `core:72` |
/// | a server with 2 sockets of 2 dies, SMT | `package:2 node:2 core:8 smt:2` |
/// | the same, each die with 4 caches | `package:2 node:2 llc:4 core:8 smt:2` |
/// | 4+4 big.LITTLE | `cluster:1 core:4 capacity:446 + cluster:1 core:4` |
/// | a hybrid desktop | `cluster:8 smt:2 + cluster:2 core:4 capacity:600` |
///
/// - `package`, `node`, `llc`: a socket; a NUMA node (default: one per package); a last-level cache
///   (one per node)
/// - `cluster`, `core`, `smt`: often an L2 (one per core); a core; the CPUs of a core
/// - `+`: puts unequal parts side by side, which begin with the same level
/// - `( )`: holds such a sum: `package:2 (llc:1 core:4 + llc:1 core:2)` is two equal packages
/// - `capacity:N`: behind levels, their CPUs' computing capacity, 1 to 1024 (the default). An inner one
///   overrides an outer one
/// - `numbering:threads-last`: numbers the first threads of all cores first, as most x86 firmware does
///   (`core:4 smt:2`: 0 and 4 are siblings); else the text's order
/// - `isolated:2-3,6`, `offline:LIST`: at the end
/// - line break, `#`: a space; starts a comment
///
/// A machine has 1 to 8192 CPUs, at least one online. One that does not fit (a cache across two nodes,
/// holes in the CPU numbers) has a clause per core:
///
/// ```text
/// cpu:0,8 core:0 cluster:0 llc:0 node:0 package:0
/// cpu:1,9 core:1 cluster:1 llc:0 node:1 package:0 capacity:512
/// isolated:9
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
    possible: CpuSet,
    online: CpuSet,
    isolated: CpuSet,
}

impl Topology {
    /// A machine of these CPUs, given in any order.
    ///
    /// # Errors
    /// If there is no online CPU, a number is used twice or out of range, a capacity is out of
    /// range, or the threads of a core lie in different clusters, caches, nodes or packages. The
    /// coarser levels need not nest: a last-level cache may span nodes, as real ones do.
    pub fn new(mut cpus: Vec<Cpu>) -> Result<Self, TopologyError> {
        cpus.sort_by_key(|cpu| cpu.id);
        if let Some(pair) = cpus.windows(2).find(|pair| pair[0].id == pair[1].id) {
            return Err(TopologyError::Duplicate(pair[0].id));
        }
        let mut cores: BTreeMap<u32, &Cpu> = BTreeMap::new();
        for cpu in &cpus {
            if cpu.id >= MAX_CPUS {
                return Err(TopologyError::OutOfRange(cpu.id));
            }
            if !(1..=FULL_CAPACITY).contains(&cpu.capacity) {
                return Err(TopologyError::Capacity { cpu: cpu.id, capacity: cpu.capacity });
            }
            let sibling = *cores.entry(cpu.core).or_insert(cpu);
            if let Some(level) = unshared_level(sibling, cpu) {
                return Err(TopologyError::SplitCore { core: cpu.core, level });
            }
        }
        if !cpus.iter().any(|cpu| cpu.online) {
            return Err(TopologyError::NoCpu);
        }
        Ok(Self::of_valid(cpus))
    }

    /// `n` equal CPUs, each a core and a cluster of its own, on one last-level cache.
    ///
    /// # Panics
    /// If `n` is 0 or above [`MAX_CPUS`].
    #[must_use]
    pub fn flat(n: u32) -> Self {
        assert!((1..=MAX_CPUS).contains(&n), "{n} CPUs (allowed: 1 to {MAX_CPUS})");
        Self::of_valid((0..n).map(Cpu::alone).collect())
    }

    /// The same machine with exactly these CPUs online. Numbers that the machine does not have are
    /// ignored.
    ///
    /// # Errors
    /// If no CPU would be online.
    pub fn with_online(&self, online: &CpuSet) -> Result<Self, TopologyError> {
        let cpus = self.cpus.iter().map(|cpu| Cpu { online: online.contains(cpu.id), ..*cpu });
        Self::new(cpus.collect())
    }

    fn of_valid(cpus: Vec<Cpu>) -> Self {
        let numbers =
            |keep: fn(&Cpu) -> bool| cpus.iter().filter(|c| keep(c)).map(|c| c.id).collect();
        Self {
            possible: numbers(|_| true),
            online: numbers(|cpu| cpu.online),
            isolated: numbers(|cpu| cpu.isolated),
            cpus,
        }
    }

    /// Every CPU, sorted by number.
    #[must_use]
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The CPU with this number.
    #[must_use]
    pub fn cpu(&self, id: u32) -> Option<&Cpu> {
        // The numbers rarely have holes; without holes a CPU's number is its index.
        match self.cpus.get(id as usize) {
            Some(cpu) if cpu.id == id => Some(cpu),
            _ => self.cpus.binary_search_by_key(&id, |cpu| cpu.id).ok().map(|at| &self.cpus[at]),
        }
    }

    /// Every CPU that can ever run, online or not.
    #[must_use]
    pub fn possible(&self) -> &CpuSet {
        &self.possible
    }

    /// The CPUs that are online; never empty.
    #[must_use]
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// The isolated CPUs; often empty.
    #[must_use]
    pub fn isolated(&self) -> &CpuSet {
        &self.isolated
    }

    /// The CPUs of a NUMA node, online or not; empty for a node that does not exist.
    #[must_use]
    pub fn node_cpus(&self, node: u32) -> CpuSet {
        self.cpus.iter().filter(|cpu| cpu.node == node).map(|cpu| cpu.id).collect()
    }

    /// The NUMA nodes that have CPUs, in ascending order.
    #[must_use]
    pub fn nodes(&self) -> Vec<u32> {
        let mut nodes: Vec<u32> = self.cpus.iter().map(|cpu| cpu.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// How far apart two CPUs are: the finest group that holds both. 0 is the same CPU, 1 SMT
    /// siblings, 2 the same cluster, 3 the same last-level cache, 4 the same node, 5 the same
    /// package, and 6 the same machine only, or a CPU that the machine does not have.
    ///
    /// Pools help their neighbours in this order, those of one pod first.
    ///
    /// ```
    /// # use uwork_policy::topology::Topology;
    /// let desktop: Topology = "llc:2 core:4 smt:2".parse().unwrap();
    /// assert_eq!(desktop.distance(0, 1), 1);
    /// assert!(desktop.distance(0, 2) < desktop.distance(0, 8));
    /// ```
    #[must_use]
    pub fn distance(&self, a: u32, b: u32) -> u32 {
        if a == b {
            return 0;
        }
        let (Some(a), Some(b)) = (self.cpu(a), self.cpu(b)) else {
            return 6;
        };
        let shared = [
            a.core == b.core,
            a.cluster == b.cluster,
            a.llc == b.llc,
            a.node == b.node,
            a.package == b.package,
        ];
        (1..).zip(shared).find(|&(_, shared)| shared).map_or(6, |(distance, _)| distance)
    }
}

fn unshared_level(a: &Cpu, b: &Cpu) -> Option<&'static str> {
    let levels = [
        ("cluster", a.cluster, b.cluster),
        ("llc", a.llc, b.llc),
        ("node", a.node, b.node),
        ("package", a.package, b.package),
    ];
    levels.into_iter().find(|(_, a, b)| a != b).map(|(level, ..)| level)
}
