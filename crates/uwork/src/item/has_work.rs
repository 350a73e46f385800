//! The macro that tells the library where an item lies in a user's type.

/// Implements [`HasWork`](crate::HasWork), [`HasDelayedWork`](crate::HasDelayedWork) or
/// `rcu::HasRcuWork` for a type with a field of that kind: a
/// [`Work`](crate::Work), a [`DelayedWork`](crate::DelayedWork) or an
/// `rcu::RcuWork`.
///
/// ```
/// struct Job { work: uwork::Work<Job> }
/// uwork::has_work!(impl HasWork for Job { work });
///
/// struct Timeout { work: uwork::DelayedWork<Timeout> }
/// uwork::has_work!(impl HasDelayedWork for Timeout { work });
///
/// struct Old { work: uwork::rcu::RcuWork<Old> }
/// uwork::has_work!(impl HasRcuWork for Old { work });
/// ```
///
/// The type may be generic, with the bounds of its definition. Several items of one type have
/// different numbers:
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// struct Outbox<T: Send + 'static> {
///     send: uwork::Work<Outbox<T>>,
///     retry: uwork::DelayedWork<Outbox<T>, 1>,
///     messages: Mutex<Vec<T>>,
/// }
/// uwork::has_work!(impl<T: Send + 'static> HasWork for Outbox<T> { send });
/// uwork::has_work!(impl<T: Send + 'static> HasDelayedWork<1> for Outbox<T> { retry });
///
/// impl<T: Send + 'static> uwork::WorkItem for Outbox<T> {
///     type Pointer = Arc<Outbox<T>>;
///     fn run(this: Arc<Outbox<T>>) {
///         this.messages.lock().unwrap().clear();
///     }
/// }
/// impl<T: Send + 'static> uwork::WorkItem<1> for Outbox<T> {
///     type Pointer = Arc<Outbox<T>>;
///     fn run(this: Arc<Outbox<T>>) {
///         let _ = uwork::system::percpu().enqueue::<_, 0>(this);
///     }
/// }
///
/// let outbox = Arc::new(Outbox {
///     send: uwork::Work::new(),
///     retry: uwork::DelayedWork::new(),
///     messages: Mutex::new(vec!["hello", "world"]),
/// });
/// let queue = uwork::Queue::builder("outbox").build()?;
/// assert!(queue.enqueue::<_, 0>(outbox.clone()).is_queued());
/// outbox.send.flush();
/// assert!(outbox.messages.lock().unwrap().is_empty());
/// # Ok::<(), uwork::Error>(())
/// ```
///
/// A field of another kind, or of another type, does not compile:
///
/// ```compile_fail
/// struct Timeout { work: uwork::Work<Timeout> }
/// uwork::has_work!(impl HasDelayedWork for Timeout { work });
/// ```
#[macro_export]
macro_rules! has_work {
    (impl $($rest:tt)+) => {
        $crate::__split_generics!([$crate::__has_work] impl $($rest)+);
    };
}

/// What [`has_work!`](crate::has_work) does, with the generic parameters in a list.
#[doc(hidden)]
#[macro_export]
macro_rules! __has_work {
    ($parameters:tt HasWork $(<$id:literal>)? for $type:ty { $field:ident }) => {
        $crate::__impl_offset! {
            $parameters $type { $field: $crate::Work<Self $(, $id)?> } $crate::HasWork $(<$id>)?
        }
    };
    ([$($parameter:tt)*] HasDelayedWork $(<$id:literal>)? for $type:ty { $field:ident }) => {
        $crate::__impl_offset! {
            [$($parameter)*] $type { $field: $crate::DelayedWork<Self $(, $id)?> }
            $crate::HasWork $(<$id>)?
        }
        // SAFETY: the field's type is checked above; a delayed work begins with its work.
        unsafe impl<$($parameter)*> $crate::HasDelayedWork $(<$id>)? for $type {}
    };
    ([$($parameter:tt)*] HasRcuWork $(<$id:literal>)? for $type:ty { $field:ident }) => {
        $crate::__impl_offset! {
            [$($parameter)*] $type { $field: $crate::rcu::RcuWork<Self $(, $id)?> }
            $crate::HasWork $(<$id>)?
        }
        // SAFETY: the field's type is checked above; an RCU work begins with its work.
        unsafe impl<$($parameter)*> $crate::rcu::HasRcuWork $(<$id>)? for $type {}
    };
}
