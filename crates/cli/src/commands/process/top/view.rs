//! What `uwork top` knows of a process: the last answers, rates since the answers before, and the
//! order of the queues. It never draws.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use crate::client::{Table, fact};

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
    pub(super) saturated: bool,
    pub(super) gate: String,
    /// Runs per second since the last answer.
    pub(super) rate: f64,
    /// Runs at a time, on average since the last answer.
    pub(super) busy: f64,
    /// Of all runs, in nanoseconds.
    pub(super) p99_ns: u64,
    /// The mean run time of each interval, in nanoseconds, the newest last. Intervals without runs
    /// are 0.
    pub(super) run_times: Vec<u64>,
}

/// A pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    pub(super) id: u64,
    pub(super) cpus: String,
    pub(super) nice: String,
    pub(super) target: u64,
    pub(super) workers: u64,
    pub(super) running: u64,
    pub(super) idle: u64,
    pub(super) ready: u64,
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
    Name,
}

impl Order {
    pub(super) fn next(self) -> Order {
        match self {
            Order::Rate => Order::Busy,
            Order::Busy => Order::InFlight,
            Order::InFlight => Order::Pending,
            Order::Pending => Order::P99,
            Order::P99 => Order::Name,
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
            Order::Name => "queue",
        }
    }
}

/// The counters of a queue at the last answer, and its run times since.
#[derive(Default)]
struct Before {
    ran: u64,
    run_us: u64,
    run_times: VecDeque<u64>,
}

/// See the module.
pub(super) struct View {
    pub(super) order: Order,
    pub(super) reversed: bool,
    /// Queues whose names contain this are shown.
    pub(super) filter: String,
    pub(super) selected: usize,
    pub(super) queues: Vec<Queue>,
    pub(super) pools: Vec<Pool>,
    pub(super) workers: Vec<Worker>,
    pub(super) tier: String,
    pub(super) panics: u64,
    before: HashMap<String, Before>,
}

impl View {
    pub(super) fn new() -> View {
        View {
            order: Order::Rate,
            reversed: false,
            filter: String::new(),
            selected: 0,
            queues: Vec::new(),
            pools: Vec::new(),
            workers: Vec::new(),
            tier: String::new(),
            panics: 0,
            before: HashMap::new(),
        }
    }

    /// Takes new answers. `since`: the time since the last ones, if there were any.
    pub(super) fn update(&mut self, answers: &Answers, since: Option<Duration>) {
        fact(&answers.status, "blocking_tier").clone_into(&mut self.tier);
        self.panics = fact(&answers.status, "panics").parse().unwrap_or(0);
        self.read_queues(&answers.queues, since);
        let (pools, workers) = answers.pools.split_once("\n\n").unwrap_or((&answers.pools, ""));
        self.read_pools(pools, workers);
        self.sort();
    }

    fn read_queues(&mut self, answer: &str, since: Option<Duration>) {
        // The first row stays selected; a selection below follows its queue.
        let moved = self.selected > 0;
        let selected = self.selected_queue().filter(|_| moved).map(|queue| queue.name.clone());
        let mut before = std::mem::take(&mut self.before);
        let table = Table::parse(answer);
        self.queues.clear();
        for row in table.rows() {
            let (name, ran, run_us) = (row.text("name"), row.number("ran"), row.number("run_us"));
            let mut last = before.remove(name).unwrap_or_else(|| Before {
                ran,
                run_us,
                run_times: VecDeque::new(),
            });
            let (runs, us) = (ran.saturating_sub(last.ran), run_us.saturating_sub(last.run_us));
            if since.is_some() {
                if last.run_times.len() == HISTORY {
                    last.run_times.pop_front();
                }
                last.run_times.push_back((us * 1_000).checked_div(runs).unwrap_or(0));
            }
            let per_second = |amount: f64| match since {
                Some(since) => amount / since.as_secs_f64().max(1e-6),
                None => 0.0,
            };
            self.queues.push(Queue {
                name: name.to_owned(),
                in_flight: row.number("in_flight"),
                pending: row.number("pending"),
                running: row.number("running"),
                max_active: row.number("max_active"),
                saturated: row.number("saturated") > 0,
                gate: row.text("gate").to_owned(),
                rate: per_second(runs as f64),
                busy: per_second(us as f64 / 1e6),
                p99_ns: row.number("run_p99_ns"),
                run_times: last.run_times.iter().copied().collect(),
            });
            self.before.insert(
                name.to_owned(),
                Before { ran, run_us, run_times: std::mem::take(&mut last.run_times) },
            );
        }
        self.sort();
        if let Some(name) = selected {
            let found = self.shown().position(|queue| queue.name == name);
            self.selected = found.unwrap_or(self.selected);
        }
        self.select(0);
    }

    fn read_pools(&mut self, pools: &str, workers: &str) {
        let pool = |row: crate::client::Row<'_>| Pool {
            id: row.number("id"),
            cpus: row.text("cpus").to_owned(),
            nice: row.text("nice").to_owned(),
            target: row.number("target"),
            workers: row.number("workers"),
            running: row.number("running"),
            idle: row.number("idle"),
            ready: row.number("ready"),
        };
        self.pools = Table::parse(pools).rows().map(pool).collect();
        let worker = |row: crate::client::Row<'_>| Worker {
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

    /// Moves the selection by so many queues.
    pub(super) fn select(&mut self, by: isize) {
        let last = self.shown().count().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const QUEUES: &str = "name\tran\trun_us\tin_flight\tpending\trunning\tmax_active\tsaturated\tgate\trun_p99_ns\n\
        log\t100\t1000\t2\t1\t1\t8\t0\topen\t16384\n\
        io\t5\t7\t9\t8\t1\t1\t1\tfrozen\t0\n";
    const POOLS: &str = "id\tcpus\tnice\ttarget\tworkers\tworkers_max\trunning\tidle\tready\tarmed\n\
        0\t0\t0\t1\t2\t64\t1\t1\t3\t0\n\
        1\t0-1\t-5\t2\t1\t64\t0\t1\t0\t0\n\
        \n\
        pool\tslot\tname\tthread\tstate\tqueue\tfunction\tfor_us\tscheduled\n\
        0\t0\tuw/0\t101\tidle\t-\t-\t0\t0\n\
        0\t1\tuw/0\t102\tasleep\tlog\tapp::Write\t2500000\t0\n\
        -\t2\t-\t103\trunning\tlog\tapp::Help\t40\t0\n";

    pub(in super::super) fn answers(ran: u64, run_us: u64) -> Answers {
        let queues = QUEUES.replace("log\t100\t1000", &format!("log\t{ran}\t{run_us}"));
        let status = "pid\t7\nblocking_tier\tstandby\npanics\t0\n".to_owned();
        Answers { status, queues, pools: POOLS.to_owned() }
    }

    pub(in super::super) fn view() -> View {
        let mut view = View::new();
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
        assert_eq!(view.queues[1].run_times, [0], "no runs");
        assert_eq!((view.tier.as_str(), view.pools.len()), ("standby", 2));
        let workers: Vec<&str> =
            view.workers.iter().map(|worker| worker.function.as_str()).collect();
        assert_eq!(workers, ["app::Write", "app::Help", "-"], "the longest first");
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
        view.select(0);
        assert_eq!((names(&view), view.selected), (vec!["log".to_owned()], 0));
        view.filter = "none".to_owned();
        view.select(1);
        assert!(view.selected_queue().is_none());
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
