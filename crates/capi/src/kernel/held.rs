//! Records which locks in per-CPU data a thread holds, for forks. A fork cannot find such locks in
//! any other way, because zero bytes are already a valid lock.
//!
//! A thread records the row of locks before it takes a lock of that row, and removes the record
//! after it has released the lock. So every lock that a thread held at a fork belongs to a row that
//! the thread had recorded, and contains the thread's token.

use std::cell::{Cell, RefCell};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, compiler_fence};

use uwork::foreign::{CpuLock, Locks, Place, Registration, Token, give_up};

/// How many locks of a thread can be recorded at a time. Those beyond the limit stay locked in a
/// child.
const RECORDS_MAX: usize = 8;

/// The records of a thread. The thread alone writes them; a child reads those of the threads that
/// do not exist in it.
struct Records {
    thread: Token,
    /// The same for all rows, except for the first lock.
    place: Place,
    /// How many entries of `rows` are in use: each is a row in which the thread holds a lock, or is
    /// about to take one.
    used: AtomicUsize,
    /// The first lock of each row.
    rows: [AtomicPtr<CpuLock>; RECORDS_MAX],
    /// The number of locks for which there was no room. Only the thread itself uses it.
    unrecorded: Cell<usize>,
}

/// Records on the heap, where a forked child finds them.
struct Boxed(NonNull<Records>);

impl Drop for Boxed {
    fn drop(&mut self) {
        // SAFETY: from a box, and used by no thread any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A thread's records and their registration for forks. Both last until the thread ends.
struct Registered {
    /// Dropped before the records.
    _registration: Registration,
    _records: Boxed,
}

impl Drop for Registered {
    fn drop(&mut self) {
        RECORDS.set(ptr::null());
    }
}

thread_local! {
    /// Null before the first record, and again when the thread ends.
    static RECORDS: Cell<*const Records> = const { Cell::new(ptr::null()) };
    static REGISTERED: RefCell<Option<Registered>> = const { RefCell::new(None) };
}

/// `None` while the thread ends.
#[inline(always)]
fn records(locks: &Locks, place: Place) -> Option<&'static Records> {
    let records = RECORDS.get();
    let records = if records.is_null() { make(locks, place) } else { records };
    // SAFETY: null, or live until the thread ends; the destructors that run after that find null.
    unsafe { records.as_ref() }
}

#[cold]
fn make(locks: &Locks, place: Place) -> *const Records {
    let make = |known: &RefCell<Option<Registered>>| {
        let rows = [const { AtomicPtr::new(ptr::null_mut()) }; RECORDS_MAX];
        let records = Records {
            thread: locks.token(),
            place,
            used: AtomicUsize::new(0),
            rows,
            unrecorded: Cell::new(0),
        };
        let records = Boxed(NonNull::from(Box::leak(Box::new(records))));
        let pointer = records.0;
        // SAFETY: on the heap until the registration is dropped. `child` accepts these records.
        let registration = unsafe { Registration::other(pointer, child) };
        *known.borrow_mut() = Some(Registered { _registration: registration, _records: records });
        RECORDS.set(pointer.as_ptr());
        pointer.as_ptr().cast_const()
    };
    REGISTERED.try_with(make).unwrap_or(ptr::null())
}

/// Records that the calling thread is about to take a lock of this row.
#[inline(always)]
pub(super) fn note(locks: &Locks, place: Place) {
    let Some(records) = records(locks, place) else { return };
    let used = records.used.load(Ordering::Relaxed);
    if let Some(row) = records.rows.get(used) {
        row.store(place.first.as_ptr(), Ordering::Relaxed);
        // Release: a reader that sees the count also sees the row. A child sees another thread's
        // stores in order.
        records.used.store(used + 1, Ordering::Release);
    } else {
        records.unrecorded.set(records.unrecorded.get() + 1);
    }
    // Compiler fence: the lock is taken after the record is written. A child sees another thread's
    // stores in program order, so no fence of the processor is needed.
    compiler_fence(Ordering::SeqCst);
}

/// Removes the record of a lock of this row, which the calling thread has released or failed to
/// take.
#[inline(always)]
pub(super) fn strike(locks: &Locks, place: Place) {
    // Compiler fence: the lock was released before the record is removed.
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as in `records`.
    let Some(records) = (unsafe { RECORDS.get().as_ref() }) else { return };
    let used = records.used.load(Ordering::Relaxed);
    let is_it = |row: &AtomicPtr<CpuLock>| row.load(Ordering::Relaxed) == place.first.as_ptr();
    if records.unrecorded.get() > 0 {
        // Records of one row are interchangeable. If the row has no more records than locks that
        // are still held, all of its records are needed, so the lock counts as an unrecorded one.
        let held = (0..locks.cpus()).filter(|&cpu| locks.is_held_on(cpu)).count();
        if records.rows[..used].iter().filter(|row| is_it(row)).count() <= held {
            records.unrecorded.set(records.unrecorded.get() - 1);
            return;
        }
    }
    if let Some(it) = records.rows[..used].iter().rposition(is_it) {
        let last = records.rows[used - 1].load(Ordering::Relaxed);
        records.rows[it].store(last, Ordering::Relaxed);
        // Release: the last row is recorded twice before the count drops, so it never lacks a
        // record.
        records.used.store(used - 1, Ordering::Release);
    }
}

/// In a child: releases the locks of a thread that does not exist in the child. Returns whether the
/// records stay registered.
///
/// # Safety
/// `it` points to a thread's records, and the caller is the only thread of a child.
unsafe fn child(it: NonNull<()>) -> bool {
    let it = it.cast::<Records>();
    // SAFETY: by this function's contract.
    let records = unsafe { it.as_ref() };
    // SAFETY: the records describe existing per-CPU data, and no lock is taken.
    if unsafe { Locks::new(records.place) }.token() == records.thread {
        return true;
    }
    for row in &records.rows[..records.used.load(Ordering::Relaxed)] {
        let Some(first) = NonNull::new(row.load(Ordering::Relaxed)) else { continue };
        for cpu in 0..records.place.len as usize {
            // SAFETY: a lock of per-CPU data that the thread was using.
            let lock = unsafe { first.byte_add(records.place.stride * cpu) };
            // SAFETY: as above; the lock's holder does not exist in the child.
            unsafe {
                if lock.as_ref().is_held_by(records.thread) {
                    give_up(lock);
                }
            }
        }
    }
    drop(Boxed(it));
    false
}
