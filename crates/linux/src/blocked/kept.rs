//! Files of threads that are queried again and again, kept open: opening a file of `/proc` takes
//! longer than reading it.
//!
//! A thread has one place in a table of fixed size, by its number. The second query in a row for
//! the thread of a place keeps its file, so a program with thousands of workers, each of them
//! queried once, keeps none. A file is closed with its thread, when another thread takes the place,
//! and in a forked child.
//!
//! Beside them a descriptor is held in reserve: where the process has reached its limit of open files,
//! closing that one frees a number for a query. And the event is held that makes others cheap to open.

use std::sync::{Mutex, MutexGuard, PoisonError};

use uwork_engine::host::Activity;

use super::proc::{self, Unknown};
use crate::descriptor::{Expected, OwnDescriptor};

/// The most files that are kept.
const PLACES: usize = 64;

static KEPT: Mutex<Kept> = Mutex::new(Kept::new());

/// The state of a thread of this process, as [`proc::activity`]. For a thread whose file is kept it
/// saves the open, which takes longer than the other calls together, and the close.
pub(crate) fn activity(thread: u64) -> Result<Activity, Unknown> {
    // Without the lock where no file is kept.
    if let Some(activity) = lock().and_then(|mut kept| kept.activity(thread)) {
        return Ok(activity);
    }
    let activity = match proc::activity(thread) {
        Err(Unknown::Exhausted) => {
            // If another thread takes the freed number first, this attempt fails.
            drop(lock().and_then(|mut kept| kept.reserve.take()));
            proc::activity(thread)
        }
        activity => activity,
    };
    if let Some(mut kept) = lock() {
        kept.hold_reserve();
    }
    activity
}

/// The calling thread, which has this number, ends.
pub(crate) fn thread_ends(thread: u64) {
    // Waits for the lock, during a fork for milliseconds: a file that stays is not used again.
    hold().0.forget(thread);
}

/// The lock, for the time of a fork.
pub(crate) struct Held(MutexGuard<'static, Kept>);

impl Held {
    /// In the child, where the threads do not exist.
    pub(crate) fn child(mut self) {
        self.0.places.iter_mut().for_each(Place::clear);
        self.0.reserve = None;
        self.0.anchor = None;
    }
}

/// Before a fork: no thread changes the files until the guard is dropped. Takes some microseconds.
pub(crate) fn hold() -> Held {
    Held(KEPT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Whether the event is open that records nothing, and makes others cheap to open. `None` if another
/// thread uses the files.
pub(super) fn is_anchored() -> Option<bool> {
    lock().map(|kept| kept.anchor.as_ref().is_some_and(|event| event.get().is_some()))
}

/// Keeps that event, in place of one that was lost.
pub(super) fn keep_anchor(event: OwnDescriptor) {
    hold().0.anchor = Some(event);
}

/// None if another thread uses the files: waiting for it would take as long as opening a file.
fn lock() -> Option<MutexGuard<'static, Kept>> {
    KEPT.try_lock().ok()
}

struct Place {
    /// The thread that was queried last; 0 if none.
    thread: u64,
    file: Option<OwnDescriptor>,
}

impl Place {
    fn clear(&mut self) {
        self.thread = 0;
        self.file = None;
    }
}

struct Kept {
    places: [Place; PLACES],
    /// See the module.
    reserve: Option<OwnDescriptor>,
    /// See [`is_anchored`].
    anchor: Option<OwnDescriptor>,
}

impl Kept {
    const fn new() -> Kept {
        let places = [const { Place { thread: 0, file: None } }; PLACES];
        Kept { places, reserve: None, anchor: None }
    }

    fn place(&mut self, thread: u64) -> &mut Place {
        &mut self.places[thread as usize % PLACES]
    }

    /// The state of a thread whose file is kept, from the second query on. None if the file is not
    /// kept or not of use.
    fn activity(&mut self, thread: u64) -> Option<Activity> {
        let place = self.place(thread);
        if place.thread != thread {
            place.clear();
            place.thread = thread;
            return None;
        }
        if place.file.is_none() {
            place.file = proc::open(thread).ok().filter(|file| !file.is_of_the_last());
        }
        let file = place.file.as_ref().and_then(OwnDescriptor::get);
        let activity = file.and_then(proc::activity_by);
        if activity.is_none() {
            // The thread has ended, or the program has closed the file.
            place.clear();
        }
        activity
    }

    fn hold_reserve(&mut self) {
        if self.reserve.is_none() {
            // A socket has an inode of its own, and needs no file system.
            let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
            // SAFETY: no pointers.
            let open = || unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
            self.reserve = OwnDescriptor::open(Expected::Socket, open).ok();
        }
    }

    fn forget(&mut self, thread: u64) {
        let place = self.place(thread);
        if place.thread == thread {
            place.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::*;
    use crate::bounded::status_of;

    const SLEEPS: Option<Activity> = Some(Activity::Sleeps { since: None });

    fn query(kept: &mut Kept, thread: u64) -> Option<Activity> {
        kept.activity(thread).or_else(|| proc::activity(thread).ok())
    }

    fn number_of(kept: &mut Kept, thread: u64) -> Option<i32> {
        kept.place(thread).file.as_ref().map(OwnDescriptor::number)
    }

    /// Calls `f` with the number of a thread that sleeps, and again with it when it has ended.
    fn with_sleeper(f: impl FnOnce(u64), after: impl FnOnce(u64)) {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (tell, told) = channel();
        let sleeper = std::thread::spawn(move || {
            tell.send(crate::thread::id()).unwrap();
            let _ = reader.read(&mut [0]);
        });
        let thread = told.recv().unwrap();
        while proc::activity(thread).ok() != SLEEPS {
            std::thread::yield_now();
        }
        f(thread);
        drop(writer);
        sleeper.join().unwrap();
        while proc::activity(thread).is_ok() {
            std::thread::yield_now();
        }
        after(thread);
    }

    #[test]
    fn the_file_of_a_thread_is_kept_from_its_second_query_until_it_ends() {
        let kept = std::cell::RefCell::new(Kept::new());
        let in_life = |thread| {
            let kept = &mut *kept.borrow_mut();
            assert_eq!((query(kept, thread), number_of(kept, thread)), (SLEEPS, None));
            assert_eq!(query(kept, thread), SLEEPS);
            let number = number_of(kept, thread);
            assert!(number.is_some());
            assert_eq!((query(kept, thread), number_of(kept, thread)), (SLEEPS, number));
        };
        with_sleeper(in_life, |thread| {
            let kept = &mut *kept.borrow_mut();
            assert_eq!((query(kept, thread), number_of(kept, thread)), (None, None));
        });
    }

    #[test]
    fn a_thread_in_the_place_of_another_one_closes_its_file() {
        let mut kept = Kept::new();
        let thread = crate::thread::id();
        for _ in 0..2 {
            assert_eq!(query(&mut kept, thread), Some(Activity::Runs));
        }
        assert!(number_of(&mut kept, thread).is_some());
        assert_eq!(query(&mut kept, thread + PLACES as u64 * 1_000_000), None);
        assert_eq!(number_of(&mut kept, thread), None);
    }

    /// The program has closed the kept file, and has opened a file of its own with that number.
    #[test]
    fn a_foreign_file_with_the_number_of_a_kept_one_is_neither_read_nor_closed() {
        let mut kept = Kept::new();
        let thread = crate::thread::id();
        (0..2).for_each(|_| assert_eq!(query(&mut kept, thread), Some(Activity::Runs)));
        let number = number_of(&mut kept, thread).unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        // SAFETY: both are open; the second is closed by this call.
        assert_eq!(unsafe { libc::dup2(reader.as_raw_fd(), number) }, number);
        assert_eq!(query(&mut kept, thread), Some(Activity::Runs));
        assert_ne!(number_of(&mut kept, thread), Some(number));
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::close(number) }, 0, "the foreign file was closed");
    }

    // Catches: an event that is taken for lost, and opened again, as another thread uses the files.
    #[test]
    fn the_anchor_is_unknown_while_another_thread_uses_the_files() {
        let _held = hold();
        assert_eq!(is_anchored(), None);
    }

    /// A thread queries another one again and again, and so has the lock most of the time.
    #[test]
    fn a_forked_child_keeps_no_file_of_its_parent() {
        static ENDS: AtomicBool = AtomicBool::new(false);
        let thread = crate::thread::id();
        let querier = std::thread::spawn(move || {
            while !ENDS.load(Ordering::Relaxed) {
                assert!(activity(thread).is_ok());
            }
        });
        let closed = |kept: &Kept| kept.places.iter().all(|place| place.file.is_none());
        let has_closed = || KEPT.try_lock().is_ok_and(|kept| closed(&kept));
        let children: Vec<_> = (0..100).map(|_| forked(has_closed)).collect();
        ENDS.store(true, Ordering::Relaxed);
        querier.join().unwrap();
        thread_ends(thread);
        assert_eq!(children, [true; 100]);
    }

    /// What `f` returns in a forked child. It calls no allocator.
    fn forked(f: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls nothing that a thread of the parent could have locked.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let status = i32::from(!f());
            // SAFETY: ends the child without the parent's exit functions.
            unsafe { libc::_exit(status) };
        }
        let status = status_of(child);
        libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
    }
}
