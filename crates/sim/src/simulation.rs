//! Runs the threads of a virtual machine as coroutines on the calling thread.

use std::any::Any;
use std::cell::RefCell;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use uwork_engine::ThreadState;

use crate::host::VirtualHost;
use crate::machine::{Main, Next, ThreadId};

const STACK_BYTES: usize = 512 * 1024;
/// The timeout of one step. Only a thread that waits for a lock of the operating system whose
/// holder is suspended takes this long.
const HANGS_AFTER: Duration = Duration::from_secs(60);

type Fiber = Coroutine<(), (), ()>;

/// The data that the machine and the engine keep for a thread, on its own stack.
pub struct Anchor {
    yielder: *const Yielder<(), ()>,
    state: ThreadState,
}

impl Anchor {
    /// Suspends the calling virtual thread until it is dispatched again.
    ///
    /// # Safety
    /// The anchor of the calling thread.
    pub unsafe fn switch(anchor: *const Anchor) {
        // SAFETY: the anchor and its yielder live below us on this stack.
        unsafe { (*(*anchor).yielder).suspend(()) };
    }

    /// The engine's state of the thread.
    ///
    /// # Safety
    /// The anchor of the calling thread.
    pub unsafe fn state(anchor: *const Anchor) -> *const ThreadState {
        // SAFETY: the anchor lives below us on this stack.
        unsafe { &raw const (*anchor).state }
    }
}

/// The thread that watches the simulations of another thread.
struct Watcher {
    /// Receives the description of each simulation that begins, and `None` at its end.
    simulations: Sender<Option<String>>,
    /// Dispatches of all simulations.
    dispatches: Arc<AtomicU64>,
}

thread_local! {
    static WATCHER: Watcher = Watcher::start();
    /// Stacks of threads that have ended.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

impl Watcher {
    /// Starts a thread that aborts the process when a simulation hangs.
    fn start() -> Watcher {
        let (sender, simulations) = channel::<Option<String>>();
        let dispatches = Arc::new(AtomicU64::new(0));
        let seen = dispatches.clone();
        std::thread::spawn(move || {
            while let Ok(begun) = simulations.recv() {
                let Some(message) = begun else { continue };
                let mut last = None;
                while simulations.recv_timeout(HANGS_AFTER) == Err(RecvTimeoutError::Timeout) {
                    // The check uses the dispatches and not the clock alone: on a loaded machine a
                    // simulation takes many times as long.
                    let now = Some(seen.load(Ordering::Relaxed));
                    if now == last {
                        // Not `eprintln`: the output that the test harness captures is lost when
                        // the process aborts.
                        let hangs = "hangs; is a thread suspended with a lock held?";
                        let text = format!("{message}: {hangs}\n");
                        let _ = std::io::stderr().write_all(text.as_bytes());
                        std::process::abort();
                    }
                    last = now;
                }
            }
        });
        Watcher { simulations: sender, dispatches }
    }

    fn tell(&self, begun: Option<String>) {
        self.simulations.send(begun).expect("it lives as long as this thread");
    }
}

/// Why a run did not reach its end.
#[derive(Debug)]
pub enum Failure {
    /// A thread of the machine panicked, or the machine found a livelock. The payload of the panic.
    Panicked(Box<dyn Any + Send>),
    /// No thread can run, and no event is pending.
    Deadlocked,
    /// The machine's time has reached its bound.
    Unending,
}

/// Runs until every thread has ended.
///
/// # Panics
/// If a thread panics, if no thread can run any more, or if time no longer advances. The panic
/// prints `about` and the state of the machine.
pub fn run(host: &VirtualHost, about: &str) {
    let Err(failure) = drive(host, about) else { return };
    let machine = host.describe();
    eprintln!("{about}: {machine}");
    match failure {
        Failure::Panicked(payload) => resume_unwind(payload),
        Failure::Deadlocked => panic!("deadlock: no thread can run, and no event is pending"),
        Failure::Unending => panic!("the run has not ended at the bound of its time"),
    }
}

/// As [`run`], with the failure as a value. A run that fails leaks what its threads hold.
///
/// # Errors
/// The run did not reach its end.
pub fn drive(host: &VirtualHost, about: &str) -> Result<(), Failure> {
    let mut fibers: Vec<Option<Fiber>> = Vec::new();
    let outcome = WATCHER.with(|watcher| {
        watcher.tell(Some(about.to_owned()));
        let outcome =
            catch_unwind(AssertUnwindSafe(|| dispatch(host, &mut fibers, &watcher.dispatches)));
        watcher.tell(None);
        outcome
    });
    let outcome = outcome.unwrap_or_else(|payload| Err(Failure::Panicked(payload)));
    if outcome.is_err() {
        for mut fiber in fibers.into_iter().flatten() {
            // SAFETY: the stacks are reused and their contents are leaked. No code touches the
            // contents any more: no fiber of this machine runs again, and the data that the threads
            // share is only reachable from the fibers.
            unsafe { fiber.force_reset() };
        }
    }
    outcome
}

fn dispatch(
    host: &VirtualHost,
    fibers: &mut Vec<Option<Fiber>>,
    dispatches: &AtomicU64,
) -> Result<(), Failure> {
    // Only this thread writes the count.
    let mut count = dispatches.load(Ordering::Relaxed);
    loop {
        count += 1;
        dispatches.store(count, Ordering::Relaxed);
        let mut machine = host.machine();
        let id = match machine.dispatch() {
            Next::Run(id) => id,
            Next::Done => return Ok(()),
            Next::Stuck => return Err(Failure::Deadlocked),
            Next::Over => return Err(Failure::Unending),
        };
        let main = machine.take_main(id);
        drop(machine);
        if let Some(main) = main {
            fibers.resize_with(fibers.len().max(id + 1), || None);
            fibers[id] = Some(fiber(host.clone(), id, main));
        }
        let fiber = fibers[id].as_mut().expect("a thread that has begun and not ended");
        if let CoroutineResult::Return(()) = fiber.resume(()) {
            let fiber = fibers[id].take().expect("it has just ended");
            STACKS.with_borrow_mut(|stacks| stacks.push(fiber.into_stack()));
            host.machine().end_current();
        }
    }
}

fn fiber(host: VirtualHost, id: ThreadId, main: Main) -> Fiber {
    let known = STACKS.with_borrow_mut(Vec::pop);
    let stack =
        known.unwrap_or_else(|| DefaultStack::new(STACK_BYTES).expect("memory for a stack"));
    Coroutine::with_stack(stack, move |yielder, ()| {
        let anchor = Anchor { yielder, state: ThreadState::new() };
        host.machine().set_anchor(id, &raw const anchor);
        // `main` may drop the engine's last handle, and with it a host; this host is dropped after
        // that.
        main();
        host.settle();
    })
}
