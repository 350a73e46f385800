//! Programs that close every descriptor, and give the numbers to files of their own.

use std::io::Error;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;

use uwork_bridge::{Bridge, DeadLetters, Handlers, Producer, Push, Pushed, Reply, Server};

use crate::support::count::{LONG, config};
use crate::support::patience::{until, within};
use crate::support::server::Redis;

/// Runs `f` in a forked child. Fails if it panics there.
fn in_child(f: impl FnOnce()) {
    // SAFETY: the child uses the bridge and this test's code alone, and ends.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: numbers only. The child ends with the test.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        let run = || {
            raise_limit();
            f();
        };
        let is_right = catch_unwind(AssertUnwindSafe(run)).is_ok();
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!is_right)) }
    }
    let mut status = -1;
    // SAFETY: the status is live.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
}

/// The device, inode and type of a file.
type File = (u64, u64, libc::mode_t);

fn file_at(number: RawFd) -> Option<File> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the structure is live, and filled if the call succeeds.
    let stat =
        unsafe { (libc::fstat(number, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }?;
    Some((stat.st_dev, stat.st_ino, stat.st_mode & libc::S_IFMT))
}

fn limit() -> libc::rlimit {
    let mut limit = MaybeUninit::uninit();
    // SAFETY: the structure is live, and filled if the call succeeds.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr()), 0);
        limit.assume_init()
    }
}

/// Gives this process as many descriptors as the system permits.
fn raise_limit() {
    let of = limit();
    let most = libc::rlimit { rlim_cur: of.rlim_max, ..of };
    // SAFETY: the structure is live. It concerns this process, which is a child of the test.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const most) }, 0);
}

/// More than any number of a descriptor before the test's own files, which get the last ones.
fn floor() -> RawFd {
    /// More than the files of a test.
    const OWN: u64 = 32;
    RawFd::try_from(limit().rlim_cur.saturating_sub(OWN)).unwrap_or(RawFd::MAX).min(4_096)
}

fn sockets() -> Vec<RawFd> {
    let is_socket =
        |number: &RawFd| file_at(*number).is_some_and(|(.., kind)| kind == libc::S_IFSOCK);
    (3..floor()).filter(is_socket).collect()
}

/// A pair of the program's for each number. The other ends have numbers beyond all others.
struct Pairs(Vec<(RawFd, RawFd, Option<File>)>);

impl Pairs {
    /// Gives these numbers to the program's files, as a close of all descriptors does whose next files
    /// get them.
    fn at(numbers: &[RawFd]) -> Pairs {
        let pair = |&number: &RawFd| {
            let (mut ends, kind) = ([-1; 2], libc::SOCK_STREAM | libc::SOCK_NONBLOCK);
            // SAFETY: the array is live. The numbers are the test's own, or the library's, which is
            // what is tested.
            unsafe {
                assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()), 0);
                assert_eq!(libc::dup2(ends[0], number), number);
                let other = libc::fcntl(ends[1], libc::F_DUPFD_CLOEXEC, floor());
                assert!(other >= floor(), "{}", Error::last_os_error());
                ends.into_iter().filter(|&end| end != number).for_each(|end| _ = libc::close(end));
                (number, other, file_at(number))
            }
        };
        Pairs(numbers.iter().map(pair).collect())
    }

    /// Each is open under its number, and nothing was written to it.
    fn are_intact(&self) {
        for &(number, other, file) in &self.0 {
            assert!(file.is_some());
            assert_eq!(file_at(number), file, "{number}");
            let mut byte = 0_u8;
            // SAFETY: one byte, live.
            let read = unsafe { libc::read(other, (&raw mut byte).cast(), 1) };
            let error = Error::last_os_error().raw_os_error();
            assert_eq!((read, error), (-1, Some(libc::EAGAIN)), "{number}");
        }
    }
}

fn push(producer: &mut Producer) {
    let pushed = producer.push(Push::new("job")).unwrap();
    assert!(matches!(pushed, Pushed::Added(_)), "{pushed:?}");
}

fn read_letters(letters: &mut DeadLetters) {
    assert_eq!(letters.count().unwrap(), 0);
}

// Catches: a copy of a connection that closes the parent's number in the child.
#[test]
fn a_child_keeps_its_own_files_under_the_numbers_of_its_parents_connections() {
    let Some(redis) = Redis::start("a_child_keeps_its_own_files", &[]) else { return };
    let server = redis.server();
    within("the children", move || in_child(|| use_and_fork(server)));
    assert_eq!(redis.number("XLEN jobs"), 2);
}

fn use_and_fork(server: Server) {
    let before = sockets();
    let mut producer = Producer::new(vec![server.clone()], "jobs", 1).unwrap();
    let mut letters = DeadLetters::new(server, "jobs");
    push(&mut producer);
    read_letters(&mut letters);
    let ours: Vec<RawFd> = sockets().into_iter().filter(|of| !before.contains(of)).collect();
    assert_eq!(ours.len(), 2);
    in_child(|| {
        assert!(!ours.iter().any(|&number| file_at(number).is_some()), "inherited");
        let pairs = Pairs::at(&ours);
        push(&mut producer);
        read_letters(&mut letters);
        pairs.are_intact();
        drop((producer, letters));
        pairs.are_intact();
    });
}

// Catches: commands of the bridge in a file of the program's; a thread of a consumer that gives up.
#[test]
fn the_bridge_connects_anew_when_the_program_has_closed_its_connections() {
    let Some(redis) = Redis::start("the_bridge_connects_anew", &[]) else { return };
    let (server, url) = (redis.server(), redis.url());
    within("the child", move || in_child(|| close_under_a_consumer(&server, &url)));
    assert_eq!(redis.number("XLEN jobs"), 0);
}

fn close_under_a_consumer(server: &Server, url: &str) {
    // The test's own, which stays open.
    let mut asks = redis::Client::open(url).unwrap().get_connection().unwrap();
    let before = sockets();
    let (ran, runs) = channel();
    let handlers = Handlers::new().otherwise(move |_| {
        ran.send(()).unwrap();
        Ok(Reply::done())
    });
    let bridge = Bridge::start(config(server.clone(), "jobs"), handlers, |_| {}).unwrap();
    let mut producer = Producer::new(vec![server.clone()], "jobs", 1).unwrap();
    push(&mut producer);
    runs.recv().unwrap();
    let name = format!(" name={} ", bridge.consumer());
    until("the reader and the committer have connections", || {
        let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut asks).unwrap();
        list.matches(&name).count() >= 2
    });
    let ours: Vec<RawFd> = sockets().into_iter().filter(|of| !before.contains(of)).collect();
    assert!(ours.len() >= 3, "a reader, a committer, a producer");
    let pairs = Pairs::at(&ours);
    for _ in 0..3 {
        push(&mut producer);
        runs.recv().unwrap();
    }
    drop(producer);
    let stopped = bridge.stop(LONG);
    assert_eq!((stopped.uncommitted, stopped.abandoned), (0, 0));
    pairs.are_intact();
}
