//! The sending end of a connection, for those who carry its requests out: with a dedicated receiver they send
//! the replies themselves.
//!
//! The receiver lends the sink a round, and each thread leaves its item there when it is done with it. Whoever
//! holds the combiner by then takes what the others have left, and goes on; with the last item the replies are put
//! together and sent. The round goes back with that item. Nobody waits for anybody, and the receiver is woken only
//! if it has something to do: the next request will wake it soon enough.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use rustix::net::SendFlags;
use uwork::combine::{Combiner, Parcel};

use super::handover::Item;
use super::round::Round;
use super::shared::Shared;

/// What is left for the holder.
pub(crate) enum Left {
    Nothing,
    Round(Box<Round>),
    Item(Item),
}

/// A parcel goes with a round or an item, for the next use.
pub(crate) type Leaving = Box<Parcel<Left>>;

/// See the module.
pub(crate) struct Sink {
    combiner: Combiner<Left, Outlet>,
    /// Whether the receiver has something to do once the round is back.
    waits: AtomicBool,
}

struct Outlet {
    socket: Arc<OwnedFd>,
    /// While it is lent.
    round: Option<Box<Round>>,
}

impl Sink {
    pub(crate) fn new(socket: Arc<OwnedFd>) -> Arc<Self> {
        let combiner = Combiner::new(Outlet { socket, round: None });
        Arc::new(Self { combiner, waits: AtomicBool::new(false) })
    }

    /// Takes a round, of which no item is under way yet.
    pub(crate) fn lend(&self, shared: &Shared, mut round: Box<Round>) {
        self.waits.store(false, Ordering::Relaxed);
        let parcel = round.parcel.take();
        self.leave(shared, parcel, Left::Round(round));
    }

    /// Takes an item that is done.
    pub(crate) fn give_back(&self, shared: &Shared, mut item: Item) {
        let parcel = item.as_mut().body().parcel.take();
        self.leave(shared, parcel, Left::Item(item));
    }

    /// The receiver has something to do once the round is back. It must look into its inbox once more after
    /// this.
    pub(crate) fn wait_for(&self) {
        self.waits.store(true, Ordering::Relaxed);
        // With that of `finish`: either the round is in the inbox by the next look, or `finish` sees the mark.
        fence(Ordering::SeqCst);
    }

    fn leave(&self, shared: &Shared, parcel: Option<Leaving>, left: Left) {
        let mut parcel = parcel.unwrap_or_else(|| Parcel::new(Left::Nothing));
        **parcel = left;
        // Whether it was this thread or another that went on makes no difference.
        let _ = self.combiner.submit(parcel, |outlet, batch| {
            while let Some(mut parcel) = batch.pop() {
                match std::mem::replace(&mut **parcel, Left::Nothing) {
                    Left::Nothing => {}
                    Left::Round(mut round) => {
                        round.parcel = Some(parcel);
                        outlet.round = Some(round);
                    }
                    Left::Item(mut item) => {
                        item.as_mut().body().parcel = Some(parcel);
                        self.collect(shared, outlet, item);
                    }
                }
            }
            ControlFlow::Continue(())
        });
    }

    fn collect(&self, shared: &Shared, outlet: &mut Outlet, mut item: Item) {
        // The round was left before its items went on their way.
        let Some(round) = &mut outlet.round else { return };
        round.out -= 1;
        if round.out > 0 {
            let place = item.as_mut().body().place;
            round.items[place] = Some(item);
        } else if let Some(round) = outlet.round.take() {
            self.finish(shared, &outlet.socket, round, item);
        }
    }

    /// Sends what the round has brought, and the round home with its last item.
    fn finish(&self, shared: &Shared, socket: &OwnedFd, mut round: Box<Round>, mut item: Item) {
        let body = item.as_mut().body();
        let (home, place) = (body.home, body.place);
        round.items[place] = Some(item);
        round.send(|bytes| {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            // What is left over is the receiver's, and so is an error.
            rustix::net::send(socket, bytes, flags).unwrap_or(0)
        });
        let is_all = round.unsent().is_empty() && !round.has_failed;
        let Some(mut item) = round.items[place].take() else { return };
        item.as_mut().body().round = Some(round);
        if !is_all || self.waits.load(Ordering::Relaxed) {
            return shared.hand_over(home, item);
        }
        shared.hand_over_quietly(home, item);
        // With that of `wait_for`.
        fence(Ordering::SeqCst);
        if self.waits.load(Ordering::Relaxed) {
            shared.posts[home].wake();
        }
    }
}
