//! What the engine keeps about the calling thread.

use std::cell::Cell;

use uwork_policy::cpu_choice::{Habit, WakeHistory};

/// A frame: consecutive items that a thread runs. Frames nest when a waiter helps.
pub(crate) struct Frame {
    /// The slot that the items run in.
    pub(crate) slot: u32,
    /// The queue whose items run, as an identity.
    pub(crate) wq: *const (),
    /// The frame that this frame interrupted.
    pub(crate) outer: *const Frame,
}

/// The engine's state of one thread. The host stores it.
pub struct ThreadState {
    /// The innermost frame, null outside of items.
    frame: Cell<*const Frame>,
    /// The worker of this thread (a `Worker<H>`), null on other threads.
    worker: Cell<*const ()>,
    /// Whether the items of that worker are those of BH queues.
    runs_bh: Cell<bool>,
    /// Whether this thread is a queue's rescuer.
    rescuer: Cell<bool>,
    /// The thread, as the host names it; 0 if not asked yet.
    number: Cell<u64>,
    /// Fork counter: how many forks left this thread as the only thread of a new process.
    forks: Cell<u32>,
    /// The wakes that the thread sends to workers of pods with several CPUs.
    wakes: Cell<WakeHistory>,
    /// Whether the thread is in a hook that the host calls at its start or end.
    in_hook: Cell<bool>,
    /// Whether the thread leaves waits for the end of a queue to another thread: it is inside a call
    /// that must not wait.
    hands_over: Cell<bool>,
    /// Whether waits of this thread are reported, because it polls futures.
    reports_waits: Cell<bool>,
    /// Whether one was.
    has_reported_wait: Cell<bool>,
    /// RCU read sides that another language has begun on this thread and not ended.
    read_sides: Cell<u32>,
    /// The changes of its hooks that the host has made for this thread. The host's.
    hooks_seen: Cell<u32>,
    /// Nested changes (of the CPUs, or of a queue's attributes) that the thread is making. While there
    /// is one, the thread calls no reporter.
    changes: Cell<u32>,
}

impl Default for ThreadState {
    fn default() -> Self {
        Self::new()
    }
}

impl ThreadState {
    /// The state of a thread that has not entered the engine yet.
    pub const fn new() -> ThreadState {
        ThreadState {
            frame: Cell::new(std::ptr::null()),
            worker: Cell::new(std::ptr::null()),
            runs_bh: Cell::new(false),
            rescuer: Cell::new(false),
            number: Cell::new(0),
            forks: Cell::new(0),
            wakes: Cell::new(WakeHistory::NEW),
            in_hook: Cell::new(false),
            hands_over: Cell::new(false),
            reports_waits: Cell::new(false),
            has_reported_wait: Cell::new(false),
            read_sides: Cell::new(0),
            hooks_seen: Cell::new(0),
            changes: Cell::new(0),
        }
    }

    /// Whether the thread is making a change, during which it calls no reporter.
    pub(crate) fn is_changing(&self) -> bool {
        self.changes.get() > 0
    }

    /// Counts a change that begins (1) or ends (-1).
    pub(crate) fn count_change(&self, by: i32) {
        self.changes.set(self.changes.get().wrapping_add_signed(by));
    }

    /// How many read sides the thread is in that must end with the item that began them.
    pub fn read_sides(&self) -> u32 {
        self.read_sides.get()
    }

    /// Sets the number of read sides, after another language has begun or ended some.
    pub fn set_read_sides(&self, count: u32) {
        self.read_sides.set(count);
    }

    /// Whether the thread is in a hook, which must not wait for items.
    #[inline]
    pub fn is_in_hook(&self) -> bool {
        self.in_hook.get()
    }

    /// Calls `hook`, during which the thread is in a hook. Outside of items the thread is no worker
    /// meanwhile: it may be idle, and a wait that the hook declares must not take it off its pool's
    /// running count. `hook` does not unwind.
    pub fn in_hook<R>(&self, hook: impl FnOnce() -> R) -> R {
        let outer = self.in_hook.replace(true);
        let worker = self.worker.get();
        if !self.is_inside_items() {
            self.worker.set(std::ptr::null());
        }
        let result = hook();
        self.worker.set(worker);
        self.in_hook.set(outer);
        result
    }

    /// Whether the thread is inside an item.
    #[inline]
    pub fn is_inside_items(&self) -> bool {
        !self.frame.get().is_null()
    }

    /// What the host has last passed to [`ThreadState::set_hooks_seen`]; 0 at first.
    #[inline(always)]
    pub fn hooks_seen(&self) -> u32 {
        self.hooks_seen.get()
    }

    /// Keeps a number for the host.
    pub fn set_hooks_seen(&self, seen: u32) {
        self.hooks_seen.set(seen);
    }

    /// Whether the thread leaves a wait for the end of a queue to another thread: in an item, where
    /// the awaited items may be behind its own; in a hook; in a call that must not wait.
    pub(crate) fn hands_over(&self) -> bool {
        let runs_items = !self.worker.get().is_null() || !self.frame.get().is_null();
        runs_items || self.in_hook.get() || self.hands_over.get()
    }

    /// Sets that for calls that must not wait. Returns what it was.
    pub(crate) fn set_hands_over(&self, hands_over: bool) -> bool {
        self.hands_over.replace(hands_over)
    }

    /// Sets whether waits of this thread are reported. Returns what it was.
    pub(crate) fn set_reports_waits(&self, reports_waits: bool) -> bool {
        self.reports_waits.replace(reports_waits)
    }

    /// Whether the wait that begins is to be reported.
    pub(crate) fn take_wait_to_report(&self) -> bool {
        self.reports_waits.get() && !self.has_reported_wait.replace(true)
    }

    pub(crate) fn worker(&self) -> *const () {
        self.worker.get()
    }

    /// `runs_bh`: whether its items are those of BH queues.
    pub(crate) fn set_worker(&self, worker: *const (), runs_bh: bool) {
        self.worker.set(worker);
        self.runs_bh.set(runs_bh);
    }

    /// Whether the thread is a worker in an item of a BH queue, which must not wait.
    #[inline]
    pub(crate) fn is_in_bh(&self) -> bool {
        self.runs_bh.get() && self.is_inside_items()
    }

    /// The thread, as the host names it. The first call obtains the name from `ask`.
    pub(crate) fn number(&self, ask: impl FnOnce() -> u64) -> u64 {
        if self.number.get() == 0 {
            self.number.set(ask());
        }
        self.number.get()
    }

    /// The thread sends a wake. `waits` gives the number of its waits so far. Returns what the thread
    /// does after a wake.
    pub(crate) fn note_wake(&self, waits: impl FnOnce() -> Option<u64>) -> Habit {
        let history = self.wakes.get().after_wake(waits);
        self.wakes.set(history);
        history.habit()
    }

    /// The fork counter. It changes in a forked child, where operations begun before the fork no
    /// longer exist.
    pub(crate) fn forks(&self) -> u32 {
        self.forks.get()
    }

    /// Resets the state in a forked child, where the thread is no worker and in no item.
    pub(crate) fn forked(&self) {
        self.forks.set(self.forks.get() + 1);
        self.number.set(0);
        self.rescuer.set(false);
        self.set_worker(std::ptr::null(), false);
        self.frame.set(std::ptr::null());
    }

    pub(crate) fn is_rescuer(&self) -> bool {
        self.rescuer.get()
    }

    pub(crate) fn set_rescuer(&self, rescuer: bool) {
        self.rescuer.set(rescuer);
    }

    pub(crate) fn frame(&self) -> *const Frame {
        self.frame.get()
    }

    pub(crate) fn set_frame(&self, frame: *const Frame) {
        self.frame.set(frame);
    }

    /// The frames of this thread, innermost first.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &Frame> {
        let mut next = self.frame.get();
        std::iter::from_fn(move || {
            // SAFETY: frames live on this thread's stack, and outlive every access to them.
            let frame = unsafe { next.as_ref() }?;
            next = frame.outer;
            Some(frame)
        })
    }

    /// Whether this thread is inside an item of the queue with this identity.
    pub(crate) fn runs_queue(&self, wq: *const ()) -> bool {
        self.frames().any(|frame| frame.wq == wq)
    }

    /// Whether this thread runs items in that slot.
    pub(crate) fn runs_slot(&self, slot: u32) -> bool {
        self.frames().any(|frame| frame.slot == slot)
    }
}
