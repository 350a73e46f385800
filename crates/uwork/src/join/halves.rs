//! `join`: two closures, the second of which an idle worker may take. See [README.md](README.md).

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;

use uwork_engine::deque::{Popped, Pushed};
use uwork_engine::handle::Outcome;
use uwork_engine::host::Host;
use uwork_engine::payload::drop_payload;
use uwork_linux::futex::Forever;
use uwork_linux::{engine, forks};

use super::forker::Forker;

/// How often a thread that waits for a stolen half looks in vain for its end, and for work of the
/// thief's, before it sleeps. Most halves that are waited for are about to end.
const VAIN_LOOKS_MAX: u32 = 40;

/// The second half of a join on the frame of its caller, as thieves know it.
#[repr(C)]
pub(super) struct Half {
    run: unsafe fn(NonNull<Half>),
    /// When the half has run on another thread.
    outcome: Outcome,
    /// The thief. Written by it under the lock of the deque, before the owner can find the half
    /// stolen.
    thief: Cell<Option<&'static Forker>>,
}

impl Half {
    /// A thief has taken the half. Only for the thief, under the lock of the deque.
    pub(super) fn note_thief(&self, thief: &'static Forker) {
        self.thief.set(Some(thief));
    }

    /// Runs a stolen half. Does not unwind.
    ///
    /// # Safety
    /// `half` was stolen by the caller, once.
    pub(super) unsafe fn run(half: NonNull<Half>) {
        // SAFETY: by this function's contract the frame is live until its outcome is complete.
        unsafe { (half.as_ref().run)(half) };
    }

    /// Waits until the thief has run the half. Until then it runs halves that the thief has forked:
    /// these are parts of what it waits for. Does not unwind. False if this process is a child of one
    /// that the thief belongs to, forked since there were `forked` forks.
    fn wait(&self, owner: &'static Forker, forked: u32) -> bool {
        // Since it last ran a half here.
        let mut vain_looks = 0;
        while !self.outcome.is_done() {
            // A half that runs here may fork.
            if forks() != forked {
                return false;
            }
            // Decided inside the theft: until then the thief may end this half, begin other work, and
            // push halves of that.
            let unfinished = || !self.outcome.is_done();
            if self.thief.get().is_some_and(|thief| thief.steal_one_for(owner, unfinished)) {
                vain_looks = 0;
                continue;
            }
            if vain_looks == VAIN_LOOKS_MAX {
                engine().blocking(|| self.outcome.wait(&Forever));
                return true;
            }
            // The pauses become longer from round to round.
            let round = vain_looks;
            engine().host().relax(round);
            vain_looks += 1;
        }
        true
    }
}

#[repr(C)]
struct Frame<B, RB> {
    /// First, so that the address of the half is that of the frame.
    half: Half,
    /// Guard: the owner; from a theft until the outcome is complete, the thief.
    stage: UnsafeCell<Stage<B, RB>>,
}

enum Stage<B, RB> {
    Closure(B),
    Done(Result<RB, Box<dyn Any + Send>>),
    Gone,
}

impl<B: FnOnce() -> RB, RB> Frame<B, RB> {
    fn new(closure: B) -> Frame<B, RB> {
        let half = Half { run: Self::run, outcome: Outcome::new(), thief: Cell::new(None) };
        Frame { half, stage: UnsafeCell::new(Stage::Closure(closure)) }
    }

    /// # Safety
    /// `half` is the first field of a live frame, whose stage is the caller's.
    unsafe fn run(half: NonNull<Half>) {
        let frame = half.cast::<Frame<B, RB>>();
        // SAFETY: by this function's contract.
        let closure = unsafe { frame.as_ref().take_closure() };
        let value = catch_unwind(AssertUnwindSafe(closure));
        // SAFETY: as above. After `complete` the frame is not used any more. It is never abandoned.
        unsafe {
            *frame.as_ref().stage.get() = Stage::Done(value);
            let _ = Outcome::complete(&raw const (*half.as_ptr()).outcome, &Forever);
        }
    }

    /// # Safety
    /// The stage is the caller's.
    unsafe fn take_closure(&self) -> B {
        // SAFETY: by this function's contract.
        match unsafe { self.stage.get().replace(Stage::Gone) } {
            Stage::Closure(closure) => closure,
            Stage::Done(_) | Stage::Gone => unreachable!("a half runs once"),
        }
    }

    /// # Safety
    /// The outcome is complete.
    unsafe fn take_value(&self) -> Result<RB, Box<dyn Any + Send>> {
        // SAFETY: complete, so the thief does not use the stage any more.
        match unsafe { self.stage.get().replace(Stage::Gone) } {
            Stage::Done(value) => value,
            Stage::Closure(_) | Stage::Gone => unreachable!("a complete half has a value"),
        }
    }
}

/// Runs `a` and `b`, perhaps at the same time, and returns both results.
///
/// The caller runs `a`. Meanwhile an idle worker may take `b`; if none has when `a` ends, the
/// caller runs `b` too, and the call has cost neither a locked instruction nor an allocation.
/// Workers are only called while a CPU has one to spare, and are those of the
/// [system queues](crate::system): a `b` that a worker took runs as an item of
/// [`system::dfl_long`](crate::system::dfl_long). Both halves may call `join` again, to any depth;
/// that starts no threads. A join may be called anywhere, also on threads that are no workers and
/// in items of ordered queues. In items of BH queues and in [thread hooks](crate::threads), which must
/// not wait, the caller runs both.
///
/// A caller whose `b` was taken runs parts of it that `b` has forked, and sleeps if there are none;
/// inside a work item that wait is declared.
///
/// # Panics
/// In a child that `a` forked, if a worker of the parent had taken `b`.
///
/// If a half panics, once the other has ended; a `b` that no worker has taken when `a` panics is
/// dropped without a run. If both panic, with the payload of `a`. A thread's first call panics if
/// the system queue cannot be made, as [`system::dfl_long`](crate::system::dfl_long) does.
///
/// ```
/// fn sum(numbers: &[u64]) -> u64 {
///     if numbers.len() <= 1_000 {
///         return numbers.iter().sum();
///     }
///     let (left, right) = numbers.split_at(numbers.len() / 2);
///     let (left, right) = uwork::join(|| sum(left), || sum(right));
///     left + right
/// }
/// let numbers: Vec<u64> = (0..100_000).collect();
/// assert_eq!(sum(&numbers), 4_999_950_000);
/// ```
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    match Forker::mine().filter(|_| engine().may_wait()) {
        Some(owner) => join_on(owner, a, b),
        // The caller must not wait for a half that another thread takes, or the thread's local data is
        // being destroyed.
        None => {
            let a = a();
            (a, b())
        }
    }
}

#[inline]
fn join_on<A, B, RA, RB>(owner: &'static Forker, a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB,
{
    let forked = forks();
    // Not in one tuple with the number: that copies the frame, in pieces that the CPU cannot forward.
    let frame = Frame::<B, RB>::new(b);
    // Of the whole frame, of which a thief uses more than the half.
    let entry = NonNull::from(&frame).cast::<Half>();
    let host = engine().host();
    // SAFETY: `owner` is of this thread. The frame stays until `pop` returns it or its outcome is
    // complete: nothing in between unwinds.
    match unsafe { owner.deque.push(host, entry) } {
        Pushed::Covered => {}
        Pushed::Uncovered => owner.consider_a_visit(),
        Pushed::Full => {
            let a = a();
            // SAFETY: it was not pushed.
            return (a, unsafe { frame.take_closure() }());
        }
    }
    let a = catch_unwind(AssertUnwindSafe(a));
    let popped = if forks() == forked {
        // SAFETY: of this thread; each join pops what it has pushed, the inner ones before the outer.
        unsafe { owner.deque.pop(host) }
    } else {
        // SAFETY: as above; and this is a child, which has no thief of this deque.
        unsafe { owner.deque.pop_in_child() }
    };
    if popped == Popped::Own {
        // SAFETY: not stolen.
        let b = unsafe { frame.take_closure() };
        return match a {
            Ok(a) => (a, b()),
            Err(payload) => panic_without(b, payload),
        };
    }
    // SAFETY: a thief has taken it.
    unsafe { join_stolen(owner, &frame, forked, a) }
}

/// The end of a join whose second closure a thief has taken. Out of line: most joins do not come here.
///
/// # Safety
/// The frame was pushed by `owner`, of this thread, after `forked` forks, and the pop found it stolen.
#[cold]
#[inline(never)]
unsafe fn join_stolen<B, RA, RB>(
    owner: &'static Forker,
    frame: &Frame<B, RB>,
    forked: u32,
    a: Result<RA, Box<dyn Any + Send>>,
) -> (RA, RB)
where
    B: FnOnce() -> RB,
{
    if !frame.half.wait(owner, forked) {
        // No thread of this process uses the frame.
        match a {
            Ok(_) => panic!(
                "the second closure of a join was running in the parent process at the fork; in this \
                 child it has no result"
            ),
            Err(payload) => resume_unwind(payload),
        }
    }
    // SAFETY: the wait returned when the outcome is complete.
    match (a, unsafe { frame.take_value() }) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(payload), b) => panic_without(b, payload),
        (Ok(a), Err(payload)) => panic_without(a, payload),
    }
}

/// Drops a value that the panic makes useless, and goes on with the panic.
#[cold]
fn panic_without<T>(value: T, payload: Box<dyn Any + Send>) -> ! {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        drop_payload(second);
    }
    resume_unwind(payload)
}
