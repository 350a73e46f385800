//! Commands as handlers: the payload on standard input, the outcome in the exit status.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, PipeReader, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, OFlags, fcntl_getfl, fcntl_setfl, memfd_create};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use crate::fault::Error;
use crate::handler::{Failure, Reply};
use crate::job::{Job, Ticket, too_long};
use crate::program::{check, is_of_job, without_number};
use crate::proof::{Ended, Proof};
use crate::start::{Started, reap, start};

/// The exit status that makes a job a dead letter at once: EX_DATAERR of sysexits.h.
const STATUS_DEAD: i32 = 65;
/// How often a run looks whether its job was taken away.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Reads of a pipe in a row: a process that writes without end must not outlive its time limit.
/// They empty the largest pipe that an unprivileged process gets.
const READS_MAX: usize = 64;
/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;
/// Bytes of standard error in the error of a job.
const ERROR_MAX: usize = 2_000;

/// A command that runs each job in a process of its own, the leader of a process group, with no signal
/// blocked. The payload is its standard input: a pipe, or a file in memory if a pipe does not hold all
/// of it. The environment has `UWORK_JOB_ID`, `UWORK_JOB_ATTEMPT`,
/// `UWORK_JOB_STREAM`, and where set `UWORK_JOB_HANDLER` and `UWORK_JOB_KEY`.
///
/// Exit status 0: done, and standard output is the result. 65: a dead letter. Anything else, and the
/// end by a signal: a failure that is tried again, with the end of standard error as its error. When
/// the process ends, or the job is taken away from it by the time limit or the end of the consumer,
/// the whole group is killed, before another consumer can get the job.
///
/// A program that cannot be started any more, because it was removed or the machine has no room for
/// a process, costs no job an attempt: see [`Failure::not_now`]. The same for a program that starts
/// another one, as `sh -c` does, while each run ends with 126 or 127 within 2 s: that one is missing, or
/// cannot be executed. After any other end these are failures as others, and so is the 21st such run of a
/// job: the program may have done a part of its work each time.
///
/// The process must not ignore SIGCHLD, nor wait for all of its children (`waitpid(-1)`): the system
/// would not tell how a command has ended, and its job would run again.
///
/// A process that ends takes its jobs along with [`Exec::kill_all`].
#[derive(Clone, Debug)]
pub struct Exec {
    program: OsString,
    args: Vec<OsString>,
    /// The words of the command, for people.
    words: String,
    output_max: usize,
    groups: Arc<Groups>,
    proof: Arc<Proof>,
}

/// The process groups of the jobs that run. A group is removed before its leader is reaped, so each
/// number here belongs to that leader.
#[derive(Debug, Default)]
struct Groups {
    leaders: Mutex<Vec<Pid>>,
    /// No further group may start.
    closed: AtomicBool,
}

impl Groups {
    fn lock(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.leaders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Exec {
    /// The program and its arguments, and how many bytes of its output to keep. What it writes
    /// beyond is read and dropped.
    ///
    /// # Errors
    /// There is no program, or the system would not start it: it is missing, not executable, or
    /// neither a binary nor a script whose interpreter exists. The same for a program behind `env`.
    pub fn new(command: Vec<OsString>, output_max: usize) -> Result<Exec, Error> {
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        let words = words.join(" ");
        let program = command.first().filter(|program| !program.is_empty()).cloned();
        let program = program.ok_or_else(|| Error::config("the command has no program"))?;
        check(&command).map_err(|reason| {
            let has_blank = program.to_string_lossy().contains(char::is_whitespace);
            let advice = "; the program and its arguments are words of their own";
            let advice = if has_blank { advice } else { "" };
            Error::config(format!("the command {program:?} cannot be started: {reason}{advice}"))
        })?;
        let (groups, proof) = (Arc::default(), Arc::default());
        let args = command[1..].to_vec();
        Ok(Exec { program, args, words, output_max, groups, proof })
    }

    /// Kills the process groups of all jobs that run, and refuses further ones. For a process that
    /// ends: the runs themselves would kill their groups a moment later, which may be too late.
    pub fn kill_all(&self) {
        let leaders = self.groups.lock();
        self.groups.closed.store(true, Ordering::Relaxed);
        for &leader in &*leaders {
            // Fails only if the group has ended.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }

    /// Runs a job; the function for [`Handlers::otherwise`](crate::Handlers::otherwise).
    ///
    /// # Errors
    /// The command cannot start, or has failed.
    pub fn run(&self, job: &Job) -> Result<Reply, Failure> {
        let (id, attempt) = (job.id(), job.attempt().to_string());
        let variables: Vec<(&str, &[u8])> = [
            ("UWORK_JOB_ID", Some(&*id)),
            ("UWORK_JOB_ATTEMPT", Some(&*attempt)),
            ("UWORK_JOB_STREAM", Some(job.stream())),
            ("UWORK_JOB_HANDLER", job.handler()),
            ("UWORK_JOB_KEY", job.key()),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?.as_bytes())))
        .collect();
        let words = std::iter::once(&self.program).chain(&self.args).map(OsString::as_os_str);
        let name = self.program.to_string_lossy();
        if job.is_abandoned() {
            return Err(taken_away());
        }
        job.describe(&self.words);
        let started = uwork::blocking(|| {
            let input = input_of(job.payload())?;
            // The command may use all CPUs of the consumer, not that of the worker alone.
            uwork::unpinned(|| start(words, &variables, input))
        });
        let process = started.map_err(|error| {
            let text = format!("{name} cannot be started: {}", without_number(&error));
            if is_of_job(&error) { Failure::again(text) } else { Failure::not_now(text) }
        })?;
        let begun = Instant::now();
        if self.proof.is_given() {
            job.has_started();
        }
        let mut run = Run::new(process, self.output_max, &self.groups, &job.ticket);
        let status = run.finish(job).map_err(|error| Failure::again(format!("{name}: {error}")))?;
        let Some(status) = status else {
            let mut failure = job.limit_exceeded().map_or_else(taken_away, too_long);
            if kill_is_refused(run.leader) {
                failure.text +=
                    "; the command runs on: it cannot be killed, as it is another user's";
            }
            return Err(failure);
        };
        let ended = self.proof.learn(status, begun.elapsed(), job);
        if status.success() {
            return Ok(Reply::result(std::mem::take(&mut run.out.kept)));
        }
        let said = String::from_utf8_lossy(&run.err.kept);
        let last = said.trim().lines().last().unwrap_or_default();
        let reason = || self.proof.reason(|| failure(&name, status, last));
        let text = failure(&name, status, said.trim());
        Err(match ended {
            Ended::NotNow => Failure::not_now(reason()),
            Ended::Counted => Failure::again(text).with_pause(reason()),
            Ended::Ran if status.code() == Some(STATUS_DEAD) => Failure::dead(text),
            Ended::Ran => Failure::again(text),
        })
    }
}

/// Why a command has failed: its status, and what it has said.
fn failure(name: &str, status: ExitStatus, said: &str) -> String {
    let text = match status.code() {
        // As each shell, `env` and an interpreter say it.
        Some(126) => format!("{name}: exit status 126 (a command is not executable)"),
        Some(127) => format!("{name}: exit status 127 (a command was not found)"),
        Some(code) => format!("{name}: exit status {code}"),
        None => format!("{name}: killed by signal {}", status.signal().unwrap_or(0)),
    };
    if said.is_empty() { text } else { format!("{text}: {said}") }
}

/// The failure of a run whose attempt another thread has decided. It is ignored.
fn taken_away() -> Failure {
    Failure::again("its job was taken away")
}

/// Kills a process group. True if the system refuses it: its processes are another user's.
pub(crate) fn kill_is_refused(leader: Pid) -> bool {
    // Another error: the group has ended.
    kill_process_group(leader, Signal::KILL) == Err(Errno::PERM)
}

/// A standard input with all of a payload, before its process starts: if the consumer dies, the process
/// takes what it can read for the whole. A pipe, or a file if a pipe does not hold it.
fn input_of(payload: &[u8]) -> std::io::Result<OwnedFd> {
    let (reader, mut writer) = std::io::pipe()?;
    fcntl_setfl(&writer, fcntl_getfl(&writer)? | OFlags::NONBLOCK)?;
    let mut left = payload;
    while !left.is_empty() {
        match writer.write(left) {
            Ok(count) => left = &left[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // Their numbers are free again.
                drop((reader, writer));
                return file_of(payload);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(reader.into())
}

/// A file in memory, at its beginning.
fn file_of(payload: &[u8]) -> std::io::Result<OwnedFd> {
    let name = "uwork-payload";
    // A system may refuse files without the seal; before Linux 6.3 it does not know it.
    let file = match memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(name, MemfdFlags::CLOEXEC),
        made => made,
    };
    let mut file = File::from(file?);
    file.write_all(payload)?;
    file.rewind()?;
    Ok(file.into())
}

/// A stream of output, of which a part is kept.
struct Output<R> {
    from: Option<R>,
    kept: Vec<u8>,
    max: usize,
    /// The last bytes are kept, not the first.
    keeps_end: bool,
}

impl<R: Read> Output<R> {
    /// Reads what has arrived, up to a bound.
    fn read(&mut self) {
        let mut bytes = [0; READ_BYTES];
        for _ in 0..READS_MAX {
            let Some(from) = &mut self.from else { return };
            match from.read(&mut bytes) {
                Ok(count @ 1..) => self.keep(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Ok(0) | Err(_) => self.from = None,
            }
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.keeps_end {
            self.kept.extend_from_slice(bytes);
            let surplus = self.kept.len().saturating_sub(self.max);
            self.kept.drain(..surplus);
        } else {
            let room = self.max - self.kept.len();
            self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }
}

/// A running command. Dropping it kills what is left of its group.
struct Run {
    leader: Pid,
    out: Output<PipeReader>,
    err: Output<PipeReader>,
    groups: Arc<Groups>,
    ticket: Arc<Ticket>,
    is_reaped: bool,
}

impl Run {
    fn new(process: Started, output_max: usize, groups: &Arc<Groups>, ticket: &Arc<Ticket>) -> Run {
        let Started { pid: leader, out, err } = process;
        ticket.begin_group(leader);
        let mut leaders = groups.lock();
        leaders.push(leader);
        if groups.closed.load(Ordering::Relaxed) {
            // The list was closed between the start of this process and now.
            let _ = kill_process_group(leader, Signal::KILL);
        }
        drop(leaders);
        Run {
            leader,
            out: Output { from: Some(out), kept: Vec::new(), max: output_max, keeps_end: false },
            err: Output { from: Some(err), kept: Vec::new(), max: ERROR_MAX, keeps_end: true },
            groups: groups.clone(),
            ticket: ticket.clone(),
            is_reaped: false,
        }
    }

    /// Reads the output of the process until it ends. None if its job was taken away, or its time is
    /// over.
    fn finish(&mut self, job: &Job) -> std::io::Result<Option<ExitStatus>> {
        for pipe in
            [self.out.from.as_ref().map(AsFd::as_fd), self.err.from.as_ref().map(AsFd::as_fd)]
                .into_iter()
                .flatten()
        {
            fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
        }
        // Fails if no descriptor is free. Then the loop asks `waitid`: a job that has started must not
        // lose an attempt.
        let process = pidfd_open(self.leader, PidfdFlags::empty()).ok();
        loop {
            let has_ended = {
                let mut waits = Vec::new();
                waits.extend(process.iter().map(|process| PollFd::new(process, PollFlags::IN)));
                waits.extend(self.out.from.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
                waits.extend(self.err.from.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
                match uwork::blocking(|| poll(&mut waits, Some(&LOOK_EVERY))) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
                match process {
                    Some(_) => waits[0].revents().contains(PollFlags::IN),
                    None => self.has_ended()?,
                }
            };
            self.out.read();
            self.err.read();
            if has_ended {
                break;
            }
            // The time limit holds although the committer waits for a server that hangs.
            if job.is_abandoned() || job.limit_exceeded().is_some() {
                return Ok(None);
            }
        }
        self.end().map(Some)
    }

    /// Whether the leader has ended. It is not reaped.
    fn has_ended(&self) -> std::io::Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(self.leader), options)?.is_some())
    }

    /// Kills the group and reaps its leader. Until then the leader's number belongs to no other
    /// process, so the group is the right one.
    fn end(&mut self) -> std::io::Result<ExitStatus> {
        // Fails if the group has ended, or is another user's: its leader is waited for then.
        let _ = kill_process_group(self.leader, Signal::KILL);
        self.groups.lock().retain(|&other| other != self.leader);
        self.ticket.end_group();
        self.is_reaped = true;
        let status = reap(self.leader)?;
        self.out.read();
        self.err.read();
        Ok(status)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // Catches: a payload whose end comes from the consumer, and is missing if that is killed meanwhile.
    #[test]
    fn the_whole_payload_is_there_before_its_process() {
        for length in [0, 1, 4_096, 1 << 20, 8 << 20] {
            let payload: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let mut read = Vec::new();
            File::from(input_of(&payload).unwrap()).read_to_end(&mut read).unwrap();
            assert!(read == payload, "{length}");
        }
    }

    fn cat(input: OwnedFd) -> Started {
        start(["cat"].iter().map(std::ffi::OsStr::new), &[], input).unwrap()
    }

    #[test]
    fn the_end_of_a_process_is_seen_without_a_descriptor_for_it() {
        let (reader, input) = std::io::pipe().unwrap();
        let mut run = Run::new(cat(reader.into()), 0, &Arc::default(), &Ticket::new());
        assert!(!run.has_ended().unwrap());
        drop(input);
        while !run.has_ended().unwrap() {
            std::thread::yield_now();
        }
        assert!(run.end().unwrap().success(), "it is reaped only now");
    }

    #[test]
    fn a_command_that_is_not_found_too_often_has_failed_and_pauses_its_consumer() {
        let words = ["sh", "-c", "echo $$ >&2; exit 127"].map(Into::into).to_vec();
        let (exec, job) = (Exec::new(words, 0).unwrap(), Job::for_test());
        let first = exec.run(&job).unwrap_err();
        assert!(first.is_not_now && first.pause.as_ref() == Some(&first.text));
        for _ in 1..20 {
            let ended = exec.proof.learn(ExitStatus::from_raw(127 << 8), Duration::ZERO, &job);
            assert_eq!(ended, Ended::NotNow);
        }
        let counted = exec.run(&job).unwrap_err();
        assert!(!counted.is_not_now && !counted.is_final && counted.text != first.text);
        assert_eq!(counted.pause, first.pause, "one reason is one line");
    }

    #[test]
    fn output_without_end_is_read_in_parts() {
        let from = Some(std::io::repeat(b'x'));
        let mut output = Output { from, kept: Vec::new(), max: 10, keeps_end: false };
        output.read();
        assert_eq!((output.kept.len(), output.from.is_some()), (10, true));
    }
}
