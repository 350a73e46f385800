//! What items block in, and the thread that ends it.
//!
//! All of it lasts until the process ends: a process takes one sample.

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

/// Something with places to block in. A place goes round: set up, blocked in, released.
trait Obstacle: Send + Sync {
    /// Makes the place one that blocks. Called by the releasing thread.
    fn set_up(&self, place: usize);

    /// Blocks until the place is released.
    fn block(&self, place: usize);

    /// Called by the releasing thread, once for each block.
    fn release(&self, place: usize);
}

/// An obstacle's places, of which each is used by one item at a time.
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
                // The releasing thread sets one up, which takes no worker.
                None => thread::yield_now(),
            }
        }
    }

    fn put_back(&self, place: usize) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(place);
    }
}

/// Obstacles of each kind asked for.
pub(super) struct Obstacles {
    kinds: Vec<(Kind, &'static Places)>,
    releaser: &'static Releaser,
}

impl Obstacles {
    /// With enough places for `at_once` items, and as many on their way back.
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

    /// A block that ends `length` after now, or, if it is a sleep, after it begins.
    pub(super) fn prepare(&self, kind: Kind, length: Duration) -> Block {
        let places = self.kinds.iter().find(|(known, _)| *known == kind);
        let place = places.map(|(_, places)| {
            let index = places.take();
            self.releaser.push(Instant::now() + length, places, index, Step::Release);
            Place { places, index, releaser: self.releaser }
        });
        Block { length, place }
    }

    /// Ends every block that is prepared or under way; a sleep goes on.
    pub(super) fn end_all(&self) {
        self.releaser.hurry();
    }
}

/// A block to come.
pub(super) struct Block {
    length: Duration,
    /// None for a sleep.
    place: Option<Place>,
}

struct Place {
    places: &'static Places,
    index: usize,
    releaser: &'static Releaser,
}

impl Block {
    /// The blocking call. Once.
    pub(super) fn enter(&self) {
        match &self.place {
            None => thread::sleep(self.length),
            Some(place) => place.places.obstacle.block(place.index),
        }
    }

    /// Gives the place back, after the block.
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
    fn a_block_of_each_kind_lasts_until_it_is_ended_and_its_place_blocks_again() {
        let mut kinds = vec![Kind::Sleep, Kind::Pipe, Kind::Lock];
        kinds.extend(check_faults().is_ok().then_some(Kind::Fault));
        let obstacles = Obstacles::new(&kinds, 1).unwrap();
        let length = Duration::from_millis(2);
        for kind in kinds {
            for _ in 0..5 {
                // Before `prepare`, from which on the time counts.
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
            // Only the end of the test's patience would end it otherwise.
            let block = obstacles.prepare(kind, Duration::from_secs(3600));
            obstacles.end_all();
            block.enter();
            block.leave();
        }
    }
}
