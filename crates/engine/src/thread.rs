//! What the engine knows about the calling thread.

use std::cell::Cell;

/// One stretch of running items on a thread. Frames nest when a thread that waits helps.
pub(crate) struct Frame {
    /// The slot whose runs these are.
    pub(crate) slot: u32,
    /// The queue whose items run, as an identity.
    pub(crate) wq: *const (),
    /// The frame that this one interrupted.
    pub(crate) outer: *const Frame,
}

/// What the engine keeps for one thread. The host stores it.
pub struct ThreadState {
    /// The innermost frame, null outside of items.
    frame: Cell<*const Frame>,
    /// The worker of this thread (a `Worker<H>`), null on other threads.
    worker: Cell<*const ()>,
    /// Whether this thread is a queue's rescuer.
    rescuer: Cell<bool>,
    /// The thread, as the host names it; 0: not asked yet.
    number: Cell<u64>,
    /// Forks that this thread came out of as the only one of a new process.
    forks: Cell<u32>,
    /// Read sides that another language has begun here and not ended.
    read_sides: Cell<u32>,
    /// Changes that the thread is making, during which it calls no reporter.
    changes: Cell<u32>,
}

impl Default for ThreadState {
    fn default() -> Self {
        Self::new()
    }
}

impl ThreadState {
    /// The state of a thread that has not met the engine yet.
    pub const fn new() -> ThreadState {
        ThreadState {
            frame: Cell::new(std::ptr::null()),
            worker: Cell::new(std::ptr::null()),
            rescuer: Cell::new(false),
            number: Cell::new(0),
            forks: Cell::new(0),
            read_sides: Cell::new(0),
            changes: Cell::new(0),
        }
    }

    /// Whether the thread is making a change, during which it calls no reporter.
    pub(crate) fn is_changing(&self) -> bool {
        self.changes.get() > 0
    }

    /// A change begins (1) or ends (-1).
    pub(crate) fn count_change(&self, by: i32) {
        self.changes.set(self.changes.get().wrapping_add_signed(by));
    }

    /// How many read sides the thread has begun that are to end with the item that has begun them.
    pub fn read_sides(&self) -> u32 {
        self.read_sides.get()
    }

    /// Another language has begun or ended read sides.
    pub fn set_read_sides(&self, count: u32) {
        self.read_sides.set(count);
    }

    pub(crate) fn worker(&self) -> *const () {
        self.worker.get()
    }

    pub(crate) fn set_worker(&self, worker: *const ()) {
        self.worker.set(worker);
    }

    /// The thread, as the host names it, which `ask` asks.
    pub(crate) fn number(&self, ask: impl FnOnce() -> u64) -> u64 {
        if self.number.get() == 0 {
            self.number.set(ask());
        }
        self.number.get()
    }

    /// Changes when the process does under the thread's feet: what it began before is not there.
    pub(crate) fn forks(&self) -> u32 {
        self.forks.get()
    }

    /// The thread is in a new process, where it serves nobody and is in no item.
    pub(crate) fn forked(&self) {
        self.forks.set(self.forks.get() + 1);
        self.number.set(0);
        self.rescuer.set(false);
        self.worker.set(std::ptr::null());
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
            // SAFETY: frames live on this thread's stack, below everything that can see them.
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
