//! A target's list: add, cancel, run, wait, exit.

use std::ptr::NonNull;

use super::item::TaskWork;
use super::state::{NOTIFIED, Notify, Pushed, State};
use crate::words::sync::{
    Cell, Hint, Line, Link, Lock, LockGuard, Rank, assert_nothing_held, thread_key,
};

/// The outcome of an add.
#[must_use = "an item that was not added is still the caller's, and a notification is to be sent"]
pub enum Added<'a> {
    /// It was in a list already: the pending run sees everything that the caller wrote before.
    Pending,
    /// The target has exited.
    Exited,
    /// It will run. The caller must send the notification, if there is one.
    Yes(Option<Notification<'a>>),
}

/// A notification that the caller must send to the target, and then confirm by
/// [`Notification::sent`].
#[must_use = "a notification that is not sent leaves a thread asleep with work waiting"]
pub struct Notification<'a> {
    list: &'a TaskList,
    waits: bool,
}

impl Notification<'_> {
    /// Whether the target has declared its wait; the notification must end that wait. Otherwise the
    /// target computes, or is in a system call that it has not declared.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// Confirms that the notification was sent. From here on the resources that it used may be
    /// removed.
    pub fn sent(self) {
        let list = self.list;
        std::mem::forget(self);
        list.state.0.sent();
    }

    /// Reports that it could not be sent. The next adder with `Signal` sends one; otherwise the
    /// target checks its list at its next safe point.
    pub fn failed(self) {
        self.list.state.0.unsent();
        self.sent();
    }
}

impl Drop for Notification<'_> {
    fn drop(&mut self) {
        self.list.state.0.sent();
        debug_assert!(std::thread::panicking(), "a notification was dropped without being sent");
    }
}

/// Items in the order in which they run.
#[derive(Clone, Copy)]
struct Chain {
    head: Link<TaskWork>,
    tail: Link<TaskWork>,
}

const NOTHING: Link<TaskWork> = Link(std::ptr::null_mut());

/// The deepest nesting of runs: a run, and a run in an item of that run. This bounds the stack,
/// however many items are added. And an item that runs others waits for the items that were there,
/// not for later ones.
const DEPTH_MAX: u32 = 2;

impl Chain {
    const EMPTY: Chain = Chain { head: NOTHING, tail: NOTHING };

    /// Appends a stack, whose top was added last.
    ///
    /// # Safety
    /// The chain and the stack are live and the caller's alone.
    unsafe fn append_stack(&mut self, mut stack: *mut TaskWork) {
        if stack.is_null() {
            return;
        }
        let (last, mut first) = (stack, std::ptr::null_mut());
        while !stack.is_null() {
            // SAFETY: by this function's contract.
            unsafe {
                let next = TaskWork::next(stack);
                TaskWork::set_next(stack, first);
                first = stack;
                stack = next;
            }
        }
        if self.head.0.is_null() {
            self.head = Link(first);
        } else {
            // SAFETY: by this function's contract; the tail of a chain with a head is in it.
            unsafe { TaskWork::set_next(self.tail.0, first) };
        }
        self.tail = Link(last);
    }

    /// Removes and returns the first item for which `matches` returns true.
    ///
    /// # Safety
    /// The chain is live and the caller's alone.
    unsafe fn remove(
        &mut self,
        mut matches: impl FnMut(NonNull<TaskWork>) -> bool,
    ) -> Option<NonNull<TaskWork>> {
        let mut before: *mut TaskWork = std::ptr::null_mut();
        let mut at = NonNull::new(self.head.0);
        while let Some(item) = at {
            // SAFETY: by this function's contract.
            let next = unsafe { TaskWork::next(item.as_ptr()) };
            if matches(item) {
                if before.is_null() {
                    self.head = Link(next);
                } else {
                    // SAFETY: as above.
                    unsafe { TaskWork::set_next(before, next) };
                }
                if next.is_null() {
                    self.tail = Link(before);
                }
                return Some(item);
            }
            before = item.as_ptr();
            at = NonNull::new(next);
        }
        None
    }
}

/// The list of one target thread. Some functions are for the target only; their docs say so.
pub struct TaskList {
    /// The word that every adder writes.
    state: Line<State>,
    /// Items that cancels have examined: older than those in `state`.
    backlog: Lock<Chain>,
    /// The key of the thread that is in a matcher, under the lock; 0 if none is.
    matching: Hint,
    /// The items that a run has taken and not started. The target's alone.
    taken: Cell<Link<TaskWork>>,
    /// The number of nested runs in progress. The target's alone.
    depth: Cell<u32>,
    /// Whether this is a forked child's copy of a list, whose items are the parent's. The target's
    /// alone.
    forgotten: Cell<bool>,
}

/// The calling thread is in a matcher while this lives.
struct Matching<'a>(&'a Hint);

impl Matching<'_> {
    fn begin(matching: &Hint) -> Matching<'_> {
        matching.set(thread_key());
        Matching(matching)
    }
}

impl Drop for Matching<'_> {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

impl Default for TaskList {
    fn default() -> TaskList {
        TaskList::new()
    }
}

impl TaskList {
    /// Bits of the half word at [`TaskList::futex`]: while one of them is set, the target must run
    /// its list.
    pub const NOTIFIED: u32 = NOTIFIED;

    /// An empty list.
    pub fn new() -> TaskList {
        TaskList {
            state: Line(State::new()),
            backlog: Lock::ranked(Rank::TaskList, Chain::EMPTY),
            matching: Hint::new(0),
            taken: Cell::new(NOTHING),
            depth: Cell::new(0),
            forgotten: Cell::new(false),
        }
    }

    /// Adds an item. Lock-free; two locked instructions, two more if the target must be notified.
    ///
    /// # Safety
    /// `work` is live and stays so, in place, until it was run or cancelled. The target's thread
    /// may call its function.
    #[inline]
    pub unsafe fn add(&self, work: NonNull<TaskWork>, notify: Notify) -> Added<'_> {
        // SAFETY: live, by this function's contract.
        if !unsafe { work.as_ref() }.acquire() {
            return Added::Pending;
        }
        // SAFETY: as above, and ours since `acquire`.
        match unsafe { self.state.0.push(work.as_ptr(), notify) } {
            Pushed::Exited => {
                // SAFETY: still ours.
                unsafe { work.as_ref() }.let_go();
                Added::Exited
            }
            Pushed::Quiet => Added::Yes(None),
            Pushed::Notify { waits } => Added::Yes(Some(Notification { list: self, waits })),
        }
    }

    /// Cancels an item that was not detached to be run. Takes the list's lock, and visits every
    /// item in it.
    ///
    /// # Safety
    /// `work` is live.
    #[must_use]
    pub unsafe fn cancel(&self, work: NonNull<TaskWork>) -> bool {
        // SAFETY: live, by this function's contract.
        if !unsafe { work.as_ref() }.is_pending() {
            return false;
        }
        self.cancel_match(|item| item == work).is_some()
    }

    /// Cancels the oldest item for which `matches` returns true. `matches` runs under the list's
    /// lock, and must not cancel from this list or run it. If it unwinds, all items stay.
    ///
    /// # Panics
    /// In a matcher of this list.
    pub fn cancel_match(
        &self,
        matches: impl FnMut(NonNull<TaskWork>) -> bool,
    ) -> Option<NonNull<TaskWork>> {
        let mut backlog = self.lock_backlog();
        let matching = Matching::begin(&self.matching);
        // SAFETY: the holder of the lock owns the backlog's items, and we own those that `steal`
        // returned.
        let found = unsafe {
            backlog.append_stack(self.state.0.steal());
            backlog.remove(matches)
        };
        drop(matching);
        drop(backlog);
        // SAFETY: it is in no list any more, so it is ours.
        found.inspect(|item| unsafe { item.as_ref() }.let_go())
    }

    /// # Panics
    /// In a matcher of this list, whose thread holds the lock: it would wait for itself.
    #[track_caller]
    fn lock_backlog(&self) -> LockGuard<'_, Chain> {
        assert!(
            self.matching.get() != thread_key(),
            "the matcher of a cancel_match used its own list: it may only look at the item"
        );
        self.backlog.lock()
    }

    /// Whether the target was notified to run its list: one load. False does not mean that the list
    /// is empty.
    #[inline]
    pub fn is_notified(&self) -> bool {
        self.state.0.is_notified()
    }

    /// Runs the items that have been added so far, first in, first out. Returns their number. Items
    /// that are added meanwhile stay, and the target is notified of them again. Runs nothing if it
    /// [cannot run](TaskList::can_run).
    ///
    /// # Safety
    /// On the target's thread.
    pub unsafe fn run_once(&self) -> usize {
        // SAFETY: on the target's thread.
        if !unsafe { self.can_run() } {
            return 0;
        }
        // A nested run continues with the items that the outer one has taken.
        // SAFETY: on the target's thread.
        let count = unsafe { self.run_taken() };
        // SAFETY: as above.
        unsafe {
            self.detach(State::detach);
            count + self.run_taken()
        }
    }

    /// Whether a run would run the pending items. It would not in an item of a nested run: those
    /// items are left to the two outer runs, which continue with them as soon as the item returns.
    ///
    /// # Safety
    /// On the target's thread.
    pub unsafe fn can_run(&self) -> bool {
        // SAFETY: the target's alone.
        unsafe { self.depth.get() < DEPTH_MAX }
    }

    /// Runs until the list is empty, or nothing can be run.
    ///
    /// # Safety
    /// On the target's thread.
    pub unsafe fn run(&self) -> usize {
        let mut count = 0;
        loop {
            // SAFETY: on the target's thread.
            let ran = unsafe { self.run_once() };
            if ran == 0 {
                return count;
            }
            count += ran;
        }
    }

    /// # Safety
    /// On the target's thread, with no taken item left.
    unsafe fn detach(&self, take: fn(&State) -> *mut TaskWork) {
        // SAFETY: the target's alone.
        if unsafe { self.forgotten.get() } {
            return;
        }
        // Under the lock, so that no cancel holds older items that it has taken from the stack.
        let mut backlog = self.lock_backlog();
        let mut chain = std::mem::replace(&mut *backlog, Chain::EMPTY);
        // SAFETY: both parts are ours: the lock guarded one, the state returned the other. The
        // taken items are the target's, which is this thread.
        unsafe {
            chain.append_stack(take(&self.state.0));
            self.taken.set(chain.head);
        }
    }

    /// # Safety
    /// On the target's thread.
    unsafe fn run_taken(&self) -> usize {
        let mut count = 0;
        // SAFETY: the depth is the target's alone. Items do not unwind.
        unsafe { self.depth.set(self.depth.get() + 1) };
        // SAFETY: the taken items are the target's alone.
        while let Some(item) = NonNull::new(unsafe { self.taken.get() }.0) {
            // SAFETY: taken items are live. When the item's function is called, the item is out of
            // their list and no longer pending; the function may free it, or run the rest.
            unsafe {
                self.taken.set(Link(TaskWork::next(item.as_ptr())));
                let run = item.as_ref().calls().run;
                item.as_ref().let_go();
                assert_nothing_held("task work");
                run(item);
            }
            count += 1;
        }
        // SAFETY: as above.
        unsafe { self.depth.set(self.depth.get() - 1) };
        count
    }

    /// Declares that the target is about to wait. False: it must run its list instead of waiting.
    ///
    /// The target has published its kind of wait before. [`TaskList::leave`] must follow. In
    /// between, a target that continues to wait in another way may call it again: if that returns
    /// false, no notification for the new kind of wait comes.
    ///
    /// # Safety
    /// On the target's thread.
    #[must_use]
    pub unsafe fn declare(&self) -> bool {
        self.state.0.declare()
    }

    /// Declares that the target's wait is over. True: it must run its list.
    ///
    /// # Safety
    /// On the target's thread.
    #[must_use]
    pub unsafe fn leave(&self) -> bool {
        self.state.0.leave()
    }

    /// The value with which a wait on the word itself compares it; `None` if the target must run
    /// its list instead.
    ///
    /// # Safety
    /// On the target's thread, which has declared that it waits.
    pub unsafe fn sleeping(&self) -> Option<u32> {
        self.state.0.sleeping()
    }

    /// The address of the 32 bits for that wait.
    pub fn futex(&self) -> *const u32 {
        self.state.0.half()
    }

    /// Ends the list, and runs the items in it. Items that are added later, also by those that run
    /// now, are given back. Afterwards no notification is in progress. `relax` waits a little for
    /// another thread to finish a system call; its argument counts the calls before.
    ///
    /// # Safety
    /// On the target's thread.
    pub unsafe fn exit(&self, relax: impl FnMut(u32)) {
        // SAFETY: on the target's thread.
        unsafe {
            // The only run that may nest deeper than DEPTH_MAX. If an item of it ends the list once
            // more, that exit leaves the items to this one.
            if self.depth.get() <= DEPTH_MAX {
                self.run_taken();
                self.detach(State::close);
                self.run_taken();
            } else if !self.forgotten.get() {
                self.lock_backlog().append_stack(self.state.0.close());
            }
            if !self.forgotten.get() {
                self.wait_for_senders(relax);
            }
        }
    }

    /// In a forked child: leaves all items where they are, including those that a run has taken,
    /// because they run in the parent. From here on nothing is added to the list or run from it,
    /// and it sends no notification. Takes no lock and waits for no thread: the lock's holder and
    /// the counted senders do not exist in this process.
    ///
    /// # Safety
    /// On the copy of the target's thread, which is the only thread of the process.
    pub unsafe fn forget(&self) {
        let _ = self.state.0.close();
        // SAFETY: the target's alone.
        unsafe {
            self.forgotten.set(true);
            self.taken.set(NOTHING);
        }
    }

    /// Waits until no notification is in progress that could have read the resource that the caller
    /// has just unpublished. `relax` as in [`TaskList::exit`].
    pub fn settle(&self, relax: impl FnMut(u32)) {
        self.state.0.touch();
        self.wait_for_senders(relax);
    }

    fn wait_for_senders(&self, mut relax: impl FnMut(u32)) {
        let mut round = 0;
        while self.state.0.has_senders() {
            relax(round);
            round = round.saturating_add(1);
        }
    }
}
