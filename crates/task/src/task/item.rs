//! Items of task work, embedded in the user's own types.

use std::any::TypeId;
use std::fmt;
use std::marker::{PhantomData, PhantomPinned};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use uwork_engine::payload::drop_payload;
use uwork_engine::task::{TaskCalls, TaskWork as RawWork};
use uwork_engine::{WorkPointer, embedded};
use uwork_linux::report_panic;

/// An item of task work, to be embedded in a type `T`; `ID` tells several in one type apart.
///
/// 24 bytes. Its function is `T`'s [`TaskItem`] implementation for the same `ID`.
///
/// ```
/// use std::sync::Arc;
/// use uwork::task::{self, Notify, TaskHandle, TaskItem, TaskWork};
///
/// struct Connection {
///     close: TaskWork<Connection>,
/// }
/// uwork::has_task_work!(impl HasTaskWork for Connection { close });
///
/// impl TaskItem for Connection {
///     type Pointer = Arc<Connection>;
///     fn run(this: Arc<Connection>) {
///         assert!(!this.close.is_pending());
///     }
/// }
///
/// let handle = TaskHandle::current();
/// let connection = Arc::new(Connection { close: TaskWork::new() });
/// assert!(handle.add(connection.clone(), Notify::Signal).is_added());
/// assert!(!handle.add(connection, Notify::Signal).is_added());
/// assert_eq!(task::safe_point(), 1);
/// ```
#[repr(transparent)]
pub struct TaskWork<T, const ID: u64 = 0> {
    raw: RawWork,
    /// The item may run, and `T` be dropped, on any thread that the pointer type permits. Invariant:
    /// the function is that of `T`, so the item is one of `T` alone.
    marker: PhantomData<fn(T) -> T>,
    /// Lists point here.
    pinned: PhantomPinned,
}

/// A type with a [`TaskWork`] field. Implement it with [`has_task_work!`](crate::has_task_work).
///
/// # Safety
/// At `OFFSET` in every value of the type is its `TaskWork<Self, ID>`.
#[diagnostic::on_unimplemented(
    message = "no field of `{Self}` is declared as an item of task work",
    label = "a line `uwork::has_task_work!(...)` for `{Self}` is missing",
    note = "for a field `work: uwork::task::TaskWork<{Self}>` add the line: \
            uwork::has_task_work!(impl HasTaskWork for {Self} {{ work }});"
)]
pub unsafe trait HasTaskWork<const ID: u64 = 0>: Sized {
    /// The field's offset in bytes.
    const OFFSET: usize;
}

/// The function of an item of task work.
pub trait TaskItem<const ID: u64 = 0>: HasTaskWork<ID> {
    /// The pointer through which the item is added, and which its run receives.
    type Pointer: WorkPointer<Target = Self>;

    /// Does the work, on the thread for which the item was added. Items run one after the other
    /// there.
    ///
    /// A panic ends the item, not the thread; it is counted and reported.
    fn run(this: Self::Pointer);
}

/// Implements [`HasTaskWork`](crate::task::HasTaskWork) for a type with a
/// [`TaskWork`](crate::task::TaskWork) field.
///
/// ```
/// use uwork::task::TaskWork;
/// struct Job { work: TaskWork<Job> }
/// uwork::has_task_work!(impl HasTaskWork for Job { work });
///
/// struct Message<T: Send + 'static> { send: TaskWork<Message<T>, 7>, text: T }
/// uwork::has_task_work!(impl<T: Send + 'static> HasTaskWork<7> for Message<T> { send });
/// ```
#[macro_export]
macro_rules! has_task_work {
    (impl $($rest:tt)+) => {
        $crate::__split_generics!([$crate::__has_task_work] impl $($rest)+);
    };
}

/// What [`has_task_work!`](crate::has_task_work) does, with the generic parameters in a list.
#[doc(hidden)]
#[macro_export]
macro_rules! __has_task_work {
    ($parameters:tt HasTaskWork $(<$id:literal>)? for $type:ty { $field:ident }) => {
        $crate::__impl_offset! {
            $parameters $type { $field: $crate::task::TaskWork<Self $(, $id)?> }
            $crate::task::HasTaskWork $(<$id>)?
        }
    };
}

/// The list's operations on items of `T`.
struct Calls<T, const ID: u64>(PhantomData<fn(T)>);

impl<T: TaskItem<ID>, const ID: u64> Calls<T, ID> {
    const TABLE: &'static TaskCalls = &TaskCalls { run: perform::<T, ID>, of: kind::<T, ID> };
}

unsafe fn perform<T: TaskItem<ID>, const ID: u64>(work: NonNull<RawWork>) {
    // SAFETY: the list hands each item back once.
    let pointer = unsafe { T::Pointer::from_raw(container::<T, ID>(work)) };
    guarded(move || T::run(pointer));
}

/// Calls an item's function. A panic of it is reported and caught.
pub(super) fn guarded(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        report_panic(&*payload);
        drop_payload(payload);
    }
}

/// A distinct type for each `T::Pointer` and `ID`.
pub(super) fn kind<T: TaskItem<ID>, const ID: u64>() -> TypeId {
    struct Kind<P, const ID: u64>(PhantomData<P>);
    TypeId::of::<Kind<T::Pointer, ID>>()
}

pub(super) fn container<T: HasTaskWork<ID>, const ID: u64>(work: NonNull<RawWork>) -> NonNull<T> {
    // SAFETY: the work is the field of a `T` at this offset (`HasTaskWork`).
    unsafe { embedded::container(work, T::OFFSET) }
}

pub(super) fn field<T: HasTaskWork<ID>, const ID: u64>(value: NonNull<T>) -> NonNull<RawWork> {
    // SAFETY: as above.
    unsafe { embedded::field(value, T::OFFSET) }
}

impl<T: TaskItem<ID>, const ID: u64> Default for TaskWork<T, ID> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: TaskItem<ID>, const ID: u64> TaskWork<T, ID> {
    /// An idle item.
    pub const fn new() -> TaskWork<T, ID> {
        TaskWork {
            raw: RawWork::new(Calls::<T, ID>::TABLE),
            marker: PhantomData,
            pinned: PhantomPinned,
        }
    }
}

impl<T, const ID: u64> TaskWork<T, ID> {
    /// Whether the item was added and neither runs nor was taken back. The answer may be out of
    /// date on return.
    pub fn is_pending(&self) -> bool {
        self.raw.is_pending()
    }

    pub(super) fn raw(&self) -> NonNull<RawWork> {
        NonNull::from(&self.raw)
    }
}

impl<T, const ID: u64> fmt::Debug for TaskWork<T, ID> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskWork").field("pending", &self.is_pending()).finish()
    }
}
