//! Task work: items that one particular thread runs itself.

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::time::Duration;

use uwork::WorkPointer;
use uwork::task::{self, Added, Delivery, HasTaskWork, Notify, TaskHandle, TaskItem, TaskWork};

use crate::cpu::given;
use uwork::foreign::{TASK_WORK_ENDED, must_return, task_work_has_ended};

use crate::error::{Written, fail, guard, guarded, misuse};
use crate::memory::{Room, has_reserve};
use crate::queue::set_errno;

/// A thread to which task work can be added.
pub struct UwTask(TaskHandle);

/// The function of an item. Its argument is the item.
pub type UwTaskWorkFn = Option<unsafe extern "C-unwind" fn(*mut UwTaskWork)>;

/// `struct uw_task_work`.
#[repr(C)]
pub struct UwTaskWork {
    work: TaskWork<UwTaskWork>,
    func: UwTaskWorkFn,
}

// uwork.h defines the same sizes and offsets, and compiled programs depend on them.
const _: () = assert!(size_of::<UwTaskWork>() == 32 && align_of::<UwTaskWork>() == 8);
const _: () = assert!(std::mem::offset_of!(UwTaskWork, func) == 24);

// SAFETY: the work is the first field (`repr(C)`).
unsafe impl HasTaskWork for UwTaskWork {
    const OFFSET: usize = 0;
}

impl TaskItem for UwTaskWork {
    type Pointer = ItemPointer;

    fn run(this: ItemPointer) {
        // SAFETY: the item is live until its function is called; no reference to it remains by
        // then.
        let func = unsafe { (*this.0.as_ptr()).func };
        // SAFETY: the function belongs to this item (uwork.h). `item_of` has checked that it is not
        // null.
        must_return(|| unsafe { func.expect("an item has a function")(this.0.as_ptr()) });
    }
}

/// A pointer to the program's item. It holds no reference count: the program keeps the item alive.
#[derive(Debug, PartialEq, Eq)]
pub struct ItemPointer(NonNull<UwTaskWork>);

// SAFETY: an added item stays in place until it has run or was cancelled (uwork.h).
unsafe impl WorkPointer for ItemPointer {
    type Target = UwTaskWork;

    fn into_raw(self) -> NonNull<UwTaskWork> {
        self.0
    }

    unsafe fn from_raw(raw: NonNull<UwTaskWork>) -> Self {
        ItemPointer(raw)
    }
}

/// Converts C's pointer to a thread.
///
/// # Safety
/// `task` is null, or comes from this library and was not released (uwork.h).
unsafe fn task_of<'a>(task: *const UwTask) -> Result<&'a TaskHandle, c_int> {
    // SAFETY: by this function's contract.
    match unsafe { task.as_ref() } {
        Some(task) => Ok(&task.0),
        None => Err(misuse(libc::EINVAL, "the task is NULL")),
    }
}

/// Converts C's pointer to an item.
///
/// # Safety
/// `item` is null, or points to an item's memory. Memory that was never initialised is zero (uwork.h).
unsafe fn item_of(item: *const UwTaskWork) -> Result<NonNull<UwTaskWork>, c_int> {
    let Some(item) = NonNull::new(item.cast_mut()) else {
        return Err(misuse(libc::EINVAL, "the item is NULL"));
    };
    // SAFETY: by this function's contract. The field is not written after the initialisation.
    if unsafe { (&raw const (*item.as_ptr()).func).read() }.is_none() {
        return Err(misuse(libc::EINVAL, "the item has no function: uw_task_work_init makes it"));
    }
    Ok(item)
}

/// A number of items as a result for C.
fn count(items: usize) -> c_int {
    c_int::try_from(items).unwrap_or(c_int::MAX)
}

/// Converts an error of the system to a code.
#[cold]
fn refused(error: &io::Error) -> c_int {
    let other = match error.kind() {
        io::ErrorKind::Unsupported => libc::ENOSYS,
        _ => libc::EBUSY,
    };
    fail(error.raw_os_error().unwrap_or(other), error.to_string())
}

/// An error in the destructors of a thread whose task work has ended.
fn not_ended() -> Result<(), c_int> {
    if task_work_has_ended() { Err(fail(libc::ESRCH, TASK_WORK_ENDED)) } else { Ok(()) }
}

/// As [`guard`], for calls that need the calling thread's task work.
fn guard_own(body: impl FnOnce() -> c_int) -> c_int {
    guard(|| not_ended().map_or_else(|code| code, |()| body()))
}

/// A reference to the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_current() -> *mut UwTask {
    let made = not_ended().and_then(|()| {
        has_reserve()?;
        Ok((Room::new()?, guarded(TaskHandle::current)?))
    });
    match made {
        Ok((room, handle)) => Box::into_raw(room.fill(UwTask(handle))),
        Err(code) => {
            set_errno(-code);
            std::ptr::null_mut()
        }
    }
}

/// A further reference to a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_get(task: *const UwTask) -> *mut UwTask {
    // SAFETY: by uwork.h.
    let task = unsafe { task_of(task) };
    match task.and_then(|handle| Ok((Room::new()?, handle))) {
        Ok((room, handle)) => Box::into_raw(room.fill(UwTask(handle.clone()))),
        Err(code) => {
            set_errno(-code);
            std::ptr::null_mut()
        }
    }
}

/// Releases a reference.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_put(task: *mut UwTask) {
    if !task.is_null() {
        // SAFETY: from this library, and released once (uwork.h).
        let task = unsafe { Box::from_raw(task) };
        let _ = guarded(|| drop(task));
    }
}

/// Initialises an item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_work_init(item: *mut UwTaskWork, func: UwTaskWorkFn) {
    if item.is_null() {
        misuse(libc::EINVAL, "the item is NULL");
        return;
    }
    if func.is_none() {
        misuse(libc::EINVAL, "an item's function is NULL");
    }
    // SAFETY: memory for an item, which no other thread uses (uwork.h).
    unsafe { item.write(UwTaskWork { work: TaskWork::new(), func }) };
}

/// Adds an item to a thread's list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_work_add(
    task: *const UwTask,
    item: *mut UwTaskWork,
    notify: c_uint,
) -> c_int {
    let notify = match notify {
        0 => Notify::None,
        1 => Notify::Resume,
        2 => Notify::Signal,
        other => {
            let other = Written(other);
            let text =
                format!("notification {other}: UW_NOTIFY_NONE to UW_NOTIFY_SIGNAL are allowed");
            return fail(libc::EINVAL, text);
        }
    };
    // SAFETY: by uwork.h.
    let both = unsafe { task_of(task).and_then(|task| Ok((task, item_of(item)?))) };
    match both.map(|(task, item)| task.add::<_, 0>(ItemPointer(item), notify)) {
        Ok(Added::Added) => 1,
        Ok(Added::Pending(_)) => 0,
        Ok(Added::Exited(_)) => fail(libc::ESRCH, "the thread has ended its task work"),
        Err(code) => code,
    }
}

/// Cancels an item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_work_cancel(task: *const UwTask, item: *mut UwTaskWork) -> c_int {
    // SAFETY: by uwork.h; the item is live.
    let outcome = unsafe {
        task_of(task).and_then(|task| Ok(task.cancel(&item_of(item)?.as_ref().work).is_some()))
    };
    outcome.map_or_else(|code| code, c_int::from)
}

/// A predicate that selects an item.
pub type UwTaskMatchFn = Option<unsafe extern "C-unwind" fn(*mut UwTaskWork, *mut c_void) -> bool>;

/// Cancels the oldest item that the predicate selects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_work_cancel_match(
    task: *const UwTask,
    matches: UwTaskMatchFn,
    arg: *mut c_void,
) -> *mut UwTaskWork {
    // SAFETY: by uwork.h.
    let both = unsafe { task_of(task) }.and_then(|task| Ok((task, given(matches)?)));
    let found = both.and_then(|(task, matches)| {
        guarded(|| {
            task.cancel_match::<ItemPointer, 0>(|item| {
                // SAFETY: an item in a list is live; the predicate is for items (uwork.h).
                must_return(|| unsafe { matches(std::ptr::from_ref(item).cast_mut(), arg) })
            })
        })
    });
    match found {
        Ok(Some(item)) => item.0.as_ptr(),
        Ok(None) => {
            set_errno(libc::ENOENT);
            std::ptr::null_mut()
        }
        Err(code) => {
            set_errno(-code);
            std::ptr::null_mut()
        }
    }
}

/// Whether an item is in a list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_work_is_pending(item: *const UwTaskWork) -> c_int {
    // SAFETY: by uwork.h.
    let pending = unsafe { item_of(item).map(|item| item.as_ref().work.is_pending()) };
    pending.map_or_else(|code| code, c_int::from)
}

/// Runs items until the list stays empty.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_run() -> c_int {
    guard(|| count(task::run()))
}

/// Runs the items that are in the list now.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_run_once() -> c_int {
    guard(|| count(task::run_once()))
}

/// Runs the items that are in the list now, if the thread was notified.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_safe_point() -> c_int {
    // Where there is nothing to run, the call costs a nanosecond or two.
    if task::is_notified() { guard(|| count(task::safe_point())) } else { 0 }
}

/// Whether the thread was notified and has not run its items since.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_is_notified() -> bool {
    task::is_notified()
}

/// Ends the calling thread's task work.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_exit() -> c_int {
    guard(|| {
        task::exit();
        0
    })
}

/// Sleeps until there are items to run, and runs them.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_park(timeout_ns: i64) -> c_int {
    guard_own(|| {
        count(match u64::try_from(timeout_ns) {
            Ok(nanos) => task::park_timeout(Duration::from_nanos(nanos)),
            Err(_) => task::park(),
        })
    })
}

/// Chooses how the calling thread is notified.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_set_delivery(delivery: c_uint) -> c_int {
    let delivery = match delivery {
        0 => Delivery::Auto,
        1 => Delivery::Light,
        2 => Delivery::Signal,
        other => {
            let other = Written(other);
            let text =
                format!("delivery {other}: UW_DELIVERY_AUTO to UW_DELIVERY_SIGNAL are allowed");
            return fail(libc::EINVAL, text);
        }
    };
    guard_own(|| match task::set_delivery(delivery) {
        Ok(()) => 0,
        Err(error) => fail(libc::EBUSY, error.to_string()),
    })
}

/// Chooses the process's notification signal.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_set_signal(number: c_int, restarts: bool) -> c_int {
    match task::set_signal(number, restarts) {
        Ok(()) => 0,
        Err(error @ task::SignalError::NotRealTime { .. }) => fail(libc::EINVAL, error.to_string()),
        Err(error) => fail(libc::EBUSY, error.to_string()),
    }
}

/// The descriptor that becomes readable when the calling thread has items to run.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_fd() -> c_int {
    guard_own(|| match task::notifier() {
        Ok(notifier) => notifier.as_fd().as_raw_fd(),
        Err(error) => refused(&error),
    })
}

/// A function that waits for that descriptor.
pub type UwTaskWaitFn = Option<unsafe extern "C-unwind" fn(*mut c_void) -> c_int>;

/// Waits for that descriptor with the program's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_wait(wait: UwTaskWaitFn, arg: *mut c_void) -> c_int {
    let wait = match given(wait) {
        Ok(wait) => wait,
        Err(code) => return code,
    };
    guard_own(|| match task::notifier() {
        // SAFETY: the function accepts this argument (uwork.h).
        Ok(notifier) => match notifier.wait(|| must_return(|| unsafe { wait(arg) })) {
            Some(answer) => answer,
            None => fail(libc::EINTR, "the thread has items to run: it did not wait"),
        },
        Err(error) => refused(&error),
    })
}

/// `read(2)`, during which the thread runs its task work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_read(fd: c_int, buffer: *mut c_void, size: usize) -> isize {
    if fd < 0 {
        return fail(libc::EBADF, format!("the descriptor is {fd}")) as isize;
    }
    if buffer.is_null() && size > 0 {
        return misuse(libc::EINVAL, "the buffer is NULL") as isize;
    }
    // A single system call never reads more.
    let size = size.min(c_int::MAX as usize);
    let buffer = NonNull::new(buffer.cast::<u8>()).unwrap_or(NonNull::dangling());
    // SAFETY: a buffer of that size that belongs to the caller (uwork.h); it is written before it
    // is read. The system call itself refuses a descriptor that is not open.
    let (fd, buffer) = unsafe {
        (BorrowedFd::borrow_raw(fd), std::slice::from_raw_parts_mut(buffer.as_ptr(), size))
    };
    match not_ended().and_then(|()| guarded(|| task::read(fd, buffer))) {
        Ok(Ok(bytes)) => bytes as isize,
        Ok(Err(error)) => refused(&error) as isize,
        Err(code) => code as isize,
    }
}

/// A system call that a notification ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_syscall(number: c_long, arguments: *const c_long) -> c_long {
    if arguments.is_null() {
        return c_long::from(misuse(libc::EINVAL, "the arguments are NULL"));
    }
    // SAFETY: the pointer refers to six numbers (uwork.h).
    let arguments = unsafe { arguments.cast::<[c_long; 6]>().read() };
    let arguments = arguments.map(|argument| argument as usize);
    // SAFETY: as for the system call itself (uwork.h).
    match not_ended().and_then(|()| guarded(|| unsafe { task::syscall(number, arguments) })) {
        Ok(Ok(answer)) => answer as c_long,
        Ok(Err(error)) => c_long::from(refused(&error)),
        Err(code) => c_long::from(code),
    }
}
