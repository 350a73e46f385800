//! Runs the threads of a virtual machine as coroutines on the calling thread.

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
/// No step takes this long, unless a thread waits for a lock of the operating system whose holder is suspended.
const HANGS_AFTER: Duration = Duration::from_secs(60);

type Fiber = Coroutine<(), (), ()>;

/// What the machine and the engine keep for a thread, on its own stack.
pub(crate) struct Anchor {
    yielder: *const Yielder<(), ()>,
    state: ThreadState,
}

impl Anchor {
    /// Suspends the calling virtual thread until it is dispatched again.
    ///
    /// # Safety
    /// The anchor of the calling thread.
    pub(crate) unsafe fn switch(anchor: *const Anchor) {
        // SAFETY: the anchor and its yielder live below us on this stack.
        unsafe { (*(*anchor).yielder).suspend(()) };
    }

    /// The engine's state of the thread.
    ///
    /// # Safety
    /// The anchor of the calling thread.
    pub(crate) unsafe fn state(anchor: *const Anchor) -> *const ThreadState {
        // SAFETY: the anchor lives below us on this stack.
        unsafe { &raw const (*anchor).state }
    }
}

/// The thread that watches the simulations of another thread.
struct Watcher {
    /// Gets the description of each simulation that begins, and `None` at its end.
    simulations: Sender<Option<String>>,
    /// Steps of all simulations.
    steps: Arc<AtomicU64>,
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
        let steps = Arc::new(AtomicU64::new(0));
        let seen = steps.clone();
        std::thread::spawn(move || {
            while let Ok(begun) = simulations.recv() {
                let Some(message) = begun else { continue };
                let mut last = None;
                while simulations.recv_timeout(HANGS_AFTER) == Err(RecvTimeoutError::Timeout) {
                    // By the steps and not by the clock alone: beside other programs a simulation takes many
                    // times as long.
                    let now = Some(seen.load(Ordering::Relaxed));
                    if now == last {
                        // Not by `eprintln`: what the test harness has captured goes with the process.
                        let hangs = "hangs; is a thread suspended with a lock held?";
                        let text = format!("{message}: {hangs}\n");
                        let _ = std::io::stderr().write_all(text.as_bytes());
                        std::process::abort();
                    }
                    last = now;
                }
            }
        });
        Watcher { simulations: sender, steps }
    }

    fn tell(&self, begun: Option<String>) {
        self.simulations.send(begun).expect("it lives as long as this thread");
    }
}

/// Runs until every thread has ended.
///
/// # Panics
/// When a thread panics, when nobody can run any more, or when time stands still. `about` is
/// printed then, with the state of the machine.
pub(crate) fn run(host: &VirtualHost, about: &str) {
    let mut fibers: Vec<Option<Fiber>> = Vec::new();
    let outcome = WATCHER.with(|watcher| {
        watcher.tell(Some(about.to_owned()));
        let outcome =
            catch_unwind(AssertUnwindSafe(|| dispatch(host, &mut fibers, &watcher.steps)));
        watcher.tell(None);
        outcome
    });
    if let Err(payload) = outcome {
        let machine = host.describe();
        eprintln!("{about}: {machine}");
        for mut fiber in fibers.into_iter().flatten() {
            // SAFETY: the stacks are given back with what is on them left alone. Nobody touches it
            // any more: no fiber of this machine runs again, and what the threads share is only
            // reached from the fibers. The process is about to report a failed test.
            unsafe { fiber.force_reset() };
        }
        resume_unwind(payload);
    }
}

fn dispatch(host: &VirtualHost, fibers: &mut Vec<Option<Fiber>>, steps: &AtomicU64) {
    loop {
        steps.fetch_add(1, Ordering::Relaxed);
        let next = host.machine().dispatch();
        let id = match next {
            Next::Run(id) => id,
            Next::Done => return,
            Next::Stuck => panic!("deadlock: nobody can run, and nothing will happen"),
        };
        let main = host.machine().take_main(id);
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
        // The engine's last handle may go with `main`, and with it a host; ours goes after that.
        main();
    })
}
