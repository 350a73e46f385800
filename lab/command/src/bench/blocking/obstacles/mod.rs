//! The obstacles that items block on, and the thread that ends the blocks.
//!
//! Everything here lives until the process ends, because a process takes one sample.

mod fault;
mod mutex;
mod pipe;
mod releaser;

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use releaser::{Releaser, Step};

pub(super) use fault::check as check_faults;

/// A kind of blocking call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sleep,
    Pipe,
    Lock,
    Fault,
}

/// An obstacle with places to block on. Each place cycles through set up, block and release.
trait Obstacle: Send + Sync {
    /// Makes the place block again. Called by the releasing thread.
    fn set_up(&self, place: usize);

    /// Blocks until the place is released.
    fn block(&self, place: usize);

    /// Ends a block. Called by the releasing thread, once for each block.
    fn release(&self, place: usize);
}

/// The places of an obstacle. One item at a time uses each place.
struct Places {
    obstacle: Box<dyn Obstacle>,
    free: Mutex<Vec<usize>>,
}

impl Places {
    fn take(&self) -> usize {
        loop {
            let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
            match free {
                Some(place) => return place,
                // The releasing thread sets a place up soon; this needs no worker.
                None => thread::yield_now(),
            }
        }
    }

    fn put_back(&self, place: usize) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(place);
    }
}

/// The obstacles of all requested kinds.
pub(super) struct Obstacles {
    kinds: Vec<(Kind, &'static Places)>,
    releaser: &'static Releaser,
}

impl Obstacles {
    /// With enough places for `at_once` blocked items, and as many places again that are being set
    /// up.
    pub(super) fn new(kinds: &[Kind], at_once: usize) -> io::Result<Self> {
        let count = 2 * at_once;
        let releaser = Releaser::start()?;
        let mut made = Vec::new();
        for kind in kinds {
            let obstacle: Box<dyn Obstacle> = match kind {
                Kind::Sleep => continue,
                Kind::Pipe => Box::new(pipe::Pipes::new(count)?),
                Kind::Lock => Box::new(mutex::Mutexes::new(count)),
                Kind::Fault => Box::new(fault::Pages::new(count)?),
            };
            let places: &'static Places =
                Box::leak(Box::new(Places { obstacle, free: Mutex::new(Vec::new()) }));
            for place in 0..count {
                releaser.push(Instant::now(), places, place, Step::SetUp);
            }
            made.push((*kind, places));
        }
        Ok(Self { kinds: made, releaser })
    }

    /// Prepares a block that ends `length` from now or, for a sleep, `length` after it begins.
    pub(super) fn prepare(&self, kind: Kind, length: Duration) -> Block {
        let places = self.kinds.iter().find(|(known, _)| *known == kind);
        let place = places.map(|(_, places)| {
            let index = places.take();
            self.releaser.push(Instant::now() + length, places, index, Step::Release);
            Place { places, index, releaser: self.releaser }
        });
        Block { length, place }
    }

    /// Ends every prepared or current block, except sleeps.
    pub(super) fn end_all(&self) {
        self.releaser.hurry();
    }
}

/// A prepared block.
pub(super) struct Block {
    length: Duration,
    /// `None` for a sleep.
    place: Option<Place>,
}

struct Place {
    places: &'static Places,
    index: usize,
    releaser: &'static Releaser,
}

impl Block {
    /// Makes the blocking call. To be called once.
    pub(super) fn enter(&self) {
        match &self.place {
            None => thread::sleep(self.length),
            Some(place) => place.places.obstacle.block(place.index),
        }
    }

    /// Returns the place, after the block.
    pub(super) fn leave(self) {
        if let Some(Place { places, index, releaser }) = self.place {
            releaser.push(Instant::now(), places, index, Step::SetUp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_lasts_until_it_is_ended_and_its_place_can_be_reused() {
        let mut kinds = vec![Kind::Sleep, Kind::Pipe, Kind::Lock];
        kinds.extend(check_faults().is_ok().then_some(Kind::Fault));
        let obstacles = Obstacles::new(&kinds, 1).unwrap();
        let length = Duration::from_millis(2);
        for kind in kinds {
            for _ in 0..5 {
                // Before `prepare`, which starts the time.
                let start = Instant::now();
                let block = obstacles.prepare(kind, length);
                block.enter();
                assert!(start.elapsed() >= length, "{kind:?} blocks until then");
                block.leave();
            }
        }
    }

    #[test]
    fn blocks_can_be_ended_early() {
        let obstacles = Obstacles::new(&[Kind::Pipe, Kind::Lock], 1).unwrap();
        for kind in [Kind::Pipe, Kind::Lock] {
            // Without `end_all`, the block would outlast the test.
            let block = obstacles.prepare(kind, Duration::from_secs(3600));
            obstacles.end_all();
            block.enter();
            block.leave();
        }
    }
}
