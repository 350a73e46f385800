//! Which CPU an item is queued for when the caller named a node, and which of the parked workers of a
//! pool with several CPUs is woken.

use crate::batch::RunEstimate;
use crate::concurrency::STEAL_AFTER_NS;
use crate::cpuset::CpuSet;
use crate::topology::Topology;

/// The result of [`choose_node`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeChoice {
    /// Queue for this CPU.
    Cpu(u32),
    /// No usable node: treat the item as if no node had been named.
    Unbound,
}

/// The CPU for an item that should run near a NUMA node: the submitter's own CPU when it is on that
/// node, else the node's first CPU, both among those that are `usable`. The result is
/// [`NodeChoice::Unbound`] if no node is named, if it is unknown, or if it has no usable CPU.
/// ```
/// use uwork_policy::cpu_choice::{NodeChoice, choose_node};
///
/// let machine = "node:2 core:4".parse().unwrap();
/// let usable = "0-3,5-7".parse().unwrap();
/// assert_eq!(choose_node(6, Some(1), &machine, &usable), NodeChoice::Cpu(6));
/// assert_eq!(choose_node(0, Some(1), &machine, &usable), NodeChoice::Cpu(5));
/// assert_eq!(choose_node(0, Some(9), &machine, &usable), NodeChoice::Unbound);
/// ```
#[must_use]
pub fn choose_node(
    local: u32,
    node: Option<u32>,
    topology: &Topology,
    usable: &CpuSet,
) -> NodeChoice {
    let Some(node) = node else {
        return NodeChoice::Unbound;
    };
    if topology.cpu(local).is_some_and(|cpu| cpu.node == node && usable.contains(local)) {
        return NodeChoice::Cpu(local);
    }
    // Not `node_cpus`, which allocates: this is the submit path.
    let first = topology.cpus().iter().find(|cpu| cpu.node == node && usable.contains(cpu.id));
    first.map_or(NodeChoice::Unbound, |cpu| NodeChoice::Cpu(cpu.id))
}

/// What a thread does after it has woken a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Habit {
    /// Not known, or no habit.
    #[default]
    Unknown,
    /// It waits: its CPU is free for the worker.
    Waits,
    /// It goes on computing on its CPU.
    Computes,
}

/// Whether an item of such a thread is queued for another CPU of its pod, if one idles. A wake across
/// CPUs costs less than a wait of unknown length.
/// ```
/// use uwork_policy::cpu_choice::{Habit, keeps_cpu};
/// assert!(keeps_cpu(Habit::Computes) && keeps_cpu(Habit::Unknown));
/// assert!(!keeps_cpu(Habit::Waits));
/// ```
#[must_use]
pub fn keeps_cpu(habit: Habit) -> bool {
    habit != Habit::Waits
}

/// For how long a CPU counts as occupied by a submitter that goes on computing.
pub const OCCUPIED_NS: u64 = 1_000_000;

/// Whether a submitter that goes on computing has this CPU; it was last seen there at `seen_at`, or
/// never, if that is 0.
/// ```
/// use uwork_policy::cpu_choice::{OCCUPIED_NS, is_occupied};
/// assert!(!is_occupied(0, 10));
/// assert!(is_occupied(10, 10 + OCCUPIED_NS));
/// assert!(!is_occupied(10, 11 + OCCUPIED_NS));
/// ```
#[must_use]
pub fn is_occupied(seen_at: u64, now: u64) -> bool {
    seen_at != 0 && now.saturating_sub(seen_at) <= OCCUPIED_NS
}

/// A thread's habit is derived anew each time that it has sent this many wakes.
pub const WAKES_PER_LOOK: u32 = 16;

/// It is derived for the first time after this many.
pub const WAKES_OF_FIRST_LOOK: u32 = 4;

/// The wakes that a thread sends, and how often it waits meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WakeHistory {
    habit: Habit,
    /// Whether the habit was derived.
    looked: bool,
    /// Wakes sent since the last look; 0 before the first one.
    sent: u32,
    /// The thread's waits at the last look.
    waits: u64,
}

impl WakeHistory {
    /// Of a thread that has sent no wake.
    pub const NEW: WakeHistory =
        WakeHistory { habit: Habit::Unknown, looked: false, sent: 0, waits: 0 };

    /// The thread sends one more wake. `waits` gives the number of its waits so far; it is called
    /// after [`WAKES_OF_FIRST_LOOK`] wakes, then once in [`WAKES_PER_LOOK`].
    ///
    /// A thread has a habit if it waits after at least half of its wakes, or after at most an eighth.
    /// ```
    /// use uwork_policy::cpu_choice::{Habit, WAKES_PER_LOOK, WakeHistory};
    ///
    /// let after = |waits_of_8| {
    ///     let mut history = WakeHistory::NEW;
    ///     (0..=WAKES_PER_LOOK).for_each(|wake| {
    ///         history = history.after_wake(|| Some(u64::from(wake * waits_of_8 / 8)));
    ///     });
    ///     history.habit()
    /// };
    /// assert_eq!(after(8), Habit::Waits);
    /// assert_eq!(after(4), Habit::Waits);
    /// assert_eq!(after(3), Habit::Unknown);
    /// assert_eq!(after(1), Habit::Computes);
    /// ```
    #[must_use]
    pub fn after_wake(self, waits: impl FnOnce() -> Option<u64>) -> WakeHistory {
        let WakeHistory { habit, looked, sent, waits: before } = self;
        let due = if looked { WAKES_PER_LOOK } else { WAKES_OF_FIRST_LOOK };
        if (1..due).contains(&sent) {
            return WakeHistory { sent: sent + 1, ..self };
        }
        let Some(now) = waits() else { return WakeHistory::NEW };
        if sent == 0 {
            return WakeHistory { habit, looked, sent: 1, waits: now };
        }
        let habit = match now.saturating_sub(before) {
            waits if waits >= u64::from(sent).div_ceil(2) => Habit::Waits,
            waits if waits <= u64::from(sent) / 8 => Habit::Computes,
            _ => Habit::Unknown,
        };
        WakeHistory { habit, looked: true, sent: 1, waits: now }
    }

    /// The habit, as far as it is known.
    #[must_use]
    pub fn habit(self) -> Habit {
        self.habit
    }
}

/// A thread that wakes a worker of a pool with several CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waker {
    /// What it does next.
    pub habit: Habit,
    /// The CPU that it runs on.
    pub cpu: u32,
}

/// The habit that decides for a waker whose CPU a worker of the pool has begun a run on.
/// `run_ns`: how long ago, if that run has not ended. Its items take as long as `estimate` says.
///
/// The waker has interrupted that run, which continues as soon as the waker waits. A worker that is
/// moved there shares the CPU with it while other CPUs of the pool idle. A short run ends before a
/// worker comes up on another CPU, so it changes nothing.
/// ```
/// use uwork_policy::batch::RunEstimate;
/// use uwork_policy::cpu_choice::{Habit, habit_beside_run};
/// let of = |item_ns| RunEstimate { item_ns, residual_ns: item_ns / 2 };
/// assert_eq!(habit_beside_run(Habit::Waits, None, of(100_000)), Habit::Waits);
/// assert_eq!(habit_beside_run(Habit::Waits, Some(0), of(100_000)), Habit::Computes);
/// assert_eq!(habit_beside_run(Habit::Waits, Some(1_000), of(1_000)), Habit::Waits);
/// ```
#[must_use]
pub fn habit_beside_run(habit: Habit, run_ns: Option<u64>, estimate: RunEstimate) -> Habit {
    match (habit, run_ns) {
        (Habit::Waits, Some(ns)) if ns.max(estimate.item_ns) >= STEAL_AFTER_NS => Habit::Computes,
        _ => habit,
    }
}

/// The most parked workers among which one is chosen.
pub const CANDIDATES_MAX: usize = 4;

/// The result of [`choose_worker`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerChoice {
    /// This candidate, where it last ran.
    Stays(usize),
    /// This candidate, on the waker's CPU.
    MovesToWaker(usize),
    /// This candidate, on another CPU than the waker's.
    MovesAway(usize),
}

/// Which worker is woken. `last` has the CPU on which each candidate last ran, the worker that
/// parked last first.
///
/// The system wakes a thread where it last ran, or nearby. On the CPU of a waker that waits, the
/// worker costs no wake across CPUs, neither its own nor the one by which it ends the wait.
/// ```
/// use uwork_policy::cpu_choice::{Habit, Waker, WorkerChoice, choose_worker};
/// let waits = Waker { habit: Habit::Waits, cpu: 2 };
/// let computes = Waker { habit: Habit::Computes, cpu: 2 };
/// assert_eq!(choose_worker(waits, &[1, 2]), WorkerChoice::Stays(1));
/// assert_eq!(choose_worker(waits, &[1, 3]), WorkerChoice::MovesToWaker(0));
/// assert_eq!(choose_worker(computes, &[2, 1]), WorkerChoice::Stays(1));
/// assert_eq!(choose_worker(computes, &[2, 2]), WorkerChoice::MovesAway(0));
/// ```
#[must_use]
pub fn choose_worker(waker: Waker, last: &[u32]) -> WorkerChoice {
    let first = |wanted: fn(u32, u32) -> bool| last.iter().position(|&cpu| wanted(cpu, waker.cpu));
    match waker.habit {
        Habit::Unknown => WorkerChoice::Stays(0),
        Habit::Waits => {
            first(|cpu, its| cpu == its).map_or(WorkerChoice::MovesToWaker(0), WorkerChoice::Stays)
        }
        Habit::Computes => {
            first(|cpu, its| cpu != its).map_or(WorkerChoice::MovesAway(0), WorkerChoice::Stays)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: u32 = 7;

    #[test]
    fn each_habit_has_its_worker() {
        use WorkerChoice::{MovesAway, MovesToWaker, Stays};
        let table: [(&[u32], WorkerChoice, WorkerChoice); 7] = [
            // last CPUs, choice of a waker that waits, and of one that computes
            (&[7], Stays(0), MovesAway(0)),
            (&[1], MovesToWaker(0), Stays(0)),
            (&[7, 1], Stays(0), Stays(1)),
            (&[1, 7], Stays(1), Stays(0)),
            (&[7, 7, 7, 7], Stays(0), MovesAway(0)),
            (&[1, 2, 3, 4], MovesToWaker(0), Stays(0)),
            (&[7, 7, 7, 2], Stays(0), Stays(3)),
        ];
        for (last, waits, computes) in table {
            let choice = |habit| choose_worker(Waker { habit, cpu: HERE }, last);
            assert_eq!(choice(Habit::Waits), waits, "{last:?}");
            assert_eq!(choice(Habit::Computes), computes, "{last:?}");
            assert_eq!(choice(Habit::Unknown), Stays(0), "{last:?}");
        }
    }

    #[test]
    fn a_long_run_on_the_cpu_of_a_waker_that_waits_keeps_others_away() {
        use Habit::{Computes, Unknown, Waits};
        let (short, long) = (STEAL_AFTER_NS - 1, STEAL_AFTER_NS);
        for (run_ns, item_ns, waits) in [
            (None, 0, Waits),
            (None, u64::MAX, Waits),
            (Some(0), short, Waits),
            (Some(short), 0, Waits),
            (Some(0), long, Computes),
            (Some(long), 0, Computes),
            (Some(u64::MAX), u64::MAX, Computes),
        ] {
            let habit = |habit| {
                let estimate = RunEstimate { item_ns, residual_ns: u64::MAX };
                habit_beside_run(habit, run_ns, estimate)
            };
            assert_eq!(habit(Waits), waits, "{run_ns:?} {item_ns}");
            assert_eq!((habit(Computes), habit(Unknown)), (Computes, Unknown));
        }
    }

    /// A thread that waits `waits` times during each look.
    fn after_looks(history: WakeHistory, waits: &[u64]) -> WakeHistory {
        let mut sum = history.waits;
        let wake = |history: WakeHistory, sum| history.after_wake(|| Some(sum));
        waits.iter().fold(history, |history, waits| {
            sum += waits;
            (0..WAKES_PER_LOOK).fold(history, |history, _| wake(history, sum))
        })
    }

    /// A thread that waits `waits` times before the first look.
    fn after_first_look(history: WakeHistory, waits: u64) -> WakeHistory {
        let sum = history.waits + waits;
        (0..WAKES_OF_FIRST_LOOK).fold(history, |history, _| history.after_wake(|| Some(sum)))
    }

    #[test]
    fn the_first_look_comes_after_a_few_wakes() {
        let first = WakeHistory::NEW.after_wake(|| Some(1_000));
        for (waits, habit) in
            [(0, Habit::Computes), (1, Habit::Unknown), (2, Habit::Waits), (4, Habit::Waits)]
        {
            assert_eq!(after_first_look(first, waits).habit(), habit, "{waits}");
        }
    }

    #[test]
    fn a_habit_is_known_after_one_look_and_replaced_after_one() {
        let first = WakeHistory::NEW.after_wake(|| Some(1_000));
        assert_eq!(first.habit(), Habit::Unknown, "waits before the first wake do not count");
        let first = after_first_look(first, 1);
        assert_eq!(first.habit(), Habit::Unknown);
        let all = u64::from(WAKES_PER_LOOK);
        for (looks, habit) in [
            (&[all][..], Habit::Waits),
            (&[all / 2], Habit::Waits),
            (&[all / 2 - 1], Habit::Unknown),
            (&[all / 8 + 1], Habit::Unknown),
            (&[all / 8], Habit::Computes),
            (&[0], Habit::Computes),
            (&[u64::MAX / 4], Habit::Waits),
            (&[all, 0], Habit::Computes),
            (&[0, all], Habit::Waits),
        ] {
            assert_eq!(after_looks(first, looks).habit(), habit, "{looks:?}");
        }
    }

    #[test]
    fn a_platform_that_does_not_count_waits_has_no_habits() {
        let history = (0..100).fold(WakeHistory::NEW, |history, _| history.after_wake(|| None));
        assert_eq!(history, WakeHistory::NEW);
    }

    #[test]
    fn the_waits_are_asked_for_once_a_look() {
        let mut asked = 0;
        let mut history = WakeHistory::NEW;
        for _ in 0..=10 * WAKES_PER_LOOK {
            history = history.after_wake(|| {
                asked += 1;
                Some(0)
            });
        }
        assert_eq!(asked, 11);
    }
}
