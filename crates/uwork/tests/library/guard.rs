//! The guards of these tests: what counts as a hang, and what does not.

use std::time::Duration;

use crate::support::guard::{Activity, CAP, ENDLESS_MAX, Hang, Judge, Sample};

const LIMIT: Duration = Duration::from_secs(60);

/// The activity of a process after this many seconds, on a machine with free CPUs.
fn sample(seconds: u64, ran_ms: u64, progress: u64) -> Sample {
    delayed(seconds, ran_ms, 0, progress)
}

fn delayed(seconds: u64, ran_ms: u64, delayed_ms: u64, progress: u64) -> Sample {
    let (at, polled) = (Duration::from_secs(seconds), Activity::default());
    Sample { at, activity: activity(ran_ms, delayed_ms), polled, progress }
}

fn activity(ran_ms: u64, delayed_ms: u64) -> Activity {
    let [ran, delayed] = [ran_ms, delayed_ms].map(Duration::from_millis);
    Activity { ran, delayed }
}

// Catches: a guard that uses the clock alone, and ends tests on a loaded machine.
#[test]
fn a_process_that_is_active_now_and_then_is_slow_and_not_stuck() {
    let mut judge = Judge::new(LIMIT, sample(0, 0, 0));
    for second in 1..500 {
        assert_eq!(judge.judge(sample(second, second * 20, 0)), Ok(()), "after {second} s");
    }
}

#[test]
fn progress_without_activity_is_no_hang() {
    let mut judge = Judge::new(LIMIT, sample(0, 0, 0));
    for second in 1..500 {
        assert_eq!(judge.judge(sample(second, 0, second / 50)), Ok(()), "after {second} s");
    }
}

// Catches: idle threads that wake up now and then, taken for progress.
#[test]
fn a_process_that_sleeps_for_the_whole_limit_is_stuck() {
    let mut judge = Judge::new(LIMIT, sample(0, 0, 7));
    // The process is active for ten seconds, and idle afterwards.
    assert_eq!(judge.judge(sample(10, 8_000, 7)), Ok(()));
    for second in 11..70 {
        assert_eq!(judge.judge(sample(second, 8_000 + second, 7)), Ok(()), "after {second} s");
    }
    assert_eq!(judge.judge(sample(70, 8_070, 7)), Err(Hang::Stuck(LIMIT)));
}

#[test]
fn threads_that_spin_for_ever_are_ended_by_the_cap() {
    let mut judge = Judge::new(LIMIT, sample(0, 0, 0));
    let cap = LIMIT * CAP;
    for second in 1..cap.as_secs() {
        assert_eq!(judge.judge(sample(second, second * 2_000, 0)), Ok(()), "after {second} s");
    }
    let over = sample(cap.as_secs(), cap.as_secs() * 2_000, 0);
    assert_eq!(judge.judge(over), Err(Hang::Endless(cap)));
}

// Catches: time that is lost with a child that has ended, taken for a process that stands still.
#[test]
fn active_time_that_is_lost_counts_from_the_loss() {
    let mut judge = Judge::new(LIMIT, sample(0, 50_000, 0));
    for second in 1..500 {
        assert_eq!(judge.judge(sample(second, second * 20, 0)), Ok(()), "after {second} s");
    }
}

// Catches: a cap that counts the time in which other processes had the CPUs.
#[test]
fn a_process_that_is_starved_has_its_cpu_time_as_the_cap() {
    let mut judge = Judge::new(LIMIT, sample(0, 0, 0));
    let cap = LIMIT * CAP;
    // It has one CPU for half of the time.
    let seconds = cap.as_secs() * 2;
    let starved = |second: u64| delayed(second, second * 500, second * 500, 0);
    for second in 1..seconds {
        assert_eq!(judge.judge(starved(second)), Ok(()), "after {second} s");
    }
    assert_eq!(judge.judge(starved(seconds)), Err(Hang::Endless(cap * 2)));
}

// Catches: a wait that is ended by the runner of the tests, which does not know its name.
#[test]
fn a_process_that_gets_hardly_any_cpu_is_ended_by_the_last_limit() {
    let mut judge = Judge::new(LIMIT, sample(0, 0, 0));
    let starved = |second: u64| delayed(second, second, second * 900, 0);
    for second in 1..ENDLESS_MAX.as_secs() {
        assert_eq!(judge.judge(starved(second)), Ok(()), "after {second} s");
    }
    assert_eq!(judge.judge(starved(ENDLESS_MAX.as_secs())), Err(Hang::Endless(ENDLESS_MAX)));
}

// Catches: the activity of threads that wait, taken for that of the process; time that is lost when
// such a thread ends, taken from that of the others.
#[test]
fn threads_that_wait_are_not_active() {
    let mut judge = Judge::new(LIMIT, sample(0, 0, 0));
    let polling = |second: u64| Sample {
        polled: activity(second * 100, second * 500),
        ..delayed(second, second * 100, second * 500, 0)
    };
    for second in 1..60 {
        assert_eq!(judge.judge(polling(second)), Ok(()), "after {second} s");
    }
    assert_eq!(judge.judge(polling(60)), Err(Hang::Stuck(LIMIT)));
    let mut judge = Judge::new(LIMIT, polling(60));
    // The delays of these threads are gone, and others are delayed.
    for second in 61..120 {
        let others = Sample { activity: activity(6_000, (second - 60) * 500), ..polling(60) };
        let now = Sample { at: Duration::from_secs(second), ..others };
        assert_eq!(judge.judge(now), Ok(()), "after {second} s");
    }
}
