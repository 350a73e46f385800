//! A child of this process, which reads what may never come: files that a process has mapped, and the
//! memory of a process.
//!
//! A thread that waits for a file system in user space (FUSE) does not end before that wait, not even by
//! SIGKILL, and a process does not end before its threads. Each user may serve such a file system. So
//! this process opens no such file: it waits for an answer of the child until a deadline, and ends
//! without the child. The child ends with this process, or after its wait.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::doctor::names_of_request;
use crate::below;
use crate::peer::user_of;
use crate::sockets::raise_limit;

/// The most readers that read for one user's processes at a time. Each needs memory, and no user has
/// those of other users wait.
const READERS_MAX: usize = 8;
/// How long the child may take for the start of a reader. It never waits for one.
const START_MAX: Duration = Duration::from_millis(500);
/// The bytes of one read.
const READ: usize = 16 << 10;

/// Whether a reader has to end: nothing waits for its results.
pub(super) type Stop = Arc<AtomicBool>;

/// The readers that read, by the user of their processes.
static READING: Mutex<BTreeMap<u32, usize>> = Mutex::new(BTreeMap::new());
/// Notified when a reader ends, or is told to stop.
static CHANGED: Condvar = Condvar::new();

/// The turn of a reader of a user's process, among [`READERS_MAX`].
pub(super) struct Turn(u32);

impl Turn {
    fn reading() -> MutexGuard<'static, BTreeMap<u32, usize>> {
        READING.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn to read of this process. None: the reader is told to stop.
    pub(super) fn of(process: u32, stop: &Stop) -> Option<Turn> {
        Turn::wait(user_of(process).unwrap_or(0), stop)
    }

    fn wait(user: u32, stop: &Stop) -> Option<Turn> {
        let has_to_wait = |reading: &mut BTreeMap<u32, usize>| {
            !stop.load(Ordering::Relaxed) && reading.get(&user) >= Some(&READERS_MAX)
        };
        let reading = CHANGED.wait_while(Turn::reading(), has_to_wait);
        let mut reading = reading.unwrap_or_else(PoisonError::into_inner);
        (!stop.load(Ordering::Relaxed)).then(|| {
            *reading.entry(user).or_insert(0) += 1;
            Turn(user)
        })
    }

    /// Tells a reader to stop.
    fn stop(stop: &Stop) {
        let reading = Turn::reading();
        stop.store(true, Ordering::Relaxed);
        drop(reading);
        CHANGED.notify_all();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut reading = Turn::reading();
        if let Some(count) = reading.get_mut(&self.0) {
            *count -= 1;
        }
        // No user stays.
        reading.retain(|_, count| *count > 0);
        drop(reading);
        CHANGED.notify_all();
    }
}

/// Starts the child, unless it was started. A command calls it before it has threads.
///
/// # Errors
/// Why there is none.
pub(crate) fn start() -> io::Result<&'static UnixStream> {
    static CHILD: OnceLock<Result<UnixStream, Errno>> = OnceLock::new();
    let child = CHILD.get_or_init(|| started().map_err(|error| errno_of(&error)));
    child.as_ref().map_err(|&error| error.into())
}

fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn started() -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    set_socket_timeout(&ours, Timeout::Send, Some(START_MAX))?;
    // SAFETY: the child has this thread alone. It uses none of the program's locks but that of the
    // allocator, which its library takes over, and those of this module, which no thread has had here.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // Else the requests would never end.
            drop(ours);
            let _ = catch_unwind(AssertUnwindSafe(|| serve(&theirs)));
            // SAFETY: no pointers.
            unsafe { libc::_exit(0) }
        }
        _ => Ok(ours),
    }
}

/// Serves requests until the other end is closed. It waits for no reader.
fn serve(control: &UnixStream) {
    leave_files(control.as_raw_fd());
    raise_limit();
    while let Some(stream) = received(control) {
        // Refused, the end of the stream is the answer.
        let _ = stream.map(|stream| thread::Builder::new().spawn(move || serve_one(stream)));
    }
}

/// Closes all files but one: a pipe of this process ends with this process, whatever the child waits for.
fn leave_files(kept: RawFd) {
    // Refused before Linux 5.9, and in some sandboxes.
    let close_all = |first: RawFd, last: RawFd| {
        // SAFETY: numbers only. The values that own them are never used nor dropped in the child.
        first > last || unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } == 0
    };
    if !(close_all(3, kept - 1) && close_all(kept + 1, RawFd::MAX)) {
        let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let numbers: Vec<RawFd> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        for number in numbers.into_iter().filter(|&number| number > 2 && number != kept) {
            // SAFETY: as before.
            unsafe { libc::close(number) };
        }
    }
    if let Ok(none) = File::options().read(true).write(true).open("/dev/null") {
        let _ =
            dup2_stdin(&none).and_then(|()| dup2_stdout(&none)).and_then(|()| dup2_stderr(&none));
    }
    // No file system stays in use.
    let _ = std::env::set_current_dir("/");
}

/// Sends an open file with a byte.
fn send(to: &UnixStream, file: BorrowedFd<'_>) -> io::Result<()> {
    let files = [file];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&files));
    sendmsg(to, &[IoSlice::new(b"+")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a stream with a byte. None: no more will come. Some(None): the byte has come without one, as
/// this process may open no more files.
fn received(control: &UnixStream) -> Option<Option<UnixStream>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let got = loop {
        match recvmsg(control, &mut bytes, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            outcome => break outcome.ok()?,
        }
    };
    let mut files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let file = files.next();
    (got.bytes > 0).then(|| file.map(UnixStream::from))
}

/// Reads a request, and has a thread answer it. Tells that thread to stop when the other end is closed.
fn serve_one(stream: UnixStream) -> Option<()> {
    let (mut request, mut byte) = (Vec::new(), [0]);
    let mut pieces = io::BufReader::new(&stream);
    io::BufRead::read_until(&mut pieces, b'\n', &mut request).ok()?;
    let request = String::from_utf8(request).ok()?;
    let out = stream.try_clone().ok()?;
    let stop = Stop::default();
    let stopped = stop.clone();
    let reader = move || {
        let _ = catch_unwind(AssertUnwindSafe(|| answer(request.trim_end(), &out, &stopped)));
        let _ = out.shutdown(Shutdown::Write);
    };
    thread::Builder::new().spawn(reader).ok()?;
    let _ = pieces.read(&mut byte);
    Turn::stop(&stop);
    Some(())
}

fn answer(request: &str, mut out: &UnixStream, stop: &Stop) -> Option<()> {
    let (kind, rest) = request.split_once(' ')?;
    match kind {
        "names" => {
            let tell = |line: &str| {
                let mut to = out;
                to.write_all(line.as_bytes()).is_ok()
            };
            names_of_request(rest, stop, tell)
        }
        "start" => {
            let mut words = rest.splitn(3, ' ');
            let process = words.next()?.parse().ok()?;
            let (most, path) = (words.next()?.parse().ok()?, words.next()?);
            let _turn = Turn::of(process, stop)?;
            let file = File::open(path).ok()?;
            // Else the file could not be opened.
            out.write_all(b"+").ok()?;
            io::copy(&mut file.take(most), &mut out).ok()?;
            Some(())
        }
        "connect" => match below::answer(rest) {
            Ok(stream) => send(out, stream.as_fd()).ok(),
            Err(error) => {
                let number = error.raw_os_error().unwrap_or(0);
                out.write_all(format!("-{number} {error}\n").as_bytes()).ok()
            }
        },
        _ => None,
    }
}

/// The deadline has passed.
#[derive(Debug, PartialEq)]
pub(super) struct Late;

/// An answer of the child.
pub(crate) struct Answer {
    stream: UnixStream,
    received: Vec<u8>,
    /// How much of `received` was taken.
    taken: usize,
}

/// Asks the child.
///
/// # Errors
/// There is no child, or no room for the request.
pub(crate) fn ask(request: &str) -> io::Result<Answer> {
    let child = start()?;
    let (ours, theirs) = UnixStream::pair()?;
    send(child, theirs.as_fd())?;
    drop(theirs);
    set_socket_timeout(&ours, Timeout::Send, Some(START_MAX))?;
    (&ours).write_all(format!("{request}\n").as_bytes())?;
    Ok(Answer::new(ours))
}

/// Why a file was not read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unread {
    /// The deadline has passed.
    Late,
    /// It cannot be opened, or no child reads it.
    Refused,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unread::Late => "was not read in time",
            Unread::Refused => "cannot be read",
        })
    }
}

/// The first bytes of a file in /proc whose text a process chooses, and which may wait for that process.
pub(crate) fn start_of(
    process: u32,
    path: &str,
    most: u64,
    until: Instant,
) -> Result<Vec<u8>, Unread> {
    let request = format!("start {process} {most} {path}");
    ask(&request).map_err(|_| Unread::Refused)?.start(until)
}

impl Answer {
    /// The answer to a request for the start of a file.
    fn start(&mut self, until: Instant) -> Result<Vec<u8>, Unread> {
        while self.fill(until).map_err(|Late| Unread::Late)? {}
        self.received.strip_prefix(b"+").map(<[u8]>::to_vec).ok_or(Unread::Refused)
    }

    fn new(stream: UnixStream) -> Answer {
        Answer { stream, received: Vec::new(), taken: 0 }
    }

    /// The next line, without its end. None: no more will come.
    pub(super) fn line(&mut self, until: Instant) -> Result<Option<String>, Late> {
        loop {
            let rest = &self.received[self.taken..];
            if let Some(length) = rest.iter().position(|&byte| byte == b'\n') {
                self.taken += length + 1;
                return Ok(Some(String::from_utf8_lossy(&rest[..length]).into_owned()));
            }
            self.received.drain(..self.taken);
            self.taken = 0;
            if !self.fill(until)? {
                return Ok(None);
            }
        }
    }

    /// The stream that the child has opened. An error is that of the child, or says that it is late.
    pub(crate) fn stream(&mut self, until: Instant) -> io::Result<UnixStream> {
        let late = |Late| io::Error::other("it was not opened in time");
        while !self.wait(until).map_err(late)? {}
        match received(&self.stream) {
            Some(Some(stream)) => return Ok(stream),
            Some(None) => {}
            None => return Err(ErrorKind::UnexpectedEof.into()),
        }
        let line = self.line(until).map_err(late)?.unwrap_or_default();
        let (number, reason) = line.split_once(' ').unwrap_or(("0", "it was not opened"));
        Err(match number.parse() {
            Ok(0) | Err(_) => io::Error::other(reason.to_owned()),
            Ok(number) => io::Error::from_raw_os_error(number),
        })
    }

    /// Waits until something has come, or is sure not to. False: a signal has ended the wait. Late after
    /// the deadline, whatever has come: more may come without an end.
    fn wait(&self, until: Instant) -> Result<bool, Late> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Late) } else { self.wait_for(left) }
    }

    fn wait_for(&self, time: Duration) -> Result<bool, Late> {
        let time =
            Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&time)) {
            Ok(0) => Err(Late),
            Err(Errno::INTR) => Ok(false),
            _ => Ok(true),
        }
    }

    /// Reads more. False: no more will come.
    fn fill(&mut self, until: Instant) -> Result<bool, Late> {
        while !self.wait(until)? {}
        Ok(self.read())
    }

    /// Reads what has come. False: no more will come.
    fn read(&mut self) -> bool {
        let mut bytes = [0; READ];
        let count = self.stream.read(&mut bytes).unwrap_or(0);
        self.received.extend_from_slice(&bytes[..count]);
        count > 0
    }

    /// Has the reader end. It may be in a system call yet.
    pub(super) fn stop(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Whether the reader has ended. What it still sends is thrown away.
    pub(super) fn is_over(&mut self) -> bool {
        loop {
            (self.received, self.taken) = (Vec::new(), 0);
            match self.wait_for(Duration::ZERO) {
                Ok(true) if !self.read() => return true,
                Ok(_) => {}
                Err(Late) => return false,
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

    use super::*;

    /// An answer, and the end that gives it.
    pub(in super::super) fn answer_by() -> (Answer, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Answer::new(ours), theirs)
    }

    pub(in super::super) fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn lines_come_until_the_end_or_the_deadline() {
        let (mut answer, mut by) = answer_by();
        by.write_all(b"a\n\nb").unwrap();
        let past = Instant::now();
        assert_eq!(answer.line(past), Err(Late), "nothing is read after the deadline");
        let mut line = |until| answer.line(until).map(Option::unwrap);
        // What has been read is returned.
        assert_eq!([line(soon()), line(past)], ["a", ""].map(|it| Ok(it.to_owned())));
        assert_eq!(line(past), Err(Late));
        by.write_all(b"c\n").unwrap();
        assert_eq!(answer.line(soon()), Ok(Some("bc".to_owned())));
        assert!(!answer.is_over());
        answer.stop();
        assert_eq!(by.read(&mut [0]).unwrap(), 0, "it is told to stop");
        drop(by);
        assert_eq!(answer.line(soon()), Ok(None));
        assert!(answer.is_over());
    }

    // Catches: the memory of a command that a process fills by its command line.
    #[test]
    fn of_a_file_as_much_is_read_as_is_permitted() {
        let own = std::process::id();
        let read = |path, most, until| start_of(own, path, most, until);
        assert_eq!(read("/dev/zero", 5, soon()), Ok(vec![0; 5]));
        assert!(read("/proc/self/cmdline", 1 << 20, soon()).is_ok_and(|line| line.len() > 1));
        // Three different outcomes.
        assert_eq!(read("/dev/null", 5, soon()), Ok(Vec::new()));
        assert_eq!(read("/proc/none", 5, soon()), Err(Unread::Refused));
        assert_eq!(read("/dev/null", 5, Instant::now()), Err(Unread::Late));
    }

    // Catches: a command that waits for ever for what another process keeps from it.
    #[test]
    fn a_file_that_is_never_read_ends_at_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("never");
        let path = path.to_str().unwrap();
        mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let request = format!("start {} 5 {path}", std::process::id());
        let mut answers: Vec<_> = (0..2 * READERS_MAX).map(|_| ask(&request).unwrap()).collect();
        let until = Instant::now() + Duration::from_millis(1);
        for answer in &mut answers {
            assert_eq!(answer.start(until), Err(Unread::Late));
        }
        // The other tests of this process need the turns of these readers. A writer lets those that are
        // opening the file go on, and its end is that of the file.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        while !answers.is_empty() {
            drop(rustix::fs::open(path, flags, Mode::empty()).unwrap());
            answers.retain_mut(|answer| !answer.is_over());
            thread::yield_now();
        }
    }

    #[test]
    fn a_user_has_few_readers_at_a_time_and_other_users_do_not_wait() {
        let (stop, stopped) = (Stop::default(), Stop::new(true.into()));
        // No processes of tests have these users.
        let (user, other) = (4_000_000_001, 4_000_000_002);
        let mut turns: Vec<_> = (0..READERS_MAX).map(|_| Turn::wait(user, &stop)).collect();
        assert!(turns.iter().all(Option::is_some) && Turn::wait(other, &stop).is_some());
        assert!(Turn::wait(user, &stopped).is_none(), "it does not wait");
        std::thread::scope(|scope| {
            let (late, next) = (Stop::default(), &stop);
            let told = late.clone();
            let waits = scope.spawn(move || Turn::wait(user, &told).is_none());
            Turn::stop(&late);
            assert!(waits.join().unwrap(), "a reader that waits is told to stop");
            let waits = scope.spawn(move || Turn::wait(user, next).is_some());
            drop(turns.pop());
            assert!(waits.join().unwrap(), "it has the turn of another reader");
        });
        drop(turns);
        assert_eq!(Turn::reading().get(&user), None);
    }
}
