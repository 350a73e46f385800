//! Pipes that are empty until another thread writes to them.

use std::io::{self, PipeReader, PipeWriter, Read, Write};

use super::Obstacle;

pub(super) struct Pipes(Vec<(PipeReader, PipeWriter)>);

impl Pipes {
    pub(super) fn new(count: usize) -> io::Result<Self> {
        (0..count).map(|_| io::pipe()).collect::<io::Result<_>>().map(Self)
    }
}

impl Obstacle for Pipes {
    /// Nothing to do: the pipe is empty after each read.
    fn set_up(&self, _place: usize) {}

    fn block(&self, place: usize) {
        (&self.0[place].0).read_exact(&mut [0]).expect("the pipe has a writer");
    }

    fn release(&self, place: usize) {
        (&self.0[place].1).write_all(&[1]).expect("the pipe has a reader and room");
    }
}
