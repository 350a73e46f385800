//! The decisions about standby threads, over the whole table of facts.

use uwork_policy::progress::NEVER;
use uwork_policy::standby::{
    After, EXAMINATIONS_MAX, EXAMINE_AGAIN_NS, PoolFacts, PoolPlan, ROUNDS_MAX, Round, STARVED_NS,
    State, after_round, plan_pool, serves, wakes,
};

#[test]
fn a_pool_is_examined_while_items_wait_behind_enough_workers() {
    for running in 0..4 {
        for target in 1..4 {
            for examinations in [0, 1, EXAMINATIONS_MAX, u32::MAX] {
                let pool = PoolFacts { waits: false, running, target, examinations, since_ns: 0 };
                assert_eq!(plan_pool(pool), PoolPlan::Rest, "{pool:?}");
                let pool = PoolFacts { waits: true, ..pool };
                let expected = match examinations {
                    _ if running < target => PoolPlan::Wait,
                    0 => PoolPlan::Examine { first: true },
                    1 => PoolPlan::ExamineIn(EXAMINE_AGAIN_NS),
                    _ => PoolPlan::GiveUp,
                };
                assert_eq!(plan_pool(pool), expected, "{pool:?}");
            }
        }
    }
}

#[test]
fn the_intervals_between_vain_examinations_double() {
    let mut interval = EXAMINE_AGAIN_NS;
    for examinations in 1..EXAMINATIONS_MAX {
        let at = |since_ns| {
            plan_pool(PoolFacts { waits: true, running: 1, target: 1, examinations, since_ns })
        };
        assert_eq!(at(0), PoolPlan::ExamineIn(interval));
        assert_eq!(at(interval - 1), PoolPlan::ExamineIn(1));
        assert_eq!(at(interval), PoolPlan::Examine { first: false });
        assert_eq!(at(u64::MAX), PoolPlan::Examine { first: false });
        interval *= 2;
    }
    assert!(interval <= 1_000_000, "all of them end within a millisecond");
}

#[test]
fn a_round_over_several_pools_does_what_the_busiest_needs() {
    let busy = [PoolPlan::Wait, PoolPlan::Examine { first: false }];
    let others = [PoolPlan::Rest, PoolPlan::ExamineIn(7), PoolPlan::ExamineIn(3), PoolPlan::GiveUp];
    for plan in busy {
        for other in others {
            for round in [[plan, other], [other, plan]] {
                let round = round.into_iter().fold(Round::NOTHING, Round::with);
                assert_eq!(after_round(round, 1), After::Yield, "{round:?}");
                assert_eq!(after_round(round, ROUNDS_MAX - 1), After::Yield, "{round:?}");
                assert_eq!(after_round(round, ROUNDS_MAX), After::GiveUp, "{round:?}");
                assert_eq!(after_round(round, u32::MAX), After::GiveUp, "{round:?}");
            }
        }
    }
    for (plans, expected) in [
        (&[][..], After::Sleep),
        (&[PoolPlan::Rest], After::Sleep),
        (&[PoolPlan::GiveUp], After::GiveUp),
        (&[PoolPlan::GiveUp, PoolPlan::Rest], After::GiveUp),
        (&[PoolPlan::GiveUp, PoolPlan::ExamineIn(5)], After::Pause(5)),
        (&[PoolPlan::ExamineIn(5), PoolPlan::ExamineIn(9)], After::Pause(5)),
        (&[PoolPlan::ExamineIn(NEVER), PoolPlan::Rest], After::Sleep),
    ] {
        let round = plans.iter().copied().fold(Round::NOTHING, Round::with);
        for rounds in [1, ROUNDS_MAX, u32::MAX] {
            assert_eq!(after_round(round, rounds), expected, "{plans:?}");
        }
    }
}

#[test]
fn a_pool_that_was_given_up_wakes_no_standby_before_its_next_batch() {
    for examinations in [0, 1, EXAMINATIONS_MAX - 1, EXAMINATIONS_MAX, u32::MAX] {
        assert!(wakes(State::Asleep, examinations));
        assert!(!wakes(State::Absent, examinations) && !wakes(State::Awake, examinations));
        assert_eq!(wakes(State::GaveUp, examinations), examinations < EXAMINATIONS_MAX);
        assert_eq!(wakes(State::Paused, examinations), examinations == 0);
    }
}

#[test]
fn a_standby_that_gets_its_cpu_or_sleeps_without_need_serves() {
    for (unseen, runs) in
        [(0, true), (STARVED_NS - 1, true), (STARVED_NS, false), (u64::MAX, false)]
    {
        assert!(!serves(State::Absent, unseen));
        assert!(!serves(State::GaveUp, unseen));
        assert!(serves(State::Asleep, unseen));
        assert_eq!(serves(State::Awake, unseen), runs, "{unseen}");
        assert_eq!(serves(State::Paused, unseen), runs, "{unseen}");
    }
}

#[test]
fn a_round_is_fresh_if_any_pool_is_examined_for_the_first_time_since_its_last_batch() {
    let again = Round::NOTHING.with(PoolPlan::Examine { first: false });
    assert!(!again.fresh && again.busy);
    for other in [PoolPlan::Rest, PoolPlan::Wait, PoolPlan::ExamineIn(1), PoolPlan::GiveUp] {
        assert!(!again.with(other).fresh);
        assert!(again.with(PoolPlan::Examine { first: true }).with(other).fresh);
    }
}
