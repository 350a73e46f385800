//! A server's clock that jumps: jobs run again or later, and none is lost.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use uwork_bridge::{Bridge, Handlers, Producer, Push, Reply};

use crate::support::count::{Count, config};
use crate::support::server::Redis;

const LONG: Duration = Duration::from_secs(60);
const HOUR_S: i64 = 3_600;

/// A server with a clock of its own.
struct Clock {
    redis: Redis,
    offset: File,
    _folder: TempDir,
}

impl Clock {
    fn start(name: &str) -> Option<Clock> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("offset");
        std::fs::write(&path, 0_i64.to_ne_bytes()).unwrap();
        let library = folder.path().join("clock.so");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(format!("-DOFFSET_FILE=\"{}\"", path.display()))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bridge/support/clock.c"))
            .status();
        assert!(built.unwrap().success());
        let redis = Redis::start_with(name, &[], Some(&library))?;
        let offset = File::options().write(true).open(path).unwrap();
        Some(Clock { redis, offset, _folder: folder })
    }

    /// Sets the clock to the true time and so many seconds.
    fn jump(&self, seconds: i64) {
        let before = self.now_s();
        self.offset.write_all_at(&seconds.to_ne_bytes(), 0).unwrap();
        assert!((self.now_s() - before).abs() > HOUR_S / 2, "the server's clock has not jumped");
    }

    fn now_s(&self) -> i64 {
        let redis::Value::Array(parts) = self.redis.ask("TIME") else { panic!() };
        let redis::Value::BulkString(text) = &parts[0] else { panic!() };
        std::str::from_utf8(text).unwrap().parse().unwrap()
    }

    fn push(&self, push: Push) {
        Producer::new(vec![self.redis.server()], "jobs", 1).unwrap().push(push).unwrap();
    }
}

#[test]
fn a_clock_that_jumps_ahead_runs_a_job_again_and_loses_none() {
    let Some(clock) = Clock::start("a_clock_that_jumps_ahead") else { return };
    clock.push(Push::new("job"));
    let count = Count::default();
    let (runs, gate) = (count.clone(), count.clone());
    let held = Handlers::new().otherwise(move |_| {
        runs.add("begun");
        gate.wait_for("job", 1);
        Ok(Reply::done())
    });
    // The owner gives its signs of life only every 20 s: after the jump it looks dead.
    let mut slow = config(clock.redis.server(), "jobs");
    slow.heartbeat = LONG;
    let first = Bridge::start(slow, held, |_| {}).unwrap();
    count.wait_for("begun", 1);
    clock.jump(HOUR_S);
    let second = config(clock.redis.server(), "jobs");
    let second = Bridge::start(second, count.handlers(), |_| {}).unwrap();
    count.wait_for("job", 1);
    let first = first.stop(LONG).counters;
    let second = second.stop(LONG).counters;
    // Of the two completions the server counts the earlier as done, the later as a duplicate.
    assert_eq!((first.done + second.done, first.duplicates + second.duplicates), (1, 1));
    assert_eq!((second.reclaimed, first.dead + second.dead), (1, 0));
    assert_eq!((clock.redis.number("XLEN jobs"), clock.redis.pending("jobs")), (0, 0));
}

#[test]
fn a_clock_that_jumps_back_delays_takeovers_and_loses_no_job() {
    let Some(clock) = Clock::start("a_clock_that_jumps_back") else { return };
    clock.jump(HOUR_S);
    clock.push(Push::new("before"));
    let count = Count::default();
    let consumer = config(clock.redis.server(), "jobs");
    let bridge = Bridge::start(consumer, count.handlers(), |_| {}).unwrap();
    count.wait_for("before", 1);
    clock.push(Push::new("delayed").delay(Duration::from_millis(1_500)));
    clock.jump(0);
    clock.push(Push::new("after"));
    clock.push(Push::new("soon").delay(Duration::from_millis(10)));
    count.wait_for("after", 1);
    count.wait_for("soon", 1);
    assert_eq!(count.of("delayed"), 0, "it is due by the clock that was ahead");
    clock.jump(HOUR_S);
    count.wait_for("delayed", 1);
    let counters = bridge.stop(LONG).counters;
    assert_eq!((counters.done, counters.dead, counters.duplicates), (4, 0, 0));
    assert!(counters.faults < 100, "{} faults: a hot loop", counters.faults);
    assert_eq!((count.sum(), clock.redis.number("XLEN jobs")), (4, 0));
}
