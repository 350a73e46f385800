//! The files that a run leaves: the logs of tests that failed, the names of those that passed when
//! they were repeated, and what is running now.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

pub(super) struct Record {
    folder: PathBuf,
    /// Gets a line for each test that failed and passed when it was repeated.
    flaky: PathBuf,
    /// Names the tests that are running, for the case that this run is ended.
    running: Option<PathBuf>,
}

impl Record {
    /// `target` is cargo's target folder.
    pub(super) fn new(target: &Path) -> Result<Self, String> {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        let folder = path("UWORK_STEP_LOGS").unwrap_or_else(|| target.join("steps"));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let flaky = path("UWORK_FLAKY_FILE").unwrap_or_else(|| folder.join("flaky"));
        Ok(Self { folder, flaky, running: path("UWORK_RUNNING_FILE") })
    }

    /// An empty file, opened for reading, and for appending by a process and its descendants.
    pub(super) fn scratch(&self, name: &str) -> Result<(File, File), String> {
        let path = self.folder.join(format!("{name}-{}", std::process::id()));
        let said = |error| format!("{}: {error}", path.display());
        fs::write(&path, "").map_err(said)?;
        let writer = OpenOptions::new().append(true).open(&path).map_err(said)?;
        let reader = File::open(&path).map_err(said)?;
        fs::remove_file(&path).map_err(said)?;
        Ok((reader, writer))
    }

    /// Keeps what a test said. Returns the file.
    pub(super) fn keep(&self, test: &str, which: &str, said: &str) -> Result<PathBuf, String> {
        let allowed = |c: char| if c.is_alphanumeric() || "_-.".contains(c) { c } else { '-' };
        let name: String = test.replace("::", "-").chars().map(allowed).collect();
        let path = self.folder.join(format!("{name}.{which}.log"));
        fs::write(&path, said).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    pub(super) fn flaky(&self, test: &str) -> Result<(), String> {
        let file = OpenOptions::new().create(true).append(true).open(&self.flaky);
        let written = file.and_then(|mut file| writeln!(file, "flaky: {test}"));
        written.map_err(|error| format!("{}: {error}", self.flaky.display()))
    }

    /// Without a result, because the file is for a reader after an interruption only.
    pub(super) fn running(&self, label: &str, tests: &[String]) {
        let Some(path) = &self.running else { return };
        let lines: String = tests.iter().map(|test| format!("{label}::{test}\n")).collect();
        let _ = fs::write(path, lines);
    }
}
