//! Handles to threads, through which any thread adds items for them.

use std::fmt;
use std::sync::Arc;

use uwork_engine::WorkPointer;
use uwork_engine::task::Notify;
use uwork_linux::task::{Delivery, ENDED, Outcome, Target, current};

use super::closure::Closure;
use super::item::{HasTaskWork, TaskItem, TaskWork, container, field, kind};

/// A registered thread, for which task work can be added from anywhere. Cloning costs one locked
/// instruction.
///
/// A handle does not keep its thread alive. After the thread has ended, every added item is
/// returned. If the thread had an eventfd, by a [`Notifier`](super::Notifier) or a reactor, that
/// stays open as long as any handle exists: a program that keeps the handles of many ended threads
/// keeps as many descriptors.
///
/// ```
/// use uwork::task::{self, Notify, TaskHandle};
/// let (send, receive) = std::sync::mpsc::channel();
/// let thread = std::thread::spawn(move || {
///     send.send(TaskHandle::current()).unwrap();
///     // Sleeps until there is something to run.
///     while task::park() == 0 {}
/// });
/// let handle: TaskHandle = receive.recv().unwrap();
/// assert!(!handle.is_current());
/// handle.add_fn(Notify::Signal, || println!("on the other thread")).unwrap();
/// thread.join().unwrap();
/// assert!(handle.add_fn(Notify::Signal, || ()).is_err());
/// ```
#[derive(Clone)]
pub struct TaskHandle(Arc<Target>);

/// The outcome of adding. An item that was not added is returned.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an item that was not added is in here"]
pub enum Added<P> {
    /// It will run.
    Added,
    /// It was pending already, on this thread or another: the coming run sees everything that the
    /// caller wrote before.
    Pending(P),
    /// The thread has ended, or called [`exit`](super::exit).
    Exited(P),
}

impl<P> Added<P> {
    /// Whether this call added the item.
    pub fn is_added(&self) -> bool {
        matches!(self, Added::Added)
    }

    /// The item, if this call did not add it.
    pub fn into_refused(self) -> Option<P> {
        match self {
            Added::Added => None,
            Added::Pending(item) | Added::Exited(item) => Some(item),
        }
    }
}

/// The thread has ended, or called [`exit`](super::exit). Holds the closure that was to run there.
pub struct ExitedError<F>(pub F);

impl<F> fmt::Debug for ExitedError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExitedError").finish_non_exhaustive()
    }
}

impl<F> fmt::Display for ExitedError<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the thread has ended its task work")
    }
}

impl<F> std::error::Error for ExitedError<F> {}

impl TaskHandle {
    /// The calling thread's handle. The first call registers the thread, with [`Delivery::Auto`],
    /// or, if no signal is free, [`Delivery::Light`]. To avoid the installation of a signal
    /// handler, call [`set_delivery`](super::set_delivery) first.
    ///
    /// # Panics
    /// If the thread is ending and its thread-local destructors, uwork's among them, have run. A
    /// destructor calls [`TaskHandle::try_current`]: a panic there ends the process.
    ///
    /// ```
    /// use uwork::task::{Notify, TaskHandle, run};
    /// let handle = TaskHandle::current();
    /// handle.add_fn(Notify::None, || println!("later")).unwrap();
    /// assert_eq!(run(), 1);
    /// ```
    pub fn current() -> TaskHandle {
        TaskHandle::try_current().expect(ENDED)
    }

    /// As [`TaskHandle::current`], but `None` where the thread's task work has ended with the thread.
    pub fn try_current() -> Option<TaskHandle> {
        current(Delivery::Auto).map(TaskHandle)
    }

    /// Whether this is the calling thread's handle.
    pub fn is_current(&self) -> bool {
        self.0.is_current()
    }

    /// Adds an item for the thread. Lock-free, allocates nothing; makes a system call only if the
    /// thread must be notified and was not notified since it last ran its items.
    ///
    /// The caller's earlier writes are visible to the item's run, also if the item was pending
    /// already.
    ///
    /// If the target is the calling thread itself, an item with [`Notify::Signal`] runs at its next
    /// safe point.
    ///
    /// ```
    /// use uwork::task::{self, Added, Notify, TaskHandle, TaskItem, TaskWork};
    /// struct Job { work: TaskWork<Job> }
    /// uwork::has_task_work!(impl HasTaskWork for Job { work });
    /// impl TaskItem for Job {
    ///     type Pointer = std::pin::Pin<Box<Job>>;
    ///     fn run(_this: Self::Pointer) {}
    /// }
    /// let handle = std::thread::spawn(TaskHandle::current).join().unwrap();
    /// // That thread is gone.
    /// let job = Box::pin(Job { work: TaskWork::new() });
    /// assert!(matches!(handle.add(job, Notify::Signal), Added::Exited(_)));
    /// ```
    pub fn add<P, const ID: u64>(&self, item: P, notify: Notify) -> Added<P>
    where
        P: WorkPointer,
        P::Target: TaskItem<ID, Pointer = P>,
    {
        let raw = item.into_raw();
        // SAFETY: the pointer keeps the item live and in place until its run, or until a cancel
        // takes it back, and may move to the thread (`WorkPointer`).
        unsafe {
            match self.0.add(field::<P::Target, ID>(raw), notify) {
                Outcome::Added => Added::Added,
                Outcome::Pending => Added::Pending(P::from_raw(raw)),
                Outcome::Exited => Added::Exited(P::from_raw(raw)),
            }
        }
    }

    /// Adds a closure, in a box. Otherwise as [`add`](TaskHandle::add).
    ///
    /// # Errors
    /// The thread has ended, or called [`exit`](super::exit); the closure is returned.
    ///
    /// ```
    /// use uwork::task::{ExitedError, Notify, TaskHandle};
    /// let handle = std::thread::spawn(TaskHandle::current).join().unwrap();
    /// // That thread is gone.
    /// let (send, receive) = std::sync::mpsc::channel();
    /// let added = handle.add_fn(Notify::Signal, move || send.send("here").unwrap());
    /// let ExitedError(function) = added.unwrap_err();
    /// function();
    /// assert_eq!(receive.recv(), Ok("here"));
    /// ```
    pub fn add_fn<F>(&self, notify: Notify, function: F) -> Result<(), ExitedError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        let work = Closure::leak(function);
        // SAFETY: the list keeps the box until its run.
        match unsafe { self.0.add(work, notify) } {
            Outcome::Added => Ok(()),
            // A new item is not pending.
            Outcome::Pending | Outcome::Exited => {
                // SAFETY: the list did not take it, so this call owns it.
                let function = unsafe { Closure::take_back(work) };
                Err(ExitedError(function))
            }
        }
    }

    /// Takes back an item that was added for this thread and that the thread has not yet taken from
    /// its list. Searches the list under its lock.
    ///
    /// A thread takes the whole list off at once: an item behind a running one cannot be taken
    /// back. As with the kernel's `task_work_cancel`.
    ///
    /// ```
    /// use uwork::task::{self, Notify, TaskHandle, TaskItem, TaskWork};
    /// use std::sync::Arc;
    /// struct Job { work: TaskWork<Job> }
    /// uwork::has_task_work!(impl HasTaskWork for Job { work });
    /// impl TaskItem for Job {
    ///     type Pointer = Arc<Job>;
    ///     fn run(_this: Arc<Job>) { panic!("it was taken back"); }
    /// }
    /// let (handle, job) = (TaskHandle::current(), Arc::new(Job { work: TaskWork::new() }));
    /// assert!(handle.add(job.clone(), Notify::Signal).is_added());
    /// assert!(handle.cancel(&job.work).is_some());
    /// assert_eq!(task::run(), 0);
    /// ```
    pub fn cancel<T, const ID: u64>(&self, work: &TaskWork<T, ID>) -> Option<T::Pointer>
    where
        T: TaskItem<ID>,
    {
        let work = work.raw();
        // SAFETY: live, as we have a reference; and once the item is off the list, this call owns
        // the pointer.
        unsafe { self.0.cancel(work).then(|| T::Pointer::from_raw(container::<T, ID>(work))) }
    }

    /// Takes back the oldest item of type `P::Target` (and `ID`) for which `matches` returns true;
    /// as [`cancel`](TaskHandle::cancel).
    ///
    /// `matches` is called under the list's lock. It must not cancel items of this thread's list,
    /// nor run them: that would wait for itself. It must not cancel items of another thread whose
    /// own `matches` may cancel items of this thread: the two would wait for each other. A panic of
    /// `matches` unwinds through this call, and leaves all items in the list.
    ///
    /// ```
    /// use uwork::task::{self, Notify, TaskHandle, TaskItem, TaskWork};
    /// use std::sync::Arc;
    /// struct Job { work: TaskWork<Job>, number: u32 }
    /// uwork::has_task_work!(impl HasTaskWork for Job { work });
    /// impl TaskItem for Job {
    ///     type Pointer = Arc<Job>;
    ///     fn run(this: Arc<Job>) { assert_ne!(this.number, 2); }
    /// }
    /// let handle = TaskHandle::current();
    /// for number in 0..4 {
    ///     assert!(handle.add(Arc::new(Job { work: TaskWork::new(), number }), Notify::None).is_added());
    /// }
    /// let job = handle.cancel_match::<Arc<Job>, 0>(|job| job.number == 2).unwrap();
    /// assert_eq!((job.number, task::run()), (2, 3));
    /// ```
    pub fn cancel_match<P, const ID: u64>(
        &self,
        mut matches: impl FnMut(&P::Target) -> bool,
    ) -> Option<P>
    where
        P: WorkPointer,
        P::Target: TaskItem<ID, Pointer = P> + HasTaskWork<ID>,
    {
        let found = self.0.cancel_match(|work| {
            // SAFETY: items in a list are live. The kind shows that the item is a part of a
            // `P::Target`, which the list's pointer keeps live; the run that could change it has
            // not begun.
            unsafe {
                (work.as_ref().calls().of)() == kind::<P::Target, ID>()
                    && matches(container::<P::Target, ID>(work).as_ref())
            }
        });
        // SAFETY: off the list, so this call owns the pointer.
        found.map(|work| unsafe { P::from_raw(container::<P::Target, ID>(work)) })
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle").field("delivery", &self.0.delivery()).finish_non_exhaustive()
    }
}
