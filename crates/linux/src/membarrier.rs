//! Asymmetric fences by `membarrier(2)`, and their replacement where it is refused.
//!
//! | the system | light side | heavy side |
//! |---|---|---|
//! | registers the process | keeps the compiler from reordering | `membarrier` |
//! | refuses that from the start | full fence | full fence |
//! | refuses `membarrier` later: a filter, no memory | full fence | the first time a [crossing], then a full fence |
//!
//! **The change to full fences.** A light side that has just read that it need not fence may still
//! have its load before its store. The thread that finds `membarrier` refused first stores that
//! light sides are full fences from now on, and then crosses all CPUs. A thread that was switched
//! since then reads that value, so its next light side is a full fence. A light side in progress at
//! the switch is ordered by the switch, which is a full barrier. Only then does the thread store
//! that a full fence suffices for the heavy side. A concurrent heavy side does not see that yet,
//! finds `membarrier` refused, and crosses by itself.
//!
//! If the crossing is not possible either, the process ends with a message: a heavy side without a
//! partner would let two threads into one list.

use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

use uwork_engine::host::Report;

use super::crossing;
use super::fatal::{self, Errno};

const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
const PRIVATE_EXPEDITED: i32 = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 8;
const PRIVATE_EXPEDITED_RSEQ: i32 = 1 << 7;
/// The command is for one CPU.
const FLAG_CPU: u32 = 1;
/// How often a command is retried if the system lacks memory.
const TRIES: u32 = 4;

/// The error of a `membarrier` that was permitted at first and is refused now, until it is
/// reported; else 0.
static PENDING_ERROR: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);
/// Such a refusal was recorded.
static IS_LOST: AtomicBool = AtomicBool::new(false);

/// Both halves. See the module.
pub(super) struct Fences {
    /// Light sides are full fences from now on.
    light_is_full: AtomicBool,
    /// Every light side that may still be in progress is a full fence.
    all_are_full: AtomicBool,
}

impl Fences {
    pub(super) fn new() -> Fences {
        let refused = call(REGISTER_PRIVATE_EXPEDITED, 0, 0).is_err();
        Fences { light_is_full: AtomicBool::new(refused), all_are_full: AtomicBool::new(refused) }
    }

    /// Whether light sides cost nothing.
    pub(super) fn are_asymmetric(&self) -> bool {
        !self.light_is_full.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn light(&self) {
        // Relaxed: the thread that stores it makes every thread pass a barrier afterwards.
        if self.light_is_full.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        } else {
            compiler_fence(Ordering::SeqCst);
        }
    }

    pub(super) fn heavy(&self) {
        // Pairs with the light sides once all of them are full fences; before that, `membarrier` below
        // makes the other threads pass a barrier as well.
        fence(Ordering::SeqCst);
        // Acquire: pairs with the release in `change`. The barriers of the crossing precede all
        // later accesses.
        if self.all_are_full.load(Ordering::Acquire) {
            return;
        }
        if let Err(error) = call(PRIVATE_EXPEDITED, 0, 0) {
            self.change(error);
        }
    }

    #[cold]
    fn change(&self, error: Errno) {
        note(&error);
        self.light_is_full.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        cross(crossing::everywhere(), &error);
        // Release: pairs with the acquire in `heavy`.
        self.all_are_full.store(true, Ordering::Release);
    }
}

/// Registers for [`restart`]. False if the kernel has no such command.
pub(super) fn register_restart() -> bool {
    call(REGISTER_PRIVATE_EXPEDITED_RSEQ, 0, 0).is_ok()
}

/// Restarts the restartable sequence that a thread of this process is in on `cpu`, if any, with
/// full barriers there and here. Only after [`register_restart`].
pub(super) fn restart(cpu: u32) {
    if let Err(error) = call(PRIVATE_EXPEDITED_RSEQ, FLAG_CPU, cpu) {
        note(&error);
        fence(Ordering::SeqCst);
        cross(crossing::on(cpu), &error);
    }
}

fn cross(outcome: Result<crossing::Mask, crossing::Stays>, error: &Errno) {
    if let Err(stays) = outcome {
        fatal::abort(format_args!(
            "membarrier(2) was allowed and is refused ({error}), and nothing can replace it: {stays}"
        ));
    }
}

/// Records the refusal for [`pending_report`], once.
fn note(error: &Errno) {
    if !IS_LOST.swap(true, Ordering::Relaxed) {
        PENDING_ERROR.store(error.0, Ordering::Relaxed);
    }
}

/// The report that is due, once. Called by a thread that holds no lock.
pub(super) fn pending_report() -> Option<Report> {
    if PENDING_ERROR.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let error = PENDING_ERROR.swap(0, Ordering::Relaxed);
    (error != 0).then(|| Report::BarrierRefused { reason: Errno(error).to_string() })
}

fn call(command: i32, flags: u32, cpu: u32) -> Result<(), Errno> {
    for round in 1.. {
        // SAFETY: the command takes no pointers.
        if unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) } == 0 {
            return Ok(());
        }
        let error = fatal::errno();
        if !matches!(error, libc::ENOMEM | libc::EAGAIN) || round == TRIES {
            return Err(Errno(error));
        }
        super::relax(round << 5);
    }
    unreachable!("the rounds end")
}
