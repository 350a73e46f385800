//! What the hooks have made for a thread.
//!
//! The library's threads have their states on the stack of [`run`], which calls the stop hooks at its
//! end. Any other thread gets them when it first needs them, on the heap, and a thread-local destructor
//! calls the stop hooks. A thread whose destructors have run already calls them when it leaves its
//! outermost item.
//!
//! User code may run inside [`with_state`] while it refers to a state, so a state stays while the thread
//! is in an item or in such a call (`borrowed`). The thread looks again when it leaves them: it does not
//! note the generation as seen before it has stopped what was removed.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::Ordering;

use uwork_engine::ThreadState;
use uwork_engine::handle::Owner;
use uwork_engine::host::{Forks, Report, Runner, ThreadKind};
use uwork_engine::payload::payload_text;

use super::{GENERATION, Hooks, State, Thread, When, live};
use crate::futex::Forever;
use crate::process::engine;

struct States {
    thread: Thread,
    /// Whether the thread is one of the library's that run items.
    is_library: bool,
    /// Whether the thread's destructors ran before this was made.
    is_late: bool,
    /// The forks before this was made.
    forks: u32,
    list: RefCell<List>,
    /// Calls of [`with_state`] that the thread is in.
    borrowed: Cell<u32>,
}

#[derive(Default)]
struct List {
    /// In the order in which the start hooks have returned.
    made: Vec<Made>,
    /// The hooks whose start hooks the thread is in.
    starting: Vec<&'static Hooks>,
}

struct Made {
    hooks: &'static Hooks,
    /// `None` if the start hook panicked.
    state: Option<State>,
}

thread_local! {
    /// The thread's states, null if it has none. Without a destructor.
    static STATES: Cell<*const States> = const { Cell::new(ptr::null()) };
    /// Ends the states of a thread that is not the library's.
    static ENDS: Ends = const { Ends };
}

struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        end_of_other_thread();
    }
}

impl States {
    fn new(thread: Thread, is_library: bool, is_late: bool) -> States {
        let (list, borrowed) = (RefCell::default(), Cell::new(0));
        States { thread, is_library, is_late, forks: crate::forks(), list, borrowed }
    }

    /// Whether this was made in a parent process, for a thread of the library's: in the child the
    /// thread is none, and the process ends with the item that has forked.
    fn is_of_parent(&self) -> bool {
        self.is_library && self.forks != crate::forks()
    }

    /// Whose thread it is, for the counts of hooks.
    fn owner(&self) -> Owner {
        if self.is_library && !self.is_of_parent() { Owner::Library } else { Owner::Program }
    }

    fn find(&self, hooks: &Hooks) -> Option<*const dyn Any> {
        let list = self.list.borrow();
        let made = list.made.iter().find(|made| ptr::eq(made.hooks, hooks))?;
        made.state.as_deref().map(ptr::from_ref)
    }

    fn knows(&self, hooks: &Hooks) -> bool {
        let list = self.list.borrow();
        list.made.iter().any(|made| ptr::eq(made.hooks, hooks))
            || list.starting.iter().any(|starting| ptr::eq(*starting, hooks))
    }

    /// Calls the start hook, unless the hooks are removed.
    fn start(&self, hooks: &'static Hooks) {
        let owner = self.owner();
        if !hooks.hooked.enter(owner, &Forever) {
            return;
        }
        self.list.borrow_mut().starting.push(hooks);
        let state = call(&self.thread, false, || (hooks.start)(&self.thread));
        if state.is_none() {
            hooks.hooked.leave(owner, &Forever);
        }
        let mut list = self.list.borrow_mut();
        list.starting.pop();
        list.made.push(Made { hooks, state });
    }

    /// Calls the stop hook of an entry that the list no longer has.
    fn stop(&self, made: Made) {
        let Made { hooks, state: Some(state) } = made else { return };
        let _ = call(&self.thread, true, || (hooks.stop)(&self.thread, state));
        hooks.hooked.leave(self.owner(), &Forever);
    }

    /// Calls all stop hooks, the last one first.
    fn stop_all(&self) {
        loop {
            let last = self.list.borrow_mut().made.pop();
            let Some(made) = last else { return };
            self.stop(made);
        }
    }

    /// Calls the stop hooks of removed hooks, if the thread uses no state. Returns whether none is left.
    fn stop_removed(&self, thread: &ThreadState) -> bool {
        if self.is_of_parent() {
            return true;
        }
        let may_stop = !is_in_use();
        loop {
            let mut list = self.list.borrow_mut();
            let is_removed = |made: &Made| made.hooks.hooked.is_removed();
            let Some(last) = list.made.iter().rposition(is_removed) else { return true };
            if !may_stop || thread.is_in_hook() {
                return false;
            }
            let made = list.made.remove(last);
            drop(list);
            self.stop(made);
        }
    }
}

fn mine<'a>() -> Option<&'a States> {
    // SAFETY: null, or on this thread's stack below the caller, or from a box that is freed outside of
    // items, hooks and `with_state`.
    unsafe { STATES.get().as_ref() }
}

fn thread<'a>() -> &'a ThreadState {
    // SAFETY: the state lives until the thread has ended.
    unsafe { &*crate::thread::state() }
}

/// Whether the calling thread is one of the library's that run items, between its start and its end.
/// False in a child that the thread forked: there it is no worker.
pub fn may_run_items() -> bool {
    mine().is_some_and(|states| states.is_library && !states.is_of_parent())
}

/// Whether the calling thread may refer to a state: it is in an item or in [`with_state`].
pub(super) fn is_in_use() -> bool {
    thread().is_inside_items() || mine().is_some_and(|states| states.borrowed.get() > 0)
}

/// Calls `f` with the calling thread's state of these hooks. In an item or a start hook the thread gets
/// one if it has none. `None` if it gets none there: the hooks are removed, or their start hook runs or
/// has panicked on this thread; and elsewhere if it has none.
pub fn with_state<R>(hooks: &'static Hooks, f: impl FnOnce(&dyn Any) -> R) -> Option<R> {
    struct Borrowed<'a>(&'a States);
    impl Drop for Borrowed<'_> {
        fn drop(&mut self) {
            let borrowed = &self.0.borrowed;
            borrowed.set(borrowed.get() - 1);
            if borrowed.get() == 0 && !thread().is_inside_items() {
                outside_items(thread());
            }
        }
    }
    let state = match mine().and_then(|states| states.find(hooks)) {
        Some(state) => state,
        None => ask(hooks)?,
    };
    let states = mine()?;
    states.borrowed.set(states.borrowed.get() + 1);
    let _borrowed = Borrowed(states);
    // SAFETY: the state is on the heap, and stays while it is borrowed: a thread calls a stop hook when
    // it has borrowed none, or at its end, outside of all calls of this function but those of other
    // stop hooks, which have returned by then.
    Some(f(unsafe { &*state }))
}

#[cold]
fn ask(hooks: &'static Hooks) -> Option<*const dyn Any> {
    let is_starting = || mine().is_some_and(|states| !states.list.borrow().starting.is_empty());
    if !thread().is_inside_items() && !is_starting() {
        return None;
    }
    ensure(hooks);
    mine()?.find(hooks)
}

/// Whether the calling thread has yet to call the start hook.
pub(super) fn lacks(hooks: &Hooks) -> bool {
    mine().is_none_or(|states| !states.knows(hooks)) && !hooks.hooked.is_removed()
}

/// Calls the start hook if the calling thread has not called it. It is in an item, or about to begin
/// one.
pub(super) fn ensure(hooks: &'static Hooks) {
    if !lacks(hooks) {
        return;
    }
    let states = mine().unwrap_or_else(of_other_thread);
    states.start(hooks);
}

/// Makes the states of a thread that is not one of the library's for items.
fn of_other_thread<'a>() -> &'a States {
    let is_late = ENDS.try_with(|_| ()).is_err();
    let runner = Runner { kind: ThreadKind::Helper, queue: None };
    let thread = Thread { name: crate::thread::name(), runner };
    STATES.set(Box::into_raw(Box::new(States::new(thread, false, is_late))));
    mine().expect("set just now")
}

/// Ends the states of a thread that is not one of the library's for items.
fn end_of_other_thread() {
    let Some(states) = mine().filter(|states| !states.is_library) else { return };
    states.stop_all();
    let states = ptr::from_ref(states).cast_mut();
    STATES.set(ptr::null());
    // SAFETY: from the box of `of_other_thread`; the thread is in no call that uses it.
    drop(unsafe { Box::from_raw(states) });
}

/// The hooks have changed, and the calling thread is about to run items, or is a worker outside of
/// items: it calls what is due.
#[cold]
pub(crate) fn catch_up(thread: &ThreadState) {
    // Before the lists: a later change brings the thread here again.
    let generation = GENERATION.0.load(Ordering::SeqCst);
    let is_settled = mine().is_none_or(|states| states.stop_removed(thread));
    let mut due: Vec<_> = live().filter(|hooks| hooks.when == When::FirstItem).collect();
    due.reverse();
    due.into_iter().for_each(ensure);
    if is_settled {
        thread.set_hooks_seen(generation);
    }
}

/// The calling thread is outside of items: it calls the stop hooks that are due.
#[inline]
pub(crate) fn outside_items(thread: &ThreadState) {
    // SeqCst: a remover changes this before it reads whether threads have states.
    let generation = GENERATION.0.load(Ordering::SeqCst);
    if generation != 0 && !STATES.get().is_null() {
        settle(thread, generation);
    }
}

fn settle(thread: &ThreadState, generation: u32) {
    let Some(states) = mine() else { return };
    if states.is_late && !is_in_use() && !thread.is_in_hook() {
        return end_of_other_thread();
    }
    if thread.hooks_seen() != generation {
        let _ = states.stop_removed(thread);
    }
}

/// The calling thread has removed hooks.
pub(super) fn stop_removed() {
    if let Some(states) = mine() {
        let _ = states.stop_removed(thread());
    }
}

/// In a forked child: the calling thread keeps its states, and counts again.
pub(super) fn child() {
    let Some(states) = mine().filter(|states| !states.is_of_parent()) else { return };
    // A thread that forks in a hook may be at any place of its list.
    let Ok(list) = states.list.try_borrow() else { return };
    for made in list.made.iter().filter(|made| made.state.is_some()) {
        made.hooks.hooked.count_again(states.owner());
    }
}

/// Calls a hook. A panic is reported, and gives `None`. Does not return in a child that the hook
/// forks: there the process ends, as after an item of a worker that forks.
fn call<R>(of: &Thread, ends: bool, hook: impl FnOnce() -> R) -> Option<R> {
    let engine = engine();
    let outcome = thread().in_hook(|| {
        let forks = crate::forks();
        let outcome = catch_unwind(AssertUnwindSafe(hook));
        if crate::forks() != forks {
            engine.host().end_forked_thread();
        }
        outcome
    });
    let payload = match outcome {
        Ok(value) => return Some(value),
        Err(payload) => payload,
    };
    let message = payload_text(&*payload).unwrap_or_default().to_owned();
    // A payload may panic when it is dropped.
    std::mem::forget(payload);
    // On another thread: the pool of this one waits for it.
    engine.report_apart(Report::HookPanicked { thread: of.name.clone(), ends, message });
    None
}

/// Runs the main function of a thread of the library's that runs items, between its hooks.
pub(crate) fn run(of: Thread, main: impl FnOnce()) {
    let states = States::new(of, true, false);
    STATES.set(&raw const states);
    if GENERATION.0.load(Ordering::SeqCst) != 0 {
        catch_up(thread());
    }
    main();
    states.stop_all();
    STATES.set(ptr::null());
}
