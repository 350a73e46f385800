//! Whether the command of an [`Exec`](crate::Exec) can run at all. Its program may be a shell, which says
//! by 126 or 127 that it cannot execute, or does not find, the command that it starts. But it may have
//! done a part of its work before.
//!
//! | a run ends with | and has lasted | the job | the proof |
//! |---|---|---|---|
//! | another status, or a signal | any time | has its outcome | is given |
//! | 126 or 127 | [`STARTED_AFTER`] | has failed | is given |
//! | 126 or 127, with the proof | less | has failed | is given already |
//! | 126 or 127, without it | less | goes back | |
//! | the same, the job's 21st time | less | has failed, and its consumer pauses | |

use std::collections::HashMap;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::consumer::{STARTED_AFTER, lock};
use crate::job::Job;

/// The runs of a job that may end so and cost no attempt. Its consumer needs half a minute for them.
const FREE_RUNS: u32 = 20;
/// Jobs whose runs are counted. A consumer that pauses tries the oldest ones.
const JOBS_MAX: usize = 1_000;

/// What a run says about its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It has run, well or not.
    Ran,
    /// The command cannot run here.
    NotNow,
    /// The same, too often to cost no attempt.
    Counted,
}

/// What is known of a command.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    is_given: AtomicBool,
    /// What the first run has said without it. One text is one line, although each run says its own.
    text: OnceLock<String>,
    /// How often the command could not run, by stream and first entry.
    in_vain: Mutex<HashMap<(Arc<str>, String), u32>>,
}

impl Proof {
    /// Whether the command can run.
    pub(crate) fn is_given(&self) -> bool {
        self.is_given.load(Ordering::Relaxed)
    }

    /// Why the command cannot run: the text of the first run, which is this one if there is none yet.
    pub(crate) fn reason(&self, text: impl FnOnce() -> String) -> &str {
        self.text.get_or_init(text)
    }

    /// Learns how a run has ended that has lasted for this time.
    pub(crate) fn learn(&self, status: ExitStatus, lasted: Duration, job: &Job) -> Ended {
        if !matches!(status.code(), Some(126 | 127)) || lasted >= STARTED_AFTER {
            self.is_given.store(true, Ordering::Relaxed);
        }
        if self.is_given() {
            return Ended::Ran;
        }
        let mut in_vain = lock(&self.in_vain);
        let of = (job.stream.clone(), job.first());
        if in_vain.len() >= JOBS_MAX && !in_vain.contains_key(&of) {
            in_vain.clear();
        }
        let count = in_vain.entry(of).or_default();
        *count = count.saturating_add(1);
        if *count > FREE_RUNS { Ended::Counted } else { Ended::NotNow }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    // Catches: a command that runs half of its work for ever, and costs no attempt.
    #[test]
    fn a_command_that_is_not_found_again_and_again_costs_attempts_of_its_job_alone() {
        let proof = Proof::default();
        let mut job = Job::for_test();
        let free = (0..FREE_RUNS).all(|_| proof.learn(exit(127), SHORT, &job) == Ended::NotNow);
        assert!(free);
        assert_eq!(proof.learn(exit(127), SHORT, &job), Ended::Counted);
        // Its retry is another entry.
        (job.entry.0, job.first) = (job.entry.0 + 1, Some(job.first()));
        assert_eq!(proof.learn(exit(126), SHORT, &job), Ended::Counted);
        job.first = None;
        assert_eq!(proof.learn(exit(127), SHORT, &job), Ended::NotNow, "another job");
        assert!(!proof.is_given());
    }

    #[test]
    fn a_run_that_has_lasted_or_ends_otherwise_is_the_proof() {
        let job = Job::for_test();
        for (status, lasted) in
            [(exit(127), STARTED_AFTER), (exit(1), SHORT), (ExitStatus::from_raw(9), SHORT)]
        {
            let proof = Proof::default();
            assert_eq!(proof.learn(exit(127), SHORT, &job), Ended::NotNow);
            assert_eq!(proof.learn(status, lasted, &job), Ended::Ran);
            assert_eq!(proof.learn(exit(127), SHORT, &job), Ended::Ran, "after {status}");
        }
    }

    #[test]
    fn jobs_without_end_are_not_remembered() {
        let proof = Proof::default();
        let mut job = Job::for_test();
        for number in 0..2 * JOBS_MAX as u64 {
            job.entry.0 = number;
            assert_eq!(proof.learn(exit(127), SHORT, &job), Ended::NotNow);
        }
        assert!(lock(&proof.in_vain).len() <= JOBS_MAX);
    }
}
