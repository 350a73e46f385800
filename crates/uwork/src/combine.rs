//! Flat combining: of threads that want the same thing, for example to send on one connection, one does it for all.
//!
//! A [`Combiner`] holds what only one may use at a time. Whoever [`submit`](Combiner::submit)s a parcel while
//! nobody is at it becomes the *holder*, and does the work for its own parcel and all that come meanwhile, in
//! order; the others leave theirs and go. Where a mutex makes each thread wait and wakes each, this makes one call
//! for many parcels and wakes nobody.
//!
//! ```
//! use std::io::Write;
//! use std::ops::ControlFlow;
//! use uwork::combine::{Batch, Combined, Combiner, Parcel};
//!
//! let connection = Combiner::new(Vec::<u8>::new());
//! let send = |connection: &mut Vec<u8>, batch: &mut Batch<'_, &'static str>| {
//!     while let Some(text) = batch.pop() {
//!         connection.extend_from_slice(text.as_bytes());
//!     }
//!     ControlFlow::Continue(())
//! };
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| connection.submit(Parcel::new("ping "), send));
//!     }
//! });
//! assert_eq!(connection.into_inner(), b"ping ping ping ping ");
//! ```
//!
//! # What is promised
//!
//! - **Order.** Parcels are handled in the order of their submissions.
//! - **Progress.** A submission that does not make the caller the holder is lock-free: one exchange, and it waits for
//!   nobody, though the holder be preempted. Every parcel is handled by the holder of that time, or stays for the
//!   next.
//! - **Nobody works for all for long.** After 16 batches, and again after each 16, the holder offers its place to
//!   whoever submits next, and goes on only if nobody does. It can end its work earlier by `Break`; then somebody
//!   [`resume`](Combiner::resume)s, for example a work item.
//! - **Nothing is allocated.** A parcel is a box that goes around; a [`Pool`](crate::recycle::Pool) keeps the empty
//!   ones.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Deref, DerefMut};

use uwork_engine::combine::{Combine, CombineChain, CombineNode};

/// A value on its way to the holder.
#[repr(C)]
pub struct Parcel<T> {
    /// First, so that its address is that of the parcel.
    node: CombineNode,
    value: T,
}

// SAFETY: the node is touched only by whoever has the parcel.
unsafe impl<T: Send> Send for Parcel<T> {}

impl<T> Parcel<T> {
    /// A parcel, in a box of its own.
    pub fn new(value: T) -> Box<Parcel<T>> {
        Box::new(Parcel { node: CombineNode::default(), value })
    }

    /// What is in it.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> Deref for Parcel<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Parcel<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Parcel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Parcel").field(&self.value).finish()
    }
}

/// The parcels that the holder has, first come first.
pub struct Batch<'a, T> {
    chain: &'a mut CombineChain,
    parcels: PhantomData<Box<Parcel<T>>>,
}

impl<T> Batch<'_, T> {
    /// Takes the first parcel.
    pub fn pop(&mut self) -> Option<Box<Parcel<T>>> {
        let node = self.chain.pop();
        // SAFETY: a box that `submit` has given up, of this type, taken once.
        (!node.is_null()).then(|| unsafe { Box::from_raw(node.cast::<Parcel<T>>()) })
    }

    /// The first value, left where it is.
    pub fn first_mut(&mut self) -> Option<&mut T> {
        let parcel: *mut Parcel<T> = self.chain.first().cast();
        // SAFETY: null, or a parcel of this chain, which is ours as long as the batch.
        unsafe { parcel.as_mut() }.map(|parcel| &mut parcel.value)
    }

    /// The values, first come first, left where they are: to send many by one call, for example.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let mut at = self.chain.first();
        std::iter::from_fn(move || {
            if at.is_null() {
                return None;
            }
            // SAFETY: a parcel of this chain, which does not change while the batch is borrowed.
            let parcel = unsafe { &*at.cast::<Parcel<T>>() };
            // SAFETY: as above.
            at = unsafe { self.chain.after(at) };
            Some(&parcel.value)
        })
    }

    /// Whether no parcel is left.
    pub fn is_empty(&self) -> bool {
        self.chain.first().is_null()
    }
}

impl<T> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("is_empty", &self.is_empty()).finish()
    }
}

/// So many batches the holder handles before it offers its place to those who submit.
const ROUNDS_MAX: u32 = 16;
/// For so many looks. About a microsecond.
const OFFER_SPINS: u32 = 32;
/// One offer in so many is for a turn on the CPU. Seldom: it may take long, and nobody works meanwhile if those who
/// submit wait for what is in the list.
const OFFERS_MAX: u32 = 32;

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combined {
    /// Somebody else is at it, or it is stalled: what is there was left to them. For [`Combiner::resume`] also: there
    /// was nothing to go on with.
    Left,
    /// The caller has handled everything that was there.
    Done,
    /// The caller could not go on (`Break`): everything stays until somebody resumes.
    Stalled,
}

/// What only one may use at a time, and the parcels that wait for it.
///
/// ```
/// use std::ops::ControlFlow;
/// use uwork::combine::{Batch, Combined, Combiner, Parcel};
///
/// /// A socket that takes so many messages before it is full.
/// struct Socket { sent: Vec<u32>, room: usize }
/// let send = |socket: &mut Socket, batch: &mut Batch<'_, u32>| {
///     while !batch.is_empty() {
///         if socket.room == 0 {
///             // Here one asks to be told of room; who learns of it resumes.
///             return ControlFlow::Break(());
///         }
///         socket.room -= 1;
///         socket.sent.extend(batch.pop().map(|parcel| parcel.into_inner()));
///     }
///     ControlFlow::Continue(())
/// };
/// let connection = Combiner::new(Socket { sent: Vec::new(), room: 1 });
/// assert_eq!(connection.submit(Parcel::new(1), send), Combined::Done);
/// assert_eq!(connection.submit(Parcel::new(2), send), Combined::Stalled);
/// assert_eq!(connection.submit(Parcel::new(3), send), Combined::Left);
/// assert!(connection.is_stalled());
/// let has_room = |socket: &mut Socket, batch: &mut Batch<'_, u32>| {
///     socket.room = 10;
///     send(socket, batch)
/// };
/// assert_eq!(connection.resume(has_room), Combined::Done);
/// assert_eq!(connection.into_inner().sent, [1, 2, 3]);
/// ```
pub struct Combiner<T, S> {
    list: Combine,
    /// Guard: the holder.
    held: UnsafeCell<Held<S>>,
    parcels: PhantomData<Box<Parcel<T>>>,
}

struct Held<S> {
    /// Older than what is in the list.
    chain: CombineChain,
    value: S,
}

// SAFETY: there is one holder at a time, and what it wrote is seen by the next.
unsafe impl<T: Send, S: Send> Sync for Combiner<T, S> {}
// SAFETY: as above; it goes with its parcels.
unsafe impl<T: Send, S: Send> Send for Combiner<T, S> {}

impl<T, S> Combiner<T, S> {
    /// Nothing to do yet.
    pub fn new(value: S) -> Combiner<T, S> {
        Combiner {
            list: Combine::new(),
            held: UnsafeCell::new(Held { chain: CombineChain::default(), value }),
            parcels: PhantomData,
        }
    }

    /// Leaves a parcel. If nobody is at it, `handle` is called here, with what is there, until nothing is left
    /// (`Continue`: it has taken at least one parcel) or it cannot go on (`Break`: what it has not taken stays, in
    /// order).
    ///
    /// After a `Break` nobody goes on until somebody calls [`resume`](Combiner::resume), which may be before
    /// `handle` has returned: then it is called again.
    ///
    /// All callers should give the same `handle`: any of them may get the others' parcels.
    ///
    /// A panic of `handle` goes through; what it has not taken stays, as after a `Break`: whoever catches it resumes.
    /// If a resume came meanwhile, whoever submits next goes on.
    pub fn submit(
        &self,
        parcel: Box<Parcel<T>>,
        handle: impl FnMut(&mut S, &mut Batch<'_, T>) -> ControlFlow<()>,
    ) -> Combined {
        // SAFETY: a live box, given up here.
        if unsafe { self.list.push(Box::into_raw(parcel).cast()) } {
            // SAFETY: the push says so.
            unsafe { self.hold(handle) }
        } else {
            Combined::Left
        }
    }

    /// Goes on after a `Break`: what stood in the way may be gone.
    pub fn resume(
        &self,
        handle: impl FnMut(&mut S, &mut Batch<'_, T>) -> ControlFlow<()>,
    ) -> Combined {
        if self.list.resume() {
            // SAFETY: the resume says so.
            unsafe { self.hold(handle) }
        } else {
            Combined::Left
        }
    }

    /// Whether it waits for a [`resume`](Combiner::resume). Out of date as soon as it is known.
    pub fn is_stalled(&self) -> bool {
        self.list.is_stalled()
    }

    /// # Safety
    /// The caller is the holder.
    unsafe fn hold(
        &self,
        mut handle: impl FnMut(&mut S, &mut Batch<'_, T>) -> ControlFlow<()>,
    ) -> Combined {
        /// Where `handle` unwinds: somebody else may go on.
        struct Unwinds<'a>(&'a Combine);
        impl Drop for Unwinds<'_> {
            fn drop(&mut self) {
                // SAFETY: the caller of `hold` is the holder.
                unsafe { self.0.abandon() };
            }
        }
        let unwinds = Unwinds(&self.list);
        let (mut round, mut offers) = (0, 0);
        let outcome = loop {
            if round == ROUNDS_MAX {
                // SAFETY: the caller is the holder, and is not if the offer was taken.
                unsafe { self.list.offer() };
                offers += 1;
                if offers % OFFERS_MAX == 0 {
                    // Those who submit may be waiting for this CPU.
                    std::thread::yield_now();
                } else {
                    // Time for one of those who submit now.
                    (0..OFFER_SPINS).for_each(|_| std::hint::spin_loop());
                }
                if !self.list.retake() {
                    break Combined::Left;
                }
                round = 0;
            }
            round += 1;
            // SAFETY: the holder's alone, until it offers or lets go.
            let held = unsafe { &mut *self.held.get() };
            // SAFETY: the caller is the holder, and these are this list's nodes.
            unsafe { self.list.take(&mut held.chain) };
            let flow = if held.chain.first().is_null() {
                ControlFlow::Continue(())
            } else {
                let mut batch = Batch { chain: &mut held.chain, parcels: PhantomData };
                handle(&mut held.value, &mut batch)
            };
            // SAFETY: the caller is the holder.
            if flow.is_break() && unsafe { self.list.stall() } {
                break Combined::Stalled;
            }
            // SAFETY: as above; nothing of its chain is left.
            let done = held.chain.first().is_null() && unsafe { self.list.release() };
            if done {
                break Combined::Done;
            }
        };
        std::mem::forget(unwinds);
        outcome
    }

    /// What is held, for who has the combiner to itself.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.held.get_mut().value
    }

    /// What is held. Parcels that are left are dropped.
    pub fn into_inner(mut self) -> S {
        self.clear();
        // SAFETY: `self` is forgotten right after, and its other fields own nothing any more.
        let value = unsafe { std::ptr::read(&raw const self.held.get_mut().value) };
        std::mem::forget(self);
        value
    }

    fn clear(&mut self) {
        let held = self.held.get_mut();
        // SAFETY: nobody else has the combiner.
        unsafe { self.list.take(&mut held.chain) };
        let mut batch = Batch::<T> { chain: &mut held.chain, parcels: PhantomData };
        while batch.pop().is_some() {}
    }
}

impl<T, S> Drop for Combiner<T, S> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<T, S> fmt::Debug for Combiner<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Combiner").field("stalled", &self.is_stalled()).finish_non_exhaustive()
    }
}
