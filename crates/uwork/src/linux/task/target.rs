//! A thread that is a target: its list, what it says of its waits, and how it is told.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};
use std::time::{Duration, Instant};

use uwork_engine::task::{Added, Kick, Notify, TaskList, TaskWork};

use super::descriptor::Descriptor;
use super::turn::Turn;
use super::{call, ring_message, signal};
use crate::linux::{forks, futex, relax};

/// How a thread is told of task work that was added with [`Notify::Signal`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Delivery {
    /// A declared wait is ended as such. In all other places, where the thread may compute or be in a system call
    /// that nobody knows of, it gets a signal.
    #[default]
    Auto,
    /// A declared wait is ended as such. In all other places nothing is done: the thread promises that every wait
    /// of its own is declared, and looks at its next safe point.
    Light,
    /// Always a signal, also in declared waits: what one would do without task work, to compare with.
    Signal,
}

/// What a target waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Wait {
    /// For its turn on the CPU: it looks again before it waits in another way, and needs not be told.
    Yield,
    /// A futex wait on the state itself.
    Futex,
    /// Something that its eventfd ends.
    Descriptor,
    /// Its ring's wait for completions.
    Ring,
    /// A system call, through the stub.
    Call,
}

impl Wait {
    fn from_u8(value: u8) -> Wait {
        match value {
            0 => Wait::Yield,
            1 => Wait::Futex,
            2 => Wait::Descriptor,
            3 => Wait::Ring,
            _ => Wait::Call,
        }
    }
}

/// A value of `Target::ring`: it has none.
const NO_RING: RawFd = -1;

/// See the module. What only its own thread may call says so.
pub(crate) struct Target {
    list: TaskList,
    /// Its number in the system.
    thread: libc::pid_t,
    /// Forks before it was made: in a child, the targets of the parent are nobody's.
    forks: u32,
    delivery: AtomicU8,
    /// The thread takes the signal.
    accepts: AtomicBool,
    /// How it waits, a [`Wait`]. Written before the list says that it waits.
    wait: AtomicU8,
    /// It is in a wait for its descriptor, inside of which it may begin another. Its own thread's alone.
    waits_for_descriptor: AtomicBool,
    /// The ring that it waits in, if that takes messages.
    ring: AtomicI32,
    /// It has a ring. Its own thread's alone.
    #[cfg(feature = "ring")]
    has_ring: AtomicBool,
    descriptor: Descriptor,
    turn: Turn,
}

thread_local! {
    /// The calling thread's target, from when it asked for one to when its destructors have run.
    static ADDRESS: Cell<*const Target> = const { Cell::new(std::ptr::null()) };
    static OWNED: Owned = const { Owned(RefCell::new(None)) };
}

/// What ends the list when the thread ends.
struct Owned(RefCell<Option<Arc<Target>>>);

impl Drop for Owned {
    fn drop(&mut self) {
        if let Some(target) = self.0.get_mut() {
            // SAFETY: this thread's own.
            unsafe { target.exit() };
            ADDRESS.set(std::ptr::null());
        }
    }
}

/// The calling thread's target, made if there is none, and told as `delivery` says then. `None` if the thread's
/// destructors have run.
pub(crate) fn current(delivery: Delivery) -> Option<Arc<Target>> {
    let address = ADDRESS.get();
    if !address.is_null() {
        // SAFETY: of an `Arc` that the thread owns. The pointer as it came from there, not one of a reference to the
        // target: it is good for the counts as well, which lie before the target.
        return Some(unsafe {
            Arc::increment_strong_count(address);
            Arc::from_raw(address)
        });
    }
    OWNED.try_with(|owned| owned.0.borrow_mut().insert(register(delivery)).clone()).ok()
}

/// The calling thread's target, if it has one.
///
/// The reference is good until the thread's destructors run: it is not to be kept.
#[inline]
pub(crate) fn current_or_none<'a>() -> Option<&'a Target> {
    // SAFETY: null, or what this thread owns until its destructors run.
    unsafe { ADDRESS.get().as_ref() }
}

fn register(delivery: Delivery) -> Arc<Target> {
    crate::linux::are_watched();
    // Where every signal has another handler, declared waits are what is left.
    let accepts = delivery != Delivery::Light && signal::accept().is_ok();
    let delivery = if accepts { delivery } else { Delivery::Light };
    let target = Arc::new(Target {
        list: TaskList::new(),
        // SAFETY: no arguments; cannot fail.
        thread: unsafe { libc::gettid() },
        forks: forks(),
        delivery: AtomicU8::new(delivery as u8),
        accepts: AtomicBool::new(accepts),
        wait: AtomicU8::new(Wait::Futex as u8),
        waits_for_descriptor: AtomicBool::new(false),
        ring: AtomicI32::new(NO_RING),
        #[cfg(feature = "ring")]
        has_ring: AtomicBool::new(false),
        descriptor: Descriptor::new(),
        turn: Turn::new(),
    });
    ADDRESS.set(Arc::as_ptr(&target));
    target
}

/// In a forked child: the thread is a new one, to which nothing was added.
pub(in crate::linux) fn child() {
    if let Some(target) = current_or_none() {
        // An item may have forked, so the thread may be in the midst of its list.
        // SAFETY: this is the copy of the target's thread, and the only thread.
        unsafe { target.list.forget() };
    }
    ADDRESS.set(std::ptr::null());
    // What the parent's thread was to run is left where it is: it runs there.
    let _ = OWNED.try_with(|owned| std::mem::forget(owned.0.take()));
}

/// Ends the calling thread's list, as its end would.
pub(crate) fn thread_ends() {
    if let Some(target) = current(Delivery::Light) {
        // SAFETY: this thread's own.
        unsafe { target.exit() };
    }
}

impl Target {
    /// Adds an item, and tells the target where that is due. `None` if it was added; else why not.
    ///
    /// # Safety
    /// As [`TaskList::add`].
    #[inline]
    pub(crate) unsafe fn add(&self, work: NonNull<TaskWork>, notify: Notify) -> Outcome {
        if self.is_of_parent() {
            return Outcome::Exited;
        }
        // SAFETY: by this function's contract.
        match unsafe { self.list.add(work, notify) } {
            Added::Yes(None) => Outcome::Added,
            Added::Yes(Some(kick)) => {
                self.tell(kick);
                Outcome::Added
            }
            Added::Pending => Outcome::Pending,
            Added::Exited => Outcome::Exited,
        }
    }

    /// As [`TaskList::cancel`].
    ///
    /// # Safety
    /// As there.
    pub(crate) unsafe fn cancel(&self, work: NonNull<TaskWork>) -> bool {
        // SAFETY: by this function's contract.
        !self.is_of_parent() && unsafe { self.list.cancel(work) }
    }

    /// As [`TaskList::cancel_match`].
    pub(crate) fn cancel_match(
        &self,
        matches: impl FnMut(NonNull<TaskWork>) -> bool,
    ) -> Option<NonNull<TaskWork>> {
        if self.is_of_parent() { None } else { self.list.cancel_match(matches) }
    }

    /// Whether this is a forked child's copy of a target of its parent.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.forks != forks()
    }

    pub(crate) fn is_current(&self) -> bool {
        std::ptr::eq(ADDRESS.get(), self)
    }

    fn tell(&self, kick: Kick<'_>) {
        if kick.waits() {
            match Wait::from_u8(self.wait.load(Ordering::Relaxed)) {
                Wait::Yield => {}
                Wait::Futex => futex::wake(self.list.futex().cast()),
                Wait::Descriptor => self.descriptor.write(),
                Wait::Ring => self.send_to_ring(),
                Wait::Call => return self.tell_by_signal(kick),
            }
        } else if self.delivery() != Delivery::Light && !self.is_current() {
            return self.tell_by_signal(kick);
        }
        kick.sent();
    }

    fn tell_by_signal(&self, kick: Kick<'_>) {
        if signal::send(self.thread) { kick.sent() } else { kick.failed() }
    }

    fn send_to_ring(&self) {
        let ring = self.ring.load(Ordering::Relaxed);
        if ring == NO_RING || !ring_message::send(ring) {
            self.descriptor.write();
        }
    }

    pub(crate) fn delivery(&self) -> Delivery {
        match self.delivery.load(Ordering::Relaxed) {
            0 => Delivery::Auto,
            1 => Delivery::Light,
            _ => Delivery::Signal,
        }
    }

    /// Chooses how the thread is told from now on. For itself.
    ///
    /// # Errors
    /// No signal is free for it.
    pub(crate) fn set_delivery(&self, delivery: Delivery) -> Result<(), signal::SignalError> {
        if delivery != Delivery::Light {
            self.accept_signal()?;
        }
        self.delivery.store(delivery as u8, Ordering::Relaxed);
        // Whoever adds after this call goes by it.
        self.list.settle(relax);
        Ok(())
    }

    /// Makes the thread take the signal. For itself; once.
    pub(crate) fn accept_signal(&self) -> Result<(), signal::SignalError> {
        if !self.accepts.load(Ordering::Relaxed) {
            signal::accept()?;
            self.accepts.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// # Safety
    /// On the target's own thread.
    pub(crate) unsafe fn run(&self) -> usize {
        // SAFETY: by this function's contract.
        unsafe { self.list.run() }
    }

    /// # Safety
    /// On the target's own thread.
    pub(crate) unsafe fn run_once(&self) -> usize {
        // SAFETY: by this function's contract.
        unsafe { self.list.run_once() }
    }

    #[inline]
    pub(crate) fn is_notified(&self) -> bool {
        self.list.is_notified()
    }

    /// # Safety
    /// On the target's own thread.
    unsafe fn exit(&self) {
        // SAFETY: by this function's contract.
        unsafe { self.list.exit(relax) };
    }

    /// Waits in `wait`, which is called with the wait declared, unless the target is to run its list: then `None`.
    ///
    /// # Safety
    /// On the target's own thread. A notification of this kind that comes before `wait` sleeps ends it.
    #[inline]
    pub(crate) unsafe fn wait<R>(&self, how: Wait, wait: impl FnOnce() -> R) -> Option<R> {
        let delivery = self.delivery();
        let how = match (how, delivery) {
            // This wait looks at the state again in the kernel. Others would lose a signal that comes early.
            (Wait::Futex, Delivery::Signal) => Wait::Call,
            _ => how,
        };
        if delivery != Delivery::Signal && self.turn.is_due() {
            // SAFETY: by this function's contract; after it comes another look.
            unsafe { self.wait_in(Wait::Yield, || self.turn.take()) };
        }
        // SAFETY: by this function's contract.
        let result = unsafe { self.wait_in(how, wait) };
        self.turn.waited(self.list.is_notified());
        result
    }

    /// # Safety
    /// As [`Target::wait`].
    #[inline]
    unsafe fn wait_in<R>(&self, how: Wait, wait: impl FnOnce() -> R) -> Option<R> {
        struct Waits<'a> {
            target: &'a Target,
            is_inner: bool,
        }
        /// Also where `wait` unwinds.
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                // SAFETY: on the target's own thread, as `wait`.
                unsafe { self.target.wait_is_over(self.is_inner) };
            }
        }
        let _waits = Waits { target: self, is_inner: self.waits_for_descriptor() };
        self.set_wait(how);
        // SAFETY: by this function's contract.
        unsafe { self.list.declare() }.then(wait)
    }

    /// # Safety
    /// On the target's own thread.
    unsafe fn wait_is_over(&self, was_inner: bool) {
        if !was_inner {
            self.waits_for_descriptor.store(false, Ordering::Relaxed);
            // SAFETY: by this function's contract. Whoever waits looks again whether it was notified.
            let _ = unsafe { self.list.leave() };
            return;
        }
        // A wait for the descriptor goes on around it.
        self.set_wait(Wait::Descriptor);
        // SAFETY: by this function's contract.
        if !unsafe { self.list.declare() } {
            // Whoever notified has ended the wait that is over, if any.
            self.descriptor.write();
        }
    }

    fn set_wait(&self, how: Wait) {
        self.waits_for_descriptor.store(how == Wait::Descriptor, Ordering::Relaxed);
        self.wait.store(how as u8, Ordering::Relaxed);
    }

    fn waits_for_descriptor(&self) -> bool {
        self.waits_for_descriptor.load(Ordering::Relaxed)
    }

    /// Sleeps until the target is to run its list, or until the deadline.
    ///
    /// # Safety
    /// On the target's own thread.
    pub(crate) unsafe fn park(&self, deadline: Option<Instant>) {
        let sleep = || {
            // SAFETY: on the target's own thread, in a declared wait.
            while let Some(expected) = unsafe { self.list.sleeping() } {
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                if left == Some(Duration::ZERO) {
                    break;
                }
                // SAFETY: the address of a part of the list, which is live.
                futex::wait(unsafe { &*self.list.futex().cast() }, expected, left);
            }
        };
        // SAFETY: the wait compares the word that a notification has changed.
        unsafe { self.wait(Wait::Futex, sleep) };
    }

    /// Makes a system call that a notification ends with `EINTR`, also one that comes before it has begun.
    ///
    /// # Safety
    /// On the target's own thread. The call is as safe as the system says.
    pub(crate) unsafe fn call(
        &self,
        number: libc::c_long,
        arguments: [usize; 6],
    ) -> Result<usize, i32> {
        let word = self.list.futex();
        // SAFETY: by this function's contract; the word is live. The handler ends a call that has not begun.
        let result = unsafe {
            self.wait(Wait::Call, || call::checked(number, &arguments, word, TaskList::NOTIFIED))
        };
        result.unwrap_or(Err(libc::EINTR))
    }

    /// The eventfd that ends waits for descriptors.
    ///
    /// # Errors
    /// None can be made.
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.descriptor.get()
    }

    /// After a wait for the eventfd: takes back what was written to it, if anything was. For its own thread.
    pub(crate) fn clear_descriptor(&self) {
        // In a child that was forked during the wait, what was written is the parent's. After an inner wait, it is the
        // outer one's.
        if !self.is_of_parent() && !self.waits_for_descriptor() {
            self.descriptor.clear();
        }
    }

    /// Waits in its ring by a system call, `io_uring_enter`, unless it is to run its list: then `EINTR`.
    ///
    /// # Safety
    /// On the target's own thread, which has set the ring. The call is as safe as the system says.
    #[cfg(feature = "ring")]
    pub(crate) unsafe fn enter_ring(&self, arguments: [usize; 6]) -> Result<usize, i32> {
        if self.delivery() == Delivery::Signal {
            // SAFETY: by this function's contract.
            return unsafe { self.call(libc::SYS_io_uring_enter, arguments) };
        }
        if arguments[1] > 0 {
            // What is queued is not to wait for others' turns.
            self.turn.waited(false);
        }
        // SAFETY: by this function's contract. A message, or a write to the eventfd, is a completion, which stays
        // in the ring.
        let result = unsafe { self.wait(Wait::Ring, || Target::enter(arguments)) };
        result.unwrap_or(Err(libc::EINTR))
    }

    /// `io_uring_enter` without a look before it: where it does not sleep, or what comes early stays.
    ///
    /// # Safety
    /// As the system call's.
    #[cfg(feature = "ring")]
    pub(crate) unsafe fn enter([a, b, c, d, e, f]: [usize; 6]) -> Result<usize, i32> {
        // SAFETY: by this function's contract.
        let result = unsafe { libc::syscall(libc::SYS_io_uring_enter, a, b, c, d, e, f) };
        usize::try_from(result).map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// Whether it has a ring.
    #[cfg(feature = "ring")]
    pub(crate) fn has_ring(&self) -> bool {
        self.has_ring.load(Ordering::Relaxed)
    }

    /// Says which ring the target waits in. Its eventfd is to be polled there.
    #[cfg(feature = "ring")]
    pub(crate) fn set_ring(&self, ring: RawFd) {
        self.has_ring.store(true, Ordering::Relaxed);
        // One to itself: where that cannot be, others use the eventfd.
        if ring_message::send(ring) {
            self.ring.store(ring, Ordering::Relaxed);
        }
    }

    /// Afterwards nobody uses the ring.
    #[cfg(feature = "ring")]
    pub(crate) fn unset_ring(&self) {
        self.ring.store(NO_RING, Ordering::Relaxed);
        self.list.settle(relax);
        self.has_ring.store(false, Ordering::Relaxed);
    }
}

/// What became of an item.
pub(crate) enum Outcome {
    Added,
    Pending,
    Exited,
}
