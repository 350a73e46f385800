//! Thread hooks: functions of the program that every thread which may run items calls at its start
//! and at its end, and the state that they keep for the thread.
//!
//! A thread copies the list of hooks once, at its start, and calls the ends of exactly those hooks
//! whose starts have returned. So a hook that is added or removed while threads start is called for
//! both events of a thread or for neither. Running items reads nothing of this: without hooks a
//! thread pays for a lock at its start and one at its end.
//!
//! Hooks are never freed, because a thread may be about to call them. The lock guards a pointer and a
//! count; no allocation is made and no user code is called under it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uwork_engine::ThreadState;
use uwork_engine::host::{Forks, Host, Report, Runner};
use uwork_engine::payload::payload_text;

use crate::process::engine;

/// A thread that may run items, as its hooks see it.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its name when it started. The system has the first 15 bytes.
    pub name: String,
    /// How it runs items.
    pub runner: Runner,
}

/// A thread's state, of the type that its hook chose.
pub type State = Box<dyn Any>;

type Start = Box<dyn Fn(&Thread) -> State + Send + Sync>;
type Stop = Box<dyn Fn(&Thread, State) + Send + Sync>;

/// A pair of hooks, from its registration to the end of the process.
pub struct Hooks {
    start: Start,
    stop: Stop,
    is_removed: AtomicBool,
    /// Threads that ran at the registration, and that these hooks therefore never see.
    missed: usize,
    /// The hooks that were added before.
    earlier: Option<&'static Hooks>,
}

impl Hooks {
    /// How many threads ran already when these hooks were added.
    pub fn missed(&self) -> usize {
        self.missed
    }

    /// Threads that start from now on do not call these hooks. A thread that called the start hook
    /// still calls the stop hook.
    pub fn remove(&self) {
        self.is_removed.store(true, Ordering::Relaxed);
    }
}

/// The hooks, and the threads that are between the copy of the list and their end.
struct List {
    last: Option<&'static Hooks>,
    threads: usize,
}

static LIST: Mutex<List> = Mutex::new(List { last: None, threads: 0 });

fn list() -> MutexGuard<'static, List> {
    // No user code runs under this lock.
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock, for the time of a fork.
pub(crate) struct Held(MutexGuard<'static, List>);

impl Held {
    /// In the child, in which none of the parent's threads run items.
    pub(crate) fn child(mut self) {
        self.0.threads = 0;
    }
}

/// Before a fork: no thread changes the list until the guard is dropped.
pub(crate) fn hold() -> Held {
    Held(list())
}

/// Adds hooks, for the threads that start from now on.
pub fn add(start: Start, stop: Stop) -> &'static Hooks {
    crate::fork::ensure_fork_handlers();
    let is_removed = AtomicBool::new(false);
    let hooks = Box::leak(Box::new(Hooks { start, stop, is_removed, missed: 0, earlier: None }));
    let mut list = list();
    (hooks.missed, hooks.earlier) = (list.threads, list.last);
    let hooks: &'static Hooks = hooks;
    list.last = Some(hooks);
    hooks
}

/// What the hooks have made for a thread. It lies on the stack of that thread.
struct States {
    list: RefCell<Vec<(&'static Hooks, State)>>,
    /// The forks before the thread started.
    forks: u32,
}

thread_local! {
    /// The thread's states while it may run items, null otherwise. Without a destructor.
    static STATES: Cell<*const States> = const { Cell::new(std::ptr::null()) };
}

/// Whether the calling thread is between the start hooks and the end hooks of a thread that may run
/// items, or in them. False in a child that the thread forked: there it is no worker.
pub fn may_run_items() -> bool {
    // SAFETY: null, or on this thread's stack below the caller.
    unsafe { STATES.get().as_ref() }.is_some_and(|states| states.forks == crate::forks())
}

/// Calls `f` with the calling thread's state of these hooks. `None` if the thread has none.
pub fn with_state<R>(hooks: &'static Hooks, f: impl FnOnce(&dyn Any) -> R) -> Option<R> {
    // SAFETY: null, or on this thread's stack below the caller.
    let states = unsafe { STATES.get().as_ref() }?;
    let find = |states: &Vec<(&'static Hooks, State)>| -> Option<*const dyn Any> {
        let found = states.iter().find(|(of, _)| std::ptr::eq(*of, hooks));
        found.map(|(_, state)| std::ptr::from_ref(&**state))
    };
    let state = find(&states.list.borrow())?;
    // SAFETY: the state is on the heap. It is removed after the thread's last item, outside of all
    // calls of this function: a stop hook removes its own state before it runs, and `f` of another
    // hook has returned by then.
    Some(f(unsafe { &*state }))
}

/// Calls a hook. A panic is reported, and gives `None`. Does not return in a child that the hook
/// forks: the thread is no worker there, and the process ends, as after an item that forks.
fn call<R>(thread: &Thread, ends: bool, hook: impl FnOnce() -> R) -> Option<R> {
    let engine = engine();
    // SAFETY: the host keeps the state for as long as this thread lives.
    let state: &ThreadState = unsafe { &*engine.host().thread() };
    state.set_in_hook(true);
    let forks = crate::forks();
    let outcome = catch_unwind(AssertUnwindSafe(hook));
    if crate::forks() != forks {
        engine.host().end_forked_thread();
    }
    state.set_in_hook(false);
    let payload = match outcome {
        Ok(value) => return Some(value),
        Err(payload) => payload,
    };
    let message = payload_text(&*payload).unwrap_or_default().to_owned();
    // A payload may panic when it is dropped.
    std::mem::forget(payload);
    // On another thread: the pool of this one waits for it.
    engine.report_apart(Report::HookPanicked { thread: thread.name.clone(), ends, message });
    None
}

/// Runs a thread's main function between its hooks.
pub(crate) fn run(thread: &Thread, main: impl FnOnce()) {
    let last = {
        let mut list = list();
        list.threads += 1;
        list.last
    };
    let states = States { list: RefCell::new(Vec::new()), forks: crate::forks() };
    STATES.set(&raw const states);
    let mut hooks: Vec<&'static Hooks> =
        std::iter::successors(last, |hooks| hooks.earlier).collect();
    hooks.reverse();
    for hooks in hooks {
        if hooks.is_removed.load(Ordering::Relaxed) {
            continue;
        }
        if let Some(state) = call(thread, false, || (hooks.start)(thread)) {
            states.list.borrow_mut().push((hooks, state));
        }
    }
    main();
    loop {
        let last = states.list.borrow_mut().pop();
        let Some((hooks, state)) = last else { break };
        let _ = call(thread, true, || (hooks.stop)(thread, state));
    }
    STATES.set(std::ptr::null());
    list().threads -= 1;
}
