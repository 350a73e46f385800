//! A target's list: add, cancel, run, wait, exit.

use std::ptr::NonNull;

use super::item::TaskWork;
use super::state::{NOTIFIED, Notify, Pushed, State};
use crate::sync::{Cell, Line, Link, Lock, Rank, assert_nothing_held};

/// What became of an item that was to be added.
#[must_use = "an item that was not added is still the caller's, and a kick is to be sent"]
pub enum Added<'a> {
    /// It was in a list already: the coming run sees everything that the caller wrote before.
    Pending,
    /// The target has exited.
    Exited,
    /// It will run. The kick, if there is one, is for the caller to send.
    Yes(Option<Kick<'a>>),
}

/// A target must be told. The caller tells it, and then says so by [`Kick::sent`].
#[must_use = "a kick that is not sent leaves a thread asleep with work waiting"]
pub struct Kick<'a> {
    list: &'a TaskList,
    waits: bool,
}

impl Kick<'_> {
    /// Whether the target has declared its wait: then that wait is to be ended. Otherwise it computes, or is in a
    /// system call that nobody knows of.
    pub fn waits(&self) -> bool {
        self.waits
    }

    /// It was told. From here on what was used for that may go away.
    pub fn sent(self) {
        let list = self.list;
        std::mem::forget(self);
        list.state.0.sent();
    }

    /// It could not be told. Whoever adds next with `Signal` tells it; otherwise it looks at its next safe point.
    pub fn failed(self) {
        self.list.state.0.unsent();
        self.sent();
    }
}

impl Drop for Kick<'_> {
    fn drop(&mut self) {
        self.list.state.0.sent();
        debug_assert!(std::thread::panicking(), "a kick was dropped without being sent");
    }
}

/// Items in the order in which they run.
#[derive(Clone, Copy)]
struct Chain {
    head: Link<TaskWork>,
    tail: Link<TaskWork>,
}

const NOTHING: Link<TaskWork> = Link(std::ptr::null_mut());

/// Runs inside of each other, at most: one, and one in an item of that. The stack is so deep, and no deeper, however
/// many items are added; and an item that runs others waits for those that were there, not for those that come.
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

    /// Takes the first item for which `matches` says so.
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

/// The list of one target thread. What only the target may call says so.
pub struct TaskList {
    /// What every adder writes.
    state: Line<State>,
    /// What cancels have looked through: older than what is in `state`.
    backlog: Lock<Chain>,
    /// What is being run. The target's alone.
    batch: Cell<Link<TaskWork>>,
    /// Runs that have begun and not ended, one inside of the other. The target's alone.
    depth: Cell<u32>,
    /// This is a forked child's copy of a list, whose items are the parent's. The target's alone.
    forgotten: Cell<bool>,
}

impl Default for TaskList {
    fn default() -> TaskList {
        TaskList::new()
    }
}

impl TaskList {
    /// Bits of what is at [`TaskList::futex`]: while one of them is set, the target is to run its list.
    pub const NOTIFIED: u32 = NOTIFIED;

    /// An empty list.
    pub fn new() -> TaskList {
        TaskList {
            state: Line(State::new()),
            backlog: Lock::ranked(Rank::TaskList, Chain::EMPTY),
            batch: Cell::new(NOTHING),
            depth: Cell::new(0),
            forgotten: Cell::new(false),
        }
    }

    /// Adds an item. Lock-free; two locked instructions, two more where the target must be told.
    ///
    /// # Safety
    /// `work` is live, and stays so and in place until it was run or taken back. Its function may be called on the
    /// target's thread.
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
            Pushed::Tell { waits } => Added::Yes(Some(Kick { list: self, waits })),
        }
    }

    /// Takes an item back that has not been detached to be run. Takes the list's lock, and looks at every item in
    /// it.
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

    /// Takes the oldest item back for which `matches` says so. `matches` is called under the list's lock: it must
    /// not call this list. Where it unwinds, all items stay.
    pub fn cancel_match(
        &self,
        matches: impl FnMut(NonNull<TaskWork>) -> bool,
    ) -> Option<NonNull<TaskWork>> {
        let mut backlog = self.backlog.lock();
        // SAFETY: what is in the backlog is its lock's holder's alone, and what `steal` gave up is ours.
        let found = unsafe {
            backlog.append_stack(self.state.0.steal());
            backlog.remove(matches)
        };
        drop(backlog);
        // SAFETY: it is in no list any more, so ours.
        found.inspect(|item| unsafe { item.as_ref() }.let_go())
    }

    /// Whether the target was told to run its list: one load. False does not mean that the list is empty.
    #[inline]
    pub fn is_notified(&self) -> bool {
        self.state.0.is_notified()
    }

    /// Runs what has been added so far, first in, first out. How many items that were. What is added meanwhile
    /// stays, and the target is told of it anew. Nothing where it [cannot run](TaskList::can_run).
    ///
    /// # Safety
    /// On the target's thread.
    pub unsafe fn run_once(&self) -> usize {
        // SAFETY: on the target's thread.
        if !unsafe { self.can_run() } {
            return 0;
        }
        // A run inside of an item goes on where the outer one was.
        // SAFETY: on the target's thread.
        let count = unsafe { self.run_batch() };
        // SAFETY: as above.
        unsafe {
            self.detach(State::detach);
            count + self.run_batch()
        }
    }

    /// Whether a run would run what there is. It would not in an item of a run that is inside of another: what is there
    /// is left to those two, which go on with it as soon as the item returns.
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
    /// On the target's thread, with an empty batch.
    unsafe fn detach(&self, take: fn(&State) -> *mut TaskWork) {
        // SAFETY: the target's alone.
        if unsafe { self.forgotten.get() } {
            return;
        }
        // Under the lock, so that no cancel holds older items in its hands.
        let mut backlog = self.backlog.lock();
        let mut chain = std::mem::replace(&mut *backlog, Chain::EMPTY);
        // SAFETY: both parts are ours: one was the lock's, the other was given up by the state. The batch is the
        // target's, which we are.
        unsafe {
            chain.append_stack(take(&self.state.0));
            self.batch.set(chain.head);
        }
    }

    /// # Safety
    /// On the target's thread.
    unsafe fn run_batch(&self) -> usize {
        let mut count = 0;
        // SAFETY: the depth is the target's alone. Items do not unwind.
        unsafe { self.depth.set(self.depth.get() + 1) };
        // SAFETY: the batch is the target's alone.
        while let Some(item) = NonNull::new(unsafe { self.batch.get() }.0) {
            // SAFETY: what is in the batch is live. The item is no longer in it, and no longer pending, when its
            // function is called, which may free it, or run the rest.
            unsafe {
                self.batch.set(Link(TaskWork::next(item.as_ptr())));
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

    /// Says that the target is about to wait. False: it is to run its list, and not to wait.
    ///
    /// The target has published how before. To be followed by [`TaskList::leave`]. In between it may be called again,
    /// by a target that goes on to wait in another way: if that gives false, no notification of the new kind comes.
    ///
    /// # Safety
    /// On the target's thread.
    #[must_use]
    pub unsafe fn declare(&self) -> bool {
        self.state.0.declare()
    }

    /// Says that the target's wait is over. True: it is to run its list.
    ///
    /// # Safety
    /// On the target's thread.
    #[must_use]
    pub unsafe fn leave(&self) -> bool {
        self.state.0.leave()
    }

    /// What a wait on the word itself is to compare it with; `None` if the target is to run its list instead.
    ///
    /// # Safety
    /// On the target's thread, which has declared that it waits.
    pub unsafe fn sleeping(&self) -> Option<u32> {
        self.state.0.sleeping()
    }

    /// Where that wait is: the address of 32 bits.
    pub fn futex(&self) -> *const u32 {
        self.state.0.half()
    }

    /// Ends the list, and runs what was in it: items that come later, also from those that run now, are given back.
    /// Afterwards no kick is under way. `relax` waits a little for another thread to finish a system call; it is
    /// called with how often it was called before.
    ///
    /// # Safety
    /// On the target's thread.
    pub unsafe fn exit(&self, relax: impl FnMut(u32)) {
        // SAFETY: on the target's thread.
        unsafe {
            // The one run that is deeper than others can be. In an item of it, which ends the list once more, what is
            // there is left to it.
            if self.depth.get() <= DEPTH_MAX {
                self.run_batch();
                self.detach(State::close);
                self.run_batch();
            } else if !self.forgotten.get() {
                self.backlog.lock().append_stack(self.state.0.close());
            }
            if !self.forgotten.get() {
                self.until_sent(relax);
            }
        }
    }

    /// In a forked child: leaves the items where they are, those of a batch that is being run too, for they run in
    /// the parent. Nothing is added to the list, run from it, or told by it any more. Takes no lock and waits for
    /// nobody: whoever is in the lock, or counted as a sender, is not in this process.
    ///
    /// # Safety
    /// On the copy of the target's thread, which is the only one that there is.
    pub unsafe fn forget(&self) {
        let _ = self.state.0.close();
        // SAFETY: the target's alone.
        unsafe {
            self.forgotten.set(true);
            self.batch.set(NOTHING);
        }
    }

    /// After it, no kick is under way that could have seen what the caller had published before it unpublished it.
    /// `relax` as in [`TaskList::exit`].
    pub fn settle(&self, relax: impl FnMut(u32)) {
        self.state.0.touch();
        self.until_sent(relax);
    }

    fn until_sent(&self, mut relax: impl FnMut(u32)) {
        let mut round = 0;
        while self.state.0.has_senders() {
            relax(round);
            round = round.saturating_add(1);
        }
    }
}
