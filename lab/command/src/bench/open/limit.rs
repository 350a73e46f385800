//! The limit: the same arrivals in a perfect single queue, first in, first out, for as many servers
//! as CPUs. Starting an item, waking a server and submitting cost nothing.
//!
//! The limit `limit+gen` also counts the generator: each arrival first takes the CPU time of a
//! generator that submits to nothing, without its spins, from the server that is free first. An
//! item that runs there is not delayed, only those after it, so this is a limit as well.
//!
//! A sleep leaves its server free. The latency-critical items of case `mixed` have the servers to
//! themselves: less is impossible with any priority. The other items share a queue with them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::plan::Arrival;

/// The time from each arrival to the end of its item. `generator`: the CPU time that the generator
/// needs for an arrival.
pub(super) fn sojourns(arrivals: &[Arrival], servers: usize, generator: Duration) -> Vec<Duration> {
    let mut sojourns = through(arrivals.iter(), servers, generator);
    let critical: Vec<usize> =
        (0..arrivals.len()).filter(|&index| arrivals[index].critical).collect();
    let alone = through(critical.iter().map(|&index| &arrivals[index]), servers, generator);
    for (index, sojourn) in critical.into_iter().zip(alone) {
        sojourns[index] = sojourn;
    }
    sojourns
}

fn through<'a>(
    arrivals: impl Iterator<Item = &'a Arrival>,
    servers: usize,
    generator: Duration,
) -> Vec<Duration> {
    // The times from which the servers are free.
    let mut free: BinaryHeap<Reverse<Duration>> =
        (0..servers).map(|_| Reverse(Duration::ZERO)).collect();
    let sojourn = |arrival: &Arrival| {
        let mut first = free.peek_mut().expect("a machine has a CPU");
        *first = Reverse(first.0.max(arrival.at) + generator);
        drop(first);
        let mut server = free.peek_mut().expect("a machine has a CPU");
        let end = server.0.max(arrival.at) + arrival.demand.compute;
        // The heap restores its order when the server is dropped.
        *server = Reverse(end);
        end + arrival.demand.sleep - arrival.at
    };
    arrivals.map(sojourn).collect()
}

#[cfg(test)]
mod tests {
    use super::super::cases::Demand;
    use super::*;

    const fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn item(at: u64, compute: u64, sleep: u64) -> Arrival {
        let demand = Demand { compute: us(compute), sleep: us(sleep) };
        Arrival { at: us(at), demand, critical: false }
    }

    fn limit(arrivals: &[Arrival], servers: usize) -> Vec<u128> {
        sojourns(arrivals, servers, us(0)).iter().map(Duration::as_micros).collect()
    }

    #[test]
    fn one_server_takes_items_one_by_one_in_the_order_of_arrival() {
        // At 0, 30, 40 and 500, of 100 us each: the second starts at 100, the third at 200.
        let arrivals = [0, 30, 40, 500].map(|at| item(at, 100, 0));
        assert_eq!(limit(&arrivals, 1), [100, 170, 260, 100]);
    }

    #[test]
    fn the_mean_at_one_server_is_that_of_the_formula_for_poisson_arrivals() {
        use super::super::cases::{Mix, Pattern, Stream};
        use super::super::plan::arrivals;
        // Items of 100 us at a load of 60 %: the mean wait is 0.6 / (2 * (1 - 0.6)) items.
        let demand = Demand { compute: us(100), sleep: us(0) };
        let mix = Mix { short: demand, long: demand, long_percent: 0 };
        let pattern = Pattern::Poisson { percent: 60 };
        let stream = Stream { mix, pattern, critical: false };
        let arrivals = arrivals(&[stream], 1, Duration::from_secs(100), 1);
        let all = sojourns(&arrivals, 1, us(0));
        let mean_us = all.iter().sum::<Duration>().as_secs_f64() * 1e6 / all.len() as f64;
        assert!((mean_us - 175.0).abs() < 5.0, "{mean_us}");
    }

    #[test]
    fn the_generator_takes_its_time_from_the_server_that_is_free_first() {
        // One server: the item starts when the generator is done. Two: on the other one, at once.
        let arrivals = [item(0, 100, 0), item(50, 100, 0)];
        let times = |servers| sojourns(&arrivals, servers, us(10));
        assert_eq!(times(1), [us(110), us(170)]);
        // At 50 the first server is busy until 100, the second one with the generator until 60.
        assert_eq!(times(2), [us(100), us(110)]);
    }

    #[test]
    fn a_second_server_takes_what_the_first_cannot() {
        // The long item keeps one server until 500; the others go through the second one.
        let arrivals = [item(0, 500, 0), item(10, 20, 0), item(15, 20, 0), item(16, 20, 0)];
        assert_eq!(limit(&arrivals, 2), [500, 20, 35, 54]);
        // With both servers busy, the next item waits for the first to become free.
        let arrivals = [item(0, 500, 0), item(0, 300, 0), item(100, 20, 0)];
        assert_eq!(limit(&arrivals, 2), [500, 300, 220]);
    }

    #[test]
    fn a_sleep_leaves_its_server_free() {
        let arrivals = [item(0, 0, 1_000), item(0, 20, 0), item(0, 20, 1_000), item(5, 20, 0)];
        assert_eq!(limit(&arrivals, 1), [1_000, 20, 1_040, 55]);
    }

    #[test]
    fn critical_items_wait_for_critical_items_only() {
        let critical = |at| Arrival { critical: true, ..item(at, 20, 0) };
        let arrivals = [item(0, 500, 0), critical(10), critical(20), item(30, 100, 0)];
        // In one queue with the others, the last item starts at 540.
        assert_eq!(limit(&arrivals, 1), [500, 20, 30, 610]);
    }
}
