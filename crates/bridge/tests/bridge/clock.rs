//! A server's clock that jumps: jobs of consumers that are cut off run again, others later, and none is
//! lost.

use std::sync::Arc;
use std::time::Duration;

use uwork_bridge::{Bridge, Counters, Handlers, Push, Reply};

use crate::support::clock::Clock;
use crate::support::count::{Count, LONG, Since, config, config_never_late};
use crate::support::patience::until;
use crate::support::proxy::Proxy;
use crate::support::server::server_at;

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn a_clock_that_jumps_ahead_runs_a_job_again_and_loses_none() {
    let Some(clock) = Clock::start("a_clock_that_jumps_ahead") else { return };
    take_over(&clock, false);
}

#[test]
fn a_second_run_is_counted_once_though_the_answer_to_the_first_ones_record_is_lost() {
    let Some(clock) = Clock::start("a_second_run_is_counted_once") else { return };
    take_over(&clock, true);
}

/// Cuts off the owner of a job that runs, and lets the clock jump, so that the owner looks dead. The server
/// knows that the job has begun: the record is a sign of life. Whether the owner has read the answer to it
/// is by chance, unless the answer `is_lost`.
fn take_over(clock: &Clock, is_lost: bool) {
    clock.push(Push::new("job"));
    let count = Count::default();
    let proxy = Arc::new(Proxy::to(clock.redis.port()));
    let (runs, gate, held) = (count.clone(), count.clone(), proxy.clone());
    let first = Handlers::new().otherwise(move |_| {
        if is_lost {
            held.hold_replies();
        }
        runs.add("begun");
        gate.wait_for("job", 1);
        Ok(Reply::done())
    });
    let cut_off = config_never_late(server_at(&proxy.url()), "jobs");
    let first = Bridge::start(cut_off, first, |_| {}).unwrap();
    count.wait_for("begun", 1);
    until("the begin is recorded", || {
        // Answers that are older than a look that finds no record are not the record's.
        let older = proxy.replies();
        let is_recorded = clock.redis.is_recorded("jobs");
        if is_lost && !is_recorded {
            proxy.pass_replies(older);
        }
        is_recorded
    });
    proxy.close();
    clock.jump(HOUR);
    let mut second = config(clock.redis.server(), "jobs");
    second.heartbeat = HOUR / 2;
    let second = Bridge::start(second, count.handlers(), |_| {}).unwrap();
    count.wait_for("job", 1);
    proxy.open();
    let first = first.stop(LONG).counters;
    let second = second.stop(LONG).counters;
    // Of the two completions the server counts one as done, and the job as one that ran twice.
    let (done, duplicates) = (first.done + second.done, first.duplicates + second.duplicates);
    assert_eq!((done, duplicates), (1, 1), "first {first:?}\nsecond {second:?}");
    assert_eq!((second.reclaimed, first.dead + second.dead), (1, 0));
    assert_eq!(clock.redis.number("HGET {jobs}:stats duplicates"), 1);
    assert_eq!((clock.redis.number("XLEN jobs"), clock.redis.pending("jobs")), (0, 0));
}

// Catches: a count by each consumer that knows of an earlier run.
#[test]
fn a_job_that_runs_three_times_is_counted_once() {
    for has_effect in [false, true] {
        let Some(clock) = Clock::start("a_job_that_runs_three_times") else { return };
        run_three_times(&clock, has_effect);
    }
}

/// Two consumers begin a job and are cut off; the server may not know of the first run. A third one
/// completes it, and then the others do.
fn run_three_times(clock: &Clock, has_effect: bool) {
    clock.push(Push::new("job"));
    let count = Count::default();
    let proxies = [(); 2].map(|()| Arc::new(Proxy::to(clock.redis.port())));
    let start = |server, cut: Option<(u32, Arc<Proxy>)>| {
        let runs = count.clone();
        let handlers = Handlers::new().otherwise(move |_| {
            if let Some((nth, proxy)) = &cut {
                proxy.close();
                runs.add(format!("begun {nth}"));
                runs.wait_for("go on", 1);
            }
            Ok(if has_effect { Reply::done().effect(["INCR", "balance"]) } else { Reply::done() })
        });
        let mut config = config(server, "jobs");
        (config.heartbeat, config.attempts_max) = (HOUR / 2, 9);
        Bridge::start(config, handlers, |_| {}).unwrap()
    };
    let mut bridges = Vec::new();
    for (nth, proxy) in (0..).zip(&proxies) {
        bridges.push(start(server_at(&proxy.url()), Some((nth, proxy.clone()))));
        count.wait_for(&format!("begun {nth}"), 1);
        clock.jump(HOUR * (nth + 1));
    }
    let last = start(clock.redis.server(), None);
    until("the job is done", || last.counters().done == 1);
    proxies.iter().for_each(|proxy| proxy.open());
    count.add("go on");
    bridges.push(last);
    let all: Vec<_> = bridges.into_iter().map(|bridge| bridge.stop(LONG).counters).collect();
    let sum = |of: fn(&Counters) -> u64| all.iter().map(of).sum::<u64>();
    assert_eq!((sum(|of| of.done), sum(|of| of.duplicates)), (1, 1), "{all:#?}");
    assert_eq!(sum(|of| of.lost), 2, "{all:#?}");
    assert_eq!(clock.redis.number("HGET {jobs}:stats duplicates"), 1);
    assert_eq!(clock.redis.number("GET balance"), i64::from(has_effect));
}

#[test]
fn a_clock_that_jumps_back_delays_takeovers_and_loses_no_job() {
    let Some(clock) = Clock::start("a_clock_that_jumps_back") else { return };
    clock.jump(HOUR);
    clock.push(Push::new("before"));
    let count = Count::default();
    let (consumer, since) = (config(clock.redis.server(), "jobs"), Since::now());
    let bridge = Bridge::start(consumer, count.handlers(), |_| {}).unwrap();
    count.wait_for("before", 1);
    clock.push(Push::new("delayed").delay(HOUR));
    clock.jump(Duration::ZERO);
    clock.push(Push::new("after"));
    clock.push(Push::new("soon").delay(Duration::from_millis(10)));
    count.wait_for("after", 1);
    count.wait_for("soon", 1);
    assert_eq!(count.of("delayed"), 0, "it is due by the clock that was ahead");
    clock.jump(2 * HOUR);
    count.wait_for("delayed", 1);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.dead), (4, 0));
    since.assert_no_hot_loop(counters.faults);
    assert_eq!((count.sum(), clock.redis.number("XLEN jobs")), (4, 0));
}
