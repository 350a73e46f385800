//! The sending end of a connection with a dedicated receiver. The threads that execute its requests
//! send the replies themselves.
//!
//! The receiver lends the sink a round. Each thread submits its item to the sink's combiner when
//! the item is done. The thread that holds the combiner also takes what other threads have
//! submitted meanwhile. With the last item, the holder assembles and sends the replies, and that
//! item carries the round home. No thread waits for another. The receiver is woken only if it has
//! work to do; otherwise its next request wakes it soon enough.
//!
//! With [`Replies::Locked`] a lock takes the combiner's place, for comparison: each thread waits for
//! it and brings its own item.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::net::SendFlags;
use uwork::combine::{Combiner, Parcel};

use super::config::Replies;
use super::handover::Item;
use super::round::Round;
use super::shared::Shared;

/// A submission for the combiner's holder.
pub(crate) enum Left {
    Nothing,
    Round(Box<Round>),
    Item(Item),
}

/// A parcel travels with a round or an item, so that the next submission reuses it.
pub(crate) type Leaving = Box<Parcel<Left>>;

/// See the module.
pub(crate) struct Sink {
    meeting: Meeting,
    /// Whether the receiver has work to do once the round is back.
    waits: AtomicBool,
}

/// Where the round and its items meet.
enum Meeting {
    Combined(Combiner<Left, Outlet>),
    Locked(Mutex<Outlet>),
}

struct Outlet {
    socket: Arc<OwnedFd>,
    /// The lent round.
    round: Option<Box<Round>>,
}

impl Sink {
    pub(crate) fn new(socket: Arc<OwnedFd>, replies: Replies) -> Arc<Self> {
        let outlet = Outlet { socket, round: None };
        let meeting = match replies {
            Replies::Locked => Meeting::Locked(Mutex::new(outlet)),
            Replies::Combined | Replies::Returned => Meeting::Combined(Combiner::new(outlet)),
        };
        Arc::new(Self { meeting, waits: AtomicBool::new(false) })
    }

    /// Lends a round, before any of its items is in flight.
    pub(crate) fn lend(&self, shared: &Shared, mut round: Box<Round>) {
        self.waits.store(false, Ordering::Relaxed);
        let parcel = round.parcel.take();
        self.leave(shared, parcel, Left::Round(round));
    }

    /// Takes a finished item.
    pub(crate) fn give_back(&self, shared: &Shared, mut item: Item) {
        let parcel = item.as_mut().body().parcel.take();
        self.leave(shared, parcel, Left::Item(item));
    }

    /// Requests a notification when the round is back. The receiver must check its inbox once more
    /// after this call.
    pub(crate) fn wait_for(&self) {
        self.waits.store(true, Ordering::Relaxed);
        // Pairs with the fence in `finish`: either the receiver's next check finds the round in the
        // inbox, or `finish` reads `waits` as set and wakes the receiver.
        fence(Ordering::SeqCst);
    }

    fn leave(&self, shared: &Shared, parcel: Option<Leaving>, left: Left) {
        let combiner = match &self.meeting {
            Meeting::Combined(combiner) => combiner,
            Meeting::Locked(outlet) => {
                // After a panic the server ends, whatever the outlet holds.
                let mut outlet = outlet.lock().unwrap_or_else(PoisonError::into_inner);
                return self.take(shared, &mut outlet, left, None);
            }
        };
        let mut parcel = parcel.unwrap_or_else(|| Parcel::new(Left::Nothing));
        **parcel = left;
        // It makes no difference which thread processes the parcels.
        let _ = combiner.submit(parcel, |outlet, parcels| {
            while let Some(mut parcel) = parcels.pop() {
                let left = std::mem::replace(&mut **parcel, Left::Nothing);
                self.take(shared, outlet, left, Some(parcel));
            }
            ControlFlow::Continue(())
        });
    }

    /// Takes a submission, which keeps its parcel.
    fn take(&self, shared: &Shared, outlet: &mut Outlet, left: Left, parcel: Option<Leaving>) {
        match left {
            Left::Nothing => {}
            Left::Round(mut round) => {
                round.parcel = parcel;
                outlet.round = Some(round);
            }
            Left::Item(mut item) => {
                item.as_mut().body().parcel = parcel;
                self.collect(shared, outlet, item);
            }
        }
    }

    fn collect(&self, shared: &Shared, outlet: &mut Outlet, mut item: Item) {
        // The round was submitted before its items were sent, so it is here first.
        let Some(round) = &mut outlet.round else { return };
        round.out -= 1;
        if round.out > 0 {
            let place = item.as_mut().body().place;
            round.items[place] = Some(item);
        } else if let Some(round) = outlet.round.take() {
            self.finish(shared, &outlet.socket, round, item);
        }
    }

    /// Sends the replies of the round, and the round home with its last item.
    fn finish(&self, shared: &Shared, socket: &OwnedFd, mut round: Box<Round>, mut item: Item) {
        let body = item.as_mut().body();
        let (home, place) = (body.home, body.place);
        round.items[place] = Some(item);
        round.send(|bytes| {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // The receiver sends the rest, and handles an error.
            rustix::net::send(socket, bytes, flags).unwrap_or(0)
        });
        let is_all = round.unsent().is_empty() && !round.has_failed;
        let Some(mut item) = round.items[place].take() else { return };
        item.as_mut().body().round = Some(round);
        if !is_all || self.waits.load(Ordering::Relaxed) {
            return shared.hand_over(home, item);
        }
        shared.hand_over_quietly(home, item);
        // Pairs with the fence in `wait_for`.
        fence(Ordering::SeqCst);
        if self.waits.load(Ordering::Relaxed) {
            shared.posts[home].wake();
        }
    }
}
