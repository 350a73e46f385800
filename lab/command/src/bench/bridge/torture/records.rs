//! The record of the runs: each process of a consumer appends to a file of its own, outside of the
//! bridge and its server. A line is one system call, so a kill leaves whole lines.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::oracle::{Cause, Disturbance, End, Run, Victim};
use super::time::now_us;
use crate::UserError;

/// A consumer that does not run for this time had no CPU, or a busy machine.
const STALL_US: u64 = 1_000_000;
const TICK: Duration = Duration::from_millis(100);

const BEGUN: u64 = 0;
const DONE: u64 = 1;
const FAILED: u64 = 2;
/// In the place of the job: when the stall began.
const STALLED: u64 = 3;

/// Event, job, time.
const RECORD_BYTES: usize = 24;

/// The file of a process.
pub(super) struct Recorder(File);

impl Recorder {
    pub(super) fn create(path: &Path) -> Result<Recorder, UserError> {
        let file = File::options().append(true).create(true).open(path);
        Ok(Recorder(file.map_err(|error| UserError(format!("{}: {error}", path.display())))?))
    }

    pub(super) fn begin(&self, job: u64) {
        self.write(BEGUN, job);
    }

    pub(super) fn end(&self, job: u64, end: End) {
        self.write(if end == End::Done { DONE } else { FAILED }, job);
    }

    /// Writes for how long this process did not run, until it ends.
    pub(super) fn watch_stalls(&self) -> Result<(), UserError> {
        let file = self.0.try_clone().map_err(|error| UserError(format!("a record: {error}")))?;
        let recorder = Recorder(file);
        thread::spawn(move || {
            loop {
                let before = now_us();
                thread::sleep(TICK);
                if now_us() - before > STALL_US {
                    recorder.write(STALLED, before);
                }
            }
        });
        Ok(())
    }

    fn write(&self, event: u64, job: u64) {
        let bytes = [event, job, now_us()].map(u64::to_le_bytes).concat();
        // A run without a record would look like a lost job.
        (&self.0).write_all(&bytes).expect("the disk takes the records");
    }
}

/// The file of the nth process of a consumer.
pub(super) fn path(folder: &Path, consumer: usize, nth: usize) -> PathBuf {
    folder.join(format!("{consumer}-{nth}"))
}

/// Reads the file of a process: its runs, and its stalls.
pub(super) fn read(
    folder: &Path,
    consumer: usize,
    nth: usize,
) -> Result<(Vec<Run>, Vec<Disturbance>), UserError> {
    let path = path(folder, consumer, nth);
    // A process that was killed at once has none.
    let bytes = if path.exists() { fs::read(&path) } else { Ok(Vec::new()) };
    let bytes = bytes.map_err(|error| UserError(format!("{}: {error}", path.display())))?;
    let (mut runs, mut stalls) = (Vec::<Run>::new(), Vec::new());
    let mut open = std::collections::HashMap::<u64, usize>::new();
    for record in bytes.chunks_exact(RECORD_BYTES) {
        let [event, job, at_us] = [0, 8, 16].map(|from| {
            u64::from_le_bytes(record[from..from + 8].try_into().expect("eight bytes"))
        });
        match event {
            BEGUN => {
                open.insert(job, runs.len());
                runs.push(Run { job, consumer, begun_us: at_us, end: None });
            }
            STALLED => stalls.push(Disturbance {
                cause: Cause::Stall,
                victim: Victim::Consumer(consumer),
                from_us: job,
                to_us: at_us,
            }),
            _ => {
                let end = if event == DONE { End::Done } else { End::Failed };
                if let Some(run) = open.remove(&job) {
                    runs[run].end = Some((at_us, end));
                }
            }
        }
    }
    Ok((runs, stalls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_read_as_they_were_written_and_a_killed_one_has_no_end() {
        let folder = tempfile::tempdir().unwrap();
        let recorder = Recorder::create(&path(folder.path(), 2, 5)).unwrap();
        recorder.begin(7);
        recorder.begin(8);
        recorder.end(7, End::Failed);
        recorder.begin(7);
        recorder.end(7, End::Done);
        let (runs, stalls) = read(folder.path(), 2, 5).unwrap();
        let ends: Vec<_> = runs.iter().map(|run| (run.job, run.end.map(|(_, end)| end))).collect();
        assert_eq!(ends, [(7, Some(End::Failed)), (8, None), (7, Some(End::Done))]);
        assert!(runs.iter().all(|run| run.consumer == 2) && stalls.is_empty());
        assert!(read(folder.path(), 0, 0).unwrap().0.is_empty());
    }
}
