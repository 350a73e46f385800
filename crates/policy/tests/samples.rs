//! Which workers are sampled, and what follows from a sample, over the whole table of facts.

use uwork_policy::blocking::Tier;
use uwork_policy::samples::{
    Activity, PoolFacts, RETURN_SAMPLES_NS, SAMPLE_AFTER_NS, STOPPED_NS, Sample, Sampling,
    SearchFacts, Source, Stop, Verdict, WorkerFacts, WorkerPlan, WorkerState, judge, may_search,
    plan_pool, plan_worker,
};

const FLAGS: [bool; 2] = [false, true];
const NOW: u64 = 50_000_000;
/// The latest beginning of a sleep that is believed: a record may be later than the scan's time.
const LATEST: u64 = NOW + 1_000_000_000;

/// The last time before a limit, the limit, and both ends.
fn around(limit: u64) -> [u64; 4] {
    [0, limit - 1, limit, u64::MAX]
}

fn pools() -> Vec<PoolFacts> {
    let mut pools = Vec::new();
    for tier in Tier::ALL {
        for suspect in FLAGS {
            for presumes in FLAGS {
                for (running, target) in [(0, 1), (1, 1), (2, 1), (2, 3), (3, 3)] {
                    for since_returns_ns in around(RETURN_SAMPLES_NS) {
                        let pool = PoolFacts {
                            tier,
                            suspect,
                            presumes,
                            running,
                            target,
                            since_returns_ns,
                        };
                        pools.push(pool);
                    }
                }
            }
        }
    }
    pools
}

#[test]
fn a_pool_is_sampled_unless_only_declared_blocks_count_or_it_lacks_workers() {
    for pool in pools() {
        // A pool below its target wakes workers by its own rule: one scan in a millisecond is
        // enough to find workers that run again.
        let by_returns = pool.running >= pool.target || pool.since_returns_ns >= 1_000_000;
        let expected = pool.tier != Tier::Declared && by_returns;
        assert_eq!(plan_pool(pool).is_some(), expected, "{pool:?}");
    }
}

#[test]
fn switches_are_recorded_in_suspect_pools_that_presume_nothing() {
    let mut recorded = 0;
    for pool in pools() {
        let Some(plan) = plan_pool(pool) else { continue };
        assert_eq!(plan.at_once, pool.suspect, "{pool:?}");
        assert_eq!(plan.keep_records, !pool.presumes, "{pool:?}");
        assert_eq!(plan.returns, pool.since_returns_ns >= 1_000_000, "{pool:?}");
        let records =
            [matches!(pool.tier, Tier::Standby | Tier::Events), pool.suspect, !pool.presumes];
        assert_eq!(plan.record, records == [true; 3], "{pool:?}");
        recorded += u32::from(plan.record);
    }
    assert!(recorded > 0, "the table has such pools");
}

/// The rule for a worker as `watch/README.md` states it, state by state.
fn expected_plan(worker: WorkerFacts, sampling: Sampling) -> WorkerPlan {
    let after_100_us = worker.known_ns >= 100_000;
    let (then, condition) = match worker.state {
        // "context switches are recorded", from the beginning of the next run.
        WorkerState::BetweenRuns => (WorkerPlan::Record, sampling.record),
        // "once it has seen it in the same run for 100 us"; "there every run is sampled at once".
        WorkerState::Counted => (WorkerPlan::Sample, after_100_us || sampling.at_once),
        // "Workers that were counted out are sampled again", in their interval; a declared wait ends by
        // itself.
        WorkerState::FoundBlocked => (WorkerPlan::SampleAgain, sampling.returns && !worker.waits),
        // A presumed run gets 100 us to begin its block, also in a suspect pool.
        WorkerState::Presumed => {
            (WorkerPlan::SampleAgain, sampling.returns && after_100_us && !worker.waits)
        }
        // The worker itself ends these, or the end of the run.
        WorkerState::NotCounted => (WorkerPlan::Skip, true),
    };
    if condition { then } else { WorkerPlan::Skip }
}

#[test]
fn each_state_of_a_worker_has_its_own_sample() {
    let states = [
        WorkerState::BetweenRuns,
        WorkerState::Counted,
        WorkerState::FoundBlocked,
        WorkerState::Presumed,
        WorkerState::NotCounted,
    ];
    for state in states {
        for waits in FLAGS {
            for known_ns in around(SAMPLE_AFTER_NS) {
                let worker = WorkerFacts { state, waits, known_ns };
                for flags in 0..16 {
                    let [at_once, record, keep_records, returns] =
                        [1, 2, 4, 8].map(|bit: u32| flags & bit != 0);
                    let sampling = Sampling { at_once, record, keep_records, returns };
                    let expected = expected_plan(worker, sampling);
                    assert_eq!(plan_worker(worker, sampling), expected, "{worker:?} {sampling:?}");
                }
            }
        }
    }
}

fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    let beginnings = [0, NOW - 40_001, NOW - 40_000, NOW - 39_999, NOW, NOW + 5, LATEST];
    let sleeps = beginnings.map(Some).into_iter().chain([None]);
    let sleeps = sleeps.map(|since| Activity::Sleeps { since });
    for activity in sleeps.chain([Activity::Runs, Activity::Stopped]) {
        for source in [Source::Records, Source::System] {
            for known_since in beginnings {
                for patience_ns in [0, 1, 40_000, u64::MAX] {
                    samples.push(Sample { activity, source, known_since, now: NOW, patience_ns });
                }
            }
        }
    }
    samples
}

#[test]
fn a_sleeper_is_counted_out_once_its_patience_has_ended() {
    for sample in samples().into_iter().filter(|sample| sample.source == Source::System) {
        let expected = match sample.activity {
            Activity::Runs => Verdict::Leave,
            Activity::Stopped => Verdict::Stopped,
            Activity::Sleeps { since } => {
                // In a wider type, in which no time is beyond the last.
                let since = since.unwrap_or(sample.known_since);
                let end = u128::from(since) + u128::from(sample.patience_ns);
                if end <= u128::from(NOW) || sample.patience_ns == 0 {
                    Verdict::CountOut { since }
                } else {
                    Verdict::Wait { until: end.min(u128::from(u64::MAX)) as u64 }
                }
            }
        };
        assert_eq!(judge(sample), expected, "{sample:?}");
    }
}

#[test]
fn records_alone_count_no_worker_out_that_they_saw_asleep_for_long() {
    for sample in samples().into_iter().filter(|sample| sample.source == Source::Records) {
        let by_system = judge(Sample { source: Source::System, ..sample });
        let confirms = match sample.activity {
            Activity::Sleeps { since: Some(_) } => matches!(by_system, Verdict::CountOut { .. }),
            Activity::Sleeps { since: None } => sample.patience_ns == 0,
            Activity::Runs | Activity::Stopped => false,
        };
        let expected = if confirms { Verdict::Confirm } else { by_system };
        assert_eq!(judge(sample), expected, "{sample:?}");
    }
}

#[test]
fn a_confirmation_keeps_the_beginning_of_the_sleep_and_corrects_the_rest() {
    let since = Some(NOW - 7);
    let recorded = Sample {
        activity: Activity::Sleeps { since },
        source: Source::Records,
        known_since: NOW - 9,
        now: NOW,
        patience_ns: 3,
    };
    for (answer, expected) in [
        (None, Activity::Sleeps { since }),
        (Some(Activity::Sleeps { since: None }), Activity::Sleeps { since }),
        (Some(Activity::Sleeps { since: Some(NOW) }), Activity::Sleeps { since }),
        (Some(Activity::Runs), Activity::Runs),
        (Some(Activity::Stopped), Activity::Stopped),
    ] {
        let confirmed = recorded.confirmed(answer, 4);
        let expected =
            Sample { activity: expected, source: Source::System, patience_ns: 4, ..recorded };
        assert_eq!(confirmed, expected, "{answer:?}");
        assert_ne!(judge(confirmed), Verdict::Confirm, "{answer:?}: no query without end");
    }
}

#[test]
fn a_worker_searches_only_where_blocks_are_expected_to_last_and_work_is_ready() {
    for tier in Tier::ALL {
        for expects in FLAGS {
            for ready in FLAGS {
                for patience_ns in [0, 1, u64::MAX] {
                    let pool = SearchFacts { tier, expects, ready, patience_ns };
                    let detects = tier != Tier::Declared;
                    let expected = [detects, expects, ready, patience_ns == 0] == [true; 4];
                    assert_eq!(may_search(pool), expected, "{pool:?}");
                }
            }
        }
    }
}

// Catches: a program whose clock is not that of the records (libfaketime), where no block is ever found.
#[test]
fn a_sleep_that_began_in_the_future_is_one_of_unknown_beginning() {
    for sample in samples() {
        let Activity::Sleeps { since: None } = sample.activity else { continue };
        for since in [LATEST + 1, NOW + 86_400_000_000_000, u64::MAX] {
            let future = Sample { activity: Activity::Sleeps { since: Some(since) }, ..sample };
            assert_eq!(judge(future), judge(sample), "{future:?}");
        }
    }
}

// Catches: a report for each system call of a traced program, or for each scan of a stopped one.
#[test]
fn a_stop_is_reported_once_and_only_if_it_lasts() {
    let long = STOPPED_NS;
    // The samples of a run: when, whether it is stopped, and whether that is reported.
    let brief =
        [(0, true, false), (long - 1, true, false), (long, false, false), (long + 1, true, false)];
    let lasting = [
        (5, true, false),
        (long + 4, true, false),
        (long + 5, true, true),
        (9 * long, true, false),
    ];
    let again =
        [(0, true, false), (long, true, true), (long + 1, false, false), (3 * long, true, false)];
    for samples in [brief, lasting, again] {
        let mut stop = Stop::default();
        for (now, is_stopped, is_reported) in samples {
            assert_eq!(stop.note(is_stopped, now), is_reported, "{samples:?} at {now}");
        }
    }
}
