//! Work items: handles that users embed in their own types, and one on the stack. Items that wait
//! for a grace period are in `rcu`.

mod delayed;
mod has_work;
mod methods;
mod on_stack;
mod work;

use std::fmt;
use std::ptr::NonNull;

use uwork_engine::{Action, ItemName, Work as RawWork, embedded};

use uwork_engine::WorkPointer;

pub(crate) use delayed::nanos;
pub use delayed::{DelayedWork, HasDelayedWork};
pub(crate) use methods::{embedded_methods, query_methods};
pub use on_stack::{StackWork, on_stack};
pub use work::Work;

/// A type with a [`Work`] field. Implement it with [`has_work!`](crate::has_work).
///
/// # Safety
/// At `OFFSET` in every value of the type is its `Work<Self, ID>`.
#[diagnostic::on_unimplemented(
    message = "no field of `{Self}` is declared as the work item of this number",
    label = "a line `uwork::has_work!(...)` for `{Self}` is missing",
    note = "for a field `work: uwork::Work<{Self}>` add the line: \
            uwork::has_work!(impl HasWork for {Self} {{ work }});",
    note = "for a field `work: uwork::DelayedWork<{Self}>` add the line: \
            uwork::has_work!(impl HasDelayedWork for {Self} {{ work }});",
    note = "an item with the number N is declared by `HasWork<N>`, and submitted by `enqueue::<_, N>`"
)]
pub unsafe trait HasWork<const ID: u64 = 0>: Sized {
    /// The field's offset in bytes.
    const OFFSET: usize;
}

/// The function of a work item.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no function for its work item",
    label = "`impl uwork::WorkItem for {Self}` is missing",
    note = "it names the pointer, for example `type Pointer = std::sync::Arc<Self>`, and the function \
            `fn run(this: Self::Pointer)`"
)]
pub trait WorkItem<const ID: u64 = 0>: HasWork<ID> {
    /// The pointer through which the item is queued, and which its run receives.
    type Pointer: WorkPointer<Target = Self>;

    /// Does the work. Never runs twice at once for one item.
    ///
    /// A panic ends the item, not the worker; it is counted and reported.
    fn run(this: Self::Pointer);
}

/// The item's disable depth would leave its range: too many disables, or an enable too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DisableDepthError(pub(crate) uwork_engine::DepthError);

impl fmt::Display for DisableDepthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for DisableDepthError {}

/// The outcome of queueing. An item that was not queued is returned.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "an item that was not queued is in here"]
pub enum Enqueued<P> {
    /// It will run.
    Queued,
    /// It was pending already: the coming run sees everything that the caller wrote before.
    Pending(P),
    /// It is disabled.
    Disabled(P),
    /// The queue drains or is destroyed, and the caller is not one of its items.
    Refused(P),
}

impl<P> Enqueued<P> {
    /// Whether this call queued the item.
    pub fn is_queued(&self) -> bool {
        matches!(self, Enqueued::Queued)
    }

    /// The item, if this call did not queue it.
    pub fn into_refused(self) -> Option<P> {
        match self {
            Enqueued::Queued => None,
            Enqueued::Pending(item) | Enqueued::Disabled(item) | Enqueued::Refused(item) => {
                Some(item)
            }
        }
    }
}

pub(crate) fn container<T: HasWork<ID>, const ID: u64>(work: NonNull<RawWork>) -> NonNull<T> {
    // SAFETY: the work is the field of a `T` at this offset (`HasWork`).
    unsafe { embedded::container(work, T::OFFSET) }
}

pub(crate) fn field<T: HasWork<ID>, const ID: u64>(value: NonNull<T>) -> NonNull<RawWork> {
    // SAFETY: as above.
    unsafe { embedded::field(value, T::OFFSET) }
}

/// The function that the engine calls for an item of `T`.
pub(crate) unsafe fn perform<T: WorkItem<ID>, const ID: u64>(
    work: NonNull<RawWork>,
    action: Action,
) {
    // SAFETY: the engine hands the pointer that `into_raw` gave at the submission back once.
    let pointer = || unsafe { T::Pointer::from_raw(container::<T, ID>(work)) };
    match action {
        Action::Run => T::run(pointer()),
        Action::Release => drop(pointer()),
        // SAFETY: the engine has asked for it.
        Action::Name => unsafe { ItemName::of_type::<T>(ID).report(work) },
    }
}
