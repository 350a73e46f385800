//! The description of a queue before it is built.

use std::time::Duration;

use uwork_engine::{Attrs, Kind, MAX_ACTIVE_DEFAULT, QueueError, QueueSpec};
use uwork_linux::{Error, engine};
use uwork_policy::cpuset::CpuSet;
use uwork_policy::flags::{Flags, settle};
use uwork_policy::scope::AffinityScopeChoice;

use crate::queue::Queue;

/// Describes a queue to be built. From [`Queue::builder`].
#[derive(Clone, Debug)]
pub struct Builder {
    name: String,
    flags: Flags,
    nice: Option<i32>,
    cpumask: Option<CpuSet>,
    scope: AffinityScopeChoice,
    strict: bool,
    max_active: Option<u32>,
    timer_slack: Duration,
    /// Whether the caller chose where items run.
    placed: bool,
    /// Whether the queue has a thread to itself.
    dedicated: bool,
    /// Whether the name of a system queue is permitted.
    system: bool,
    /// Whether a name that is taken gets a number.
    numbered: bool,
}

/// Flags that choose where items run: at most one of them is set.
const KINDS: Flags = Flags::PERCPU.union(Flags::UNBOUND).union(Flags::ORDERED).union(Flags::BH);

impl Builder {
    /// An unbound queue with this name.
    pub(crate) fn new(name: String) -> Builder {
        Builder {
            name,
            flags: Flags::UNBOUND,
            nice: None,
            cpumask: None,
            scope: AffinityScopeChoice::Default,
            strict: false,
            max_active: None,
            timer_slack: Duration::ZERO,
            placed: false,
            dedicated: false,
            system: false,
            numbered: false,
        }
    }

    fn with(mut self, flags: Flags) -> Builder {
        self.flags |= flags;
        self
    }

    fn at(mut self, place: Flags) -> Builder {
        self.flags = (self.flags - KINDS) | place;
        self.placed = true;
        self
    }

    /// Sets all flags at once, in place of those set before: for ported code that has a flag word.
    /// The kernel's rules hold: with neither `PERCPU` nor `UNBOUND` the queue becomes per-CPU, with
    /// both it becomes unbound, and either is reported once ([`Report`](crate::Report)).
    ///
    /// ```
    /// use uwork::{Flags, Queue};
    /// let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
    /// let queue = Queue::builder("writeback").flags(flags).build()?;
    /// assert_eq!(queue.flags(), flags);
    /// assert!(Queue::builder("wrong").flags(Flags::BH | Flags::UNBOUND).build().is_err());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    #[must_use]
    pub fn flags(mut self, flags: Flags) -> Builder {
        self.flags = flags;
        self.placed = true;
        self
    }

    /// Items run on the CPU that queued them, one at a time on each CPU unless they wait.
    #[must_use]
    pub fn per_cpu(self) -> Builder {
        self.at(Flags::PERCPU)
    }

    /// Items run in the pod of the CPU that queued them. This is the default.
    #[must_use]
    pub fn unbound(self) -> Builder {
        self.at(Flags::UNBOUND)
    }

    /// Items run one at a time, in the order in which they were queued.
    #[must_use]
    pub fn ordered(self) -> Builder {
        self.at(Flags::ORDERED)
    }

    /// Items run one at a time, in the order in which they were queued, all on one thread that
    /// serves this queue alone: the kernel's `kthread_worker`. For items that must always run on
    /// the same thread, or that wait and need no replacement worker.
    ///
    /// [`Builder::cpumask`] chooses where that thread runs (`kthread_create_worker_on_cpu`,
    /// `_on_node`), [`Builder::nice`] and [`Builder::highpri`] its niceness.
    ///
    /// ```
    /// use uwork::{CpuSet, Queue};
    /// let cpu = Queue::builder("probe").build()?.cpumask().first().unwrap();
    /// let worker = Queue::builder("journal").dedicated().cpumask(CpuSet::single(cpu)).build()?;
    /// let first = worker.spawn(|| std::thread::current().id());
    /// let second = worker.spawn(|| std::thread::current().id());
    /// assert_eq!(first.join().unwrap(), second.join().unwrap());
    /// # Ok::<(), uwork::Error>(())
    /// ```
    #[must_use]
    pub fn dedicated(mut self) -> Builder {
        self.dedicated = true;
        self.at(Flags::ORDERED)
    }

    /// Items run on the CPU that queued them, in one context per CPU, in the order in which they
    /// were queued. They must not wait. Can be combined with [`Builder::highpri`] only.
    #[must_use]
    pub fn bh(self) -> Builder {
        self.at(Flags::BH)
    }

    /// The queue makes progress even if no thread can be created: it has a rescuer, a thread of its
    /// own that is created with the queue.
    #[must_use]
    pub fn mem_reclaim(self) -> Builder {
        self.with(Flags::MEM_RECLAIM)
    }

    /// The queue takes part in [freezing](crate::freeze): items queued while it is frozen wait for
    /// the thaw.
    #[must_use]
    pub fn freezable(self) -> Builder {
        self.with(Flags::FREEZABLE)
    }

    /// The queue saves power while the process does ([`housekeeping::set_power_efficient`],
    /// `UWORK_POWER_EFFICIENT=1`): a per-CPU queue is unbound then, and all power-efficient queues
    /// without a scope of their own share one pool of unpinned workers and its timers. Their items
    /// run in few wakes and on a CPU that is awake, as far as their slack permits, but with colder
    /// caches. While the process does not save power the flag has no effect.
    ///
    /// A queue that was declared unbound or ordered stays so; [`Builder::bh`] cannot be combined
    /// with this.
    ///
    /// [`housekeeping::set_power_efficient`]: crate::housekeeping::set_power_efficient
    #[must_use]
    pub fn power_efficient(mut self) -> Builder {
        if !self.placed {
            self.flags = (self.flags - KINDS) | Flags::PERCPU;
        }
        self.with(Flags::POWER_EFFICIENT)
    }

    /// The queue's attributes appear in the attribute tree (`sysfs`, with that feature).
    #[must_use]
    pub fn sysfs(self) -> Builder {
        self.with(Flags::SYSFS)
    }

    /// Workers run with niceness -20, or the nearest value that the process may set.
    #[must_use]
    pub fn highpri(self) -> Builder {
        self.with(Flags::HIGHPRI)
    }

    /// The workers' niceness, -20 to 19. For unbound and ordered queues. Default: that of the process
    /// at its first use of the library, as `nice -n 10` sets it.
    #[must_use]
    pub fn nice(mut self, nice: i32) -> Builder {
        self.nice = Some(nice);
        self
    }

    /// The CPUs to use, restricted to those that the process may use. For unbound and ordered
    /// queues.
    #[must_use]
    pub fn cpumask(mut self, cpumask: CpuSet) -> Builder {
        self.cpumask = Some(cpumask);
        self
    }

    /// How far from the CPU that queued it an item may run. For unbound and ordered queues.
    #[must_use]
    pub fn affinity_scope(mut self, scope: AffinityScopeChoice) -> Builder {
        self.scope = scope;
        self
    }

    /// Whether pods run only their own items. By default a pod without work takes items from the
    /// nearest pod that has too many.
    #[must_use]
    pub fn affinity_strict(mut self, strict: bool) -> Builder {
        self.strict = strict;
        self
    }

    /// If a queue with this name exists, the new queue gets the first free name of `io#2`, `io#3`
    /// and so on, for the name `io`: for libraries, and for queues of which a program has many. A long
    /// name is cut so that the number fits. [`Queue::name`] returns the whole name.
    ///
    /// ```
    /// let first = uwork::Queue::builder("io").numbered().build()?;
    /// let second = uwork::Queue::builder("io").numbered().build()?;
    /// assert_eq!((first.name(), second.name()), ("io", "io#2"));
    /// # Ok::<(), uwork::Error>(())
    /// ```
    #[must_use]
    pub fn numbered(mut self) -> Builder {
        self.numbered = true;
        self
    }

    /// Whether a forked child runs the items that were pending at the fork, as the parent does; by
    /// default they are idle there. The child starts them at its first submission to any queue, or at
    /// its first wait, such as a [`flush`](Queue::flush). Each process drops its own copy of an
    /// item's data. An item that was running and a timer that was armed stay the parent's.
    ///
    /// For items whose effect is in the memory of the process, such as the growth of a table.
    #[must_use]
    pub fn fork_inherited(mut self, inherited: bool) -> Builder {
        self.flags.set(Flags::FORK_INHERITED, inherited);
        self
    }

    /// How many items may run at once: on each CPU for a per-CPU queue; for an unbound queue on the
    /// whole machine, where each NUMA node gets its share, in proportion to its CPUs
    /// ([`Queue::set_min_active`] says how). On a machine with one node that is the whole limit. 1 to 2048;
    /// the default is 1024. An ordered queue has 1.
    #[must_use]
    pub fn max_active(mut self, max_active: u32) -> Builder {
        self.max_active = Some(max_active);
        self
    }

    /// How much later than their deadlines timers of the queue may expire, so that they share wakes.
    /// An item with a longer slack ([`DelayedWork::with_slack`](crate::DelayedWork::with_slack))
    /// keeps its own. The default is zero; [`Queue::set_timer_slack`] changes it later.
    ///
    /// On a queue that saves power, 1 ms and more also permits that an item which is queued without
    /// delay begins on the CPU of a submitter that goes on computing there, and waits for it.
    ///
    /// ```
    /// use std::time::Duration;
    /// let slack = Duration::from_millis(50);
    /// let queue = uwork::Queue::builder("lax").power_efficient().timer_slack(slack).build()?;
    /// assert_eq!(queue.timer_slack(), slack);
    /// # Ok::<(), uwork::Error>(())
    /// ```
    #[must_use]
    pub fn timer_slack(mut self, slack: Duration) -> Builder {
        self.timer_slack = slack;
        self
    }

    /// Items compute for long: their workers do not count as running, so other items do not wait
    /// for them.
    #[must_use]
    pub fn cpu_intensive(self) -> Builder {
        self.with(Flags::CPU_INTENSIVE)
    }

    /// A system queue, which may have one of the reserved names.
    pub(crate) fn system(mut self) -> Builder {
        self.system = true;
        self
    }

    /// Makes the queue, with the threads that it needs and cannot share with existing queues.
    ///
    /// # Errors
    /// The name is empty, too long or taken; the mask has no usable CPU; a number is out of range;
    /// an attribute does not fit the kind of queue; no thread could be created; uwork was
    /// [shut down](crate::shutdown()) in this process ([`Refused`](crate::ErrorKind::Refused)). A failed
    /// call leaves nothing behind.
    pub fn build(self) -> Result<Queue, Error> {
        // A system queue can always be made, and then refuses items: no call must panic for lack of it.
        if !self.system && engine().accepts_nothing() {
            return Err(QueueError::ShutDown.into());
        }
        let is_reserved = !self.system && crate::system::NAMES.contains(&self.name.as_str());
        if is_reserved && !self.numbered {
            return Err(QueueError::NameTaken(self.name).into());
        }
        let (flags, warning) =
            settle(self.flags, self.max_active, false).map_err(QueueError::BadFlags)?;
        if let Some(warning) = warning {
            uwork_linux::warn_of_flags(&self.name, warning);
        }
        let ordered = flags.contains(Flags::ORDERED);
        let per_cpu = flags.contains(Flags::PERCPU);
        if ordered && self.max_active.is_some_and(|n| n != 1) {
            return Err(
                QueueError::NotForThisKind("max_active of an ordered queue is always 1").into()
            );
        }
        if self.dedicated && (!ordered || self.strict || self.scope != AffinityScopeChoice::Default)
        {
            return Err(QueueError::NotForThisKind(
                "a dedicated queue is ordered and has one thread: it has no flags for other kinds, \
                 affinity_scope or affinity_strict",
            )
            .into());
        }
        let tuned = self.nice.is_some()
            || self.cpumask.is_some()
            || self.strict
            || self.scope != AffinityScopeChoice::Default;
        if per_cpu && tuned {
            return Err(QueueError::NotForThisKind(
                "nice, cpumask, affinity_scope and affinity_strict are for unbound and ordered \
                 queues; this one is per-CPU",
            )
            .into());
        }
        let attrs = Attrs {
            nice: self.nice.unwrap_or_else(|| engine().default_nice(flags)),
            cpumask: self
                .cpumask
                // All possible CPUs, as the set that the process may use can change.
                .unwrap_or_else(|| engine().config().topology.possible().clone()),
            scope: self.scope,
            strict: self.strict,
        };
        let kind = match () {
            () if per_cpu => Kind::PerCpu,
            () if self.dedicated => Kind::Dedicated(attrs),
            () if ordered => Kind::Ordered(attrs),
            () => Kind::Unbound(attrs),
        };
        let spec = QueueSpec {
            name: self.name,
            kind,
            flags,
            max_active: self
                .max_active
                .filter(|_| !flags.contains(Flags::BH))
                .unwrap_or(if ordered { 1 } else { MAX_ACTIVE_DEFAULT }),
        };
        crate::control::offer();
        let queue = Queue(if self.numbered {
            uwork_engine::Queue::new_numbered(engine(), spec, is_reserved)?
        } else {
            uwork_engine::Queue::new(engine(), spec)?
        });
        queue.set_timer_slack(self.timer_slack);
        Ok(queue)
    }
}
