//! The time of day of the plain server, which the torture steps. The bridge looks at no other clock of
//! a server; consumers use the monotonic clock.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::UserError;

const SOURCE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../crates/bridge/tests/bridge/support/clock.c"
));

/// Whether there is a C compiler, without which no clock can be built.
pub(super) fn has_compiler() -> bool {
    Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success())
}

pub(super) struct Clock {
    /// See `clock.c`.
    file: File,
    library: PathBuf,
    ahead_s: i64,
    /// The furthest that it was ahead.
    furthest_s: i64,
}

impl Clock {
    /// Builds the library that the server loads.
    pub(super) fn build(folder: &Path) -> Result<Clock, UserError> {
        let fail = |error: std::io::Error| UserError(format!("the clock: {error}"));
        let (source, setting) = (folder.join("clock.c"), folder.join("clock"));
        let library = folder.join("clock.so");
        fs::write(&source, SOURCE).map_err(fail)?;
        fs::write(&setting, [0; 16]).map_err(fail)?;
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(format!("-DCLOCK_FILE=\"{}\"", setting.display()))
            .arg(&source)
            .output()
            .map_err(fail)?;
        if !built.status.success() {
            return Err(UserError(format!(
                "the clock: cc: {}",
                String::from_utf8_lossy(&built.stderr)
            )));
        }
        let file = File::options().write(true).open(setting).map_err(fail)?;
        Ok(Clock { file, library, ahead_s: 0, furthest_s: 0 })
    }

    pub(super) fn library(&self) -> PathBuf {
        self.library.clone()
    }

    pub(super) fn step(&mut self, by_s: i64) -> Result<(), UserError> {
        self.ahead_s += by_s;
        self.furthest_s = self.furthest_s.max(self.ahead_s);
        let bytes = (self.ahead_s * 1_000_000).to_ne_bytes();
        let written = self.file.write_all_at(&bytes, 0);
        written.map_err(|error| UserError(format!("the clock: {error}")))
    }

    /// Steps beyond all times that it has shown, so that nothing waits for one of them.
    pub(super) fn catch_up(&mut self) -> Result<(), UserError> {
        self.step(self.furthest_s - self.ahead_s + 1)
    }
}
