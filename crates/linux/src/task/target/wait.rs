//! The kinds of waits of a target, which are declared before and withdrawn after.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use uwork_engine::task::TaskList;

use super::{Delivery, Target};
use crate::futex;
use crate::task::call;

/// The kind of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Wait {
    /// A yield: the target checks again before it waits in another way, and needs no notification.
    Yield,
    /// A futex wait on the state itself.
    Futex,
    /// Any wait that its eventfd ends.
    Descriptor,
    /// Its ring's wait for completions.
    Ring,
    /// A system call, through the stub.
    Call,
}

impl Wait {
    pub(super) fn from_u8(value: u8) -> Wait {
        match value {
            0 => Wait::Yield,
            1 => Wait::Futex,
            2 => Wait::Descriptor,
            3 => Wait::Ring,
            _ => Wait::Call,
        }
    }
}

impl Target {
    /// Waits in `wait`, which is called with the wait declared, unless the target was notified to
    /// run its list: then `None`.
    ///
    /// # Safety
    /// On the target's own thread. A notification of this kind ends `wait` even if it arrives
    /// before `wait` sleeps.
    #[inline]
    pub unsafe fn wait<R>(&self, how: Wait, wait: impl FnOnce() -> R) -> Option<R> {
        let delivery = self.delivery();
        let how = match (how, delivery) {
            // The stub checks the state together with the call. Another wait would lose a signal
            // that arrives early.
            (Wait::Futex, Delivery::Signal) => Wait::Call,
            _ => how,
        };
        if delivery != Delivery::Signal && self.turn.is_due() {
            // SAFETY: by this function's contract; another check follows.
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
        /// Ends the declaration, also if `wait` unwinds.
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
            // SAFETY: by this function's contract. The waiter checks again whether it was notified.
            let _ = unsafe { self.list.leave() };
            return;
        }
        // The enclosing wait for the descriptor continues.
        self.set_wait(Wait::Descriptor);
        // SAFETY: by this function's contract.
        if !unsafe { self.list.declare() } {
            // The notification went to the inner wait, if to any: make the descriptor readable for
            // the outer one. If the program has closed it, that wait has nothing to wait for.
            let _ = self.descriptor.write();
        }
    }

    fn set_wait(&self, how: Wait) {
        self.waits_for_descriptor.store(how == Wait::Descriptor, Ordering::Relaxed);
        self.wait.store(how as u8, Ordering::Relaxed);
    }

    fn waits_for_descriptor(&self) -> bool {
        self.waits_for_descriptor.load(Ordering::Relaxed)
    }

    /// Sleeps until the target is notified to run its list, or until the deadline.
    ///
    /// # Safety
    /// On the target's own thread.
    pub unsafe fn park(&self, deadline: Option<Instant>) {
        let sleep = || {
            // SAFETY: on the target's own thread, in a declared wait.
            while let Some(expected) = unsafe { self.list.sleeping() } {
                let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
                if left == Some(Duration::ZERO) {
                    break;
                }
                // SAFETY: the address of a word of the list, which is live.
                futex::wait(unsafe { &*self.list.futex().cast() }, expected, left);
            }
        };
        // SAFETY: the futex wait compares the word that a notification changes.
        unsafe { self.wait(Wait::Futex, sleep) };
    }

    /// Makes a system call that a notification ends with `EINTR`, also by one that arrives before
    /// the call has begun.
    ///
    /// # Safety
    /// On the target's own thread. The contract of the system call holds.
    pub unsafe fn call(&self, number: libc::c_long, arguments: [usize; 6]) -> Result<usize, i32> {
        // SAFETY: by this function's contract. The handler ends a call that has not begun.
        let result = unsafe { self.wait(Wait::Call, || self.checked(number, arguments)) };
        result.unwrap_or(Err(libc::EINTR))
    }

    /// Makes the call through the stub, unless the target was notified: then `EINTR`.
    ///
    /// # Safety
    /// On the target's own thread, in a declared wait. The contract of the system call holds.
    pub(super) unsafe fn checked(
        &self,
        number: libc::c_long,
        arguments: [usize; 6],
    ) -> Result<usize, i32> {
        // SAFETY: by this function's contract; the word is live.
        unsafe { call::checked(number, &arguments, self.list.futex(), TaskList::NOTIFIED) }
    }

    /// After a wait for the eventfd: clears it, if anything was written. For its own thread.
    pub fn clear_descriptor(&self) {
        // In a child that was forked during the wait, the writes belong to the parent. After an
        // inner wait, they belong to the outer one.
        if !self.is_of_parent() && !self.waits_for_descriptor() {
            self.descriptor.clear();
        }
    }
}
