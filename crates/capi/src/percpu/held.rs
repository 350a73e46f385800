//! Which locks in per-CPU data a thread holds, for forks: of such locks nothing else is known, as zero bytes are one.
//!
//! A thread notes the row before it takes a lock of it, and strikes that out after it has given the lock up. So in a
//! child of a fork every lock that a lost thread held is one of a row that the thread had noted, and has its token.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, compiler_fence};

use uwork::foreign::{CpuLock, Locks, Place, Registration, Token, give_up};

/// Locks of a thread that are noted, at a time: those beyond stay held in a child.
const NOTED: usize = 8;

/// A thread's notes. Written by it alone; read by a child that does not have it.
struct Notes {
    thread: Token,
    /// Of all rows the same but for the first lock.
    place: Place,
    /// So many of these are of rows in which a lock is held, or about to be.
    used: AtomicUsize,
    /// Each row's first lock.
    rows: [AtomicPtr<CpuLock>; NOTED],
    /// Locks for which there was no room. The thread's own.
    beyond: Cell<usize>,
}

/// Notes on the heap, where forks find them.
struct Boxed(NonNull<Notes>);

impl Drop for Boxed {
    fn drop(&mut self) {
        // SAFETY: from a box, and nobody's any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A thread's notes and forks' knowledge of them, until the thread ends.
struct Known {
    /// Dropped before the notes.
    _registration: Registration,
    _notes: Boxed,
}

impl Drop for Known {
    fn drop(&mut self) {
        NOTES.set(ptr::null());
    }
}

thread_local! {
    /// Null before the first note, and when the thread ends.
    static NOTES: Cell<*const Notes> = const { Cell::new(ptr::null()) };
    static KNOWN: RefCell<Option<Known>> = const { RefCell::new(None) };
}

/// Nothing where the thread ends.
#[inline(always)]
fn notes(locks: &Locks, place: Place) -> Option<&'static Notes> {
    let notes = NOTES.get();
    let notes = if notes.is_null() { make(locks, place) } else { notes };
    // SAFETY: null, or live until the thread ends; its last destructors find null.
    unsafe { notes.as_ref() }
}

#[cold]
fn make(locks: &Locks, place: Place) -> *const Notes {
    let make = |known: &RefCell<Option<Known>>| {
        let rows = [const { AtomicPtr::new(ptr::null_mut()) }; NOTED];
        let notes = Notes {
            thread: locks.token(),
            place,
            used: AtomicUsize::new(0),
            rows,
            beyond: Cell::new(0),
        };
        let notes = Boxed(NonNull::from(Box::leak(Box::new(notes))));
        let pointer = notes.0;
        // SAFETY: on the heap until the registration is dropped; `child` is for notes.
        let registration = unsafe { Registration::other(pointer, child) };
        *known.borrow_mut() = Some(Known { _registration: registration, _notes: notes });
        NOTES.set(pointer.as_ptr());
        pointer.as_ptr().cast_const()
    };
    KNOWN.try_with(make).unwrap_or(ptr::null())
}

/// The calling thread is about to take a lock of this row.
#[inline(always)]
pub(super) fn note(locks: &Locks, place: Place) {
    let Some(notes) = notes(locks, place) else { return };
    let used = notes.used.load(Ordering::Relaxed);
    if let Some(row) = notes.rows.get(used) {
        row.store(place.first.as_ptr(), Ordering::Relaxed);
        // Release: who sees the count, sees the row. A child sees a thread's stores in their order.
        notes.used.store(used + 1, Ordering::Release);
    } else {
        notes.beyond.set(notes.beyond.get() + 1);
    }
    // The lock is taken after that.
    compiler_fence(Ordering::SeqCst);
}

/// The calling thread has given up a lock of this row, or not got it.
#[inline(always)]
pub(super) fn strike(locks: &Locks, place: Place) {
    // The lock was given up before that.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as in `notes`.
    let Some(notes) = (unsafe { NOTES.get().as_ref() }) else { return };
    let used = notes.used.load(Ordering::Relaxed);
    let is_it = |row: &AtomicPtr<CpuLock>| row.load(Ordering::Relaxed) == place.first.as_ptr();
    if notes.beyond.get() > 0 {
        // Locks of one row cannot be told apart here: one that is held still has first claim to a note.
        let held = (0..locks.cpus()).filter(|&cpu| locks.is_held_on(cpu)).count();
        if notes.rows[..used].iter().filter(|row| is_it(row)).count() <= held {
            notes.beyond.set(notes.beyond.get() - 1);
            return;
        }
    }
    if let Some(it) = notes.rows[..used].iter().rposition(is_it) {
        let last = notes.rows[used - 1].load(Ordering::Relaxed);
        notes.rows[it].store(last, Ordering::Relaxed);
        // Release: the last one is noted twice before it is noted once.
        notes.used.store(used - 1, Ordering::Release);
    }
}

/// In a child: gives up what the thread held, if it is not there.
///
/// # Safety
/// `it` is a thread's notes, and the caller the only thread of a child.
unsafe fn child(it: NonNull<()>) -> bool {
    let it = it.cast::<Notes>();
    // SAFETY: by this function's contract.
    let notes = unsafe { it.as_ref() };
    // SAFETY: of per-CPU data, which is there; nothing is taken.
    if unsafe { Locks::new(notes.place) }.token() == notes.thread {
        return true;
    }
    for row in &notes.rows[..notes.used.load(Ordering::Relaxed)] {
        let Some(first) = NonNull::new(row.load(Ordering::Relaxed)) else { continue };
        for cpu in 0..notes.place.len as usize {
            // SAFETY: a lock of per-CPU data that the thread was using.
            let lock = unsafe { first.byte_add(notes.place.stride * cpu) };
            // SAFETY: as above; its holder is not there.
            unsafe {
                if lock.as_ref().is_held_by(notes.thread) {
                    give_up(lock);
                }
            }
        }
    }
    drop(Boxed(it));
    false
}
