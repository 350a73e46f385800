//! The control socket: a Unix socket of the process, through which operators look in and change
//! attributes. This module has the socket, its thread and the limits; the answers come from a
//! [`Service`] of the crate above. The README has the protocol between the threads.

mod address;
mod connection;
mod interrupt;
mod listener;
mod note;
mod notice;
mod on_signal;
mod server;

use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use uwork_engine::host::Report;

use crate::Event;
use crate::descriptor::OwnDescriptor;
use crate::first_use;

pub use address::{FOLDER, PLACES};
pub use connection::{LINE_MAX, OUTPUT_MAX};
pub(crate) use interrupt::{Held, hold};
pub use note::PREFIX as NOTE;
pub(crate) use notice::{is_watcher, signal_is_of_program};
pub use on_signal::{call_on_signal, call_on_signal_of_environment};
pub use server::CONNECTIONS_MAX;

/// The answers to the requests of clients. Called on the thread of the control socket, which holds
/// no lock.
pub trait Service: Sync {
    /// What a client gets when it has connected.
    fn greeting(&self) -> String;

    /// The answers to a new client.
    fn session(&self) -> Box<dyn Session>;

    /// The answer to a line that is longer than [`LINE_MAX`] or not UTF-8, after which the
    /// connection is closed.
    fn refuse(&self, reason: &str) -> String;
}

/// The answers to one client. Dropped with its connection: what the client has begun ends then.
pub trait Session {
    /// The answer to a request, which is a line without its newline.
    fn answer(&mut self, request: &str) -> String;

    /// Whether something goes on that the client has begun. Then it is not idle.
    fn is_busy(&self) -> bool;
}

static SERVICE: OnceLock<&'static dyn Service> = OnceLock::new();
/// The watcher's event; null while the watcher does not exist.
static WATCHER: AtomicPtr<Event> = AtomicPtr::new(ptr::null_mut());
/// The watcher has something to do here.
static NOTICED: AtomicBool = AtomicBool::new(false);
/// The control thread exists, or is about to.
static SERVING: AtomicBool = AtomicBool::new(false);
/// This process has reported that it has no socket.
static REPORTED: AtomicBool = AtomicBool::new(false);
/// The socket, or why there is none. Locked by [`lock_socket`].
static SOCKET: Mutex<State> = Mutex::new(State::None("no queue has been made yet"));

/// See [`SOCKET`].
enum State {
    None(&'static str),
    /// With the file that shows the reason.
    Failed(listener::Failure, #[expect(dead_code, reason = "stays open")] Option<OwnDescriptor>),
    Open(listener::Listener),
}

/// [`SOCKET`], locked within the lock of `first_use`, so that no fork finds it locked.
struct Socket {
    state: MutexGuard<'static, State>,
    _making: first_use::Making,
}

/// Call it with no lock of the library held.
fn lock_socket() -> Socket {
    let _making = first_use::making();
    Socket { state: SOCKET.lock().unwrap_or_else(PoisonError::into_inner), _making }
}

impl Socket {
    fn listener(&self) -> Option<&listener::Listener> {
        match &*self.state {
            State::Open(listener) => Some(listener),
            _ => None,
        }
    }

    /// Whether the socket is to be opened again: clients cannot find it any more, or the system had no
    /// descriptor for it.
    fn is_due_again(&self) -> bool {
        match &*self.state {
            State::None(_) => false,
            State::Failed(failure, _) => failure.is_passing,
            State::Open(listener) => listener.socket().is_lost() || listener.is_misplaced(),
        }
    }

    /// See [`listener::Listener::keep`].
    fn keeps(&mut self) -> bool {
        match &mut *self.state {
            State::Open(listener) => listener.keep(),
            _ => false,
        }
    }

    /// Whether the control thread has something to do: a client waits to be accepted, or no signal tells
    /// of clients.
    fn wants_thread(&self) -> bool {
        self.listener().is_some_and(|listener| listener.socket().wants_thread())
    }

    /// Has the control thread wait for clients from now on, if the program uses the signal. For the
    /// watcher.
    fn check_signal(&self) {
        if let Some(listener) = self.listener()
            && !notice::is_by_signal()
        {
            listener.socket().stop_signals();
        }
    }
}

/// Offers a service on this process's socket, which the watcher opens. True at the first call; later
/// calls do nothing. `UWORK_CONTROL=0` in the environment switches the socket off.
#[inline]
pub fn offer(service: &'static dyn Service) -> bool {
    SERVICE.get().is_none() && offer_first(service)
}

#[cold]
fn offer_first(service: &'static dyn Service) -> bool {
    let mut is_first = false;
    first_use::once(&SERVICE, || {
        is_first = true;
        service
    });
    if is_first {
        // For a watcher that began before.
        notify();
    }
    is_first
}

/// The socket of this process, or the reason why it has none.
///
/// # Errors
/// The reason: the socket is off, is not open yet, or the system refused it.
pub fn socket() -> Result<PathBuf, String> {
    match &*lock_socket().state {
        State::Open(listener) => Ok(listener.path().to_owned()),
        State::None(reason) => Err((*reason).to_owned()),
        State::Failed(failure, _) => Err(failure.reason.clone()),
    }
}

/// Makes the watcher call [`attend`]. Async-signal-safe.
fn notify() {
    NOTICED.store(true, Ordering::SeqCst);
    let event = WATCHER.load(Ordering::SeqCst);
    if !event.is_null() {
        // SAFETY: the engine's, which lives as long as the process.
        unsafe { Event::set(event) };
    }
}

/// A client has connected. Called by the handler of the signal, on the watcher's thread.
pub(crate) fn connection_arrived() {
    notify();
}

/// The watcher's thread begins.
pub(crate) fn watcher_begins(event: *const Event) {
    notice::watcher_begins();
    WATCHER.store(event.cast_mut(), Ordering::SeqCst);
    NOTICED.store(true, Ordering::SeqCst);
}

/// Any thread of the library's sleeps until its event is set. True if it was, false after `timeout`.
#[inline]
pub(crate) fn park(event: &Event, timeout: Option<Duration>) -> bool {
    if ptr::eq(event, WATCHER.load(Ordering::Relaxed)) {
        return notice::sleep(event, timeout);
    }
    event.wait(timeout)
}

/// Called by the watcher whenever it has woken: a load, if there is nothing to do.
#[inline]
pub(crate) fn attend() {
    if NOTICED.load(Ordering::Relaxed) {
        attend_now();
    }
}

#[cold]
fn attend_now() {
    // Before the work: what arrives from here on is noticed again.
    NOTICED.store(false, Ordering::SeqCst);
    on_signal::attend();
    let Some(&service) = SERVICE.get() else { return };
    if !open() || SERVING.swap(true, Ordering::SeqCst) {
        return;
    }
    // The system may refuse the thread. The next client's signal tries again, and `renew`.
    if crate::thread::start("uw/control", move || server::serve(service)).is_err() {
        SERVING.store(false, Ordering::SeqCst);
    }
}

/// Opens the socket, if that was not tried before, or if it is due again. True if it is open, and the
/// control thread has something to do.
fn open() -> bool {
    let mut socket = lock_socket();
    let mut refused = None;
    if matches!(*socket.state, State::None(_)) || socket.is_due_again() {
        match listener::open(socket.listener()) {
            Ok(listener) => *socket.state = State::Open(listener),
            Err(failure) if !socket.keeps() => {
                refused = (!failure.is_wanted).then(|| failure.reason.clone());
                let note = refused.as_deref().and_then(note::show);
                *socket.state = State::Failed(failure, note);
            }
            Err(_) => {}
        }
        // The control thread may wait for clients of the lost one.
        interrupt::interrupt();
    }
    socket.check_signal();
    let wants_thread = socket.wants_thread();
    drop(socket);
    if let Some(reason) = refused.filter(|_| !REPORTED.swap(true, Ordering::Relaxed)) {
        crate::engine().report_apart(Report::NoControlSocket { reason });
    }
    wants_thread
}

/// Called by the watcher from time to time, without a lock: opens the socket again if it is due,
/// installs handlers again that the program has removed, and serves a client that was not noticed or
/// for which no thread could be created.
pub(crate) fn renew() {
    on_signal::keep_handlers();
    crate::stack::keep_handler();
    let socket = lock_socket();
    socket.check_signal();
    let is_waiting = !SERVING.load(Ordering::SeqCst) && socket.wants_thread();
    let is_due = is_waiting || socket.is_due_again();
    drop(socket);
    if is_due {
        attend_now();
    }
}

/// In a forked child, in which the parent's descriptors are closed. The child opens a socket of its
/// own when its watcher begins.
pub(crate) fn child() {
    on_signal::child();
    interrupt::child();
    notice::child();
    WATCHER.store(ptr::null_mut(), Ordering::SeqCst);
    NOTICED.store(false, Ordering::SeqCst);
    SERVING.store(false, Ordering::SeqCst);
    REPORTED.store(false, Ordering::Relaxed);
    // Not locked, unless the process was ending. Nothing is dropped, since that would free memory.
    if let Ok(mut socket) = SOCKET.try_lock() {
        let inherited = State::None("this process is a forked child that has used no queue yet");
        std::mem::forget(std::mem::replace(&mut *socket, inherited));
    }
}

/// Whether the program has more rights than its user, whose environment it does not trust then.
fn is_privileged() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
