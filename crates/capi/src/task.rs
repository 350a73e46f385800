//! Task work: items that a certain thread runs itself.

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::time::Duration;

use uwork::WorkPointer;
use uwork::task::{self, Added, Delivery, HasTaskWork, Notify, TaskHandle, TaskItem, TaskWork};

use crate::cpu::given;
use crate::error::{fail, guard, guarded, misuse};
use crate::queue::set_errno;

/// A thread for which task work can be added.
pub struct UwTask(TaskHandle);

/// What an item does. It gets the item.
pub type UwTaskWorkFn = Option<unsafe extern "C-unwind" fn(*mut UwTaskWork)>;

/// `struct uw_task_work`.
#[repr(C)]
pub struct UwTaskWork {
    work: TaskWork<UwTaskWork>,
    func: UwTaskWorkFn,
}

// uwork.h has the same sizes and places, and so have programs that were built with it.
const _: () = assert!(size_of::<UwTaskWork>() == 32 && align_of::<UwTaskWork>() == 8);
const _: () = assert!(std::mem::offset_of!(UwTaskWork, func) == 24);

// SAFETY: at its beginning (`repr(C)`).
unsafe impl HasTaskWork for UwTaskWork {
    const OFFSET: usize = 0;
}

impl TaskItem for UwTaskWork {
    type Pointer = ItemPointer;

    fn run(this: ItemPointer) {
        // SAFETY: the item is live until its function was called; no reference to it is left then.
        let func = unsafe { (*this.0.as_ptr()).func };
        // SAFETY: the function is for this item (uwork.h). `add` has seen that there is one.
        unsafe { func.expect("an item has a function")(this.0.as_ptr()) };
    }
}

/// The user's item. Nobody counts such pointers: it is the user who sees to it that the item stays.
#[derive(Debug, PartialEq, Eq)]
pub struct ItemPointer(NonNull<UwTaskWork>);

// SAFETY: an item that was added stays where it is until it has run or was taken back (uwork.h).
unsafe impl WorkPointer for ItemPointer {
    type Target = UwTaskWork;

    fn into_raw(self) -> NonNull<UwTaskWork> {
        self.0
    }

    unsafe fn from_raw(raw: NonNull<UwTaskWork>) -> Self {
        ItemPointer(raw)
    }
}

/// A thread, from what C has.
///
/// # Safety
/// Null, or from this library and not given back (uwork.h).
unsafe fn task_of<'a>(task: *const UwTask) -> Result<&'a TaskHandle, c_int> {
    // SAFETY: by this function's contract.
    match unsafe { task.as_ref() } {
        Some(task) => Ok(&task.0),
        None => Err(misuse(libc::EINVAL, "the task is NULL")),
    }
}

/// An item, from what C has.
///
/// # Safety
/// Null, or an item's memory, of zeros if it was never made (uwork.h).
unsafe fn item_of(item: *const UwTaskWork) -> Result<NonNull<UwTaskWork>, c_int> {
    let Some(item) = NonNull::new(item.cast_mut()) else {
        return Err(misuse(libc::EINVAL, "the item is NULL"));
    };
    // SAFETY: by this function's contract; the place is not written once the item was made.
    if unsafe { (&raw const (*item.as_ptr()).func).read() }.is_none() {
        return Err(misuse(libc::EINVAL, "the item has no function: uw_task_work_init makes it"));
    }
    Ok(item)
}

/// A number of items as C has it.
fn count(items: usize) -> c_int {
    c_int::try_from(items).unwrap_or(c_int::MAX)
}

/// An error of the system's.
#[cold]
fn refused(error: &io::Error) -> c_int {
    let other = match error.kind() {
        io::ErrorKind::Unsupported => libc::ENOSYS,
        _ => libc::EBUSY,
    };
    fail(error.raw_os_error().unwrap_or(other), error.to_string())
}

/// The calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_current() -> *mut UwTask {
    match guarded(TaskHandle::current) {
        Ok(handle) => Box::into_raw(Box::new(UwTask(handle))),
        Err(code) => {
            set_errno(-code);
            std::ptr::null_mut()
        }
    }
}

/// One more reference to a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_get(task: *const UwTask) -> *mut UwTask {
    // SAFETY: by uwork.h.
    match unsafe { task_of(task) } {
        Ok(handle) => Box::into_raw(Box::new(UwTask(handle.clone()))),
        Err(code) => {
            set_errno(-code);
            std::ptr::null_mut()
        }
    }
}

/// Gives a reference back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_put(task: *mut UwTask) {
    if !task.is_null() {
        // SAFETY: from this library, and given back once (uwork.h).
        drop(unsafe { Box::from_raw(task) });
    }
}

/// Makes an item.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_work_init(item: *mut UwTaskWork, func: UwTaskWorkFn) {
    if item.is_null() {
        misuse(libc::EINVAL, "the item is NULL");
        return;
    }
    if func.is_none() {
        misuse(libc::EINVAL, "an item's function is NULL");
    }
    // SAFETY: memory of an item that nobody uses (uwork.h).
    unsafe { item.write(UwTaskWork { work: TaskWork::new(), func }) };
}

/// Adds an item for a thread.
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

/// Takes an item back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_work_cancel(task: *const UwTask, item: *mut UwTaskWork) -> c_int {
    // SAFETY: by uwork.h; the item is live.
    let outcome = unsafe {
        task_of(task).and_then(|task| Ok(task.cancel(&item_of(item)?.as_ref().work).is_some()))
    };
    outcome.map_or_else(|code| code, c_int::from)
}

/// What says which item is meant.
pub type UwTaskMatchFn = Option<unsafe extern "C" fn(*mut UwTaskWork, *mut c_void) -> bool>;

/// Takes the oldest item back that is meant.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_work_cancel_match(
    task: *const UwTask,
    matches: UwTaskMatchFn,
    arg: *mut c_void,
) -> *mut UwTaskWork {
    // SAFETY: by uwork.h.
    let both = unsafe { task_of(task) }.and_then(|task| Ok((task, given(matches)?)));
    let found = both.map(|(task, matches)| {
        task.cancel_match::<ItemPointer, 0>(|item| {
            // SAFETY: an item in a list is live; the function is for items (uwork.h).
            unsafe { matches(std::ptr::from_ref(item).cast_mut(), arg) }
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

/// Runs until nothing is left.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_run() -> c_int {
    guard(|| count(task::run()))
}

/// Runs what is there.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_run_once() -> c_int {
    guard(|| count(task::run_once()))
}

/// Runs what is there, if the thread was told to.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_safe_point() -> c_int {
    guard(|| count(task::safe_point()))
}

/// Whether it was.
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

/// Sleeps until there is something to run, and runs it.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_park(timeout_ns: i64) -> c_int {
    guard(|| {
        count(match u64::try_from(timeout_ns) {
            Ok(nanos) => task::park_timeout(Duration::from_nanos(nanos)),
            Err(_) => task::park(),
        })
    })
}

/// Chooses how the calling thread is told.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_set_delivery(delivery: c_uint) -> c_int {
    let delivery = match delivery {
        0 => Delivery::Auto,
        1 => Delivery::Light,
        2 => Delivery::Signal,
        other => {
            let text =
                format!("delivery {other}: UW_DELIVERY_AUTO to UW_DELIVERY_SIGNAL are allowed");
            return fail(libc::EINVAL, text);
        }
    };
    guard(|| match task::set_delivery(delivery) {
        Ok(()) => 0,
        Err(error) => fail(libc::EBUSY, error.to_string()),
    })
}

/// Chooses the process's signal.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_set_signal(number: c_int, restarts: bool) -> c_int {
    match task::set_signal(number, restarts) {
        Ok(()) => 0,
        Err(error @ task::SignalError::NotRealTime { .. }) => fail(libc::EINVAL, error.to_string()),
        Err(error) => fail(libc::EBUSY, error.to_string()),
    }
}

/// The descriptor that becomes readable when the calling thread has something to run.
#[unsafe(no_mangle)]
pub extern "C" fn uw_task_fd() -> c_int {
    guard(|| match task::notifier() {
        Ok(notifier) => notifier.as_fd().as_raw_fd(),
        Err(error) => refused(&error),
    })
}

/// What waits for that descriptor.
pub type UwTaskWaitFn = Option<unsafe extern "C-unwind" fn(*mut c_void) -> c_int>;

/// Waits for it, in the user's own way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_wait(wait: UwTaskWaitFn, arg: *mut c_void) -> c_int {
    let wait = match given(wait) {
        Ok(wait) => wait,
        Err(code) => return code,
    };
    guard(|| match task::notifier() {
        // SAFETY: the function is for this argument (uwork.h).
        Ok(notifier) => match notifier.wait(|| unsafe { wait(arg) }) {
            Some(answer) => answer,
            None => fail(libc::EINTR, "the thread has something to run: it did not wait"),
        },
        Err(error) => refused(&error),
    })
}

/// `read(2)`, during which task work runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_read(fd: c_int, buffer: *mut c_void, size: usize) -> isize {
    if fd < 0 {
        return fail(libc::EBADF, format!("the descriptor is {fd}")) as isize;
    }
    if buffer.is_null() && size > 0 {
        return misuse(libc::EINVAL, "the buffer is NULL") as isize;
    }
    // No system call reads more at once.
    let size = size.min(c_int::MAX as usize);
    let buffer = NonNull::new(buffer.cast::<u8>()).unwrap_or(NonNull::dangling());
    // SAFETY: a buffer of that size, which is the caller's (uwork.h); it is written before it is read. A descriptor
    // that is not open is the system call's to refuse.
    let (fd, buffer) = unsafe {
        (BorrowedFd::borrow_raw(fd), std::slice::from_raw_parts_mut(buffer.as_ptr(), size))
    };
    match guarded(|| task::read(fd, buffer)) {
        Ok(Ok(bytes)) => bytes as isize,
        Ok(Err(error)) => refused(&error) as isize,
        Err(code) => code as isize,
    }
}

/// A system call that task work ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uw_task_syscall(number: c_long, arguments: *const c_long) -> c_long {
    if arguments.is_null() {
        return c_long::from(misuse(libc::EINVAL, "the arguments are NULL"));
    }
    // SAFETY: six numbers (uwork.h).
    let arguments = unsafe { arguments.cast::<[c_long; 6]>().read() };
    let arguments = arguments.map(|argument| argument as usize);
    // SAFETY: as the system call (uwork.h).
    match guarded(|| unsafe { task::syscall(number, arguments) }) {
        Ok(Ok(answer)) => answer as c_long,
        Ok(Err(error)) => c_long::from(refused(&error)),
        Err(code) => c_long::from(code),
    }
}
