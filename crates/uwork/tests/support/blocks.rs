//! Obstacles in which items block, undeclared, until the test releases them.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::gate::Gate;

mod page;
mod pthread;

/// An obstacle with places, each for one item to block in.
pub(crate) trait Obstacle: Send + Sync {
    fn block(&self, place: usize);

    /// Releases the item that blocks in this place, now or later. Called once, by the thread that
    /// created the obstacle.
    fn release(&self, place: usize);
}

/// A new obstacle of each kind that this system has.
pub(crate) fn every_kind(places: usize) -> Vec<(&'static str, Arc<dyn Obstacle>)> {
    let mut all: Vec<(&'static str, Arc<dyn Obstacle>)> = vec![
        ("a pipe", Arc::new(pipes(places))),
        ("a pthread mutex", Arc::new(pthread::Mutexes::locked(places))),
        ("a futex", Arc::new(gates(places))),
    ];
    match page::Pages::missing(places) {
        Ok(pages) => all.push(("a page", Arc::new(pages))),
        Err(error) => eprintln!("no pages to block in: userfaultfd: {error}"),
    }
    all
}

pub(crate) struct Pipes(Vec<(PipeReader, PipeWriter)>);

pub(crate) fn pipes(places: usize) -> Pipes {
    Pipes((0..places).map(|_| std::io::pipe().expect("a pipe")).collect())
}

impl Obstacle for Pipes {
    fn block(&self, place: usize) {
        (&self.0[place].0).read_exact(&mut [0]).expect("the pipe has a writer");
    }

    fn release(&self, place: usize) {
        (&self.0[place].1).write_all(b"x").expect("the pipe has a reader and room");
    }
}

/// An obstacle that needs no files.
pub(crate) struct Gates(Vec<Gate>);

pub(crate) fn gates(places: usize) -> Gates {
    Gates((0..places).map(|_| Gate::new()).collect())
}

impl Obstacle for Gates {
    fn block(&self, place: usize) {
        self.0[place].wait();
    }

    fn release(&self, place: usize) {
        self.0[place].open();
    }
}

/// How long items compute that the watcher should first find running.
const COMPUTE: Duration = Duration::from_millis(1);

/// Gates before which items compute for a while, so that the watcher finds them running and
/// observes them.
pub(crate) struct ComputeFirst(Gates);

pub(crate) fn compute_first(places: usize) -> ComputeFirst {
    ComputeFirst(gates(places))
}

impl Obstacle for ComputeFirst {
    fn block(&self, place: usize) {
        compute(COMPUTE);
        self.0.block(place);
    }

    fn release(&self, place: usize) {
        self.0.release(place);
    }
}

/// Computes for `time`, or is preempted meanwhile.
pub(crate) fn compute(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
