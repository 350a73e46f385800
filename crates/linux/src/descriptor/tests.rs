//! Descriptors whose numbers the program gives to files of its own, at each step.

use std::ffi::CString;
use std::io::{PipeReader, Read, pipe};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use super::identity::{EVENT, F_SETSIG, PROC, RING, look};
use super::*;

fn eventfd() -> RawFd {
    // SAFETY: no pointers.
    unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }
}

fn own_eventfd() -> OwnDescriptor {
    OwnDescriptor::open(Expected::Event, eventfd).expect("room")
}

fn is_open(number: RawFd) -> bool {
    look(number).is_some()
}

/// The program closes a number of the library's, and a file of its own gets it.
fn replace(number: RawFd, by: RawFd) {
    // SAFETY: both are open.
    assert_eq!(unsafe { libc::dup2(by, number) }, number);
}

/// Closes a file of the test's.
fn drop_number(number: RawFd) {
    // SAFETY: it has no other owner.
    assert_eq!(unsafe { libc::close(number) }, 0);
}

/// Whether a pipe has no writer any more.
fn is_at_end(mut reader: &PipeReader) -> bool {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    reader.read(&mut [0]).is_ok_and(|length| length == 0)
}

// Catches: a value that closes its number when it is dropped, although that belongs to the program.
#[test]
fn a_file_that_is_lost_at_birth_does_not_close_the_file_of_the_program() {
    let (reader, writer) = pipe().expect("a pipe");
    let mut number = -1;
    #[cfg(feature = "ring")]
    let open = OwnDescriptor::open_within::<OwnedFd>;
    #[cfg(not(feature = "ring"))]
    let open = |expected, open| OwnDescriptor::open_as::<OwnedFd>(expected, open, false);
    let outcome = open(Expected::Event, || {
        number = eventfd();
        replace(number, reader.as_raw_fd());
        // SAFETY: the test's own.
        Ok((number, unsafe { OwnedFd::from_raw_fd(number) }))
    });
    assert_eq!(outcome.expect_err("lost").raw_os_error(), Some(libc::EBADF));
    assert!(is_open(number));
    drop_number(number);
    drop(writer);
}

// Catches: a second number of the program's file, which keeps it open.
#[test]
fn a_file_of_the_program_is_not_kept_open_by_a_high_number() {
    let (reader, writer) = pipe().expect("a pipe");
    let ours = own_eventfd();
    assert_eq!(raise(writer.as_raw_fd(), ours.entry.identity), None);
    assert!(is_open(writer.as_raw_fd()));
    drop(writer);
    // A child that another test has forked meanwhile has the writer until it ends.
    while !is_at_end(&reader) {
        std::thread::yield_now();
    }
}

// Catches: a mark that programs use too, as those that observe their own main thread by
// perf_event_open(2); a close that looks at the mark alone.
#[test]
fn files_with_signals_of_the_programs_are_not_ours() {
    const F_SETOWN_EX: libc::c_int = 15;
    // SAFETY: no arguments.
    let owner: [libc::pid_t; 2] = [0, unsafe { libc::getpid() }];
    for signal in [0, RING, libc::SIGIO, libc::SIGRTMIN(), libc::SIGRTMAX()] {
        let (ours, foreign) = (own_eventfd(), eventfd());
        let number = ours.number();
        replace(number, foreign);
        // SAFETY: the owner is live; the numbers are the test's own.
        unsafe {
            assert_eq!(libc::fcntl(number, F_SETOWN_EX, owner.as_ptr()), 0);
            assert_eq!(libc::fcntl(number, F_SETSIG, signal), 0);
        }
        assert_eq!(ours.get(), None);
        drop(ours);
        assert!(is_open(number));
        [number, foreign].into_iter().for_each(drop_number);
    }
    let ours = own_eventfd();
    let ((reader, writer), number) = (pipe().expect("a pipe"), ours.number());
    replace(number, writer.into_raw_fd());
    // SAFETY: the test's own.
    assert_eq!(unsafe { libc::fcntl(number, F_SETSIG, EVENT) }, 0);
    drop(ours);
    assert!(is_open(number));
    drop(reader);
    drop_number(number);
}

// Catches: a duplicate of a notifier's file, which the program has, taken for a lost ring and closed.
#[cfg(feature = "ring")]
#[test]
fn a_file_of_another_kind_of_the_librarys_is_not_the_lost_one() {
    let (ring, event) =
        (OwnDescriptor::open(Expected::Ring, eventfd).expect("room"), own_eventfd());
    let number = ring.number();
    replace(number, event.number());
    assert_eq!((ring.get(), event.get()), (None, Some(event.number())));
    drop(ring);
    assert!(is_open(number));
    drop_number(number);
}

// Catches: a list that grows with each descriptor that the program has closed.
#[test]
fn entries_of_lost_files_make_room_for_new_ones() {
    let room = LIST_BYTES / size_of::<Entry>();
    let mut lost = Vec::new();
    // Each gets a number of its own.
    let placeholder = eventfd();
    for _ in 0..3 * room {
        let ours = own_eventfd();
        replace(ours.number(), placeholder);
        lost.push(ours);
    }
    let listed = list().room;
    lost.iter().for_each(|ours| drop_number(ours.number()));
    drop_number(placeholder);
    drop(lost);
    assert!(listed <= 2 * room, "{listed}");
}

// Catches: a number that stays open, as the file is not on the device that was expected.
#[test]
fn the_device_of_a_path_is_looked_at_after_the_opening() {
    let read = || {
        // SAFETY: a path that ends with a zero byte.
        let open = || unsafe { libc::open(c"/proc/self/stat".as_ptr(), libc::O_CLOEXEC) };
        briefly(Expected::Process, open, |number| number)
    };
    let number = read().expect("it is mounted");
    PROC.store(1, Ordering::Relaxed);
    assert!(read().is_ok());
    assert_ne!(PROC.load(Ordering::Relaxed), 1);
    assert!(number >= 0);
}

// Catches: a number that stays open, as the path does not tell the device any more.
#[test]
fn a_file_that_vanishes_after_its_opening_is_closed() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    std::fs::write(&path, "").expect("room");
    let name = CString::new(path.as_os_str().as_bytes()).expect("a plain name");
    let open = || {
        // SAFETY: a path that ends with a zero byte.
        let number = unsafe { libc::open(name.as_ptr(), libc::O_CLOEXEC) };
        std::fs::remove_file(&path).expect("it exists");
        number
    };
    assert_eq!(briefly(Expected::on(&name).expect("it exists"), open, |_| 7), Ok(7));
    // Without a device no file is opened.
    assert_eq!(Expected::on(&name).err(), Some(libc::ENOENT));
}

// Catches: the content of a file of the program's, taken for that of ours.
#[test]
fn a_file_that_is_replaced_while_it_is_read_is_read_again() {
    let (reader, _writer) = pipe().expect("a pipe");
    let (mut rounds, mut taken) = (0, Vec::new());
    // SAFETY: a path that ends with a zero byte.
    let open = || unsafe { libc::open(c"/proc/self/stat".as_ptr(), libc::O_CLOEXEC) };
    let read = |number| {
        rounds += 1;
        if rounds < 3 {
            replace(number, reader.as_raw_fd());
            taken.push(number);
        }
        rounds
    };
    assert_eq!(briefly(Expected::Process, open, read), Ok(3));
    assert_eq!(taken.len(), 2);
    for number in taken {
        assert!(is_open(number));
        drop_number(number);
    }
}
