//! Flat combining: of several threads that want the same operation, for example to send on one
//! connection, one thread does it for all.
//!
//! A [`Combiner`] guards a value that only one thread may use at a time. A thread that
//! [`submit`](Combiner::submit)s a parcel while the combiner is free becomes the *holder*. It
//! handles its own parcel and all that arrive meanwhile, in order; the other submitters leave their
//! parcels and return. A mutex would make each thread wait and wake each; a combiner makes one call
//! for many parcels and wakes no thread.
//!
//! ```
//! use std::io::Write;
//! use std::ops::ControlFlow;
//! use uwork::combine::{Combined, Combiner, Parcel, Parcels};
//!
//! let connection = Combiner::new(Vec::<u8>::new());
//! let send = |connection: &mut Vec<u8>, parcels: &mut Parcels<'_, &'static str>| {
//!     while let Some(text) = parcels.pop() {
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
//! # Guarantees
//!
//! - **Order.** Parcels are handled in the order of their submissions.
//! - **Progress.** A submission that does not make the caller the holder is lock-free: one
//!   exchange, and no wait, even if the holder is preempted. Every parcel is handled by the current
//!   holder, or stays for the next.
//! - **No thread works for the others for long.** After every 16 rounds, the holder offers its
//!   role to the next submitter, and continues only if none takes it. It can end its work earlier
//!   by `Break`; then another call must [`resume`](Combiner::resume), for example in a work item.
//! - **Nothing is allocated.** A parcel is a reusable box; a [`Pool`](crate::recycle::Pool) keeps
//!   the empty ones.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Deref, DerefMut};

use uwork_engine::combine::{Combine, CombineChain, CombineNode};

/// A value that is submitted to the holder.
#[repr(C)]
pub struct Parcel<T> {
    /// First, so that its address is that of the parcel.
    node: CombineNode,
    value: T,
}

// SAFETY: only the owner of the parcel accesses the node.
unsafe impl<T: Send> Send for Parcel<T> {}

impl<T> Parcel<T> {
    /// A parcel, in a box of its own.
    pub fn new(value: T) -> Box<Parcel<T>> {
        Box::new(Parcel { node: CombineNode::default(), value })
    }

    /// The value.
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

/// The parcels that the holder has taken, oldest first.
pub struct Parcels<'a, T> {
    chain: &'a mut CombineChain,
    /// Invariant in `T`, as a mutable reference to a collection is.
    parcels: PhantomData<&'a mut Box<Parcel<T>>>,
}

impl<T> Parcels<'_, T> {
    /// Takes the first parcel.
    pub fn pop(&mut self) -> Option<Box<Parcel<T>>> {
        let node = self.chain.pop();
        // SAFETY: a box of this type that `submit` converted to a pointer; `pop` returns it once.
        (!node.is_null()).then(|| unsafe { Box::from_raw(node.cast::<Parcel<T>>()) })
    }

    /// The first value, whose parcel stays.
    pub fn first_mut(&mut self) -> Option<&mut T> {
        let parcel: *mut Parcel<T> = self.chain.first().cast();
        // SAFETY: null, or a parcel of this chain, which this value owns.
        unsafe { parcel.as_mut() }.map(|parcel| &mut parcel.value)
    }

    /// The values, oldest first, whose parcels stay: to send many by one call, for example.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let mut at = self.chain.first();
        std::iter::from_fn(move || {
            if at.is_null() {
                return None;
            }
            // SAFETY: a parcel of this chain, which does not change while it is borrowed.
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

impl<T> fmt::Debug for Parcels<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcels").field("is_empty", &self.is_empty()).finish()
    }
}

/// The rounds that the holder makes before it offers its role to other submitters.
const ROUNDS_MAX: u32 = 16;
/// How long an offer stands, in spins: about a microsecond.
const OFFER_SPINS: u32 = 32;
/// At every `OFFERS_MAX`th offer, the holder yields its CPU instead of spinning. Rarely: a yield may take
/// long, and no parcel is handled meanwhile if the submitters wait for those in the list.
const OFFERS_MAX: u32 = 32;

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combined {
    /// Another thread is the holder, or the combiner is stalled: the parcels were left for a later
    /// holder. For [`Combiner::resume`] also: no parcel was left.
    Left,
    /// The caller has handled all parcels.
    Done,
    /// The caller could not continue (`Break`): the rest stays until a call to
    /// [`Combiner::resume`].
    Stalled,
}

/// A value that only one thread may use at a time, and the parcels that wait for it.
///
/// ```
/// use std::ops::ControlFlow;
/// use uwork::combine::{Combined, Combiner, Parcel, Parcels};
///
/// /// A socket that takes so many messages before it is full.
/// struct Socket { sent: Vec<u32>, room: usize }
/// let send = |socket: &mut Socket, parcels: &mut Parcels<'_, u32>| {
///     while !parcels.is_empty() {
///         if socket.room == 0 {
///             // A real program requests a notification of room here, and resumes on it.
///             return ControlFlow::Break(());
///         }
///         socket.room -= 1;
///         socket.sent.extend(parcels.pop().map(|parcel| parcel.into_inner()));
///     }
///     ControlFlow::Continue(())
/// };
/// let connection = Combiner::new(Socket { sent: Vec::new(), room: 1 });
/// assert_eq!(connection.submit(Parcel::new(1), send), Combined::Done);
/// assert_eq!(connection.submit(Parcel::new(2), send), Combined::Stalled);
/// assert_eq!(connection.submit(Parcel::new(3), send), Combined::Left);
/// assert!(connection.is_stalled());
/// let has_room = |socket: &mut Socket, parcels: &mut Parcels<'_, u32>| {
///     socket.room = 10;
///     send(socket, parcels)
/// };
/// assert_eq!(connection.resume(has_room), Combined::Done);
/// assert_eq!(connection.into_inner().sent, [1, 2, 3]);
/// ```
pub struct Combiner<T, S> {
    list: Combine,
    /// Guard: the holder.
    held: UnsafeCell<Held<S>>,
    /// Invariant in `T`: a shared reference both stores parcels and takes them out.
    parcels: PhantomData<fn(T) -> T>,
}

struct Held<S> {
    /// Parcels taken from the list, older than those in it.
    chain: CombineChain,
    value: S,
}

// SAFETY: there is one holder at a time, and its writes are visible to the next.
unsafe impl<T: Send, S: Send> Sync for Combiner<T, S> {}
// SAFETY: as above; the parcels move with it.
unsafe impl<T: Send, S: Send> Send for Combiner<T, S> {}

impl<T, S> Combiner<T, S> {
    /// A combiner for `value`, without parcels.
    pub fn new(value: S) -> Combiner<T, S> {
        Combiner {
            list: Combine::new(),
            held: UnsafeCell::new(Held { chain: CombineChain::default(), value }),
            parcels: PhantomData,
        }
    }

    /// Leaves a parcel. If there is no holder, the caller becomes it: `handle` is called here with
    /// the parcels, until none is left or it cannot continue. It returns `Continue` after it took
    /// at least one parcel, and `Break` if it cannot continue; the parcels that it has not taken
    /// stay, in order.
    ///
    /// After a `Break` no parcel is handled until a call to [`resume`](Combiner::resume). That may
    /// come before `handle` has returned: then `handle` is called again.
    ///
    /// All callers should pass the same `handle`: any of them may get the others' parcels.
    ///
    /// A panic of `handle` unwinds through this call. The parcels that it has not taken stay, as
    /// after a `Break`: the thread that catches the panic calls `resume`. If a `resume` came
    /// meanwhile, the next submitter continues.
    pub fn submit(
        &self,
        parcel: Box<Parcel<T>>,
        handle: impl FnMut(&mut S, &mut Parcels<'_, T>) -> ControlFlow<()>,
    ) -> Combined {
        // SAFETY: a live box, whose ownership passes to the list here.
        if unsafe { self.list.push(Box::into_raw(parcel).cast()) } {
            // SAFETY: `push` returned true: the caller is the holder.
            unsafe { self.hold(handle) }
        } else {
            Combined::Left
        }
    }

    /// Continues after a `Break`, when the obstacle may have been removed.
    pub fn resume(
        &self,
        handle: impl FnMut(&mut S, &mut Parcels<'_, T>) -> ControlFlow<()>,
    ) -> Combined {
        if self.list.resume() {
            // SAFETY: `resume` returned true: the caller is the holder.
            unsafe { self.hold(handle) }
        } else {
            Combined::Left
        }
    }

    /// Whether it waits for a [`resume`](Combiner::resume). The answer may be out of date on
    /// return.
    pub fn is_stalled(&self) -> bool {
        self.list.is_stalled()
    }

    /// # Safety
    /// The caller is the holder.
    unsafe fn hold(
        &self,
        mut handle: impl FnMut(&mut S, &mut Parcels<'_, T>) -> ControlFlow<()>,
    ) -> Combined {
        /// If `handle` unwinds: lets another thread become the holder.
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
                // SAFETY: the caller is the holder until another thread takes the offer.
                unsafe { self.list.offer() };
                offers += 1;
                if offers % OFFERS_MAX == 0 {
                    // Submitters may be waiting for this CPU.
                    std::thread::yield_now();
                } else {
                    // Leaves time for a concurrent submitter to take the role.
                    (0..OFFER_SPINS).for_each(|_| std::hint::spin_loop());
                }
                if !self.list.retake() {
                    break Combined::Left;
                }
                round = 0;
            }
            round += 1;
            // SAFETY: the holder alone has access, until it offers or releases its role.
            let held = unsafe { &mut *self.held.get() };
            // SAFETY: the caller is the holder, and these are this list's nodes.
            unsafe { self.list.take(&mut held.chain) };
            let flow = if held.chain.first().is_null() {
                ControlFlow::Continue(())
            } else {
                let mut parcels = Parcels { chain: &mut held.chain, parcels: PhantomData };
                handle(&mut held.value, &mut parcels)
            };
            // SAFETY: the caller is the holder.
            if flow.is_break() && unsafe { self.list.stall() } {
                break Combined::Stalled;
            }
            // SAFETY: as above; its chain is empty.
            let done = held.chain.first().is_null() && unsafe { self.list.release() };
            if done {
                break Combined::Done;
            }
        };
        std::mem::forget(unwinds);
        outcome
    }

    /// The value, for an exclusive owner of the combiner.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.held.get_mut().value
    }

    /// The value. Parcels that are left are dropped.
    pub fn into_inner(mut self) -> S {
        self.clear();
        // SAFETY: `self` is forgotten right after, and its other fields own nothing after `clear`.
        let value = unsafe { std::ptr::read(&raw const self.held.get_mut().value) };
        std::mem::forget(self);
        value
    }

    fn clear(&mut self) {
        let held = self.held.get_mut();
        // SAFETY: `&mut self`: no other thread uses the combiner.
        unsafe { self.list.take(&mut held.chain) };
        let mut parcels = Parcels::<T> { chain: &mut held.chain, parcels: PhantomData };
        while parcels.pop().is_some() {}
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
