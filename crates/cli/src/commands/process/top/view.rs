//! What `uwork top` knows of a process: the last answers, rates since the answers before, and the
//! order of the queues. It never draws.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use uwork_policy::cpuset::CpuSet;
use uwork_policy::topology::Topology;

use super::machine;
use crate::client::{Row, Table, fact};

/// The most pools that are shown, and the longest text of a set of CPUs. A machine of 1000 CPUs has
/// fewer pools, and a set of every second CPU of 1000 has a shorter text.
pub(super) const POOLS_MAX: usize = 4096;
const CPUS_MAX: usize = 4096;
/// The samples of a sparkline.
pub(super) const HISTORY: usize = 24;

/// The answers of a process at one time.
pub(super) struct Answers {
    pub(super) status: String,
    pub(super) queues: String,
    pub(super) pools: String,
}

/// A queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) in_flight: u64,
    pub(super) pending: u64,
    pub(super) running: u64,
    pub(super) max_active: u64,
    /// Pools without a free permit.
    pub(super) saturated: u64,
    pub(super) gate: String,
    /// Runs per second since the last answer.
    pub(super) rate: f64,
    /// Runs at a time, on average since the last answer.
    pub(super) busy: f64,
    /// Of all runs, in nanoseconds.
    pub(super) p99_ns: u64,
    /// From submission to start: the mean of the last interval, in nanoseconds; 0 without runs.
    pub(super) wait_ns: u64,
    /// The mean run time of each interval, in nanoseconds, the newest last. Intervals without runs
    /// are 0.
    pub(super) run_times: Vec<u64>,
    /// The same of the time from submission to start.
    pub(super) waits: Vec<u64>,
}

/// A pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    pub(super) id: u64,
    pub(super) cpus: String,
    /// The same, for the place on the machine.
    pub(super) set: CpuSet,
    pub(super) nice: String,
    pub(super) target: u64,
    pub(super) workers: u64,
    pub(super) running: u64,
    pub(super) idle: u64,
    pub(super) ready: u64,
}

impl Pool {
    /// A pool of these CPUs. A text that is too long is none of a process's own.
    pub(super) fn of(cpus: &str) -> Pool {
        let cpus = if cpus.len() > CPUS_MAX { "?" } else { cpus };
        let set = cpus.parse().unwrap_or_default();
        Pool { cpus: cpus.to_owned(), set, ..Pool::default() }
    }
}

/// A worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Worker {
    pub(super) pool: String,
    pub(super) name: String,
    pub(super) thread: String,
    pub(super) state: String,
    pub(super) queue: String,
    pub(super) function: String,
    pub(super) for_us: u64,
}

/// What the queues are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Rate,
    Busy,
    InFlight,
    Pending,
    P99,
    Wait,
    Name,
}

impl Order {
    pub(super) fn next(self) -> Order {
        match self {
            Order::Rate => Order::Busy,
            Order::Busy => Order::InFlight,
            Order::InFlight => Order::Pending,
            Order::Pending => Order::P99,
            Order::P99 => Order::Wait,
            Order::Wait => Order::Name,
            Order::Name => Order::Rate,
        }
    }

    /// The title of the column.
    pub(super) fn title(self) -> &'static str {
        match self {
            Order::Rate => "items/s",
            Order::Busy => "busy",
            Order::InFlight => "infl",
            Order::Pending => "pend",
            Order::P99 => "p99",
            Order::Wait => "wait",
            Order::Name => "queue",
        }
    }
}

/// The list that the keys move in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Focus {
    Queues,
    Pools,
    Workers,
}

impl Focus {
    pub(super) fn next(self) -> Focus {
        match self {
            Focus::Queues => Focus::Pools,
            Focus::Pools => Focus::Workers,
            Focus::Workers => Focus::Queues,
        }
    }
}

/// A count and a sum of times that grow, and the mean of each interval.
struct Means {
    count: u64,
    us: u64,
    /// In nanoseconds, the newest last.
    means: VecDeque<u64>,
}

impl Means {
    fn new(count: u64, us: u64) -> Means {
        Means { count, us, means: VecDeque::new() }
    }

    /// Takes the values at the end of an interval.
    fn add(&mut self, count: u64, us: u64) {
        if self.means.len() == HISTORY {
            self.means.pop_front();
        }
        let (more, more_us) = (count.saturating_sub(self.count), us.saturating_sub(self.us));
        self.means.push_back(more_us.saturating_mul(1_000).checked_div(more).unwrap_or(0));
        (self.count, self.us) = (count, us);
    }
}

/// The counters of a queue at the last answer, and its times since.
struct Before {
    runs: Means,
    waits: Means,
}

/// See the module.
pub(super) struct View {
    pub(super) order: Order,
    pub(super) reversed: bool,
    /// Queues whose names contain this are shown.
    pub(super) filter: String,
    pub(super) focus: Focus,
    /// The selected queue, line of the pools, and worker.
    pub(super) selected: usize,
    pub(super) pool_line: usize,
    pub(super) worker_line: usize,
    pub(super) topology: Topology,
    pub(super) queues: Vec<Queue>,
    pub(super) pools: Vec<Pool>,
    pub(super) workers: Vec<Worker>,
    pub(super) tier: String,
    pub(super) panics: u64,
    before: HashMap<String, Before>,
}

impl View {
    pub(super) fn new(topology: Topology) -> View {
        View {
            order: Order::Rate,
            reversed: false,
            filter: String::new(),
            focus: Focus::Queues,
            selected: 0,
            pool_line: 0,
            worker_line: 0,
            topology,
            queues: Vec::new(),
            pools: Vec::new(),
            workers: Vec::new(),
            tier: String::new(),
            panics: 0,
            before: HashMap::new(),
        }
    }

    /// Takes new answers. `since`: the time since the last ones of the same process, if there were
    /// any.
    pub(super) fn update(&mut self, answers: &Answers, since: Option<Duration>) {
        if since.is_none() {
            self.before.clear();
        }
        fact(&answers.status, "blocking_tier").clone_into(&mut self.tier);
        self.panics = fact(&answers.status, "panics").parse().unwrap_or(0);
        self.read_queues(&answers.queues, since);
        let (pools, workers) = answers.pools.split_once("\n\n").unwrap_or((&answers.pools, ""));
        self.read_pools(pools, workers);
        self.keep_selections();
    }

    fn read_queues(&mut self, answer: &str, since: Option<Duration>) {
        // The first row stays selected; a selection below follows its queue.
        let moved = self.selected > 0;
        let selected = self.selected_queue().filter(|_| moved).map(|queue| queue.name.clone());
        let mut before = std::mem::take(&mut self.before);
        let table = Table::parse(answer);
        self.queues.clear();
        for row in table.rows() {
            let known = before.remove(row.text("name"));
            let (queue, now) = read_queue(&row, known, since);
            self.before.insert(queue.name.clone(), now);
            self.queues.push(queue);
        }
        self.sort();
        if let Some(name) = selected {
            let found = self.shown().position(|queue| queue.name == name);
            self.selected = found.unwrap_or(self.selected);
        }
    }

    fn read_pools(&mut self, pools: &str, workers: &str) {
        let pool = |row: Row<'_>| Pool {
            id: row.number("id"),
            nice: row.text("nice").to_owned(),
            target: row.number("target"),
            workers: row.number("workers"),
            running: row.number("running"),
            idle: row.number("idle"),
            ready: row.number("ready"),
            ..Pool::of(row.text("cpus"))
        };
        self.pools = Table::parse(pools).rows().take(POOLS_MAX).map(pool).collect();
        let worker = |row: Row<'_>| Worker {
            pool: row.text("pool").to_owned(),
            name: row.text("name").to_owned(),
            thread: row.text("thread").to_owned(),
            state: row.text("state").to_owned(),
            queue: row.text("queue").to_owned(),
            function: row.text("function").to_owned(),
            for_us: row.number("for_us"),
        };
        self.workers = Table::parse(workers).rows().map(worker).collect();
        // Those in an item first, the longest at the top.
        self.workers.sort_by_key(|worker| std::cmp::Reverse(worker.for_us));
    }

    /// Orders the queues.
    pub(super) fn sort(&mut self) {
        let (order, reversed) = (self.order, self.reversed);
        self.queues.sort_by(|a, b| {
            let (first, second) = if reversed { (b, a) } else { (a, b) };
            let by = match order {
                Order::Rate => second.rate.total_cmp(&first.rate),
                Order::Busy => second.busy.total_cmp(&first.busy),
                Order::InFlight => second.in_flight.cmp(&first.in_flight),
                Order::Pending => second.pending.cmp(&first.pending),
                Order::P99 => second.p99_ns.cmp(&first.p99_ns),
                Order::Wait => second.wait_ns.cmp(&first.wait_ns),
                Order::Name => first.name.cmp(&second.name),
            };
            by.then_with(|| a.name.cmp(&b.name))
        });
    }

    /// The queues that the filter permits, in order.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Queue> {
        self.queues.iter().filter(|queue| queue.name.contains(&self.filter))
    }

    pub(super) fn selected_queue(&self) -> Option<&Queue> {
        self.shown().nth(self.selected)
    }

    /// Moves the selection of the list in focus by this number of lines.
    pub(super) fn select(&mut self, by: isize) {
        let selected = match self.focus {
            Focus::Queues => &mut self.selected,
            Focus::Pools => &mut self.pool_line,
            Focus::Workers => &mut self.worker_line,
        };
        *selected = selected.saturating_add_signed(by);
        self.keep_selections();
    }

    /// Moves selections behind the end of their lists to the end.
    pub(super) fn keep_selections(&mut self) {
        let queues = self.shown().count();
        let pools = machine::places(&self.topology, &self.pools).len();
        let workers = self.workers.len();
        let lists = [
            (&mut self.selected, queues),
            (&mut self.pool_line, pools),
            (&mut self.worker_line, workers),
        ];
        for (selected, length) in lists {
            *selected = (*selected).min(length.saturating_sub(1));
        }
    }
}

/// A queue's line of an answer, given what was known of it. `since`: the time since the last answer.
fn read_queue(row: &Row<'_>, known: Option<Before>, since: Option<Duration>) -> (Queue, Before) {
    let (ran, run_us) = (row.number("ran"), row.number("run_us"));
    let (waits, wait_us) = (row.number("waits"), row.number("wait_us"));
    let mut now = known.unwrap_or_else(|| Before {
        runs: Means::new(ran, run_us),
        waits: Means::new(waits, wait_us),
    });
    let runs = ran.saturating_sub(now.runs.count) as f64;
    let busy_s = run_us.saturating_sub(now.runs.us) as f64 / 1e6;
    if since.is_some() {
        now.runs.add(ran, run_us);
        now.waits.add(waits, wait_us);
    }
    let per_second = |amount: f64| match since {
        Some(since) => amount / since.as_secs_f64().max(1e-6),
        None => 0.0,
    };
    let queue = Queue {
        name: row.text("name").to_owned(),
        in_flight: row.number("in_flight"),
        pending: row.number("pending"),
        running: row.number("running"),
        max_active: row.number("max_active"),
        saturated: row.number("saturated"),
        gate: row.text("gate").to_owned(),
        rate: per_second(runs),
        busy: per_second(busy_s),
        p99_ns: row.number("run_p99_ns"),
        wait_ns: now.waits.means.back().copied().unwrap_or(0),
        run_times: now.runs.means.iter().copied().collect(),
        waits: now.waits.means.iter().copied().collect(),
    };
    (queue, now)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const QUEUES: &str = "name\tran\trun_us\tin_flight\tpending\trunning\tmax_active\tsaturated\t\
        gate\trun_p99_ns\twaits\twait_us\n\
        log\t100\t1000\t2\t1\t1\t8\t0\topen\t16384\t100\t5000\n\
        io\t5\t7\t9\t8\t1\t1\t1\tfrozen\t0\t5\t5\n";
    const POOLS: &str = "id\tcpus\tnice\ttarget\tworkers\tworkers_max\trunning\tidle\tready\tarmed\n\
        0\t0\t0\t1\t2\t64\t1\t1\t3\t0\n\
        1\t0-1\t-5\t2\t1\t64\t0\t1\t0\t0\n\
        \n\
        pool\tslot\tname\tthread\tstate\tqueue\tfunction\tfor_us\tscheduled\n\
        0\t0\tuw/0\t101\tidle\t-\t-\t0\t0\n\
        0\t1\tuw/0\t102\tasleep\tlog\tapp::Write\t2500000\t0\n\
        -\t2\t-\t103\trunning\tlog\tapp::Help\t40\t0\n";

    pub(in super::super) fn answers(ran: u64, run_us: u64) -> Answers {
        // Each run has waited for 50 us.
        let queues = QUEUES
            .replace("log\t100\t1000", &format!("log\t{ran}\t{run_us}"))
            .replace("100\t5000", &format!("{ran}\t{}", ran * 50));
        let status = "pid\t7\nblocking_tier\tstandby\npanics\t0\n".to_owned();
        Answers { status, queues, pools: POOLS.to_owned() }
    }

    pub(in super::super) fn view() -> View {
        let mut view = View::new(Topology::flat(2));
        view.update(&answers(100, 1_000), None);
        view.update(&answers(300, 401_000), Some(Duration::from_secs(2)));
        view
    }

    #[test]
    fn rates_and_run_times_are_those_since_the_last_answer() {
        let view = view();
        let log = &view.queues[0];
        assert_eq!((log.name.as_str(), log.rate, log.busy), ("log", 100.0, 0.2));
        assert_eq!(log.run_times, [2_000_000], "400 ms for 200 runs");
        assert_eq!((log.wait_ns, &log.waits[..]), (50_000, &[50_000][..]));
        assert_eq!(
            (&view.queues[1].run_times[..], view.queues[1].wait_ns),
            (&[0][..], 0),
            "no runs"
        );
        assert_eq!((view.tier.as_str(), view.pools.len()), ("standby", 2));
        let workers: Vec<&str> =
            view.workers.iter().map(|worker| worker.function.as_str()).collect();
        assert_eq!(workers, ["app::Write", "app::Help", "-"], "the longest first");
    }

    // Catches: CPUs that are parsed for each picture and key, as many and as long as a process likes.
    #[test]
    fn pools_and_the_texts_of_their_cpus_are_bounded() {
        let mut view = view();
        let rows = |cpus: &str, count: usize| {
            let pools = format!("id\tcpus\n{}", format!("7\t{cpus}\n").repeat(count));
            Answers { pools, ..answers(1, 1) }
        };
        view.update(&rows("0-1", POOLS_MAX + 1), None);
        assert_eq!((view.pools.len(), view.pools[0].set.to_string()), (POOLS_MAX, "0-1".into()));
        view.update(&rows(&"0-1,".repeat(CPUS_MAX), 1), None);
        assert_eq!((&*view.pools[0].cpus, view.pools[0].set.first()), ("?", None));
    }

    #[test]
    fn another_process_has_times_of_its_own() {
        let mut view = view();
        view.update(&answers(500, 500_000), None);
        assert_eq!((view.queues[0].rate, view.queues[0].run_times.len()), (0.0, 0));
    }

    #[test]
    fn queues_are_ordered_and_filtered_and_the_selection_follows_its_queue() {
        let mut view = view();
        view.order = Order::InFlight;
        view.sort();
        let names = |view: &View| view.shown().map(|queue| queue.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&view), ["io", "log"]);
        view.reversed = true;
        view.sort();
        assert_eq!(names(&view), ["log", "io"]);
        view.select(1);
        view.reversed = false;
        view.update(&answers(300, 401_000), Some(Duration::from_secs(1)));
        assert_eq!(view.selected_queue().map(|queue| queue.name.as_str()), Some("io"));
        view.filter = "lo".to_owned();
        view.keep_selections();
        assert_eq!((names(&view), view.selected), (vec!["log".to_owned()], 0));
        view.filter = "none".to_owned();
        view.select(1);
        assert!(view.selected_queue().is_none());
    }

    #[test]
    fn each_list_has_a_selection_that_stays_within_it() {
        let mut view = view();
        for focus in [Focus::Queues, Focus::Pools, Focus::Workers] {
            assert_eq!(view.focus, focus);
            view.select(isize::MAX);
            view.focus = focus.next();
        }
        assert_eq!((view.selected, view.pool_line, view.worker_line), (1, 1, 2));
        view.focus = Focus::Workers;
        view.select(-1);
        assert_eq!((view.selected, view.worker_line), (1, 1));
    }

    #[test]
    fn a_sparkline_has_a_bounded_number_of_samples() {
        let mut view = view();
        for round in 0..2 * HISTORY as u64 {
            view.update(&answers(400 + round, 500_000 + round), Some(Duration::from_secs(1)));
        }
        let log = view.queues.iter().find(|queue| queue.name == "log").unwrap();
        assert_eq!(log.run_times.len(), HISTORY);
        assert_eq!(log.run_times.last(), Some(&1_000));
    }
}
