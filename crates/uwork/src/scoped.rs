//! Closures that borrow.

use std::any::Any;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uwork_engine::payload::drop_payload;
use uwork_linux::{Event, engine, forks};

use crate::error::JoinError;
use crate::join::JoinHandle;
use crate::queue::Queue;

/// A spawn scope, in which closures that borrow are spawned. From [`scope`].
pub struct SpawnScope<'scope, 'env: 'scope> {
    queue: &'env Queue,
    open: Arc<Open>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The state that keeps a scope from ending.
struct Open {
    /// Closures that exist, plus one for the scope's own function.
    closures: AtomicUsize,
    /// Set when `closures` reaches 0.
    none_left: Event,
    /// Closures that panicked without a join of their handle.
    panics: AtomicUsize,
    /// The number of forks when the scope began.
    forks: u32,
    /// Dropped handles. The end of the scope joins them, as it may have to run their closures
    /// itself.
    left: Left,
}

/// Handles that any thread adds and one thread takes. Without a lock: a thread that holds one at a fork
/// does not exist in the child.
struct Left(AtomicPtr<LeftHandle>);

/// Guard of `earlier`: the adder until it is in the list; then constant.
struct LeftHandle {
    handle: JoinHandle<()>,
    earlier: *mut LeftHandle,
}

impl Left {
    fn add(&self, handle: JoinHandle<()>) {
        let mut last = self.0.load(Ordering::Relaxed);
        let added = Box::into_raw(Box::new(LeftHandle { handle, earlier: last }));
        // Release: the taker sees the fields.
        while let Err(now) =
            self.0.compare_exchange_weak(last, added, Ordering::Release, Ordering::Relaxed)
        {
            last = now;
            // SAFETY: from the box above, and in no list.
            unsafe { (*added).earlier = last };
        }
    }

    /// The handle that was added last. Only one thread calls this, so an entry that it reads stays in
    /// the list until its own exchange.
    fn take(&self) -> Option<JoinHandle<()>> {
        let mut last = self.0.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or an entry of the list.
            let earlier = unsafe { last.as_ref() }?.earlier;
            match self.0.compare_exchange(last, earlier, Ordering::Acquire, Ordering::Acquire) {
                // SAFETY: from a box, and taken once.
                Ok(_) => return Some(unsafe { Box::from_raw(last) }.handle),
                Err(now) => last = now,
            }
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        while self.take().is_some() {}
    }
}

impl Open {
    fn close_one(&self) {
        // Release: the closure's writes. Acquire: the end of the scope continues after all of them.
        if self.closures.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: live, as we hold it.
            unsafe { Event::set(&raw const self.none_left) };
        }
    }

    /// A handle's join has ended so. A closure that a fork has left in the parent ends here: no thread
    /// of this process has it.
    fn ended(&self, outcome: Result<(), JoinError>) -> Result<(), JoinError> {
        if let Err(JoinError::Forked) = outcome {
            self.close_one();
        }
        outcome
    }

    /// In a forked child, once the scope's own function and all known handles have ended: waits for
    /// the closures that run in this process. Their handles were forgotten. The number of the others,
    /// which are the parent's.
    #[cold]
    fn settle_in_child(&self, queue: &Queue) -> usize {
        if queue.flush().is_err() {
            // To return without proof would end frames that a closure may use.
            uwork_linux::print(
                "uwork: a scope ends in a forked child, inside an item of its queue, and handles of \
                 its closures were forgotten: it cannot be known whether they still run\n",
            );
            std::process::abort();
        }
        self.closures.load(Ordering::Acquire)
    }
}

/// A closure with its captures. Fields are dropped in order: `guard` comes last, so the scope
/// cannot end while borrowed data is still held.
struct Job<F, R> {
    closure: Option<F>,
    result: Arc<Mutex<Option<R>>>,
    guard: Guard,
}

struct Guard(Arc<Open>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.close_one();
    }
}

impl<F: FnOnce() -> R, R> Job<F, R> {
    fn run(mut self) {
        let Some(closure) = self.closure.take() else { return };
        match catch_unwind(AssertUnwindSafe(closure)) {
            Ok(value) => {
                *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            }
            Err(payload) => {
                self.guard.0.panics.fetch_add(1, Ordering::Relaxed);
                drop(self);
                resume_unwind(payload);
            }
        }
    }
}

/// Waits for a closure spawned in a [`scope`]. If it is dropped, the end of the scope waits
/// instead.
pub struct ScopedJoinHandle<'scope, R> {
    result: Arc<Mutex<Option<R>>>,
    /// None after the join.
    done: Option<Done>,
    open: Arc<Open>,
    scope: PhantomData<&'scope ()>,
}

enum Done {
    Queued(JoinHandle<()>),
    Here(Result<(), Box<dyn Any + Send>>),
}

impl<R> ScopedJoinHandle<'_, R> {
    /// Waits for the closure and returns its result, helping as [`JoinHandle::join`] does.
    ///
    /// # Errors
    /// As [`JoinHandle::join`].
    pub fn join(self) -> Result<R, JoinError> {
        self.join_by(JoinHandle::join)
    }

    /// Waits for the closure, which the calling thread never runs: as [`JoinHandle::join_waiting`].
    /// A closure that runs at once, as [`scope`] says, has run in the spawning call.
    ///
    /// # Errors
    /// As [`JoinHandle::join_waiting`].
    pub fn join_waiting(self) -> Result<R, JoinError> {
        self.join_by(JoinHandle::join_waiting)
    }

    fn join_by(
        mut self,
        join: fn(JoinHandle<()>) -> Result<(), JoinError>,
    ) -> Result<R, JoinError> {
        let outcome = match self.done.take() {
            Some(Done::Queued(handle)) => self.open.ended(join(handle)),
            Some(Done::Here(outcome)) => outcome.map_err(JoinError::Panicked),
            None => Err(JoinError::Cancelled),
        };
        if let Err(JoinError::Panicked(_)) = outcome {
            self.open.panics.fetch_sub(1, Ordering::Relaxed);
        }
        outcome?;
        let value = self.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        value.ok_or(JoinError::Cancelled)
    }
}

impl<R> Drop for ScopedJoinHandle<'_, R> {
    fn drop(&mut self) {
        if let Some(Done::Queued(handle)) = self.done.take() {
            self.open.left.add(handle);
        }
    }
}

impl<'scope, 'env> SpawnScope<'scope, 'env> {
    /// Queues a closure that may borrow data that outlives the scope. See [`Queue::spawn`].
    pub fn spawn<F, R>(&'scope self, closure: F) -> ScopedJoinHandle<'scope, R>
    where
        F: FnOnce() -> R + Send + 'scope,
        R: Send + 'scope,
    {
        self.open.closures.fetch_add(1, Ordering::Relaxed);
        let result = Arc::new(Mutex::new(None));
        let guard = Guard(self.open.clone());
        let job = Job { closure: Some(closure), result: result.clone(), guard };
        let waits_for_itself = self.queue.is_ordered() && self.queue.0.runs_here();
        // An item of a BH queue must not wait. Debug builds have refused the scope.
        let done = if waits_for_itself || engine().context().bh {
            Done::Here(catch_unwind(AssertUnwindSafe(|| job.run())))
        } else {
            let job: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || job.run());
            // SAFETY: only the lifetime changes. `scope` does not return, or unwind, before the
            // job's guard was dropped, after everything else in it.
            let job: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(job) };
            Done::Queued(self.queue.spawn(job))
        };
        ScopedJoinHandle { result, done: Some(done), open: self.open.clone(), scope: PhantomData }
    }
}

/// Runs `f`, which may spawn closures that borrow from the enclosing stack frame, and returns when
/// all of them have finished.
///
/// Inside an item of an ordered queue, closures spawned on that queue run at once, in the spawning
/// call: queued behind their own caller they would never run. So do all closures inside an item of a
/// BH queue, which must not wait.
///
/// # Panics
/// In a thread hook, and in debug builds in an item of a BH queue, before `f` is called. If `f`
/// panics, or a closure whose handle was not joined. The panic is raised after all closures have
/// finished. In a child that `f` forked, also if such a closure is the parent's: if it was pending or
/// running at the fork, it does not run in the child.
///
/// ```
/// let queue = uwork::Queue::builder("scope").build()?;
/// let words = ["deferred", "work"];
/// let lengths = uwork::scope(&queue, |s| {
///     let handles: Vec<_> = words.iter().map(|word| s.spawn(move || word.len())).collect();
///     handles.into_iter().map(|handle| handle.join().unwrap()).collect::<Vec<_>>()
/// });
/// assert_eq!(lengths, [8, 4]);
/// # Ok::<(), uwork::Error>(())
/// ```
pub fn scope<'env, F, T>(queue: &'env Queue, f: F) -> T
where
    F: for<'scope> FnOnce(&'scope SpawnScope<'scope, 'env>) -> T,
{
    engine().assert_may_wait();
    let open = Arc::new(Open {
        // The 1 is for `f` itself: without it the count would reach 0 between two spawns, and
        // `none_left` would be set too early.
        closures: AtomicUsize::new(1),
        none_left: Event::default(),
        panics: AtomicUsize::new(0),
        forks: forks(),
        left: Left(AtomicPtr::new(std::ptr::null_mut())),
    });
    let scope = SpawnScope { queue, open: open.clone(), scope: PhantomData, env: PhantomData };
    let outcome = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    open.close_one();
    let mut lost = 0;
    // The job itself counts a panic.
    while let Some(handle) = open.left.take() {
        match open.ended(handle.join_unchecked()) {
            Err(JoinError::Forked) => lost += 1,
            // Must not unwind: closures that still run may borrow from the enclosing frames.
            Err(JoinError::Panicked(payload)) => drop_payload(payload),
            _ => {}
        }
    }
    // Acquire: what the closures have done.
    if open.closures.load(Ordering::Acquire) > 0 {
        if open.forks == forks() {
            engine().blocking(|| open.none_left.wait(None));
        } else {
            lost += open.settle_in_child(queue);
        }
    }
    match outcome {
        Err(payload) => resume_unwind(payload),
        Ok(_) if lost > 0 => panic!(
            "closures of the scope ({lost}) are the parent process's: they were queued before the fork \
             and do not run in this child"
        ),
        Ok(_) if open.panics.load(Ordering::Relaxed) > 0 => {
            panic!("a closure spawned in the scope panicked")
        }
        Ok(value) => value,
    }
}
