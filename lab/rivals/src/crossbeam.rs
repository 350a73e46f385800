//! The usual hand-written pool: boxed closures, or references to items, sent through a crossbeam
//! channel to threads that call them.

use std::thread::{self, JoinHandle};

use crossbeam_channel::{Sender, unbounded};

use crate::jobs::Job;
use crate::load::{Pool, Producer};
use crate::progress::Progress;

/// Threads around one unbounded channel.
pub(crate) struct Crossbeam<M = Job> {
    /// `None` only while dropping: the workers end when all senders are dropped.
    sender: Option<Sender<M>>,
    workers: Vec<JoinHandle<()>>,
}

impl Crossbeam {
    /// For boxed closures.
    pub(crate) fn new(workers: usize) -> Self {
        Self::calling(workers, |job| job())
    }
}

impl<M: Send + 'static> Crossbeam<M> {
    /// The threads call `run` with each message.
    pub(crate) fn calling(workers: usize, run: fn(M)) -> Self {
        let (sender, receiver) = unbounded::<M>();
        let workers = (0..workers)
            .map(|_| {
                let receiver = receiver.clone();
                thread::spawn(move || receiver.iter().for_each(run))
            })
            .collect();
        Self { sender: Some(sender), workers }
    }

    pub(crate) fn sender(&self) -> &Sender<M> {
        self.sender.as_ref().expect("lives until the drop")
    }
}

impl<M> Drop for Crossbeam<M> {
    fn drop(&mut self) {
        self.sender = None;
        for worker in self.workers.drain(..) {
            worker.join().expect("the load's closures do not panic");
        }
    }
}

/// One producer.
pub(crate) struct Spawner<'a> {
    sender: &'a Sender<Job>,
    progress: &'static Progress,
}

impl Pool for Crossbeam {
    type Producer<'a> = Spawner<'a>;

    fn producer<'a>(&'a self, progress: &'static Progress, _outstanding: usize) -> Spawner<'a> {
        Spawner { sender: self.sender(), progress }
    }
}

impl Producer for Spawner<'_> {
    #[inline]
    unsafe fn submit(&mut self, _index: usize) {
        let progress = self.progress;
        self.sender
            .send(Box::new(move || progress.complete()))
            .expect("the workers hold the receiving end");
    }
}
