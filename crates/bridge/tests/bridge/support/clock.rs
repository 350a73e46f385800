//! A redis-server whose clock the test moves, or stops.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uwork_bridge::{Producer, Push};

use super::owned::Folder;
use super::server::Redis;

/// Jumps are longer.
const JUMP_MIN: Duration = Duration::from_secs(1_800);

/// A server with a clock of its own.
pub(crate) struct Clock {
    pub(crate) redis: Redis,
    /// Two numbers: see `clock.c`.
    file: File,
    _folder: Folder,
}

impl Clock {
    pub(crate) fn start(name: &str) -> Option<Clock> {
        let folder = Folder::new();
        let path = folder.file("clock");
        std::fs::write(&path, [0; 16]).unwrap();
        let library = folder.path().join("clock.so");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(format!("-DCLOCK_FILE=\"{path}\""))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bridge/support/clock.c"))
            .status();
        assert!(built.unwrap().success());
        let redis = Redis::start_with(name, &[], Some(&library))?;
        let file = File::options().write(true).open(path).unwrap();
        Some(Clock { redis, file, _folder: folder })
    }

    /// Sets the clock to the true time and this time.
    pub(crate) fn jump(&self, ahead: Duration) {
        let before = self.now();
        self.write(ahead.as_micros(), 0);
        assert!(self.now().abs_diff(before) > JUMP_MIN, "the server's clock has not jumped");
    }

    /// Stops the clock. It shows the true time of this call until it is moved.
    pub(crate) fn stop(&self) -> Stopped<'_> {
        let stopped = Stopped { clock: self, at: since_epoch() };
        stopped.show();
        stopped
    }

    fn write(&self, ahead_us: u128, stopped_us: u128) {
        let bytes = [ahead_us, stopped_us].map(|us| (us as i64).to_ne_bytes()).concat();
        self.file.write_all_at(&bytes, 0).unwrap();
    }

    fn now(&self) -> Duration {
        let redis::Value::Array(parts) = self.redis.ask("TIME") else { panic!() };
        let part = |nth: usize| {
            let redis::Value::BulkString(text) = &parts[nth] else { panic!() };
            std::str::from_utf8(text).unwrap().parse::<u64>().unwrap()
        };
        Duration::from_secs(part(0)) + Duration::from_micros(part(1))
    }

    pub(crate) fn push(&self, push: Push) {
        Producer::new(vec![self.redis.server()], "jobs", 1).unwrap().push(push).unwrap();
    }
}

/// A clock that stands. When this is dropped, it shows the true time again.
pub(crate) struct Stopped<'a> {
    clock: &'a Clock,
    at: Duration,
}

impl Stopped<'_> {
    pub(crate) fn advance(&mut self, by: Duration) {
        self.at += by;
        self.show();
        assert_eq!(self.clock.now(), self.at, "the server's clock does not stand");
    }

    fn show(&self) {
        self.clock.write(0, self.at.as_micros());
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.clock.write(0, 0);
    }
}

/// In whole microseconds, as the server's clock.
fn since_epoch() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Duration::from_micros(now.as_micros() as u64)
}
