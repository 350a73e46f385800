//! The creation of a thread, by the standard library or by the C library.
//!
//! The standard library's threads have a name in messages of panics, and a message when their stack
//! overflows. Where it gets no memory for one, it ends the process. A program in C has neither, and is
//! promised an error instead: for it, threads are the C library's.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{io, ptr};

static BY_C_LIBRARY: AtomicBool = AtomicBool::new(false);

/// From now on threads are the C library's. For programs in C, at their start.
pub fn by_c_library() {
    BY_C_LIBRARY.store(true, Ordering::Relaxed);
}

/// A thread that can be waited for. Dropping it leaves the thread to itself.
#[derive(Debug)]
pub struct Handle(Kind);

#[derive(Debug)]
enum Kind {
    Std(std::thread::JoinHandle<()>),
    Posix(Posix),
}

/// A joinable thread; detached when this is dropped.
#[derive(Debug)]
struct Posix(libc::pthread_t);

impl Handle {
    /// Waits for the end of the thread, which may be a panic.
    pub fn join(self) {
        match self.0 {
            Kind::Std(thread) => _ = thread.join(),
            Kind::Posix(thread) => {
                let thread = std::mem::ManuallyDrop::new(thread);
                // SAFETY: joinable, and neither joined nor detached before.
                unsafe { libc::pthread_join(thread.0, ptr::null_mut()) };
            }
        }
    }
}

impl Drop for Posix {
    fn drop(&mut self) {
        // SAFETY: joinable, and neither joined nor detached before.
        unsafe { libc::pthread_detach(self.0) };
    }
}

/// Starts a thread with this name, of at most 15 bytes, and a stack of at least this size. `is_plain`: the
/// C library's.
pub(crate) fn spawn(
    name: String,
    stack: usize,
    is_plain: bool,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<Handle> {
    if !is_plain && !BY_C_LIBRARY.load(Ordering::Relaxed) {
        let thread = std::thread::Builder::new().name(name).stack_size(stack).spawn(body)?;
        return Ok(Handle(Kind::Std(thread)));
    }
    create(name, stack, body).map(|thread| Handle(Kind::Posix(Posix(thread))))
}

fn create(
    name: String,
    stack: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<libc::pthread_t> {
    extern "C" fn run<F: FnOnce()>(start: *mut c_void) -> *mut c_void {
        // SAFETY: from `into_raw` below, and taken by this thread alone.
        let (name, body) = *unsafe { Box::from_raw(start.cast::<(String, F)>()) };
        super::thread::rename(&name);
        drop(name);
        // The message of a panic was printed. Its payload may panic when it is dropped.
        catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(std::mem::forget);
        ptr::null_mut()
    }
    fn with_body<F: FnOnce()>(_: &F) -> extern "C" fn(*mut c_void) -> *mut c_void {
        run::<F>
    }
    let run = with_body(&body);
    let start = Box::into_raw(Box::new((name, body)));
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    let done =
        |code: c_int| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
    // SAFETY: the attributes are initialised first, and destroyed in the end.
    let outcome = unsafe {
        done(libc::pthread_attr_init(attributes.as_mut_ptr())).and_then(|()| {
            let outcome = done(libc::pthread_attr_setstacksize(
                attributes.as_mut_ptr(),
                stack.next_multiple_of(PAGE_MAX),
            ))
            .and_then(|()| {
                done(libc::pthread_create(
                    thread.as_mut_ptr(),
                    attributes.as_ptr(),
                    run,
                    start.cast(),
                ))
            });
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            outcome
        })
    };
    match outcome {
        // SAFETY: written by the call that succeeded.
        Ok(()) => Ok(unsafe { thread.assume_init() }),
        Err(error) => {
            // SAFETY: no thread has taken it.
            drop(unsafe { Box::from_raw(start) });
            Err(error)
        }
    }
}

/// A multiple of the page size of every machine.
const PAGE_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_of_the_c_library_has_a_name_a_stack_and_an_end() {
        let (tell, told) = mpsc::channel();
        let body = move || {
            let frame = std::hint::black_box([1_u8; 3 << 20]);
            tell.send((super::super::thread::name(), frame.len())).unwrap();
        };
        let thread = create("uw/of-c".to_owned(), 8 << 20, body).unwrap();
        Handle(Kind::Posix(Posix(thread))).join();
        assert_eq!(told.try_recv(), Ok(("uw/of-c".to_owned(), 3 << 20)));
    }

    #[test]
    fn a_stack_that_the_system_refuses_is_an_error_and_drops_the_body() {
        let (tell, told) = mpsc::channel::<()>();
        let body = move || drop(tell);
        assert!(create("uw/huge".to_owned(), 1 << 60, body).is_err());
        assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Disconnected));
    }
}
